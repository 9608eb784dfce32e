"""Signals inside acquire: an interrupted one leaves no key, another one goes on."""

from __future__ import annotations

import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from fastredlock import ReleaseStatus, Retry
from fastredlock.testing import LocalMasters
from tests.support.calls import connected, granted
from tests.support.fixtures import MakeLocks, Raw, blocking
from tests.support.interrupts import Interrupt, alarm, interrupt
from tests.support.keys import KEY, NOBODY, set_all, settled_values, values
from tests.support.masters import pause, resume
from tests.support.threads import later
from tests.support.waiters import begins_to_wait
from tests.support.waiting import wait_until


@pytest.mark.slow
def test_interrupt_when_a_round_is_open_then_leaves_no_key_anywhere(
    masters: LocalMasters, make_locks: MakeLocks, raw: Raw
) -> None:
    servers = [raw(url) for url in masters.urls]
    locks = connected(make_locks(masters.urls, ttl=60, round_timeout=0.3))
    pause(masters, 3)
    for delay_ms in range(1, 31):
        with pytest.raises(Interrupt), alarm(delay_ms / 1000, interrupt):
            locks.acquire(KEY)
    assert settled_values(servers[3:], NOBODY[3:]) == NOBODY[3:]
    resume(masters, 3)
    # An alarm just before the poll is seen after the round: a connection may be lost
    # by then, and its roll-back is sent on the next one, with other traffic.
    assert wait_until(lambda: locks.holders() and values(servers) == NOBODY)
    assert locks.acquire(KEY, timeout=10)


def test_interrupt_when_others_hold_it_then_leaves_their_keys_and_none_of_ours(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis]
) -> None:
    set_all(servers[:3], b"another")
    locks = connected(make_locks(urls, retry=Retry(delay=60)))
    with pytest.raises(Interrupt), alarm(0.1, interrupt):
        locks.acquire(KEY)
    wanted = [b"another"] * 3 + [None] * 2
    assert settled_values(servers, wanted) == wanted


def test_interrupt_when_connections_are_being_opened_then_leaves_no_key(
    masters: LocalMasters, make_locks: MakeLocks, raw: Raw
) -> None:
    servers = [raw(url) for url in masters.urls]
    pause(masters, 3)
    locks = make_locks(masters.urls, ttl=600, connect_timeout=20)
    with pytest.raises(Interrupt), alarm(0.05, interrupt):
        locks.acquire(KEY)
    resume(masters, 3)
    assert locks.acquire("next", timeout=10)
    assert settled_values(servers, NOBODY) == NOBODY


def test_lock_when_the_signal_handler_takes_another_then_both_are_held(
    masters: LocalMasters, make_locks: MakeLocks
) -> None:
    locks = connected(make_locks(masters.urls, ttl=60, round_timeout=10))
    pause(masters, 3)
    inner = []
    with (
        later(0.1, lambda: resume(masters, 3)),
        alarm(0.02, lambda: inner.append(granted(locks.acquire("in the handler")))),
    ):
        outer = granted(locks.acquire(KEY))
    assert inner[0].release() is ReleaseStatus.RELEASED
    assert outer.release() is ReleaseStatus.RELEASED


# "closed", and a state that the code rules out, are errors of our own making.
@pytest.mark.parametrize("kind", [ValueError, RuntimeError, RecursionError])
def test_lock_when_the_signal_handler_raises_then_its_error_comes_through(
    masters: LocalMasters, make_locks: MakeLocks, kind: type[Exception]
) -> None:
    locks = connected(make_locks(masters.urls, ttl=60, round_timeout=10))

    def fail() -> None:
        raise kind("from the handler")

    pause(masters, 3)
    with (
        later(0.1, lambda: resume(masters, 3)),
        pytest.raises(kind, match="from the handler") as raised,
        alarm(0.02, fail),
    ):
        locks.acquire(KEY)
    assert type(raised.value) is kind


@blocking
@pytest.mark.parametrize("is_leader", [True, False])
def test_signal_that_another_thread_gets_when_waiting_then_is_handled_soon(
    make_locks: MakeLocks, urls: list[str], is_leader: bool
) -> None:
    """Seen: a signal between two slices of a follower was handled after its wait."""
    holder, locks = connected(make_locks(urls)), connected(make_locks(urls))
    sent: list[float] = []

    def signal_this_thread() -> None:
        time.sleep(0.15)  # until the acquire waits
        sent.append(time.monotonic())
        signal.pthread_kill(threading.get_ident(), signal.SIGALRM)

    lease = granted(holder.acquire(KEY, ttl=30))
    before = signal.signal(signal.SIGALRM, lambda *_: interrupt())
    with ThreadPoolExecutor() as pool:
        try:
            if not is_leader:
                with begins_to_wait(locks):
                    pool.submit(locks.acquire, KEY, timeout=3)
            pool.submit(signal_this_thread)
            with pytest.raises(Interrupt):
                locks.acquire(KEY, timeout=3)
            assert time.monotonic() - sent[0] < 1
        finally:
            signal.signal(signal.SIGALRM, before)
            lease.release()
