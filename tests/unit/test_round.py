"""The state machine of a round: votes and the time become a verdict and a validity."""

from collections.abc import Callable
from typing import Any

import pytest

from fastredlock._core import Operation, Round, Terms, Verdict, Vote
from tests.support.rounds import (
    MS,
    OPEN,
    T0,
    TAKEN,
    TERMS,
    TOKEN,
    TOO_LATE,
    UNREACHABLE,
    WON,
    S,
    cast,
    letters,
    new_engine,
    new_round,
)

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


# ---- which masters may hold the key because of this round


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
