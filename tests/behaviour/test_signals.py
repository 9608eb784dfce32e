"""Signals inside acquire: an interrupted one leaves no key, another one goes on."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

import pytest
import redis

import fastredlock
from fastredlock import FastRedlock, ReleaseStatus, Retry
from fastredlock.testing import LocalMasters
from tests.support.calls import connected, granted
from tests.support.fixtures import MakeLocks, Raw, blocking
from tests.support.interrupts import Interrupt, alarm, interrupt
from tests.support.keys import KEY, NOBODY, set_all, settled_values, values
from tests.support.masters import pause, resume
from tests.support.threads import later
from tests.support.waiters import begins_to_wait
from tests.support.waiting import wait_until

PACKAGE = os.path.dirname(fastredlock.__file__)


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


def test_sigint_when_it_comes_from_outside_then_leaves_no_key(
    masters: LocalMasters, make_locks: MakeLocks, raw: Raw
) -> None:
    locks = connected(make_locks(masters.urls, ttl=60, round_timeout=10))
    pause(masters, 3)
    send = lambda: os.kill(os.getpid(), signal.SIGINT)  # noqa: E731
    with pytest.raises(KeyboardInterrupt), later(0.05, send):
        locks.acquire(KEY)
    servers = [raw(url) for url in masters.urls[3:]]
    assert settled_values(servers, NOBODY[3:]) == NOBODY[3:]


def test_lock_when_the_signal_handler_returns_then_acquire_goes_on(
    masters: LocalMasters, make_locks: MakeLocks
) -> None:
    locks = connected(make_locks(masters.urls, ttl=60, round_timeout=10))
    pause(masters, 3)
    rung = []
    with later(0.1, lambda: resume(masters, 3)), alarm(0.02, lambda: rung.append(1)):
        lease = granted(locks.acquire(KEY))
    assert rung
    assert lease.release() is ReleaseStatus.RELEASED


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


def delete_all(servers: list[redis.Redis]) -> int:
    """Count the keys that are left, and delete them."""
    return sum(server.delete(KEY) for server in servers)


class InterruptAtLine:
    """Raise KeyboardInterrupt at the n-th line that the package runs."""

    def __init__(self, n: int) -> None:
        self.left = n
        self.where = ""

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if event == "line":
            self.left -= 1
            if self.left == 0:
                self.where = f"{frame.f_code.co_name}:{frame.f_lineno}"
                raise KeyboardInterrupt
        return self

    def interrupts(self, call: Callable[[], object]) -> bool:
        before = sys.gettrace()
        sys.settrace(self)
        try:
            call()
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(before)
        return False


@pytest.mark.slow
@blocking  # that a task is cancelled at any step: test_cancellation
@pytest.mark.parametrize(
    "take",
    [
        lambda locks: locks.acquire(KEY),
        lambda locks: locks.lock(KEY).__enter__(),
    ],
    ids=["acquire", "lock"],
)
def test_interrupt_when_it_comes_at_any_line_then_leaves_no_key(
    locks: FastRedlock,
    servers: list[redis.Redis],
    take: Callable[[FastRedlock], object],
) -> None:
    left_at = []
    for n in range(1, 1000):
        at = InterruptAtLine(n)
        if not at.interrupts(lambda: take(locks)):
            break
        locks.holders(KEY)  # answered after the roll-back
        if delete_all(servers):
            left_at.append(at.where)
    assert n > 4  # its lines of Python: most of it is one call of the core
    assert left_at == []


@pytest.mark.slow
@blocking
def test_waiters_when_a_handler_raises_in_another_thread_then_all_end_in_time(
    make_locks: MakeLocks, urls: list[str]
) -> None:
    locks = connected(make_locks(urls, ttl=60))
    ended = time.monotonic() + 3
    is_armed = [False]
    waits: list[float] = []

    def on_alarm() -> None:
        if is_armed[0]:
            is_armed[0] = False
            raise Interrupt

    def work() -> None:
        while time.monotonic() < ended:
            began = time.monotonic()
            lease = locks.acquire(KEY, timeout=1)
            waits.append(time.monotonic() - began)
            if lease:
                lease.release()

    threads = [threading.Thread(target=work, daemon=True) for _ in range(6)]
    for thread in threads:
        thread.start()
    interrupts = 0
    with alarm(0.0005, on_alarm, every=0.0007):
        while time.monotonic() < ended:
            try:
                is_armed[0] = True
                with locks.lock(KEY, timeout=1):
                    is_armed[0] = False
            except Interrupt:
                interrupts += 1
    for thread in threads:
        thread.join(5)
    assert interrupts > 100
    assert [thread for thread in threads if thread.is_alive()] == []
    assert max(waits) < 3


@blocking
@pytest.mark.parametrize("is_leader", [True, False])
def test_signal_that_another_thread_gets_when_waiting_then_is_handled_soon(
    make_locks: MakeLocks, urls: list[str], is_leader: bool
) -> None:
    """Seen: a signal between two slices of a follower was handled after its wait."""
    holder, locks = connected(make_locks(urls)), connected(make_locks(urls))
    sent: list[float] = []

    def signal_this_thread() -> None:
        time.sleep(0.15)
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
