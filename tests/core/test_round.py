"""The state machine of a round: votes and the time become a verdict and a validity."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given

from fastredlock._core import Operation, Round, Terms, Verdict, Vote

from .conftest import (
    MS,
    T0,
    TERMS,
    TOKEN,
    History,
    S,
    cast,
    histories,
    letters,
    new_engine,
    new_round,
    play,
    thorough,
)

WON, TAKEN = Verdict.WON, Verdict.TAKEN
UNREACHABLE, TOO_LATE, OPEN = Verdict.UNREACHABLE, Verdict.TOO_LATE, Verdict.OPEN


# ---- opening


def test_round_is_open_and_all_votes_pending_at_first() -> None:
    round = new_round(3)
    assert (round.verdict, letters(round), round.is_won) == (OPEN, "PPP", False)


def test_round_keeps_what_it_was_made_of() -> None:
    round = Round(Operation.EXTEND, b"r", b"t", TERMS, 3)
    assert (round.operation, round.resource, round.token) == (1, b"r", b"t")
    assert round.terms is TERMS
    assert not round.is_opened


@pytest.mark.parametrize("operation", [-1, 4])
def test_round_of_an_unknown_operation_is_refused(operation: int) -> None:
    with pytest.raises(ValueError, match="no such operation"):
        Round(operation, b"r", b"t", TERMS, 3)


@pytest.mark.parametrize("masters", [-1, 0, 65])
def test_round_of_too_few_or_too_many_masters_is_refused(masters: int) -> None:
    with pytest.raises(ValueError, match="master_count"):
        Round(Operation.ACQUIRE, b"r", b"t", TERMS, masters)


@pytest.mark.parametrize("times", [(-1, 0, 0), (0, -1, 0), (0, 0, -1)])
def test_terms_with_a_negative_time_are_refused(times: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="negative"):
        Terms(*times)


def test_round_is_opened_only_once() -> None:
    round = new_round(3)
    with pytest.raises(RuntimeError, match="opened once"):
        round.open(T0 + MS)
    assert round.opened_ns == T0


@pytest.mark.parametrize(
    "event",
    [lambda r: r.on_vote(0, Vote.GRANTED, None, True, T0), lambda r: r.on_deadline(T0)],
    ids=["vote", "deadline"],
)
def test_round_before_its_opening_refuses_events(
    event: Callable[[Round], None],
) -> None:
    round = Round(Operation.ACQUIRE, b"r", b"t", TERMS, 3)
    with pytest.raises(RuntimeError, match="not open"):
        event(round)
    assert (round.verdict, letters(round), round.closed_ns) == (OPEN, "PPP", 0)


# ---- closing: each line of the theory of operation


@pytest.mark.parametrize("operation", [Operation.EXTEND, Operation.RELEASE])
@pytest.mark.parametrize(
    ("masters", "votes", "verdict"),
    [
        (1, "T", TAKEN),
        (3, "TT", TAKEN),
        (3, "FTT", TAKEN),
        (3, "FT", OPEN),
        (3, "GTF", UNREACHABLE),  # the third may have it: two of three
        (3, "GTE", UNREACHABLE),
        (4, "TT", TAKEN),
        (4, "GTFF", UNREACHABLE),
        (5, "GGTTF", UNREACHABLE),
        (5, "GTTT", TAKEN),
        (5, "FTTFF", UNREACHABLE),
    ],
)
def test_lease_counts_as_gone_only_where_it_can_stand_on_no_quorum(
    operation: Operation, masters: int, votes: str, verdict: Verdict
) -> None:
    round = Round(operation, b"r", b"t", TERMS, masters)
    round.open(T0)
    assert cast(round, votes).verdict is verdict


@pytest.mark.parametrize(
    ("masters", "votes", "verdict"),
    [
        (1, "G", WON),
        (1, "T", TAKEN),
        (1, "F", UNREACHABLE),
        (2, "GG", WON),
        (2, "T", TAKEN),
        (2, "F", UNREACHABLE),
        (3, "GG", WON),
        (3, "TGG", WON),
        (3, "TT", TAKEN),
        (3, "FT", TAKEN),
        (3, "GFT", TAKEN),
        (3, "FF", UNREACHABLE),
        (3, "GFF", UNREACHABLE),
        (4, "GGG", WON),
        (4, "TT", TAKEN),
        (4, "GFT", TAKEN),
        (4, "FF", UNREACHABLE),
        (5, "GGG", WON),
        (5, "FGTGG", WON),
        (5, "TTT", TAKEN),
        (5, "EET", TAKEN),
        (5, "GGTFF", TAKEN),
        (5, "FFE", UNREACHABLE),
        (5, "GGFFF", UNREACHABLE),
        (5, "GTFF", TAKEN),  # the fifth could have answered
        (6, "GGGG", WON),
        (6, "TTT", TAKEN),
        (7, "GGGFFFG", WON),
        (7, "GGGTTTF", TAKEN),
    ],
)
def test_round_closes_at_the_vote_that_decides_it_and_not_before(
    masters: int, votes: str, verdict: Verdict
) -> None:
    assert cast(new_round(masters), votes[:-1]).verdict is OPEN
    assert cast(new_round(masters), votes).verdict is verdict


@pytest.mark.parametrize("masters", range(1, 65))
def test_round_is_won_by_half_of_the_configured_masters_and_one(masters: int) -> None:
    votes = "G" * (masters // 2 + 1)
    assert cast(new_round(masters), votes[:-1]).verdict is OPEN
    assert cast(new_round(masters), votes).verdict is WON


@pytest.mark.parametrize(
    ("votes", "verdict"),
    [
        (".....", UNREACHABLE),
        ("GG...", UNREACHABLE),
        ("GT...", UNREACHABLE),
        ("GF...", UNREACHABLE),
        ("GGT..", TAKEN),
        ("TT.G.", TAKEN),
        ("GGTF.", TAKEN),
    ],
)
def test_round_at_its_deadline_counts_those_not_heard_as_silent(
    votes: str, verdict: Verdict
) -> None:
    round = cast(new_round(5), votes)
    round.on_deadline(T0 + 500 * MS)
    assert round.verdict is verdict
    assert letters(round) == votes.replace(".", "S")


def test_round_deadline_is_the_opening_and_the_timeout() -> None:
    assert new_round().deadline_ns == T0 + 500 * MS


def test_round_remembers_when_it_was_closed_and_keeps_it() -> None:
    round = cast(new_round(3), "GG", T0 + 7 * MS)
    cast(round, "..G", T0 + 9 * MS)
    round.on_deadline(T0 + 500 * MS)
    round.confirm(T0 + 20 * S)
    assert (round.verdict, round.closed_ns) == (TOO_LATE, T0 + 7 * MS)


def test_deadline_of_a_closed_round_changes_nothing() -> None:
    round = cast(new_round(5), "GGG")
    round.on_deadline(T0 + 500 * MS)
    assert (round.verdict, letters(round)) == (WON, "GGGPP")


# ---- validity, to the nanosecond


def test_validity_is_ttl_less_drift_from_the_opening_on() -> None:
    round = new_round(3, terms=Terms(10_000, 102_000_001, 1))
    assert round.valid_until_ns == T0 + 10_000_000_000 - 102_000_001


@pytest.mark.parametrize(
    ("left_ns", "verdict"), [(1, WON), (0, TOO_LATE), (-1, TOO_LATE)]
)
@pytest.mark.parametrize("operation", [Operation.ACQUIRE, Operation.EXTEND])
def test_round_with_a_quorum_is_won_only_if_validity_is_left(
    operation: Operation, left_ns: int, verdict: Verdict
) -> None:
    round = new_round(3, operation)
    cast(round, "GG", round.valid_until_ns - left_ns)
    assert (round.verdict, round.is_won) == (verdict, verdict is WON)


@pytest.mark.parametrize(
    ("left_ns", "verdict"), [(1, WON), (0, TOO_LATE), (-S, TOO_LATE)]
)
def test_confirm_of_a_won_round_checks_the_validity_again(
    left_ns: int, verdict: Verdict
) -> None:
    round = cast(new_round(3), "GG")
    round.confirm(round.valid_until_ns - left_ns)
    assert round.verdict is verdict


@pytest.mark.parametrize("operation", [Operation.RELEASE, Operation.INSPECT])
def test_round_that_gives_no_lease_has_no_validity_to_lose(
    operation: Operation,
) -> None:
    round = cast(new_round(3, operation), "GGG", T0 + 60 * S)
    round.confirm(T0 + 120 * S)
    assert round.verdict is WON


@pytest.mark.parametrize(
    ("votes", "verdict"),
    [("TT", TAKEN), ("FF", UNREACHABLE), ("G", OPEN)],
)
def test_confirm_of_a_round_that_is_not_won_changes_nothing(
    votes: str, verdict: Verdict
) -> None:
    round = cast(new_round(3), votes)
    round.confirm(T0 + 60 * S)
    assert round.verdict is verdict


# ---- inspect waits for all


def test_inspect_waits_for_the_last_master() -> None:
    round = cast(new_round(5, Operation.INSPECT), "TTGF")
    assert round.verdict is OPEN
    assert cast(round, "....T").verdict is WON


@pytest.mark.parametrize(
    ("votes", "verdict"),
    [
        ("TTTTT", WON),
        ("TTGFF", WON),
        ("TGFFF", UNREACHABLE),
        ("TTG..", WON),
        ("TG...", UNREACHABLE),
    ],
)
def test_inspect_is_won_by_any_answers_of_a_quorum(
    votes: str, verdict: Verdict
) -> None:
    round = cast(new_round(5, Operation.INSPECT), votes)
    round.on_deadline(T0 + 500 * MS)
    assert round.verdict is verdict


# ---- who may hold the key because of this round


def test_only_masters_that_were_sent_the_command_may_hold_the_key() -> None:
    round = Round(Operation.ACQUIRE, b"r", TOKEN, TERMS, 64)
    round.open(T0)
    for master in (0, 5, 63):
        round.on_sent(master)
    assert round.may_hold == 1 << 0 | 1 << 5 | 1 << 63


def test_only_a_definite_refusal_says_that_a_master_does_not_hold_the_key() -> None:
    round = cast(new_round(5), "GTEF")
    round.on_deadline(T0 + 500 * MS)
    assert letters(round) == "GTEFP"  # closed before the deadline
    assert round.may_hold == 0b11001


def test_silent_master_may_hold_the_key_until_it_refuses_late() -> None:
    round = cast(new_round(3), "GF.")
    round.on_deadline(T0 + 500 * MS)
    assert round.may_hold == 0b111
    assert cast(round, "..T").may_hold == 0b011


def test_unknown_reply_does_not_say_that_the_key_was_refused() -> None:
    round = new_round(3)
    round.on_vote(0, Vote.FAILED, "unexpected reply of type int", False, T0)
    assert round.may_hold == 0b111


@pytest.mark.parametrize("operation", [Operation.RELEASE, Operation.INSPECT])
def test_release_and_inspection_put_no_keys_on_masters(operation: Operation) -> None:
    assert new_round(3, operation).may_hold == 0


# ---- of several keys

KEYS = (b"a", b"b", b"c")


@pytest.mark.parametrize("operation", ["ACQUIRE", "EXTEND", "RELEASE"])
def test_round_of_all_keeps_its_keys_and_is_of_the_operation_itself(
    operation: str,
) -> None:
    asked = Operation[operation]
    round = new_engine(3).new_round(asked, KEYS, TOKEN, TERMS)
    assert (round.operation, round.keys, round.resource) == (asked, KEYS, b"a")
    assert (round.token, round.terms) == (TOKEN, TERMS)


def test_round_of_one_resource_has_no_keys() -> None:
    engine = new_engine(3)
    lease = engine.new_round(Operation.ACQUIRE, b"a", TOKEN, TERMS)
    adopted = engine.new_adopted(b"a", TOKEN, TERMS)
    extension, release = (
        engine.new_extension(lease, TERMS),
        engine.new_release(lease, TERMS),
    )
    assert [r.keys for r in (lease, adopted, extension, release)] == [None] * 4


def test_what_follows_a_round_of_all_is_of_its_keys_and_token() -> None:
    engine, terms = new_engine(3), Terms(5_000, 52 * MS, 250 * MS)
    lease = engine.new_round(Operation.ACQUIRE, KEYS, TOKEN, TERMS)
    extension = engine.new_extension(lease, terms)
    release = engine.new_release(lease, terms)
    assert extension.operation is Operation.EXTEND
    assert release.operation is Operation.RELEASE
    for round in (extension, release):
        assert (round.keys, round.resource, round.token) == (KEYS, b"a", TOKEN)
        assert round.terms is terms


def test_release_of_all_reaches_the_masters_that_may_hold_a_key() -> None:
    engine = new_engine(5)
    lease = engine.new_round(Operation.ACQUIRE, KEYS, TOKEN, TERMS)
    lease.open(T0)
    for master in range(5):
        lease.on_sent(master)
    cast(lease, "GTEF")
    assert engine.new_release(lease, TERMS).may_hold == lease.may_hold == 0b11001


def test_adopted_keys_may_stand_on_every_master() -> None:
    adopted = new_engine(5).new_adopted(KEYS, TOKEN, TERMS)
    assert (adopted.keys, adopted.token) == (KEYS, TOKEN)
    assert (adopted.may_hold, adopted.is_opened) == (0b11111, False)


@pytest.mark.parametrize("keys", [(), ("a",), (b"a", None)])
def test_round_of_all_without_keys_or_of_other_than_bytes_is_refused(
    keys: tuple[Any],
) -> None:
    with pytest.raises((TypeError, ValueError), match=r"no keys|not bytes"):
        new_engine().new_round(Operation.ACQUIRE, keys, TOKEN, TERMS)


@pytest.mark.parametrize("operation", [-1, Operation.INSPECT, 4])
def test_round_of_all_for_another_operation_is_refused(operation: int) -> None:
    with pytest.raises(ValueError, match=r"one by one|no such operation"):
        new_engine().new_round(operation, KEYS, TOKEN, TERMS)


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


# ---- what is told of each vote


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
