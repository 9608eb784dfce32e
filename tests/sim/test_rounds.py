"""What the simulator found in the state machine of a round, each as one small case."""

from __future__ import annotations

import pytest

from fastredlock._core import Operation, Round, Terms, Verdict, Vote

TERMS = Terms(1000, 12_000_000, 50_000_000)


def opened(operation: Operation) -> Round:
    round = Round(int(operation), b"r", b"token", TERMS, 3)
    round.open(0)
    return round


@pytest.mark.parametrize("operation", [Operation.RELEASE, Operation.EXTEND])
def test_round_stays_open_when_too_few_have_said_gone(operation: Operation) -> None:
    # Seed 49 of the first simulator: GONE, while the key stood on two masters of three.
    round = opened(operation)
    round.on_vote(0, int(Vote.FAILED), "lost", False, 1)
    round.on_vote(2, int(Vote.TAKEN), None, True, 2)
    assert round.verdict is Verdict.OPEN
    round.on_vote(1, int(Vote.FAILED), "lost", False, 3)
    assert round.verdict is Verdict.UNREACHABLE


@pytest.mark.parametrize("operation", [Operation.RELEASE, Operation.EXTEND])
def test_round_closes_taken_when_a_quorum_has_said_gone(operation: Operation) -> None:
    round = opened(operation)
    round.on_vote(0, int(Vote.TAKEN), None, True, 1)
    round.on_vote(2, int(Vote.TAKEN), None, True, 2)
    assert round.verdict is Verdict.TAKEN


def test_acquire_closes_taken_at_once_when_it_cannot_be_won() -> None:
    round = opened(Operation.ACQUIRE)
    round.on_vote(0, int(Vote.FAILED), "lost", False, 1)
    round.on_vote(2, int(Vote.TAKEN), None, True, 2)
    assert round.verdict is Verdict.TAKEN
