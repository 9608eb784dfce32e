"""A thread that is alone waits for a reply alone at first: what it must not miss.

Over one master, in recv(2), on a socket that blocks; for a few ms, once for each round,
and only where no other thread came lately.
"""

from __future__ import annotations

import os
import resource
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from urllib.parse import urlsplit

import pytest
import redis

from fastredlock import FastRedlock, FastRedlockError, Lease
from fastredlock.testing import LocalMasters
from tests.support.calls import connected, granted
from tests.support.fixtures import MakeLocks, blocking
from tests.support.interrupts import Interrupt, alarm, interrupt
from tests.support.keys import KEY, values
from tests.support.masters import pause, resume
from tests.support.proxy import Proxy
from tests.support.waiting import SLACK, stopwatch, wait_until

pytestmark = blocking

# One master, and three, where it never does.
some_masters = pytest.mark.parametrize("count", [1, 3])


# So many masters; returns a FastRedlock of their proxies, by which one thread took and
# released before, and these.
Alone = Callable[[int], tuple[FastRedlock, list[Proxy]]]


@pytest.fixture
def alone(proxies: list[Proxy], make_locks: MakeLocks) -> Alone:
    def make(count: int) -> tuple[FastRedlock, list[Proxy]]:
        between = proxies[:count]
        locks = make_locks([proxy.url for proxy in between], round_timeout=10)
        granted(connected(locks).acquire("before")).release()
        return locks, between

    return make


@pytest.fixture
def unanswered(alone: Alone) -> Alone:
    """As `alone`; from now on no reply comes through."""

    def make(count: int) -> tuple[FastRedlock, list[Proxy]]:
        locks, between = alone(count)
        for proxy in between:
            proxy.set(holds_down=True)
        return locks, between

    return make


@some_masters
@pytest.mark.parametrize("delay", [0.001, 0.3])
def test_alone_when_a_second_thread_comes_then_its_command_is_sent_at_once(
    unanswered: Alone, servers: list[redis.Redis], count: int, delay: float
) -> None:
    # The first ms of the wait, in which nobody wakes the leader; and long after them.
    locks, between = unanswered(count)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(locks.acquire, KEY, timeout=9)
        assert wait_until(lambda: None not in values(servers[:count]))
        time.sleep(delay)
        second = threads.submit(locks.acquire, "second", timeout=9)
        with stopwatch() as elapsed:
            assert wait_until(lambda: None not in values(servers[:count], "second"))
            assert elapsed() < 0.02 + SLACK
        for proxy in between:
            proxy.heal()
        leases: list[Lease | None] = [first.result(), second.result()]
    assert all(granted(lease).is_valid for lease in leases)


@some_masters
@pytest.mark.parametrize("delay", [0.002, 0.1])
def test_alone_when_a_signal_comes_then_it_ends_the_wait(
    unanswered: Alone, servers: list[redis.Redis], count: int, delay: float
) -> None:
    # The replies of its undo are waited for, for a second at most.
    locks, _ = unanswered(count)
    with stopwatch() as elapsed:
        with pytest.raises(Interrupt), alarm(delay, interrupt):
            locks.acquire(KEY, timeout=9)
        assert elapsed() < delay + 1 + SLACK
    assert wait_until(lambda: values(servers[:count]) == [None] * count)


@some_masters
def test_alone_when_it_waits_for_long_then_it_sleeps(
    alone: Alone, make_locks: MakeLocks, count: int
) -> None:
    # A few ms once, not again and again: that took 118 to 207 switches a second, and
    # each call of another thread had to wait for the end of one.
    locks, between = alone(count)
    holder = connected(make_locks([proxy.url for proxy in between]))
    lease = granted(holder.acquire(KEY, ttl=60))
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
    assert locks.acquire(KEY, timeout=2) is None
    # Mostly 50; a proxy's thread that has the GIL makes one more.
    assert resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - before < 120
    lease.release()


@some_masters
def test_alone_when_no_reply_comes_then_the_deadline_holds(
    unanswered: Alone, count: int
) -> None:
    locks, _ = unanswered(count)
    for timeout in (0.02, 0.06, 0.3):
        with stopwatch() as elapsed:
            with pytest.raises(FastRedlockError):
                locks.acquire(f"r{timeout}", timeout=timeout)
            assert timeout <= elapsed() < timeout + 0.15 + SLACK


@pytest.mark.slow
def test_alone_when_the_only_server_reads_nothing_then_no_write_waits_for_it(
    masters: LocalMasters, make_locks: MakeLocks
) -> None:
    # After a wait in recv(2) the socket is one that blocks.
    locks = connected(make_locks(masters.urls[:1], round_timeout=0.3))
    granted(locks.acquire("before")).release()
    assert shrink_buffers(urlsplit(masters.urls[0]).port) == 1
    pause(masters, 1)
    try:
        with stopwatch() as elapsed:
            with pytest.raises(FastRedlockError):
                locks.acquire_each([f"{i}" + "x" * 4000 for i in range(4000)])
            assert elapsed() < 5
    finally:
        resume(masters, 1)


def shrink_buffers(port: int | None) -> int:
    """Let the sockets of this process to a port take little; return how many."""
    count = 0
    for fd in os.listdir("/proc/self/fd"):
        with suppress(OSError), socket.socket(fileno=os.dup(int(fd))) as found:
            if found.family == socket.AF_INET and found.getpeername()[1] == port:
                found.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
                count += 1
    return count
