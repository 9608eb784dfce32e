"""The number of a grant, reply by reply: no socket, no clock, no server."""

from __future__ import annotations

import pytest

from fastredlock._core import (
    Engine,
    Operation,
    Round,
    Verdict,
    Vote,
)
from fastredlock._options import scripts
from tests.support import by_hand as hand
from tests.support.by_hand import MS, TERMS, S, said_of, sent
from tests.support.core import vote_of_reply
from tests.support.fenced import (
    NOT_OURS,
    RAISED,
    T0,
    TAKEN,
    WALL_US,
    begin,
    hear,
    is_write,
    number,
    ready_engine,
)

NOSCRIPT = b"-NOSCRIPT No matching script. Please use EVAL.\r\n"


def grant(engine: Engine, *numbers: int, keys: tuple[bytes, ...] = ()) -> Round:
    """Begin an acquire, and let masters 0, 1, ... answer under these numbers."""
    round = begin(engine, T0, *keys)
    for master in range(3):
        sent(engine, master)
    hear(engine, T0 + MS, *(number(each) if each else b"" for each in numbers))
    return round


def differing(*keys: bytes) -> tuple[Engine, Round]:
    """Let two of three masters answer, one 7 and one 9: a quorum has to have 9."""
    engine = ready_engine()
    return engine, grant(engine, 7, 9, keys=keys)


def proposals(engine: Engine) -> list[int]:
    return [int(words[-2]) for words in sent(engine)]


def is_release(words: list[bytes]) -> bool:
    return words[1] in (scripts.RELEASE, scripts.RELEASE_AND_NOTIFY)


# ---- what is sent


@pytest.mark.parametrize(
    ("passed_ns", "stepped_us", "proposed"),
    [
        (S, 0, WALL_US + 1_000_000),
        (0, 0, WALL_US + 1),
        (S, -3_600_000_000, WALL_US + 1),  # set back
        (S, 1 << 52, WALL_US + 1),  # beyond the year 2112
    ],
)
def test_proposal_follows_the_clock_and_never_goes_back(
    passed_ns: int, stepped_us: int, proposed: int
) -> None:
    engine = ready_engine()
    begin(engine)
    sent(engine)
    engine.wall_offset_ns += stepped_us * 1000
    begin(engine, T0 + passed_ns)
    assert proposals(engine) == [proposed]


def test_proposal_is_ahead_of_a_clock_that_is_behind_by_some_milliseconds() -> None:
    """Of all resources, by as much as was seen; so a master need not be asked again."""
    engine = ready_engine()
    ahead = WALL_US + 1000 + 2000  # 2 ms more than this clock, 1 ms after the start
    grant(engine, ahead, ahead)
    begin(engine, T0 + S, b"another")
    assert proposals(engine) == [WALL_US + 1_000_000 + 2000]


# ---- what a master says of the key and of the number

ERROR = b"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"


@pytest.mark.parametrize(
    ("said", "vote", "text", "may_hold"),
    [
        (number(7), Vote.GRANTED, None, True),
        (TAKEN, Vote.TAKEN, None, False),
        (b"-OOM no\r\n", Vote.FAILED, "OOM no", False),
        (ERROR, Vote.FAILED, "WRONGTYPE", False),
    ],
)
def test_reply_of_the_script_is_the_vote_of_key_and_number(
    said: bytes, vote: Vote, text: str | None, may_hold: bool
) -> None:
    """An error has set no key: the number comes first."""
    engine = ready_engine()
    round = begin(engine)
    hear(engine, T0 + MS, said)
    told, detail = said_of(round, 0)
    assert told is vote
    assert detail == text or (text is not None and text in str(detail))
    assert round.may_hold & 1 == may_hold


# ---- the second write


def test_number_when_a_late_master_has_less_then_is_written_there_too() -> None:
    engine = ready_engine()
    round = grant(engine, 7, WALL_US + 9)
    sent(engine)
    hear(engine, T0 + 2 * MS, b"", b"", number(WALL_US))
    assert round.verdict is Verdict.OPEN
    assert [is_write(words) for words in sent(engine, 2)] == [True]
    assert sent(engine, 0) == []  # not twice
    hear(engine, T0 + 3 * MS, b"", b"", RAISED)
    assert (round.is_won, round.fence) == (True, WALL_US + 9)
    assert engine.counters.fences_written == 1


