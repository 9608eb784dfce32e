"""Making, connecting, closing and entering; masters in every number."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest
import redis

from fastredlock import (
    FastRedlock,
    FastRedlockError,
    LeaseLostError,
    QuorumUnreachableError,
    ReleaseStatus,
    ResourceTakenError,
    Vote,
)
from fastredlock.testing import LocalMasters
from tests.support.calls import connected, granted
from tests.support.fixtures import MakeLocks
from tests.support.keys import KEY, NOBODY, settled_values
from tests.support.masters import stop
from tests.support.processes import beside_connections, open_files
from tests.support.waiting import settled, stopwatch


def connections(server: redis.Redis) -> int:
    """Count the connections of all FastRedlocks to a server."""
    return len(connection_ids(server))


def connection_ids(server: redis.Redis) -> set[str]:
    """Return the ids of the connections of all FastRedlocks to a server."""
    clients = server.client_list()
    return {each["id"] for each in clients if each["name"] == "fastredlock"}


def test_connect_when_all_run_then_opens_one_connection_to_each(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis]
) -> None:
    before = [connection_ids(server) for server in servers]  # some are ending
    locks = make_locks(urls)
    locks.connect()
    now = [connection_ids(server) for server in servers]
    assert [len(new - old) for new, old in zip(now, before, strict=True)] == [1] * 5
    assert locks.stats().connects == 5
    assert locks.acquire(KEY)
    assert locks.stats().connects == 5


def test_connect_when_a_minority_is_stopped_then_opens_the_others(
    masters: LocalMasters, make_locks: MakeLocks
) -> None:
    masters.stop(0)
    masters.stop(1)
    locks = connected(make_locks(masters.urls))
    assert locks.stats().connects == 3


def test_connect_when_a_majority_is_stopped_then_raises_with_their_reason(
    masters: LocalMasters, make_locks: MakeLocks
) -> None:
    stop(masters, 3)
    with pytest.raises(QuorumUnreachableError) as raised:
        make_locks(masters.urls).connect()
    assert [vote.text for vote in raised.value.votes[:3]] == ["connection refused"] * 3


def test_connect_when_a_majority_is_stopped_then_does_not_blame_the_others(
    masters: LocalMasters, make_locks: MakeLocks
) -> None:
    stop(masters, 3)
    with pytest.raises(QuorumUnreachableError) as raised:
        make_locks(masters.urls).connect()
    assert [vote.vote for vote in raised.value.votes[3:]] == [Vote.GRANTED] * 2


def test_connect_when_a_master_is_mute_then_waits_connect_timeout_at_most(
    masters: LocalMasters, make_locks: MakeLocks
) -> None:
    masters.pause(0)
    locks = make_locks(masters.urls, connect_timeout=0.6)
    with stopwatch() as elapsed:
        locks.connect()
    assert 0.5 < elapsed() < 3
    assert locks.stats().connects == 4


@pytest.mark.parametrize(
    "call",
    [
        lambda locks: locks.acquire(),
        lambda locks: locks.connect(),
        lambda locks: locks.holders(),
        lambda locks: locks.lock().__enter__(),
        lambda locks: locks.adopt(KEY, "token").extend(),
    ],
    ids=["acquire", "connect", "holders", "lock", "extend"],
)
def test_closed_when_used_then_says_that_it_is_closed(
    locks: FastRedlock, call: Callable[[FastRedlock], object]
) -> None:
    assert locks.acquire(KEY)
    locks.close()
    with pytest.raises(FastRedlockError, match="this FastRedlock is closed"):
        call(locks)


def test_close_when_done_then_leaves_no_connection_and_no_descriptor(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis], driver: str
) -> None:
    files, before = open_files(), [connections(server) for server in servers]
    locks = connected(make_locks(urls))
    assert open_files() == files + 5 + beside_connections(driver)
    locks.close()
    locks.close()
    assert open_files() == files
    assert (
        settled(lambda: [connections(server) for server in servers], before) == before
    )


def test_close_when_a_lease_is_held_then_leaves_its_keys(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    lease = granted(locks.acquire(KEY))
    locks.close()
    assert settled_values(servers, [lease.token] * 5) == [lease.token] * 5


def test_close_when_a_round_was_just_lost_then_its_release_still_arrives(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis]
) -> None:
    for server in servers[:3]:
        server.set(KEY, "another")
    with FastRedlock(urls) as locks:
        assert locks.acquire(KEY, timeout=0) is None
    assert settled_values(servers[3:], NOBODY[3:]) == NOBODY[3:]


def test_close_when_scripts_were_flushed_then_every_release_still_arrives(
    urls: list[str], servers: list[redis.Redis]
) -> None:
    for i in range(5):
        with FastRedlock(urls) as locks:
            lease = granted(locks.acquire(f"r{i}"))
            for server in servers:
                server.script_flush()
            lease.release()
    sizes = [0] * 5
    assert settled(lambda: [server.dbsize() for server in servers], sizes) == sizes


def test_with_fast_redlock_when_left_then_is_closed(urls: list[str]) -> None:
    with FastRedlock(urls) as locks:
        assert locks.acquire(KEY)
    with pytest.raises(FastRedlockError, match="closed"):
        locks.acquire(KEY)


def test_dropped_when_never_closed_then_its_descriptors_are_closed(
    urls: list[str],
) -> None:
    files = open_files()
    locks = FastRedlock(urls)
    locks.connect()
    assert open_files() == files + 5 + beside_connections("blocking")
    del locks
    assert open_files() == files


def test_with_lock_when_left_then_is_released(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    with locks.lock(KEY) as lease:
        assert lease.is_valid
    assert settled_values(servers, NOBODY) == NOBODY


def test_with_lock_when_the_body_raises_then_is_released_and_that_error_stands(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    with pytest.raises(ZeroDivisionError), locks.lock(KEY):
        raise ZeroDivisionError
    assert settled_values(servers, NOBODY) == NOBODY


def test_with_lock_when_the_body_released_it_then_leaves_quietly(
    locks: FastRedlock,
) -> None:
    with locks.lock(KEY) as lease:
        assert lease.release() is ReleaseStatus.RELEASED


def test_with_lease_when_left_then_is_released(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    lease = granted(locks.acquire(KEY))
    with lease as same:
        assert same is lease
    assert settled_values(servers, NOBODY) == NOBODY


def test_with_lease_when_it_was_lost_in_it_then_raises_on_leaving(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    lease = granted(locks.acquire(KEY))
    settled_values(servers, [lease.token] * 5)
    with pytest.raises(LeaseLostError), lease:
        assert all(server.delete(KEY) for server in servers)


def test_lock_when_it_was_taken_then_may_be_entered_again(locks: FastRedlock) -> None:
    lock = locks.lock(KEY, timeout=0)
    with locks.lock(KEY), pytest.raises(ResourceTakenError):
        lock.__enter__()
    with lock as lease:
        assert lease.is_valid


def test_pickle_when_tried_then_says_what_to_do_instead(locks: FastRedlock) -> None:
    with pytest.raises(TypeError, match="make one in each process"):
        pickle.dumps(locks)


def test_error_when_pickled_then_says_the_same(
    locks: FastRedlock,
) -> None:
    with locks.lock(KEY), pytest.raises(ResourceTakenError) as raised:
        locks.lock(KEY, timeout=0).__enter__()
    copied = pickle.loads(pickle.dumps(raised.value))
    assert str(copied) == str(raised.value)
    assert copied.votes == raised.value.votes


@pytest.mark.parametrize("how", ["released", "over"])
def test_with_when_the_lease_is_over_then_its_body_does_not_run(
    locks: FastRedlock, how: str
) -> None:
    lease = granted(locks.acquire(KEY, ttl=0.1 if how == "over" else 10))
    if how == "released":
        lease.release()
    else:
        assert settled(lambda: lease.is_valid, False) is False
    with pytest.raises(LeaseLostError), lease:
        pytest.fail("its body runs")


def test_with_when_the_lease_is_adopted_then_its_body_runs(locks: FastRedlock) -> None:
    lease = granted(locks.acquire(KEY))
    with locks.adopt(KEY, lease.token) as adopted:
        adopted.extend(10)
    assert lease.release() is ReleaseStatus.GONE
