"""The counters per operation and per master, on real servers."""

from __future__ import annotations

import pytest
import redis

from fastredlock import (
    FastRedlock,
    OperationStats,
    QuorumUnreachableError,
    Vote,
)
from fastredlock.testing import LocalMasters
from tests.support.calls import QUICK, connected, granted
from tests.support.fixtures import MakeLocks
from tests.support.keys import KEY, set_all
from tests.support.masters import pause, stop
from tests.support.waiting import wait_until


def of_masters(locks: FastRedlock, name: str) -> list[int]:
    return [getattr(master, name) for master in locks.stats().masters]


def test_stats_when_each_operation_was_used_then_tell_them_apart(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    assert locks.stats().round_trip == 0.0
    lease = granted(locks.acquire(KEY))
    assert locks.acquire(KEY, timeout=0) is None
    lease.extend()
    locks.holders(KEY)
    lease.release()
    stats = locks.stats()
    assert stats.acquires == OperationStats(won=1, taken=1)
    assert stats.extends == stats.releases == stats.inspects == OperationStats(won=1)
    assert (stats.won, stats.taken, stats.rounds) == (4, 1, 5)
    assert (stats.unreachable, stats.too_late, stats.losses) == (0, 0, 0)
    assert 0 < stats.round_trip < 1
    set_all(servers[:3], b"theirs", "b")
    locks.acquire_each(["b"])
    assert locks.stats().acquires == OperationStats(won=1, taken=2)
    assert locks.stats().rolled_back >= 1


def test_stats_when_all_masters_answer_then_each_answer_counts_once(
    locks: FastRedlock,
) -> None:
    for _ in range(10):
        granted(locks.acquire(KEY)).release()
    locks.holders(KEY)  # behind all of them: the slowest master has answered, too
    assert of_masters(locks, "granted") == [21] * 5
    for name in ("taken", "failed", "silent", "losses", "releases_dropped"):
        assert of_masters(locks, name) == [0] * 5
    assert sum(of_masters(locks, "late_replies")) == locks.stats().late_replies
    assert sum(of_masters(locks, "connects")) == locks.stats().connects == 5


def test_stats_when_masters_are_down_then_theirs_alone_have_failed(
    make_locks: MakeLocks, masters: LocalMasters
) -> None:
    locks = connected(make_locks(masters.urls, **QUICK))
    stop(masters, 2)
    for _ in range(5):
        granted(locks.acquire(KEY, timeout=2)).release()
    failed = of_masters(locks, "failed")
    assert failed[2:] == [0] * 3
    assert all(count >= 8 for count in failed[:2])
    assert all(count >= 1 for count in of_masters(locks, "losses")[:2])
    stop(masters, 5)
    assert [vote.vote for vote in locks.holders()] == [Vote.FAILED] * 5
    assert (locks.stats().unreachable, locks.stats().losses >= 5) == (1, True)


def test_stats_when_masters_are_silent_then_theirs_alone_are(
    make_locks: MakeLocks, masters: LocalMasters
) -> None:
    locks = connected(make_locks(masters.urls, **QUICK))
    pause(masters, 3)
    with pytest.raises(QuorumUnreachableError):
        locks.acquire(KEY, timeout=0)
    silent = of_masters(locks, "silent")
    assert silent == [*[silent[0]] * 3, 0, 0]
    assert silent[0] >= 1


def test_stats_when_a_minority_is_cut_off_with_replies_due_then_they_have_failed(
    make_locks: MakeLocks, masters: LocalMasters
) -> None:
    locks = connected(make_locks(masters.urls, **QUICK))
    pause(masters, 1)
    granted(locks.acquire(KEY)).release()
    assert of_masters(locks, "failed") == [0] * 5
    stop(masters, 1)
    assert wait_until(lambda: locks.holders(KEY) and of_masters(locks, "failed")[0] > 1)
    assert of_masters(locks, "failed")[1:] == [0] * 4
