"""Votes that come late, twice, or not from a master, and the text of each vote."""

import pytest

from fastredlock._core import Operation, Round, Vote
from tests.support.rounds import (
    MS,
    OPEN,
    T0,
    TERMS,
    TOKEN,
    UNREACHABLE,
    WON,
    S,
    cast,
    letters,
    new_round,
)

# ---- answers that come late, twice, or not from a master


@pytest.mark.parametrize(
    ("votes", "late", "after"),
    [
        ("GG", "..G", "GGG"),
        ("GG", "..T", "GGT"),
        ("GG", "..F", "GGF"),
        ("TT", "..G", "TTG"),
        ("FF", "..G", "FFG"),
        ("FF", "GT.", "GTP"),
        ("FF", "E..", "EFP"),
        ("GGT.F", "...G", "GGTGF"),
    ],
)
def test_late_vote_is_counted_in_its_cell_and_decides_nothing(
    votes: str, late: str, after: str
) -> None:
    round = cast(new_round(len(after)), votes)
    round.on_deadline(T0 + 500 * MS)
    verdict = round.verdict
    cast(round, late, T0 + 600 * MS)
    assert letters(round) == after
    assert round.verdict is verdict is not OPEN


def test_late_grants_do_not_win_a_round_that_was_lost() -> None:
    round = new_round(3)
    round.on_deadline(T0 + 500 * MS)
    cast(round, "GGG", T0 + 501 * MS)
    round.confirm(T0 + 501 * MS)
    assert (round.verdict, letters(round)) == (UNREACHABLE, "GGG")


def test_late_refusals_do_not_lose_a_round_that_was_won() -> None:
    round = cast(new_round(5), "GGG")
    cast(round, "...TT", T0 + 600 * MS)
    assert (round.verdict, letters(round)) == (WON, "GGGTT")


@pytest.mark.parametrize("second", "GTFE")
@pytest.mark.parametrize("first", "GTE")
def test_second_vote_while_the_round_is_open_is_refused_and_changes_nothing(
    first: str, second: str
) -> None:
    round = cast(new_round(5), first)
    votes, may_hold = round.votes(), round.may_hold
    with pytest.raises(RuntimeError, match="second vote"):
        cast(round, second, T0 + 2 * MS)
    assert (round.votes(), round.may_hold, round.verdict) == (votes, may_hold, OPEN)


@pytest.mark.parametrize("second", "GTFE")
@pytest.mark.parametrize("first", "GTE")
def test_second_vote_after_the_close_is_refused_where_the_master_has_answered(
    first: str, second: str
) -> None:
    round = cast(new_round(3), first + first)
    votes, may_hold = round.votes(), round.may_hold
    with pytest.raises(RuntimeError, match="second vote"):
        cast(round, second, T0 + 2 * MS)
    assert (round.votes(), round.may_hold) == (votes, may_hold)


@pytest.mark.parametrize("second", "GTFE")
def test_master_that_failed_without_an_answer_may_answer_while_the_round_is_open(
    second: str,
) -> None:
    round = cast(new_round(5, Operation.RELEASE), "F")
    cast(round, second, T0 + 2 * MS)
    assert (letters(round), round.verdict) == (f"{second}PPPP", OPEN)


def test_release_is_won_by_a_master_that_reconnects_while_it_is_open() -> None:
    round = cast(new_round(3, Operation.RELEASE), "FG")
    assert round.verdict is OPEN
    assert cast(round, "G").verdict is WON


@pytest.mark.parametrize("vote", [-1, Vote.PENDING, Vote.SILENT, 5])
def test_vote_that_is_no_answer_is_refused_and_changes_nothing(vote: int) -> None:
    round = new_round(3)
    with pytest.raises(RuntimeError, match="not an answer"):
        round.on_vote(0, vote, None, True, T0)
    assert (letters(round), round.verdict) == ("PPP", OPEN)


@pytest.mark.parametrize("master", [-1, 3, 64])
def test_vote_of_a_master_that_is_not_configured_is_refused(master: int) -> None:
    round = new_round(3)
    with pytest.raises(ValueError, match="no such master"):
        round.on_vote(master, Vote.GRANTED, None, True, T0)
    with pytest.raises(ValueError, match="no such master"):
        round.on_sent(master)
    assert (letters(round), round.may_hold) == ("PPP", 0b111)


# ---- the text of each vote


def test_votes_tell_what_each_master_said_and_when() -> None:
    round = cast(new_round(4), "GF", T0 + 1_500_000)
    cast(round, "..E", T0 + 2_000_000)
    assert round.votes() == [
        (Vote.GRANTED, None, 1.5),
        (Vote.FAILED, "connection lost", None),
        (Vote.FAILED, "LOADING", 2.0),
        (Vote.PENDING, None, None),
    ]


def test_late_vote_replaces_what_was_said_of_its_master() -> None:
    round = cast(new_round(3), "FF")
    cast(round, "G", T0 + 3 * MS)
    assert round.votes()[0] == (Vote.GRANTED, None, 3.0)


@pytest.mark.parametrize(
    ("after_ns", "told_ms"),
    [(0, 0.001), (999, 0.001), (2_999, 0.002), (2**32 * 1000, (2**32 - 1) / 1000)],
)
def test_time_of_a_vote_is_in_whole_microseconds_within_its_limits(
    after_ns: int, told_ms: float
) -> None:
    round = new_round(3)
    round.on_vote(0, Vote.TAKEN, None, True, T0 + after_ns)
    assert round.votes()[0][2] == told_ms


# ---- the caller's timeout


@pytest.mark.parametrize(
    ("left_ns", "timeout_ns"),
    [(-1, 500 * MS), (0, 500 * MS), (100 * MS, 100 * MS), (S, 500 * MS)],
)
def test_round_ends_with_its_timeout_or_with_what_is_left_of_the_callers(
    left_ns: int, timeout_ns: int
) -> None:
    round = Round(Operation.ACQUIRE, b"orders:42", TOKEN, TERMS, 3)
    round.left_ns = left_ns
    assert round.deadline_ns == 0
    round.open(T0)
    assert round.deadline_ns == T0 + timeout_ns
