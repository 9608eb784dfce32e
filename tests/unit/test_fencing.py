"""The number of a grant, reply by reply: no socket, no clock, no server."""

from __future__ import annotations

import pytest

from fastredlock._core import Engine, Operation, Round, Verdict, Vote
from fastredlock._locking.driver import new_scripts
from fastredlock._options import scripts
from fastredlock._options.masters import Endpoint
from tests.support import by_hand as hand
from tests.support.by_hand import MS, START_NS, TERMS, TIME_REPLY, S, sent
from tests.support.core import vote_of_reply

WALL_US = 1_800_000_000_000_000  # of the clock on the wall, at the start of a test
T0 = START_NS + S
FREE = b"*1\r\n:0\r\n"
RAISED = b":1\r\n"
NOSCRIPT = b"-NOSCRIPT No matching script. Please use EVAL.\r\n"


def number(fence: int) -> bytes:
    """Encode what the script of a master says that has this number now."""
    return b":%d\r\n" % fence


def ready_engine() -> Engine:
    """Make an engine of three that are ready; the clock on the wall is known."""
    endpoints = [Endpoint("127.0.0.1", 7001 + i) for i in range(3)]
    engine = Engine(endpoints, new_scripts(None, True), S, (), jitter_seed=1)
    hand.by_hand(engine)
    engine.wall_offset_ns = WALL_US * 1000 - T0
    for i in hand.open_due(engine, True, START_NS):
        hand.shake_hands(engine, i, START_NS)
    inspection = engine.new_round(int(Operation.INSPECT), b"key", b"-", TERMS)
    hand.submit(engine, inspection, START_NS)
    hand.say(engine, FREE + TIME_REPLY, START_NS)
    for i in range(3):
        hand.outgoing(engine, i)
    return engine


def begin(
    engine: Engine, now_ns: int = T0, key: bytes | tuple[bytes, ...] = b"key"
) -> Round:
    """Submit an acquire of one key or several; its commands stand to be read."""
    round = engine.new_round(int(Operation.ACQUIRE), key, b"token-%d" % now_ns, TERMS)
    hand.submit(engine, round, now_ns)
    return round


def hear(engine: Engine, now_ns: int, *said: bytes) -> None:
    """Let masters 0, 1, ... say this (b"": nothing), then end the step."""
    for master, reply in enumerate(said):
        if reply:
            hand.receive(engine, master, reply, now_ns)
    hand.finish(engine, now_ns)


def grant(engine: Engine, *numbers: int) -> Round:
    """Begin an acquire, and let masters 0, 1, ... answer under these numbers."""
    round = begin(engine)
    for master in range(3):
        sent(engine, master)
    hear(engine, T0 + MS, *map(number, numbers))
    return round


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
    assert [int(words[-2]) for words in sent(engine)] == [proposed]


def test_proposal_is_above_the_last_number_of_its_own_resource() -> None:
    """And of that alone: the wrong clock of one holder is no business of others."""
    engine = ready_engine()
    ahead = WALL_US + 3_600_000_000
    grant(engine, ahead, ahead)
    for key in (b"key", b"another"):
        begin(engine, T0 + S, key)
    first, second = (int(words[-2]) for words in sent(engine))
    assert first == ahead + 1
    assert second < ahead


# ---- the second write


def test_number_when_a_late_master_has_less_then_is_written_there_too() -> None:
    engine = ready_engine()
    round = grant(engine, 7, WALL_US + 9)
    sent(engine)
    hear(engine, T0 + 2 * MS, b"", b"", number(WALL_US))
    assert round.verdict is Verdict.OPEN
    assert [words[1] for words in sent(engine, 2)] == [scripts.WRITE_FENCE_SHA1]
    assert sent(engine, 0) == []  # not twice
    hear(engine, T0 + 3 * MS, b"", b"", RAISED)
    assert (round.is_won, round.fence) == (True, WALL_US + 9)
    assert engine.counters.fences_written == 1


@pytest.mark.parametrize("said", [b"", b"-OOM command not allowed\r\n"])
def test_second_write_when_no_quorum_confirms_then_the_round_is_lost_and_undone(
    said: bytes,
) -> None:
    engine = ready_engine()
    round = grant(engine, 7, 9)  # a quorum has to have 9
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


def test_second_write_when_nothing_was_in_flight_before_then_ends_at_its_deadline() -> (
    None
):
    """Seed 4004127: the step in which all had answered looked for the next due time
    before it wrote; the silence of all masters after that had no end."""
    engine = ready_engine()
    round = begin(engine, T0, (b"a", b"b"))
    said = [(i, False, number(each), "") for i, each in enumerate((7, 9, 7))]
    assert engine.next_ns <= T0  # so the step looks for the next due time
    hand.take_events(engine, said, 0, T0 + MS)
    assert round.verdict is Verdict.OPEN
    assert engine.next_ns <= round.deadline_ns
    hand.pass_time(engine, round.deadline_ns)
    hand.finish(engine, round.deadline_ns)
    assert (round.verdict, round.is_finished) == (Verdict.UNREACHABLE, True)


def test_second_write_when_the_gate_refuses_the_round_then_it_is_taken() -> None:
    """Its veto comes behind the quorum of the others."""
    engine = ready_engine()
    round = engine.new_round(int(Operation.ACQUIRE), b"key", b"token", TERMS)
    round.wait_in_turn(T0)
    hand.submit(engine, round, T0)
    gate = next(i for i in range(3) if sent(engine, i))
    turn = b">3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n:1\r\n*4\r\n:1\r\n:-2\r\n:0\r\n:1\r\n"
    others = [number(7 + i) for i in range(3)]
    refused = b"*2\r\n:2\r\n:0\r\n"
    hear(engine, T0 + MS, *(turn if i == gate else b"" for i in range(3)))
    hear(engine, T0 + 2 * MS, *(b"" if i == gate else others[i] for i in range(3)))
    assert (round.is_opened, round.verdict) == (True, Verdict.OPEN)
    hear(engine, T0 + 3 * MS, *(refused if i == gate else b"" for i in range(3)))
    assert round.verdict is Verdict.TAKEN


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
