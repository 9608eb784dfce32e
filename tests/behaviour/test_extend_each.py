"""extend_each: many leases are extended with one write per master."""

from __future__ import annotations

import pytest
import redis

from fastredlock import FastRedlock, FastRedlockError, ReleaseStatus
from fastredlock._locking.validity import extensions_of
from fastredlock.testing import LocalMasters
from tests.support.calls import all_granted, connected, granted
from tests.support.fixtures import MakeLocks
from tests.support.interrupts import Interrupt, alarm, interrupt
from tests.support.keys import NOBODY, set_all, values
from tests.support.masters import pause, resume, stop
from tests.support.processes import Fork
from tests.support.waiting import stopwatch, wait_until

RELEASED, GONE, UNKNOWN = ReleaseStatus
NAMES = [f"item:{i}" for i in range(100)]
MANY = 10_000


def lowest(lefts: list[float | None]) -> float:
    """Return the shortest validity left (s), 0 where one is lost."""
    return min(left or 0 for left in lefts)


def test_extend_each_when_held_then_every_key_lives_longer(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    leases = all_granted(locks.acquire_each(NAMES, ttl=10))
    lefts = locks.extend_each(leases, 100)
    assert all(left is not None and 90 < left < 100 for left in lefts)
    assert all(90 < lease.remaining() < 100 for lease in leases)
    locks.holders()  # answered after every extension
    assert min(server.pttl(name) for server in servers for name in NAMES) > 90_000


def test_extend_each_when_some_are_lost_then_those_are_none_in_their_places(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    leases = all_granted(locks.acquire_each(["held", "released", "gone", "stolen"]))
    leases[1].release()
    for server in servers:
        server.delete("gone")
    set_all(servers, b"another", "stolen")
    lefts = locks.extend_each([*leases, None], 50)
    assert [left is None for left in lefts] == [False, True, True, True, True]
    locks.holders()
    assert values(servers, "gone") == NOBODY
    assert [server.pttl("stolen") for server in servers] == [-1] * 5
    assert [lease.is_valid for lease in leases] == [True, False, False, False]


def test_extend_each_when_a_lease_is_of_several_keys_then_extends_all_of_them(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    pair = granted(locks.acquire_all(["a", "b"]))
    assert (locks.extend_each([pair], 50)[0] or 0) > 40
    locks.holders()
    assert min(server.pttl(name) for server in servers for name in "ab") > 40_000


def test_extend_each_when_a_quorum_is_down_then_says_what_is_left_of_each(
    masters: LocalMasters, make_locks: MakeLocks
) -> None:
    locks = connected(make_locks(masters.urls, ttl=30))
    leases = all_granted(locks.acquire_each(NAMES))
    stop(masters, 3)
    lefts = locks.extend_each(leases, 100)
    assert all(left is not None and 10 < left < 30 for left in lefts)


# The rest of a batch of acquires is not sent after one that too few masters answered.
@pytest.mark.slow
def test_extend_each_when_a_quorum_is_silent_then_none_is_lost_and_it_ends_soon(
    masters: LocalMasters, make_locks: MakeLocks
) -> None:
    locks = connected(make_locks(masters.urls, ttl=60, round_timeout=0.5))
    leases = all_granted(locks.acquire_each([str(i) for i in range(3000)]))
    pause(masters, 3)
    with stopwatch() as elapsed:
        lefts = locks.extend_each(leases)
    assert elapsed() < 6  # two windows of three: connections are given up then
    assert all(left is not None and 40 < left < 60 for left in lefts)
    resume(masters, 3)
    assert wait_until(lambda: lowest(locks.extend_each(leases)) > 55)
    assert locks.release_each(leases) == [RELEASED] * 3000


@pytest.mark.slow
def test_extend_each_when_ten_thousand_are_held_then_extends_them_all(
    locks: FastRedlock,
) -> None:
    leases = locks.acquire_each([str(i) for i in range(MANY)], ttl=60)
    assert all((left or 0) > 90 for left in locks.extend_each(leases, 100))
    assert locks.release_each(leases) == [RELEASED] * MANY


def test_extend_each_when_closed_then_says_so_and_the_leases_stand(
    make_locks: MakeLocks, urls: list[str]
) -> None:
    locks = make_locks(urls)
    leases = all_granted(locks.acquire_each(["a", "b"], ttl=10))
    locks.close()
    with pytest.raises(FastRedlockError, match="closed"):
        locks.extend_each(leases, 20)
    assert all(lease.is_valid for lease in leases)
    assert [len(extensions_of(lease).under_way) for lease in leases] == [0, 0]


def test_extend_each_when_forked_then_the_childs_are_lost(locks: FastRedlock) -> None:
    leases = locks.acquire_each(NAMES)
    assert Fork(lambda: locks.extend_each(leases)).result() == [None] * 100
    assert None not in locks.extend_each(leases)


@pytest.mark.slow
@pytest.mark.usefixtures("no_collector")
def test_extend_each_when_interrupted_then_the_next_one_extends(
    make_locks: MakeLocks, masters: LocalMasters
) -> None:
    locks = connected(make_locks(masters.urls, ttl=60, round_timeout=10))
    leases = all_granted(locks.acquire_each([str(i) for i in range(2000)]))
    pause(masters, 3)
    for delay_ms in range(1, 40, 4):
        with pytest.raises(Interrupt), alarm(delay_ms / 1000, interrupt):
            locks.extend_each(leases, 70)
    assert all(lease.is_valid for lease in leases)
    assert not any(extensions_of(lease).under_way for lease in leases)
    resume(masters, 3)
    # What was sent on a connection that is lost since may still be executed: then the
    # shorter ttl counts.
    assert wait_until(
        lambda: lowest(locks.extend_each(leases, 100)) > 90 or locks.stats().losses
    )
