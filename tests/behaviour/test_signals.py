"""Signals inside calls, and forks: neither leaves a key that another must have."""

from __future__ import annotations

import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from fastredlock import FastRedlock, Lease, LeaseLostError, ReleaseStatus
from fastredlock.testing import LocalMasters
from tests.support.calls import connected, granted
from tests.support.fixtures import MakeLocks, Raw, Servers, blocking
from tests.support.keys import KEY, NOBODY, settled_values, values
from tests.support.masters import pause, resume
from tests.support.processes import Fork
from tests.support.threads import Interrupt, alarm, interrupt, later
from tests.support.waiters import begins_to_wait, counter
from tests.support.waiting import settled, wait_until


@pytest.mark.slow
def test_interrupt_when_a_round_is_open_then_leaves_no_key_anywhere(
    masters: LocalMasters, make_locks: MakeLocks, raw: Raw
) -> None:
    servers = [raw(url) for url in masters.urls]
    # No round ends before its alarm, however late that one is; and silence that is long
    # for round trips that are known ends the wait for the roll-backs.
    locks = connected(make_locks(masters.urls, ttl=60, round_timeout=10))
    granted(locks.acquire("known")).release()
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
@pytest.mark.parametrize("role", ["leads", "leads behind others", "follows"])
def test_signal_that_another_thread_gets_when_waiting_then_is_handled_soon(
    make_locks: MakeLocks, urls: list[str], role: str
) -> None:
    """Seen: a signal between two slices of a follower was handled after its wait.

    Behind others, which try first, no round of its own ends before 1.2 s.
    """
    others = [connected(make_locks(urls)) for _ in range(3 * ("behind" in role))]
    holder, locks = connected(make_locks(urls)), connected(make_locks(urls))
    sent: list[float] = []

    def signal_this_thread() -> None:
        assert wait_until(lambda: counter(locks, "waits") > waits)
        sent.append(time.monotonic())
        signal.pthread_kill(threading.get_ident(), signal.SIGALRM)

    lease = granted(holder.acquire(KEY, ttl=30))
    before = signal.signal(signal.SIGALRM, lambda *_: interrupt())
    with ThreadPoolExecutor() as pool:
        try:
            for each in others if role != "follows" else [locks]:
                with begins_to_wait(each):
                    pool.submit(each.acquire, KEY, timeout=3)
            waits = counter(locks, "waits")
            pool.submit(signal_this_thread)
            with pytest.raises(Interrupt):
                locks.acquire(KEY, timeout=3)
            assert time.monotonic() - sent[0] < 1
        finally:
            signal.signal(signal.SIGALRM, before)
            lease.release()


# --- after a fork the parent goes on, and the child begins anew -----------------------


def test_lease_when_forked_then_stays_with_the_parent(
    lease: Lease, servers: Servers
) -> None:
    child = Fork(lambda: (lease.is_valid, lease.remaining(), lease.release().name))
    assert child.result() == [False, 0.0, "GONE"]
    assert values(servers) == [lease.token] * 5
    assert lease.is_valid
    assert lease.release() is ReleaseStatus.RELEASED


@pytest.mark.parametrize("is_adopted", [False, True])
def test_lease_when_the_child_extends_it_then_raises_there_and_changes_nothing(
    locks: FastRedlock, lease: Lease, servers: Servers, is_adopted: bool
) -> None:
    held = locks.adopt(KEY, lease.token, ttl=10) if is_adopted else lease

    def extend() -> str:
        with pytest.raises(LeaseLostError) as raised:
            held.extend(1000)
        return str(raised.value)

    assert "not extended: it is the parent's" in Fork(extend).result()
    assert max(server.pttl(KEY) for server in servers) <= 10_000
    assert held.extend(100) > 90


def test_child_when_it_locks_then_opens_its_own_connections_and_the_parents_still_work(
    locks: FastRedlock, lease: Lease, servers: Servers
) -> None:
    def addresses() -> set[str]:
        clients = servers[0].client_list()
        return {
            each["addr"] for each in clients if each["name"].startswith("fastredlock")
        }

    def lock_in_child() -> tuple[int, object]:
        with locks.lock("child"):
            own = len(addresses() - parents)
            found = own, Fork(lambda: bool(locks.acquire("grandchild"))).result()
        locks.close()
        return found

    parents = addresses()
    assert Fork(lock_in_child).result() == [1, True]
    assert settled(addresses, parents) == parents
    assert lease.extend(100) > 90
    assert lease.release() is ReleaseStatus.RELEASED
    assert (locks.stats().connects, locks.stats().losses) == (5, 0)
    assert settled_values(servers, NOBODY) == NOBODY


@pytest.mark.parametrize("is_main", [True, False], ids=["main", "other"])
def test_child_when_forked_in_the_middle_of_another_threads_round_then_can_lock(
    masters: LocalMasters, make_locks: MakeLocks, is_main: bool
) -> None:
    locks = connected(make_locks(masters.urls, ttl=60, round_timeout=20))
    pause(masters, 3)

    def fork() -> Fork:
        return Fork(lambda: bool(locks.acquire("child", timeout=10)))

    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(locks.acquire, KEY)
        assert wait_until(lambda: locks.stats().rounds == 1)
        child = fork() if is_main else pool.submit(fork).result()
        resume(masters, 3)
        assert child.result() is True
        assert granted(waiting.result()).release() is ReleaseStatus.RELEASED
    assert locks.stats().losses == 0
