"""Rounds of several keys, reply by reply: no socket, no clock, no server."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fastredlock._core import Engine, Operation, Round, Vote
from fastredlock._options import scripts
from tests.support import by_hand as hand
from tests.support.by_hand import (
    HELLO,
    MS,
    START_NS,
    TERMS,
    TIME_REPLY,
    S,
    begin_all,
    handshake_replies,
    info,
    new_engine,
    ready_engine,
    said_of,
    sent,
)

T0 = START_NS + S
NOSCRIPT = b"-NOSCRIPT No matching script. Please use EVAL.\r\n"


def answer(engine: Engine, *replies: bytes, at_ns: int = T0 + MS) -> None:
    """Let masters 0, 1, ... say this."""
    for master, reply in enumerate(replies):
        hand.receive(engine, master, reply, at_ns)


def won_on_two_of_three(engine: Engine) -> Round:
    """Take both keys by the votes of two masters; the third says NOSCRIPT later."""
    lease = begin_all(engine, T0)
    answer(engine, b":1\r\n" + TIME_REPLY, b":1\r\n" + TIME_REPLY)
    hand.conclude(engine, lease, T0 + MS)
    assert lease.is_won
    sent(engine, 2)
    return lease


# ---- what is sent


@pytest.mark.parametrize(
    ("operation", "sha1", "ttl"),
    [
        (Operation.ACQUIRE, scripts.ACQUIRE_ALL_SHA1, [b"10000"]),
        (Operation.EXTEND, scripts.EXTEND_ALL_SHA1, [b"10000"]),
        (Operation.RELEASE, scripts.RELEASE_ALL_SHA1, []),
    ],
)
def test_round_of_all_when_begun_then_each_master_is_asked_by_one_script_call(
    operation: Operation, sha1: bytes, ttl: list[bytes]
) -> None:
    engine = ready_engine(3)
    lease = begin_all(engine, T0, operation)
    call = [b"EVALSHA", sha1, b"2", b"a", b"b", lease.token]
    assert [sent(engine, master) for master in range(3)] == [[[*call, *ttl]]] * 3


def test_new_connection_when_introduced_then_loads_each_script() -> None:
    engine = new_engine(1)
    for i in hand.open_due(engine, True, T0):
        hand.connected(engine, i, T0)
        hand.outgoing(engine, i)
        hand.receive(engine, i, HELLO, T0)
    loaded = [words[2] for words in sent(engine) if words[0] == b"SCRIPT"]
    assert sorted(loaded) == sorted(
        [
            *(scripts.EXTEND, scripts.RELEASE, scripts.INSPECT),
            *(scripts.ACQUIRE_ALL, scripts.EXTEND_ALL, scripts.RELEASE_ALL),
        ]
    )


# ---- votes


@pytest.mark.parametrize("reply", [b":1\r\n", b":0\r\n"])
def test_acquire_of_one_when_answered_as_a_script_then_the_connection_is_lost(
    reply: bytes,
) -> None:
    engine = ready_engine(1)
    round = engine.new_round(int(Operation.ACQUIRE), b"a", b"t", TERMS)
    hand.start(engine, round, T0)
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
    hand.conclude(engine, round, T0 + MS)
    call = [b"EVAL", scripts.RELEASE_ALL, b"2", b"a", b"b", round.token]
    assert [sent(engine, master) for master in range(3)] == [[call], [], []]


def test_roll_back_of_all_when_its_connection_is_lost_then_is_sent_on_the_next() -> (
    None
):
    engine = ready_engine(1)
    round = begin_all(engine, T0)
    hand.withdraw(engine, round, T0 + MS)
    hand.lost(engine, 0, "cut", T0 + 2 * MS)
    for i in hand.open_due(engine, True, T0 + S):
        hand.connected(engine, i, T0 + S)
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
    "give_up", [hand.conclude, hand.withdraw], ids=["lost", "undone"]
)
def test_acquire_of_all_when_rolled_back_then_is_not_repeated_after_noscript(
    give_up: Callable[[Engine, Round, int], None],
) -> None:
    engine = ready_engine(3)
    round = begin_all(engine, T0)
    if give_up is hand.conclude:
        answer(engine, b":0\r\n" + TIME_REPLY, b":0\r\n" + TIME_REPLY)
    sent(engine, 2)
    give_up(engine, round, T0 + MS)
    assert [words[1] for words in sent(engine, 2)] == [scripts.RELEASE_ALL]
    hand.receive(engine, 2, NOSCRIPT + TIME_REPLY, T0 + 2 * MS)
    assert sent(engine, 2) == []
    assert said_of(round, 2) == (Vote.FAILED, NOSCRIPT[1:-2].decode())
    assert not round.may_hold >> 2 & 1


def test_acquire_of_all_when_its_lease_is_released_then_is_not_repeated() -> None:
    engine = ready_engine(3)
    lease = won_on_two_of_three(engine)
    hand.start(engine, engine.new_release(lease, TERMS), T0 + 2 * MS)
    sent(engine, 2)
    hand.receive(engine, 2, NOSCRIPT + TIME_REPLY, T0 + 3 * MS)
    assert sent(engine, 2) == []


# The release asks for nothing that could stand afterwards.
def test_release_of_all_when_its_round_is_over_then_is_repeated_all_the_same() -> None:
    engine = ready_engine(3)
    lease = won_on_two_of_three(engine)
    release = engine.new_release(lease, TERMS)
    hand.start(engine, release, T0 + 2 * MS)
    sent(engine, 2)
    answer(engine, b":1\r\n", b":1\r\n", at_ns=T0 + 3 * MS)
    assert release.is_won
    hand.receive(engine, 2, b":1\r\n" + TIME_REPLY + NOSCRIPT, T0 + 3 * MS)
    assert [words[1] for words in sent(engine, 2)] == [scripts.RELEASE_ALL]
