"""`MemoryLocks`, whose calls block or are awaited: one body of tests for both.

That the masters in memory answer as real ones do is the subject of sim/test_model.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fastredlock import (
    LeaseLostError,
    QuorumUnreachableError,
    ReleaseStatus,
    Vote,
)
from fastredlock.testing import MemoryLocks, MemoryMasters
from fastredlock.testing.asyncio import MemoryLocks as LoopMemoryLocks
from fastredlock.testing.asyncio import advance
from tests.support.awaited import Awaited, LoopThread

RELEASED, GONE, _ = ReleaseStatus
TTL = 0.6  # s


class Stage:
    """Three masters; `new` makes a client of them whose calls block."""

    def __init__(self, is_awaited: bool) -> None:
        self.masters = MemoryMasters()
        self._thread = LoopThread("asyncio") if is_awaited else None
        self._made: list[Any] = []

    def new(self, **options: Any) -> Any:
        if self._thread is None:
            self._made.append(MemoryLocks(self.masters, **options))
        else:
            awaited = LoopMemoryLocks(self.masters, **options)
            self._made.append(Awaited(self._thread.call, awaited))
        return self._made[-1]

    def advance(self, seconds: float) -> None:
        if self._thread is None:
            self.masters.advance(seconds)
        else:
            self._thread.run(advance(self.masters, seconds))

    def close(self) -> None:
        for locks in self._made:
            locks.close()
        if self._thread is not None:
            self._thread.close()


@pytest.fixture(params=[False, True], ids=["blocking", "asyncio"])
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    stage = Stage(request.param)
    yield stage
    stage.close()


@pytest.fixture
def locks(stage: Stage) -> Any:
    return stage.new(ttl=TTL)


def test_acquire_when_free_then_holds_and_excludes(stage: Stage, locks: Any) -> None:
    lease = locks.acquire("r")
    assert lease.is_valid
    assert TTL / 2 < lease.remaining() < TTL
    assert locks.acquire("r", timeout=0) is None
    assert stage.new().acquire("r", timeout=0) is None
    assert lease.release() is RELEASED
    assert lease.release() is RELEASED or lease.release() is GONE


def test_lease_when_its_time_is_over_then_is_lost(stage: Stage, locks: Any) -> None:
    lease = locks.acquire("r")
    stage.advance(TTL + 0.01)
    assert not lease.is_valid
    assert lease.lost.is_set()
    with pytest.raises(LeaseLostError):
        lease.extend()
    assert locks.acquire("r", timeout=0).is_valid
    assert lease.release() is GONE


def test_lease_when_stolen_then_release_is_gone_and_thief_stays(
    stage: Stage, locks: Any
) -> None:
    lease = locks.acquire("r")
    token = stage.masters.steal("r", ttl=60)
    with pytest.raises(LeaseLostError, match="taken by another"):
        lease.extend()
    assert lease.release() is GONE
    assert [vote.vote for vote in locks.holders("r")] == [Vote.TAKEN] * 3
    assert locks.adopt("r", token).release() is RELEASED


def test_lock_when_flushed_inside_then_leaving_raises(stage: Stage, locks: Any) -> None:
    with pytest.raises(LeaseLostError), locks.lock("r"):
        stage.masters.flush()


def test_acquire_when_a_quorum_is_stopped_then_raises(stage: Stage, locks: Any) -> None:
    stage.masters.stop(0)
    lease = locks.acquire("r", timeout=0)
    assert lease.release() is RELEASED
    stage.masters.stop(1)
    with pytest.raises(QuorumUnreachableError, match="2 failed"):
        locks.acquire("r", timeout=0)
    stage.masters.start(1)
    stage.advance(0.3)  # the time between two connections
    locks.connect()
    assert locks.acquire("r", timeout=0).release() is RELEASED


def test_close_when_leases_are_held_then_they_can_be_released(locks: Any) -> None:
    lease, leases = locks.acquire("r"), locks.acquire_each(["a", "b"])
    locks.close()
    assert lease.release() is RELEASED  # by connections of its own
    assert locks.release_each([]) == []
    assert locks.release_each(leases) == [RELEASED] * 2
    with pytest.raises(Exception, match="is closed"):
        locks.acquire("r")
