"""The state machine of a round under any order of votes, for 1 to 7 masters."""

from hypothesis import given

from fastredlock._core import Operation
from tests.support.rounds import (
    OPEN,
    TAKEN,
    TOO_LATE,
    UNREACHABLE,
    WON,
    History,
    histories,
    play,
    thorough,
)

# ---- whatever the order of votes: N = 1..7


@thorough
@given(histories())
def test_round_is_won_if_and_only_if_a_quorum_granted_while_validity_was_left(
    history: History,
) -> None:
    for step in play(history):
        if step.before is OPEN:
            granted = step.votes_after.count("G")
            is_in_time = history.valid_until_ns - step.event.at_ns > 0
            has_quorum = granted >= history.quorum
            assert (step.after is WON) == (has_quorum and is_in_time)
            assert (step.after is TOO_LATE) == (has_quorum and not is_in_time)


@thorough
@given(histories())
def test_verdict_never_changes_but_from_won_to_too_late_by_confirm(
    history: History,
) -> None:
    for step in play(history):
        if step.before is not OPEN and step.after is not step.before:
            assert (step.before, step.after) == (WON, TOO_LATE)
            assert step.event.letter == "C"
            assert step.event.at_ns >= history.valid_until_ns


@thorough
@given(histories())
def test_round_is_open_exactly_as_long_as_it_may_be_won_or_lost(
    history: History,
) -> None:
    for step in play(history):
        if step.before is OPEN:
            granted = step.votes_after.count("G")
            may_be_won = granted + step.votes_after.count("P") >= history.quorum
            assert (step.after is OPEN) == (may_be_won and granted < history.quorum)
            assert step.closed_ns == (0 if step.after is OPEN else step.event.at_ns)


@thorough
@given(histories())
def test_lost_round_is_unreachable_if_fewer_than_a_quorum_could_answer(
    history: History,
) -> None:
    for step in play(history):
        if step.before is OPEN and step.after in (TAKEN, UNREACHABLE):
            failed = [vote for vote in step.votes_after if vote in "FES"]
            could_answer = history.masters - len(failed)
            is_unreachable = could_answer < history.quorum
            assert (step.after is UNREACHABLE) == is_unreachable


@thorough
@given(histories())
def test_vote_is_refused_exactly_where_it_is_the_second_of_its_master(
    history: History,
) -> None:
    for step in play(history):
        if step.event.letter in "GTFE":
            cell = step.votes_before[step.event.master]
            assert step.is_refused == (cell in "GTE")
        if step.is_refused:
            assert (step.after, step.votes_after) == (step.before, step.votes_before)


@thorough
@given(histories())
def test_vote_that_is_taken_shows_in_its_own_cell_and_no_other(
    history: History,
) -> None:
    for step in play(history):
        if step.event.letter in "GTFE" and not step.is_refused:
            expected = list(step.votes_before)
            expected[step.event.master] = step.event.letter
            assert step.votes_after == "".join(expected)


@thorough
@given(histories())
def test_masters_that_may_hold_the_key_are_all_that_did_not_definitely_refuse(
    history: History,
) -> None:
    refused = set()
    for step in play(history):
        if step.event.letter in "TE" and not step.is_refused:
            refused.add(step.event.master)
        may_hold = {i for i in range(history.masters) if step.may_hold >> i & 1}
        assert may_hold == set(range(history.masters)) - refused


@thorough
@given(histories())
def test_inspect_closes_exactly_when_no_master_is_pending(history: History) -> None:
    for step in play(history, Operation.INSPECT):
        assert (step.after is OPEN) == ("P" in step.votes_after)
        if step.before is OPEN and step.after is not OPEN:
            answers = step.votes_after.count("G") + step.votes_after.count("T")
            assert step.after is (WON if answers >= history.quorum else UNREACHABLE)
