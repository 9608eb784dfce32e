"""acquire_all: several resources or none of them, in one round, under one token."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from fastredlock import (
    ConfigurationError,
    FastRedlock,
    LeaseLostError,
    QuorumUnreachableError,
    ReleaseStatus,
)
from fastredlock.testing import LocalMasters
from tests.support.calls import connected, granted
from tests.support.fixtures import MakeLocks, Raw
from tests.support.interrupts import Interrupt, alarm, interrupt
from tests.support.keys import NOBODY, is_empty, set_all, settled_values, sizes
from tests.support.masters import pause, resume, stop
from tests.support.processes import Fork
from tests.support.threads import in_threads
from tests.support.waiting import stopwatch, wait_until

RELEASED, GONE, UNKNOWN = ReleaseStatus
NAMES = [f"item:{i}" for i in range(300)]


# ---- what is granted


def test_acquire_all_when_all_are_free_then_one_lease_holds_each(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    lease = granted(locks.acquire_all(["b", "a", b"c"], ttl=20))
    assert lease.resource == ("b", "a", b"c")
    assert 19 < lease.remaining() < 20
    for key in ("a", "b", "c"):
        assert settled_values(servers, [lease.token] * 5, key) == [lease.token] * 5


@pytest.mark.parametrize("held", ["a", "b", "c"])
def test_acquire_all_when_one_is_held_then_takes_none(
    locks: FastRedlock, make_locks: MakeLocks, urls: list[str], held: str
) -> None:
    other = make_locks(urls)
    assert other.acquire(held, timeout=0)
    assert locks.acquire_all(["a", "b", "c"], timeout=0) is None
    for name in {"a", "b", "c"} - {held}:
        assert other.acquire(name, timeout=2)


def test_acquire_all_when_a_majority_holds_one_then_all_are_rolled_back_elsewhere(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    set_all(servers[:3], b"another", "b")
    assert locks.acquire_all(["a", "b"], timeout=0) is None
    assert settled_values(servers, NOBODY, "a") == NOBODY
    wanted = [b"another"] * 3 + [None] * 2
    assert settled_values(servers, wanted, "b") == wanted


def test_acquire_all_when_held_then_excludes_single_acquires_until_it_is_released(
    locks: FastRedlock, make_locks: MakeLocks, urls: list[str]
) -> None:
    other = make_locks(urls)
    lease = granted(locks.acquire_all(["a", "b"]))
    assert other.acquire("a", timeout=0) is None
    assert other.acquire_each(["b", "c", "a"])[::2] == [None, None]
    assert lease.release() is RELEASED
    assert other.acquire("a", timeout=2)


def test_acquire_all_when_one_is_released_meanwhile_then_waits_for_it(
    locks: FastRedlock, make_locks: MakeLocks, urls: list[str]
) -> None:
    blocker = granted(make_locks(urls).acquire("b", ttl=0.3))
    assert locks.acquire_all(["a", "b"], timeout=5)
    assert not blocker.is_valid


def test_acquire_all_when_a_resource_is_named_twice_then_it_counts_once(
    locks: FastRedlock,
) -> None:
    lease = granted(locks.acquire_all(["a", "b", "a", b"b"]))
    assert len(lease.resource) == 2
    assert locks.acquire_all(iter(["b", "a"]), timeout=0) is None
    assert lease.release() is RELEASED


def test_acquire_all_when_only_one_is_named_then_is_a_lock_like_any(
    locks: FastRedlock,
) -> None:
    lease = granted(locks.acquire_all(["a"]))
    assert locks.acquire("a", timeout=0) is None
    assert lease.release() is RELEASED


@pytest.mark.parametrize("count", [2, 300])
def test_acquire_all_when_taken_then_extends_and_releases_all(
    locks: FastRedlock, servers: list[redis.Redis], count: int
) -> None:
    lease = granted(locks.acquire_all(NAMES[:count], ttl=5))
    assert lease.extend(30) > 29
    locks.holders("x")  # waits for what the slowest do
    assert all(server.pttl(NAMES[count - 1]) > 20_000 for server in servers)
    assert lease.release() is RELEASED
    assert is_empty(servers)
    assert lease.release() is GONE


def test_lease_of_all_when_one_key_was_lost_then_extend_says_so_and_release_is_gone(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    lease = granted(locks.acquire_all(["a", "b"]))
    locks.holders("x")
    set_all(servers, b"another", "b")
    with pytest.raises(LeaseLostError, match="'a', 'b'"):
        lease.extend()
    assert not lease.is_valid
    assert lease.release() is GONE
    assert settled_values(servers, NOBODY, "a") == NOBODY
    assert settled_values(servers, [b"another"] * 5, "b") == [b"another"] * 5


def test_lease_of_all_when_adopted_by_another_client_then_is_extended_and_released(
    locks: FastRedlock, make_locks: MakeLocks, urls: list[str]
) -> None:
    lease = granted(locks.acquire_all(["b", "a"], ttl=5))
    adopted = make_locks(urls).adopt(lease.resource, lease.token)
    assert adopted.extend(20) > 19
    assert adopted.release() is RELEASED
    assert lease.release() is GONE


def test_lease_of_all_when_leaving_the_with_block_then_is_released(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    with granted(locks.acquire_all(["a", "b"])):
        assert locks.acquire("b", timeout=0) is None
    assert is_empty(servers)


# ---- what is refused before any I/O


@pytest.mark.parametrize(
    "resources", ["orders", b"orders", 7, None, [], ["a", ""], ["a", 7], ["\ud800"]]
)
def test_acquire_all_when_resources_are_bad_then_is_refused_before_any_io(
    make_locks: MakeLocks, urls: list[str], resources: Any
) -> None:
    locks = make_locks(urls)
    with pytest.raises(ConfigurationError):
        locks.acquire_all(resources)
    assert (locks.stats().rounds, locks.stats().connects) == (0, 0)


# ---- all undone


def test_acquire_all_when_a_quorum_is_down_then_names_the_first_and_leaves_none(
    make_locks: MakeLocks, masters: LocalMasters, raw: Raw
) -> None:
    locks = connected(make_locks(masters.urls))
    stop(masters, 3)
    with pytest.raises(QuorumUnreachableError, match=r"'item:0'.* and 295 more"):
        locks.acquire_all(NAMES, timeout=0)
    assert is_empty([raw(url) for url in masters.urls[3:]])


@pytest.mark.slow
def test_acquire_all_when_interrupted_then_leaves_no_key_anywhere(
    make_locks: MakeLocks, masters: LocalMasters, raw: Raw
) -> None:
    locks = connected(make_locks(masters.urls, ttl=60, round_timeout=0.3))
    pause(masters, 3)
    for delay_ms in range(1, 20):
        with pytest.raises(Interrupt), alarm(delay_ms / 1000, interrupt):
            locks.acquire_all(NAMES)
    servers = [raw(url) for url in masters.urls]
    assert is_empty(servers[3:])
    resume(masters, 3)
    assert wait_until(lambda: locks.holders("x") and sizes(servers) == [0] * 5)


# ---- forkss that name the same in any order


@pytest.mark.slow
def test_threads_when_they_name_the_same_in_opposite_order_then_nobody_waits_forever(
    locks: FastRedlock,
) -> None:
    counter = [0]

    def increment(names: list[str]) -> None:
        for _ in range(20):
            with granted(locks.acquire_all(names, timeout=30)):
                value = counter[0]
                counter[0] = value + 1

    orders = (["a", "b", "c"], ["c", "b", "a"], ["b", "c", "a"])
    in_threads([lambda order=order: increment(order) for order in orders])
    assert counter == [60]


@pytest.mark.slow
def test_processes_when_they_name_the_same_in_opposite_order_then_all_get_through(
    urls: list[str], make_locks: MakeLocks
) -> None:
    def take_and_release(names: list[str]) -> int:
        taken = 0
        with FastRedlock(urls) as locks:
            for _ in range(20):
                with granted(locks.acquire_all(names, timeout=7)):
                    taken += 1
        return taken

    with stopwatch() as elapsed:
        forks = [
            Fork(lambda names=names: take_and_release(names))
            for names in (NAMES, NAMES[::-1], ["item:7", "item:3"], ["x", "item:3"])
        ]
        assert [fork.result() for fork in forks] == [20] * 4
    assert elapsed() < 7
    assert make_locks(urls).acquire_all(NAMES, timeout=1)
