"""Semaphores and rates, each story by hand; and what their judge sees."""

from __future__ import annotations

from typing import Any

import pytest

from .judge import Violation
from .scenarios import NOTHING, Stage
from .worker import Slots, Worker
from .world import MS, S

ONE, TWO = Slots("q", 1), Slots("q", 2)


class Story(Stage):
    """Workers that take what they are told to."""

    def take_slot(self, worker: Worker, slots: Slots, timeout_ns: int = 0) -> Any:
        """Let a worker ask for a slot; return the lease, the permit or None."""
        self.do(worker, self.taking(worker, "it", 5000, slots, timeout_ns))
        return self.leases["it"]

    def begin(self, worker: Worker, slots: Slots, timeout_ns: int, name: str) -> None:
        worker.start(self.taking(worker, name, 5000, slots, timeout_ns))


def test_slot_when_handed_on_beside_then_is_the_same_slot() -> None:
    story = Story(3)
    holder = story.process()
    holder.process.engine.cohort_ns = S
    beside = Worker(holder.process, NOTHING, 0)
    lease = story.take_slot(holder, ONE)
    story.begin(beside, ONE, 5 * S, "beside")
    story.pass_time(20 * MS)
    story.do(holder, holder.release(lease))
    story.begin(holder, ONE, 5 * S, "again")
    story.pass_time(5 * MS)
    given = story.leases["beside"]
    assert given is not None
    story.do(beside, beside.release(given))
    story.pass_time(5 * MS)
    assert holder.process.engine.counters.handed_on > 0
    again = story.leases["again"]
    assert again is not None
    assert again.slot == 0
    story.do(holder, holder.release(again))
    assert not any(server.token_at(b"q#0") for server in story.servers)


def test_slot_when_its_client_lingers_then_does_not_rest() -> None:
    story = Story(1, linger=1.0)
    a, b = story.process(), story.process()
    for _ in range(2):  # the second time it listens at its gate
        lease = story.take_slot(a, ONE)
        story.begin(b, ONE, 5 * S, "b")
        story.pass_time(20 * MS)
        story.do(a, a.release(lease))
        story.pass_time(20 * MS)
        story.do(b, b.release(story.leases["b"]))
        a, b = b, a
    story.pass_time(2 * S)  # nobody counts as one that waits any more
    lease = story.take_slot(a, ONE)
    story.do(a, a.release(lease))
    assert story.servers[0].token_at(b"q#0") is None


# --- the judge ------------------------------------------------------------------------


def test_judge_when_more_begin_in_a_window_than_may_then_says_so() -> None:
    stage = Stage(1)
    stage.judge.on_asked(b"w#", 2)
    for for_ns in (0, 100 * MS, 400 * MS):  # 0, 0.1 and 0.5 s
        stage.world.run(stage.world.now_ns + for_ns)
        stage.judge.on_begin(b"w#", S // 2)
    with pytest.raises(Violation, match=r"I15.*3 begin by w# of 2 within 400"):
        stage.judge.on_begin(b"w#", S // 2)


def test_judge_when_a_slot_is_beyond_what_was_asked_then_says_so() -> None:
    story = Story(1)
    lease = story.take_slot(story.process(), TWO)
    round = lease._round
    story.judge.on_slot(round, round.slot + 1)
    with pytest.raises(Violation, match="I14"):
        story.judge.on_slot(round, round.slot)


def test_judge_when_more_hold_a_semaphore_than_may_then_says_so() -> None:
    story = Story(1)
    leases = [story.take_slot(story.process(), TWO) for _ in range(3)]
    assert sorted(lease.slot for lease in leases[:2]) == [0, 1]
    assert leases[2] is None
    other = Story(1)
    third = other.take_slot(other.process(), TWO)
    judge = story.judge
    with pytest.raises(Violation, match="I1"):
        judge.on_validity(story.processes[0], third)
    for key in (b"q#0", b"q#1"):  # so that none is held twice
        del judge._holds[key]
    with pytest.raises(Violation, match=r"I14.*of 2 is held by"):
        judge.on_validity(story.processes[0], third)
