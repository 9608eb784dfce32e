"""Whatever bytes a server sends, however they are cut: no crash, no wrong address."""

from __future__ import annotations

import os
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastredlock._core import Engine, MasterState, Operation, Round, Vote
from tests.support import by_hand as hand
from tests.support.by_hand import MS, START_NS, S, begin, begin_all, bulk, new_engine

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "200"))
fuzz = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=EXAMPLES == 200,  # in CI the same every time; more by hand
    suppress_health_check=list(HealthCheck),
)
Question = tuple[Operation, bool]
T0 = START_NS + S
QUESTIONS = [  # what is asked, and whether of several keys
    (operation, is_of_all)
    for operation in (Operation.ACQUIRE, Operation.EXTEND, Operation.RELEASE)
    for is_of_all in (False, True)
]
ROUNDS = st.lists(st.sampled_from(QUESTIONS), min_size=1, max_size=8)
CUTS = st.lists(st.integers(0, 400), max_size=8)
SIMPLE = (
    *(b"+OK\r\n", b"$-1\r\n", b":1\r\n", b"-ERR x\r\n", b"_\r\n", b"#t\r\n"),
    *(b",1\r\n", b"(9\r\n", b"*-1\r\n", b"=7\r\ntxt:abc\r\n", b"!3\r\nERR\r\n"),
    b"+a\rb\r\n",
)
NOISE = st.recursive(
    st.sampled_from(SIMPLE),
    lambda inner: st.builds(
        lambda kind, items: b"%b%d\r\n" % (kind, len(items)) + b"".join(items),
        st.sampled_from([b"*", b"~", b">", b"%", b"|"]),
        st.lists(inner, max_size=4),
    ),
    max_leaves=8,
)
BYTES = st.one_of(
    st.binary(max_size=200),
    st.lists(NOISE, max_size=5).map(b"".join),
    st.tuples(NOISE, st.binary(max_size=5)).map(b"".join),
    st.text("+-:$*%~>|#,_(!=0123456789\r\nOKERR", max_size=60).map(str.encode),
)
PUSH = st.sampled_from(
    [
        b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n",
        b">3\r\n+message\r\n+a\r\n:1\r\n",
        b">1\r\n_\r\n",
        b"",
    ]
)
OF_A_SET = {b"+OK\r\n": Vote.GRANTED, b"$-1\r\n": Vote.TAKEN}
OF_A_SCRIPT = {b":1\r\n": Vote.GRANTED, b":0\r\n": Vote.TAKEN}
SET = (Operation.ACQUIRE, False)
ERRORS = [b"-ERR no\r\n", b"-OOM no\r\n"]
NOSCRIPT = b"-NOSCRIPT No matching script. Please use EVAL.\r\n"