def test_second_write_when_the_key_has_gone_then_is_no_confirmation() -> None:
    engine, round = differing()
    hear(engine, T0 + 2 * MS, NOT_OURS)
    assert round.verdict is Verdict.OPEN
    hear(engine, T0 + 3 * MS, b"", b"", TAKEN)
    assert round.verdict is Verdict.TAKEN
    assert is_release(sent(engine)[-1])


@pytest.mark.parametrize("said", [b"", b"-OOM command not allowed\r\n"])
def test_second_write_when_no_quorum_confirms_then_the_round_is_lost_and_undone(
    said: bytes,
) -> None:
    engine, round = differing()
    assert round.deadline_ns == T0 + MS + TERMS.timeout_ns  # as long again, once
    sent(engine)
    hear(engine, T0 + 2 * MS, said)
    hand.pass_time(engine, T0 + MS + TERMS.timeout_ns)
    hand.finish(engine, T0 + MS + TERMS.timeout_ns)
    assert (round.verdict, round.is_finished) == (Verdict.UNREACHABLE, True)
    assert round.may_hold == 0b111
    for master in range(3):
        assert is_release(sent(engine, master)[-1])
    hear(engine, T0 + 2 * S, b"" if said else RAISED)  # too late
    assert not round.is_won


def test_second_write_of_a_single_try_ends_in_two_round_timeouts_with_the_wait() -> (
    None
):
    """Seen: seed 2002878, I4; it had waited a round timeout for a connection."""
    engine = ready_engine()
    began_ns = T0 - TERMS.timeout_ns
    round = engine.new_round(
        int(Operation.ACQUIRE), b"key", b"token", TERMS, 1, began_ns
    )
    hand.submit(engine, round, T0)
    hear(engine, T0 + MS, number(7), number(9))
    assert round.deadline_ns == T0 + TERMS.timeout_ns


def test_second_write_when_nothing_was_in_flight_before_then_ends_at_its_deadline() -> (
    None
):
    """Seed 4004127: the step in which all had answered looked for the next due time
    before it wrote; the silence of all masters after that had no end."""
    engine = ready_engine()
    round = begin(engine, T0, b"a", b"b")
    said = [(i, False, number(each), "") for i, each in enumerate((7, 9, 7))]
    assert engine.next_ns <= T0  # so the step looks for the next due time
    hand.take_events(engine, said, 0, T0 + MS)
    assert round.verdict is Verdict.OPEN
    assert engine.next_ns <= round.deadline_ns
    hand.pass_time(engine, round.deadline_ns)
    hand.finish(engine, round.deadline_ns)
    assert (round.verdict, round.is_finished) == (Verdict.UNREACHABLE, True)


def test_script_of_a_number_when_it_is_unknown_then_is_sent_by_its_source() -> None:
    engine = ready_engine()
    round = begin(engine)
    (first,) = sent(engine)
    hear(engine, T0 + MS, NOSCRIPT)
    assert sent(engine) == [[b"EVAL", scripts.FENCED_ACQUIRE_ALL, *first[2:]]]
    hear(engine, T0 + 2 * MS, number(7), number(9))
    (second,) = sent(engine)
    hear(engine, T0 + 3 * MS, NOSCRIPT)
    assert sent(engine) == [[b"EVAL", scripts.WRITE_FENCE, *second[2:]]]
    hear(engine, T0 + 4 * MS, RAISED)
    assert (round.is_won, round.fence) == (True, 9)


@pytest.mark.parametrize(
    ("is_at_gate", "reply", "vote"),
    [
        *((False, number, Vote.GRANTED) for number in (7, 1)),
        (False, 0, Vote.TAKEN),
        *((False, odd, Vote.FAILED) for odd in (-1, 1 << 53, b"OK", None, [1, 7])),
        *((True, [said, 7], Vote.GRANTED) for said in (1, 3)),
        *((True, [said, 0], Vote.TAKEN) for said in (0, 2)),
        *((True, odd, Vote.FAILED) for odd in ([1, 0], [0, 7], [1, 1 << 53], [1], 1)),
    ],
)
def test_reply_with_a_number_is_a_vote(
    is_at_gate: bool, reply: object, vote: Vote
) -> None:
    asked = int(Operation.ACQUIRE)
    said = vote_of_reply(asked, reply, is_at_gate=is_at_gate, is_fenced=True)
    assert said[0] is vote
