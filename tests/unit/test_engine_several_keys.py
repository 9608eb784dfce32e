"""Rounds of several keys, reply by reply: no socket, no clock, no server."""

from __future__ import annotations

from collections.abc import Callable

import hiredis
import pytest

from fastredlock._core import (
    Engine,
    Operation,
    Round,
    Verdict,
    Vote,
    by_hand_conclude,
    by_hand_connected,
    by_hand_lost,
    by_hand_open_due,
    by_hand_outgoing,
    by_hand_receive,
    by_hand_start,
    by_hand_withdraw,
)
from fastredlock._options import scripts
from tests.support.by_hand import (
    HELLO,
    MS,
    START_NS,
    TERMS,
    S,
    begin_all,
    handshake_replies,
    info,
    make_ready,
    new_engine,
    said_of,
)

T0 = START_NS + S
TIME_REPLY = b"*2\r\n$1\r\n1\r\n$1\r\n1\r\n"  # TIME rides with the first round
NOSCRIPT = b"-NOSCRIPT No matching script. Please use EVAL.\r\n"


def ready_engine(count: int) -> Engine:
    said = [info(run_id=f"id{i}", uptime_in_seconds=99) for i in range(count)]
    return make_ready(new_engine(count), said)


def sent(engine: Engine, master: int = 0) -> list[list[bytes]]:
    """Return the commands that were queued for a master, without TIME."""
    reader = hiredis.Reader(notEnoughData=None)
    reader.feed(by_hand_outgoing(engine, master))
    return [words for words in iter(reader.gets, None) if words != [b"TIME"]]


def answer(engine: Engine, *replies: bytes, at_ns: int = T0 + MS) -> None:
    """Let masters 0, 1, ... say this."""
    for master, reply in enumerate(replies):
        by_hand_receive(engine, master, reply, at_ns)


def won_on_two_of_three(engine: Engine) -> Round:
    """Take both keys by the votes of two masters; the third says NOSCRIPT later."""
    lease = begin_all(engine, T0)
    answer(engine, b":1\r\n" + TIME_REPLY, b":1\r\n" + TIME_REPLY)
    by_hand_conclude(engine, lease, T0 + MS)
    assert lease.is_won
    sent(engine, 2)
    return lease


# ---- what is sent


def test_new_connection_when_introduced_then_loads_each_script() -> None:
    engine = new_engine(1)
    for i in by_hand_open_due(engine, True, T0):
        by_hand_connected(engine, i, T0)
        by_hand_outgoing(engine, i)
        by_hand_receive(engine, i, HELLO, T0)
    loaded = [words[2] for words in sent(engine) if words[0] == b"SCRIPT"]
    assert sorted(loaded) == sorted(
        [
            *(scripts.EXTEND, scripts.RELEASE, scripts.INSPECT),
            *(scripts.ACQUIRE_ALL, scripts.EXTEND_ALL, scripts.RELEASE_ALL),
        ]
    )


def test_round_of_all_when_begun_then_each_master_is_asked_by_one_script_call() -> None:
    engine = ready_engine(3)
    round = begin_all(engine, T0)
    call = [b"EVALSHA", scripts.ACQUIRE_ALL_SHA1, b"2", b"a", b"b", round.token]
    for master in range(3):
        assert sent(engine, master) == [[*call, b"10000"]]


def test_lease_of_all_when_extended_then_its_keys_are_in_one_script_call() -> None:
    engine = ready_engine(1)
    lease = begin_all(engine, T0)
    answer(engine, b":1\r\n" + TIME_REPLY)
    sent(engine)
    by_hand_start(engine, engine.new_extension(lease, TERMS), T0 + MS)
    call = [b"EVALSHA", scripts.EXTEND_ALL_SHA1, b"2", b"a", b"b", lease.token]
    assert sent(engine) == [[*call, b"10000"]]


def test_lease_of_all_when_released_then_its_keys_are_in_one_script_call() -> None:
    engine = ready_engine(1)
    lease = begin_all(engine, T0)
    answer(engine, b":1\r\n" + TIME_REPLY)
    sent(engine)
    by_hand_start(engine, engine.new_release(lease, TERMS), T0 + MS)
    call = [b"EVALSHA", scripts.RELEASE_ALL_SHA1, b"2", b"a", b"b", lease.token]
    assert sent(engine) == [call]


# ---- votes


@pytest.mark.parametrize(
    ("replies", "verdict"),
    [
        ((b":1\r\n", b":1\r\n"), Verdict.WON),
        ((b":0\r\n", b":0\r\n"), Verdict.TAKEN),
        ((b"-OOM no\r\n", b"-OOM no\r\n"), Verdict.UNREACHABLE),
    ],
)
def test_round_of_all_when_a_quorum_has_answered_then_is_closed_by_it(
    replies: tuple[bytes, ...], verdict: Verdict
) -> None:
    engine = ready_engine(3)
    round = begin_all(engine, T0)
    answer(engine, *replies)
    assert round.verdict is verdict


@pytest.mark.parametrize("reply", [b"+OK\r\n", b"$-1\r\n"])
def test_acquire_of_all_when_answered_as_a_set_then_the_connection_is_lost(
    reply: bytes,
) -> None:
    engine = ready_engine(1)
    round = begin_all(engine, T0)
    answer(engine, reply)
    assert said_of(round)[0] is Vote.FAILED
    assert "fits no question" in engine.states[0][1]