def sliced(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


def feed(engine: Engine, data: bytes, cuts: list[int]) -> None:
    """Give a master's bytes in slices, as long as its connection stands."""
    alive = (MasterState.HANDSHAKE, MasterState.READY)
    for piece in sliced(data, cuts):
        if engine.states[0][0] in alive:
            hand.receive(engine, 0, piece, T0 + MS)


def begin_each(engine: Engine, questions: list[Question]) -> list[Round]:
    return [
        (begin_all if is_of_all else begin)(engine, T0, operation)
        for operation, is_of_all in questions
    ]


def answers_to(question: Question) -> dict[bytes, Vote]:
    return OF_A_SET if question == SET else OF_A_SCRIPT


def expects_time(position: int) -> bool:
    return position == 0  # TIME rides behind the first command after a connect


@fuzz
@given(ROUNDS, BYTES, CUTS)
def test_ready_connection_when_it_brings_any_bytes_then_raises_nothing(
    questions: list[Question], data: bytes, cuts: list[int]
) -> None:
    engine = hand.ready_engine()
    rounds = begin_each(engine, questions)
    feed(engine, data, cuts)
    for round in rounds:
        round.on_deadline(T0 + S)
        hand.conclude(engine, round, T0 + S)
    assert engine.states[0][0] in (MasterState.READY, MasterState.BACKOFF)


@fuzz
@given(BYTES, CUTS)
def test_handshake_when_it_brings_any_bytes_then_raises_nothing(
    data: bytes, cuts: list[int]
) -> None:
    engine = new_engine()
    hand.open_due(engine, True, T0)
    hand.connected(engine, 0, T0)
    feed(engine, data, cuts)
    assert engine.states[0][0] is not MasterState.CONNECTING


@fuzz
@given(BYTES, CUTS)
def test_handshake_when_info_is_any_bytes_then_is_ready(
    said: bytes, cuts: list[int]
) -> None:
    engine = new_engine()
    hand.open_due(engine, True, T0)
    hand.connected(engine, 0, T0)
    feed(engine, hand.handshake_replies(bulk(said)), cuts)
    assert engine.states[0][0] is MasterState.READY


@fuzz
@given(st.data(), ROUNDS, CUTS)
def test_replies_when_pushes_come_between_and_all_is_cut_then_each_finds_its_round(
    data: st.DataObject, questions: list[Question], cuts: list[int]
) -> None:
    engine = hand.ready_engine()
    rounds = begin_each(engine, questions)
    stream, again, expected = b"", b"", []
    for position, question in enumerate(questions):
        table = {**answers_to(question), **dict.fromkeys(ERRORS, Vote.FAILED)}
        reply = data.draw(st.sampled_from(list(table)))
        expected.append(table[reply])
        if question != SET and data.draw(st.booleans()):
            # A script that is not known there is sent by its source, behind the others.
            again += data.draw(PUSH) + reply
            reply = NOSCRIPT
        stream += data.draw(PUSH) + reply
        if expects_time(position):
            stream += b"*2\r\n$1\r\n1\r\n$1\r\n1\r\n"
    feed(engine, stream + again + data.draw(PUSH), cuts)
    assert [round.votes()[0][0] for round in rounds] == expected
    assert engine.states[0][0] is MasterState.READY


@fuzz
@given(ROUNDS, st.sampled_from([b"+OK\r\n", b":1\r\n", b"-ERR\r\n", b"nonsense"]), CUTS)
def test_stream_when_it_goes_on_after_the_last_owed_reply_then_the_connection_ends(
    questions: list[Question], surplus: bytes, cuts: list[int]
) -> None:
    engine = hand.ready_engine()
    rounds = begin_each(engine, questions)
    replies = [next(iter(answers_to(question))) for question in questions]
    replies.insert(1, b"*2\r\n$1\r\n1\r\n$1\r\n1\r\n")
    feed(engine, b"".join(replies) + surplus, cuts)
    assert [round.votes()[0][0] for round in rounds] == [Vote.GRANTED] * len(rounds)
    assert engine.states[0][0] is MasterState.BACKOFF
    later = begin(engine, T0 + 2 * MS)
    assert later.votes()[0][0] is Vote.FAILED
    assert hand.outgoing(engine, 0) == b""


@pytest.mark.parametrize("kind", [b"*", b"%", b"~", b">", b"|"])
@pytest.mark.parametrize("cut", [0, 1, 5, 8])
def test_reply_when_it_announces_a_giant_then_no_list_of_that_size_is_made(
    kind: bytes, cut: int
) -> None:
    # A list of 2 * 10^9 elements costs nothing to make, and seconds to give back.
    engine = hand.ready_engine()
    round = begin(engine, T0)
    feed(engine, b"+OK\r\n", [])
    feed(engine, b"*2\r\n+a\r\n" + kind + b"1999999999\r\n", [8 + cut])
    assert round.votes()[0][0] is Vote.GRANTED
    assert "announces a million elements" in engine.states[0][1]


def test_reply_when_its_text_looks_like_a_header_then_is_read_on() -> None:
    engine = hand.ready_engine()
    round = begin(engine, T0)
    feed(engine, b"-ERR *1999999999 and %1999999999\r\n", [])
    assert "1999999999" in str(round.votes()[0][1])


@pytest.mark.parametrize(
    "data",
    [
        b"%1\r\n*0\r\n+x\r\n",  # a map whose key cannot be hashed
        b"~1\r\n*0\r\n",
        b"*4294967295\r\n",
        b"%9223372036854775807\r\n",
        b"$9223372036854775807\r\n",
        b"*1\r\n" * 50,
        b"|1\r\n+a\r\n+b\r\n+OK\r\n",
        b"(" + b"9" * 10_000 + b"\r\n",
        b"+\xff\xfe\r\n-\xff\xfe\r\n",
    ],
)
def test_reply_when_it_is_outlandish_then_is_a_failed_vote_at_the_worst(
    data: bytes,
) -> None:
    engine = hand.ready_engine()
    round = begin(engine, T0)
    feed(engine, data, [])
    round.on_deadline(T0 + S)
    assert not round.is_won
