"""`MemoryLocks`: the same body of tests in memory and on real masters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fastredlock import (
    LeaseLostError,
    QuorumUnreachableError,
    ReleaseStatus,
    ResourceTakenError,
    Vote,
)
from fastredlock.testing import LocalMasters, MemoryLocks

from .memory_stages import STAGES, Stage, stage_of

RELEASED, GONE, _ = ReleaseStatus
TTL = 0.6  # s


@pytest.fixture(scope="module")
def three() -> Iterator[LocalMasters]:
    with LocalMasters(3) as masters:
        yield masters


@pytest.fixture(params=STAGES)
def stage(request: pytest.FixtureRequest, three: LocalMasters) -> Iterator[Stage]:
    with stage_of(request.param, three) as made:
        yield made
    for i in range(3):
        three.start(i)


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


def test_lock_when_taken_by_another_client_then_raises(
    stage: Stage, locks: Any
) -> None:
    other = stage.new(ttl=60).acquire("r")
    with pytest.raises(ResourceTakenError), locks.lock("r", timeout=0):
        pytest.fail("two holders")
    other.release()
    with locks.lock("r", timeout=0) as lease:
        assert lease.is_valid


def test_lease_when_its_time_is_over_then_is_lost(stage: Stage, locks: Any) -> None:
    lease = locks.acquire("r")
    stage.advance(TTL + 0.01)
    assert not lease.is_valid
    assert lease.lost.is_set()
    with pytest.raises(LeaseLostError):
        lease.extend()
    assert locks.acquire("r", timeout=0).is_valid
    assert lease.release() is GONE


def test_extend_when_in_time_then_counts_from_now(stage: Stage, locks: Any) -> None:
    lease = locks.acquire("r")
    stage.advance(TTL / 2)
    before = lease.remaining()
    assert lease.extend() > before
    assert lease.extend(60) > 50
    stage.advance(TTL)
    assert lease.is_valid
    assert lease.release() is RELEASED


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


def test_fence_when_taken_again_then_grows(stage: Stage) -> None:
    locks, fences = stage.new(ttl=TTL, fencing=True), []
    for _ in range(3):
        lease = locks.acquire("r", timeout=0)
        fences.append(lease.fence)
        lease.release()
    pair = locks.acquire_all(["r", "s"], timeout=0)
    fences.append(pair.fence)
    assert fences == sorted(set(fences))
    assert stage.new(ttl=TTL, fencing=True).acquire("r", timeout=0) is None
    pair.release()


def test_all_when_one_is_taken_then_takes_none(locks: Any) -> None:
    first = locks.acquire("b")
    assert locks.acquire_all(["a", "b"], timeout=0) is None
    assert locks.acquire("a", timeout=0).release() is RELEASED
    first.release()
    with locks.lock_all(["a", "b"], timeout=0) as lease:
        assert lease.extend() > 0
        assert locks.acquire("a", timeout=0) is None


def test_each_when_some_are_taken_then_has_the_others(locks: Any) -> None:
    first = locks.acquire("b")
    leases = locks.acquire_each(["a", "b", "c"])
    assert [lease is None for lease in leases] == [False, True, False]
    extended = locks.extend_each(leases)
    assert [left is None for left in extended] == [False, True, False]
    assert locks.release_each(leases) == [RELEASED, GONE, RELEASED]
    first.release()


def test_kept_lease_when_time_passes_then_stays(stage: Stage, locks: Any) -> None:
    with locks.lock("r", keep_alive=True) as lease:
        for _ in range(3):
            stage.advance(TTL / 2)
            assert lease.is_valid


def test_kept_lease_when_stolen_then_is_told(stage: Stage, locks: Any) -> None:
    told: list[str] = []
    lease = locks.acquire(
        "r", keep_alive=True, on_lost=lambda lease, error: told.append(str(error))
    )
    stage.masters.steal("r", ttl=60)
    stage.advance(TTL)
    assert not lease.is_valid
    assert [text.startswith("'r': lost: ") for text in told] == [True]


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


def test_observer_when_given_then_is_told_as_in_life(stage: Stage) -> None:
    told: list[str] = []

    class Noted:
        def acquired(self, *_: object) -> None:
            told.append("acquired")

        def released(self, *_: object) -> None:
            told.append("released")

        def lost(self, *_: object) -> None:
            told.append("lost")

    locks = stage.new(ttl=60, observer=Noted())
    locks.acquire("r").release()
    lease = locks.acquire("r")
    stage.new().adopt("r", lease.token).release()
    with pytest.raises(LeaseLostError):
        lease.extend()
    assert told == ["acquired", "released", "acquired", "lost"]


def test_observer_when_a_lease_is_kept_then_is_told_what_its_keeper_did() -> None:
    told: list[tuple[str, float]] = []

    class Noted:
        def extended(self, resource: str, remaining: float) -> None:
            told.append((resource, memory.masters.time()))

        def lost(self, resource: str, held: float, error: LeaseLostError) -> None:
            told.append((f"{resource} lost", held))

    memory = MemoryLocks(ttl=9, observer=Noted())
    lease = memory.acquire("r", keep_alive=True)
    assert lease is not None
    memory.advance(5)
    memory.lose("r")
    memory.advance(9)
    *renewed, (name, held) = told
    assert renewed
    assert all(each == "r" and at <= 5 for each, at in renewed)
    assert name == "r lost"
    assert 5 < held < 9
