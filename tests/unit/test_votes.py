"""The vote of one master, as text for people and as values for programs."""

from hashlib import sha256
from typing import Any

import pytest

from fastredlock import MasterVote, Vote
from fastredlock._core import Operation, Round
from fastredlock._reports.votes import (
    NOT_AWAITED,
    connection_votes,
    describe_votes,
    holders_of,
    printable,
    votes_of,
)
from tests.support import by_hand
from tests.support.rounds import MS, T0, TERMS, cast, new_engine

HOLDER = b"hunter2"
TOLD = b"=hunter2"  # as the script tells it


def opened(operation: Operation, votes: str = "", **made: Any) -> Round:
    """Make an opened round of an engine of three masters, with these votes."""
    round = new_engine().new_round(operation, b"r", b"t", TERMS)
    round.open(T0)
    return cast(round, votes, T0 + 1_250_000)


def inspected(*replies: object) -> Round:
    """Make a closed INSPECT round; a reply is nil or a token in lines, and ms."""
    round = opened(Operation.INSPECT)
    for master, reply in enumerate(replies):
        if isinstance(reply, list):
            vote = Vote.GRANTED if reply[0] is None else Vote.TAKEN
            round.on_vote(master, vote, reply, True, T0 + MS)
    round.on_deadline(T0 + 500 * MS)
    return round


@pytest.mark.parametrize(
    ("vote", "shown"),
    [
        (MasterVote("a:1", Vote.GRANTED), "a:1 GRANTED"),
        (MasterVote("a:1", Vote.TAKEN, None, 0.44), "a:1 TAKEN in 0.4 ms"),
        (MasterVote("a:1", Vote.GONE, None, 0.44), "a:1 GONE in 0.4 ms"),
        (MasterVote("a:1", Vote.FAILED, "refused"), "a:1 FAILED (refused)"),
        (MasterVote("a:1", Vote.FAILED, "OOM", 2.0), "a:1 FAILED in 2.0 ms (OOM)"),
    ],
)
def test_vote_is_shown_with_its_time_and_text(vote: MasterVote, shown: str) -> None:
    assert str(vote) == shown


# Issue 29: an operator looked for a second holder, and the servers had been flushed.
@pytest.mark.parametrize(
    ("votes", "shown"),
    [
        ([(Vote.TAKEN, None)] * 2, "0 of 2 granted, 2 taken [a:1 TAKEN; b:1 TAKEN]"),
        (
            [(Vote.GONE, None), (Vote.TAKEN, None), (Vote.TAKEN, "gone or taken")],
            "0 of 3 granted, 1 gone or taken, 1 taken, 1 gone [a:1 GONE; ",
        ),
    ],
)
def test_votes_are_counted_then_shown_one_by_one(
    votes: list[tuple[Vote, str | None]], shown: str
) -> None:
    named = [MasterVote(f"{'abc'[i]}:1", *each) for i, each in enumerate(votes)]
    assert describe_votes(tuple(named)).startswith(shown)


def test_votes_of_a_round_are_one_per_master_in_configured_order() -> None:
    votes = votes_of(new_engine(), opened(Operation.ACQUIRE, "GFE"))
    assert votes == (
        MasterVote("master0:6379", Vote.GRANTED, None, 1.25),
        MasterVote("master1:6379", Vote.FAILED, "connection lost", None),
        MasterVote("master2:6379", Vote.FAILED, "LOADING", 1.25),
    )
    votes = votes_of(new_engine(), opened(Operation.ACQUIRE, "G"))
    assert [vote.vote.name for vote in votes] == ["GRANTED", "PENDING", "PENDING"]


# Issue 42: the master that was well was shown as the third broken one.
@pytest.mark.parametrize(
    ("connected", "text", "counts"),
    [
        (True, NOT_AWAITED, "0 of 3 granted, 2 failed, 1 not waited for ["),
        (False, "not connected yet", "0 of 3 granted, 2 failed, 1 pending ["),
    ],
)
def test_master_that_is_well_in_an_outage_is_told_apart_from_the_failed(
    connected: bool, text: str, counts: str
) -> None:
    engine = by_hand.new_engine(3) if connected else new_engine()
    if connected:
        by_hand.make_ready(engine, [by_hand.info(run_id=str(i)) for i in range(3)])
    votes = votes_of(engine, opened(Operation.ACQUIRE, "FF"))
    assert (votes[2].vote, votes[2].text) == (Vote.PENDING, text)
    assert describe_votes(votes).startswith(counts)


def test_silent_master_is_told_with_the_time_it_was_given() -> None:
    round = opened(Operation.ACQUIRE, "G")
    round.on_deadline(T0 + 500 * MS)
    text = votes_of(new_engine(), round)[1].text
    assert text == "no reply within 500 ms"


def test_connections_that_are_not_ready_are_failed_votes_with_their_reason() -> None:
    assert connection_votes(new_engine(1)) == (
        MasterVote("master0:6379", Vote.FAILED, "not connected yet"),
    )


# ---- resources


@pytest.mark.parametrize(
    ("resource", "shown"),
    [
        ("a", "'a'"),
        (b"a\xff", r"'a\\xff'"),
        (("a",), "'a'"),
        (("a", b"b"), "'a', 'b'"),
        (tuple("abcde"), "'a', 'b', 'c', 'd', 'e'"),
        (tuple("abcdefg"), "'a', 'b', 'c', 'd', 'e' and 2 more"),
    ],
)
def test_resources_are_shown_one_by_one_and_of_many_the_first(
    resource: Any, shown: str
) -> None:
    assert printable(resource) == shown


# ---- holders


def test_holder_is_told_by_a_hash_of_its_token_and_what_is_left() -> None:
    votes = holders_of(new_engine(), inspected([TOLD, 250], [TOLD, -1], None))
    expected = sha256(HOLDER).hexdigest()[:16]
    assert [(vote.token_hash, vote.remaining_ms) for vote in votes] == [
        (expected, 250),
        (expected, -1),
        (None, None),
    ]
    assert [vote.vote.name for vote in votes] == ["TAKEN", "TAKEN", "SILENT"]
    (nobody, *_) = holders_of(new_engine(), inspected([None, -2]))
    assert (nobody.vote, nobody.token_hash) == (Vote.GRANTED, None)


def test_holders_never_show_the_token_itself() -> None:
    votes = holders_of(new_engine(), inspected([TOLD, 250], [TOLD, 250]))
    assert "hunter2" not in f"{votes} {describe_votes(votes)}"
    assert votes[0].text is None
