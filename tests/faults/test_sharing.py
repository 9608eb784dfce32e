"""One FastRedlock and many: a thousand threads, one that closes, one that is ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from fastredlock import FastRedlock, FastRedlockError
from fastredlock import _core as core
from fastredlock._core import Verdict
from fastredlock.testing import LocalMasters
from tests.support.calls import granted
from tests.support.fixtures import MakeLocks, Servers, blocking
from tests.support.keys import KEY, set_all
from tests.support.masters import pause, resume
from tests.support.proxy import Proxy, set_each
from tests.support.threads import alarm, beside
from tests.support.waiting import SLACK, stopwatch, wait_until

Waiting = tuple[list[Future[object]], list[int]]


@contextmanager
def waiting(locks: FastRedlock, rounds: int, count: int = 1) -> Iterator[Waiting]:
    """Let threads wait for KEY, until they have begun so many rounds.

    Yield their futures, and the threads' numbers.
    """
    numbers: list[int] = []

    def wait() -> object:
        numbers.append(threading.get_ident())
        return locks.acquire(KEY)

    before = locks.stats().rounds
    with ThreadPoolExecutor(count) as pool:
        waiters: list[Future[object]] = [pool.submit(wait) for _ in range(count)]
        assert wait_until(lambda: locks.stats().rounds >= before + rounds)
        yield waiters, numbers


def test_close_when_another_thread_waits_for_a_taken_lock_then_it_says_closed(
    make_locks: MakeLocks, urls: list[str], servers: Servers
) -> None:
    set_all(servers, b"theirs")
    locks = make_locks(urls)
    with waiting(locks, rounds=3) as ((waiter,), _):
        locks.close()
        assert str(waiter.exception(5)) == "this FastRedlock is closed"


def test_follower_when_its_round_ends_at_once_then_it_does_not_wait_for_the_leader(
    make_locks: MakeLocks, masters: LocalMasters
) -> None:
    """Seen: a keeper's renewal of a lease that was released slept as the leader did."""
    locks = make_locks(masters.urls, round_timeout=2)
    engine, terms = locks._driver.engine, locks._driver.settings.default_terms
    lease = granted(locks.acquire(KEY))
    lease.release()
    pause(masters, 5)
    with beside(lambda: locks.acquire("other", timeout=0)):
        assert wait_until(lambda: engine.counters.rounds == 3)  # that one leads...
        for _ in range(5):
            time.sleep(0.05)  # ...and is in its poll
            renewal = engine.new_extension(lease._round, terms)
            with stopwatch() as elapsed:
                core.blocking_run(engine, renewal)
                assert (renewal.verdict, elapsed() < 0.9) == (Verdict.UNREACHABLE, True)
        resume(masters, 5)


@pytest.mark.slow
@blocking
def test_deadline_when_signals_interrupt_every_wait_then_holds(
    proxies: list[Proxy], proxied: MakeLocks
) -> None:
    locks = proxied(round_timeout=0.2)
    set_each(proxies, holds_down=True)
    calls: list[int] = []
    with alarm(0.002, lambda: calls.append(1), every=0.002):
        with stopwatch() as elapsed, pytest.raises(FastRedlockError):
            locks.acquire("r", timeout=0)
        assert 0.2 <= elapsed() < 0.2 + SLACK
    assert len(calls) > 20
