"""The state machine of a round: votes and the time become a verdict and a validity."""

from collections.abc import Callable
from functools import partial
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    History,
    S,
    Step,
    cast,
    histories,
    letters,
    new_engine,
    new_round,
    play,
    thorough,
)

# ---- whatever the order of votes, late ones and second ones: N = 1..7


def expected(history: History, step: Step, operation: Operation) -> Verdict:
    """Return the verdict of a round that was open before this step."""
    granted, taken, pending = map(step.votes_after.count, "GTP")
    if operation is Operation.INSPECT:
        answered = granted + taken >= history.quorum
        return OPEN if pending else WON if answered else UNREACHABLE
    if granted >= history.quorum:
        return WON if step.event.at_ns < history.valid_until_ns else TOO_LATE
    if granted + pending >= history.quorum:
        return OPEN
    could_answer = granted + taken + pending >= history.quorum
    return TAKEN if could_answer else UNREACHABLE


@thorough
@given(histories(), st.sampled_from([Operation.ACQUIRE, Operation.INSPECT]))
def test_round_is_closed_by_the_vote_or_the_time_that_decides_it_and_stays_so(
    history: History, operation: Operation
) -> None:
    closed_ns = 0
    for step in play(history, operation):
        if step.before is OPEN:
            assert step.after is expected(history, step, operation)
            closed_ns = 0 if step.after is OPEN else step.event.at_ns
        elif step.after is not step.before:  # confirmed where its validity is over
            assert (step.before, step.event.letter) == (WON, "C")
            assert step.after is TOO_LATE
            assert operation is Operation.ACQUIRE
            assert step.event.at_ns >= history.valid_until_ns
        assert step.closed_ns == closed_ns


@thorough
@given(histories())
def test_vote_shows_in_its_own_cell_and_is_refused_where_it_is_the_second(
    history: History,
) -> None:
    refused, votes = set(), "P" * history.masters
    for step in play(history):
        at, letter = step.event.master, step.event.letter
        if letter in "GTFE":
            assert step.is_refused == (votes[at] in "GTE")
            if not step.is_refused:
                votes = votes[:at] + letter + votes[at + 1 :]
                refused |= {at} if letter in "TE" else set()
        elif letter == "D" and step.before is OPEN:
            votes = votes.replace("P", "S")
        assert step.votes_after == votes
        may_hold = {i for i in range(history.masters) if step.may_hold >> i & 1}
        assert may_hold == {*range(history.masters)} - refused


def test_release_is_won_by_a_master_that_reconnects_while_it_is_open() -> None:
    round = cast(new_round(3, Operation.RELEASE), "FG")
    assert round.verdict is OPEN
    assert cast(round, "G").verdict is WON


# ---- leases


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


# ---- validity, to the nanosecond


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
def test_round_that_gives_no_lease_has_no_validity_to_lose_and_puts_no_keys(
    operation: Operation,
) -> None:
    assert new_round(3, operation).may_hold == 0
    round = cast(new_round(3, operation), "GGG", T0 + 60 * S)
    round.confirm(T0 + 120 * S)
    assert round.verdict is WON


# ---- which masters may hold the key because of this round


def test_only_masters_that_were_sent_the_command_may_hold_the_key() -> None:
    round = Round(Operation.ACQUIRE, b"r", TOKEN, TERMS, 64)
    round.open(T0)
    for master in (0, 5, 63):
        round.on_sent(master)
    assert round.may_hold == 1 << 0 | 1 << 5 | 1 << 63


# ---- of several keys

KEYS = (b"a", b"b", b"c")
BAD_KEYS: list[tuple[Any, ...]] = [(), ("a",), (b"a", None), (b"a", bytearray(b"b"))]


def plain_round(operation: int, masters: int = 3) -> Round:
    return Round(operation, b"r", b"t", TERMS, masters)


def round_of(operation: int, keys: tuple[bytes, ...]) -> Round:
    return new_engine().new_round(operation, keys, TOKEN, TERMS)


@pytest.mark.parametrize("keys", [b"a", KEYS])
def test_what_follows_a_round_is_of_its_keys_and_token(
    keys: bytes | tuple[bytes, ...],
) -> None:
    engine, terms = new_engine(3), Terms(5_000, 52 * MS, 250 * MS)
    lease = engine.new_round(Operation.ACQUIRE, keys, TOKEN, TERMS)
    extension = engine.new_extension(lease, terms)
    release = engine.new_release(lease, terms)
    adopted = engine.new_adopted(keys, TOKEN, terms)
    assert extension.operation is Operation.EXTEND
    assert release.operation is Operation.RELEASE
    several = keys if keys is KEYS else None
    for round in (extension, release, adopted):
        assert (round.keys, round.resource, round.token) == (several, b"a", TOKEN)
        assert round.terms is terms


@pytest.mark.parametrize(
    ("make", "match"),
    [
        *((partial(plain_round, each), "no such operation") for each in (-1, 5)),
        *((partial(plain_round, 0, n), "1 to 64") for n in (-1, 0, 65)),
        *(
            (partial(Terms, a, b, c), "negative")
            for a, b, c in permutations((-1, 0, 0))
        ),
        *((partial(round_of, 0, keys), "no keys|not bytes") for keys in BAD_KEYS),
        *((partial(round_of, each, KEYS), "no such op") for each in (-1, 5)),
        (partial(round_of, Operation.INSPECT, KEYS), "one by one"),
    ],
)
def test_round_of_what_is_none_is_refused(
    make: Callable[[], object], match: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=match):
        make()


# ---- votes that are none, and what a vote says


@pytest.mark.parametrize("vote", [-1, Vote.PENDING, Vote.SILENT, 6])
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
