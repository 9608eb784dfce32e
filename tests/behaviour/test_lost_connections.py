"""Connections that servers cut: the round under way goes on over the next ones."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import redis

from fastredlock import FastRedlock, Lease, ReleaseStatus, Vote
from tests.support.calls import all_granted, granted
from tests.support.keys import KEY, NOBODY, settled_values, sizes, values
from tests.support.waiting import stopwatch, wait_until


def cut_all(servers: Sequence[redis.Redis]) -> None:
    """Have every server end all connections but the asking one."""
    for server in servers:
        server.client_kill_filter(_type="normal", skipme=True)


def test_release_when_all_connections_were_cut_then_deletes_the_keys(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    """Seen: left without an error, with the key on five of five."""
    with locks.lock(KEY, ttl=60):
        cut_all(servers)
    assert values(servers) == NOBODY


def test_release_when_all_connections_were_cut_then_says_released(
    lease: Lease, servers: list[redis.Redis]
) -> None:
    cut_all(servers)
    assert lease.release() is ReleaseStatus.RELEASED


def test_try_when_all_connections_were_cut_then_is_granted(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    """Seen: raised within 0 ms, with five healthy masters."""
    for _ in range(5):
        granted(locks.acquire(KEY, timeout=0)).release()
        cut_all(servers)
    granted(locks.acquire(KEY, timeout=0)).release()


def test_each_when_all_connections_were_cut_then_is_granted(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    keys = [f"item:{i}" for i in range(200)]
    cut_all(servers)
    leases = all_granted(locks.acquire_each(keys))
    cut_all(servers)
    assert set(locks.release_each(leases)) == {ReleaseStatus.RELEASED}
    # A master that was cut twice has its releases by the next call.
    assert wait_until(lambda: locks.holders() and sizes(servers) == [0] * 5)


def test_all_when_all_connections_were_cut_then_is_granted(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    cut_all(servers)
    lease = granted(locks.acquire_all(["from:7", "to:9"], timeout=0))
    cut_all(servers)
    assert lease.release() is ReleaseStatus.RELEASED
    # A master that was cut twice has its releases by the next call.
    assert wait_until(lambda: locks.holders() and sizes(servers) == [0] * 5)


def test_extension_when_all_connections_were_cut_then_is_confirmed(
    lease: Lease, servers: list[redis.Redis]
) -> None:
    cut_all(servers)
    assert lease.extend(30) > 20


def test_holders_when_all_connections_were_cut_then_tells_all_masters(
    locks: FastRedlock, lease: Lease, servers: list[redis.Redis]
) -> None:
    cut_all(servers)
    assert [vote.vote for vote in locks.holders(KEY)] == [Vote.TAKEN] * 5


def test_acquire_when_cut_and_held_by_others_then_is_taken(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    for server in servers:
        server.set(KEY, b"another")
    cut_all(servers)
    with stopwatch() as elapsed:
        assert locks.acquire(KEY, timeout=0) is None
    assert elapsed() < 2
    assert values(servers) == [b"another"] * 5


def test_orphan_when_scripts_are_flushed_and_nothing_follows_then_is_deleted(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    """Seen: the roll-back met NOSCRIPT, which nobody read before the next call."""
    for server in servers[:3]:
        server.set(KEY, b"another")
    for server in servers:
        server.script_flush()
    assert locks.acquire(KEY, ttl=60, timeout=0) is None
    wanted = [b"another"] * 3 + [None] * 2
    assert settled_values(servers, wanted) == wanted


@pytest.mark.slow
def test_lease_when_connections_are_cut_at_random_then_is_never_called_lost(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    """Seen: a release that was executed, its reply lost, and was repeated: GONE."""
    for turn in range(1500):
        lease = granted(locks.acquire(KEY, ttl=60, timeout=5))
        if turn % 3 == 0:
            server = servers[turn % 5]
            server.client_kill_filter(_type="normal", skipme=True)
        assert lease.release() is not ReleaseStatus.GONE