@pytest.mark.parametrize("reply", [b":1\r\n", b":0\r\n"])
def test_acquire_of_one_when_answered_as_a_script_then_the_connection_is_lost(
    reply: bytes,
) -> None:
    engine = ready_engine(1)
    round = engine.new_round(int(Operation.ACQUIRE), b"a", b"t", TERMS)
    by_hand_start(engine, round, T0)
    answer(engine, reply)
    assert said_of(round)[0] is Vote.FAILED
    assert "fits no question" in engine.states[0][1]


# ---- roll-back


def test_round_of_all_when_lost_then_all_its_keys_are_released_where_they_may_be() -> (
    None
):
    engine = ready_engine(3)
    round = begin_all(engine, T0)
    for master in range(3):
        sent(engine, master)
    answer(engine, b":1\r\n", b":0\r\n", b":0\r\n")
    by_hand_conclude(engine, round, T0 + MS)
    call = [b"EVAL", scripts.RELEASE_ALL, b"2", b"a", b"b", round.token]
    assert [sent(engine, master) for master in range(3)] == [[call], [], []]


def test_roll_back_of_all_when_its_connection_is_lost_then_is_sent_on_the_next() -> (
    None
):
    engine = ready_engine(1)
    round = begin_all(engine, T0)
    by_hand_withdraw(engine, round, T0 + MS)
    by_hand_lost(engine, 0, "cut", T0 + 2 * MS)
    for i in by_hand_open_due(engine, True, T0 + S):
        by_hand_connected(engine, i, T0 + S)
        answer(engine, HELLO, at_ns=T0 + S)
        sent(engine)
        rest = handshake_replies(info(run_id="id0")).removeprefix(HELLO)
        answer(engine, rest, at_ns=T0 + S)
    call = [b"EVAL", scripts.RELEASE_ALL, b"2", b"a", b"b", round.token]
    assert sent(engine) == [call]


# ---- NOSCRIPT


@pytest.mark.parametrize(
    ("operation", "source", "ttl"),
    [
        (Operation.ACQUIRE, scripts.ACQUIRE_ALL, [b"10000"]),
        (Operation.EXTEND, scripts.EXTEND_ALL, [b"10000"]),
        (Operation.RELEASE, scripts.RELEASE_ALL, []),
    ],
)
def test_script_of_all_when_not_known_there_then_is_sent_by_its_source(
    operation: Operation, source: bytes, ttl: list[bytes]
) -> None:
    engine = ready_engine(1)
    round = begin_all(engine, T0, operation)
    sent(engine)
    answer(engine, NOSCRIPT)
    assert sent(engine) == [[b"EVAL", source, b"2", b"a", b"b", round.token, *ttl]]
    answer(engine, TIME_REPLY + b":1\r\n")
    assert round.is_won


# Sent once more, the acquire would come behind its own release: the keys would stand
# until their ttl, and nobody would know of it.
@pytest.mark.parametrize(
    "give_up", [by_hand_conclude, by_hand_withdraw], ids=["lost", "undone"]
)
def test_acquire_of_all_when_rolled_back_then_is_not_repeated_after_noscript(
    give_up: Callable[[Engine, Round, int], None],
) -> None:
    engine = ready_engine(3)
    round = begin_all(engine, T0)
    if give_up is by_hand_conclude:
        answer(engine, b":0\r\n" + TIME_REPLY, b":0\r\n" + TIME_REPLY)
    sent(engine, 2)
    give_up(engine, round, T0 + MS)
    assert [words[1] for words in sent(engine, 2)] == [scripts.RELEASE_ALL]
    by_hand_receive(engine, 2, NOSCRIPT + TIME_REPLY, T0 + 2 * MS)
    assert sent(engine, 2) == []
    assert said_of(round, 2) == (Vote.FAILED, NOSCRIPT[1:-2].decode())
    assert not round.may_hold >> 2 & 1


def test_acquire_of_all_when_its_lease_is_released_then_is_not_repeated() -> None:
    engine = ready_engine(3)
    lease = won_on_two_of_three(engine)
    by_hand_start(engine, engine.new_release(lease, TERMS), T0 + 2 * MS)
    sent(engine, 2)
    by_hand_receive(engine, 2, NOSCRIPT + TIME_REPLY, T0 + 3 * MS)
    assert sent(engine, 2) == []


# The release asks for nothing that could stand afterwards.
def test_release_of_all_when_its_round_is_over_then_is_repeated_all_the_same() -> None:
    engine = ready_engine(3)
    lease = won_on_two_of_three(engine)
    release = engine.new_release(lease, TERMS)
    by_hand_start(engine, release, T0 + 2 * MS)
    sent(engine, 2)
    answer(engine, b":1\r\n", b":1\r\n", at_ns=T0 + 3 * MS)
    assert release.is_won
    by_hand_receive(engine, 2, b":1\r\n" + TIME_REPLY + NOSCRIPT, T0 + 3 * MS)
    assert [words[1] for words in sent(engine, 2)] == [scripts.RELEASE_ALL]
