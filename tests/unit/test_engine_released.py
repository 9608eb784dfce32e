"""Nothing extends a lease behind its release, whichever thread was faster."""

from __future__ import annotations

import pytest

from fastredlock._core import Batch, Engine, MasterState, Round, Verdict
from fastredlock._options.scripts import EXTEND, EXTEND_SHA1
from tests.support import by_hand as hand
from tests.support.by_hand import (
    MS,
    START_NS,
    TERMS,
    TIME_REPLY,
    S,
    begin,
    info,
    make_ready,
    new_engine,
    said_of,
)

NOW = START_NS + MS


@pytest.fixture
def engine() -> Engine:
    return make_ready(new_engine(), [info(run_id="a", uptime_in_seconds=9)])


@pytest.fixture
def lease(engine: Engine) -> Round:
    round = begin(engine, NOW)
    hand.outgoing(engine, 0)
    hand.receive(engine, 0, b"+OK\r\n" + TIME_REPLY, NOW)
    hand.finish(engine, NOW)
    assert round.is_won
    return round


def test_extension_is_not_sent_after_the_release_was_made(
    engine: Engine, lease: Round
) -> None:
    extension = engine.new_extension(lease, TERMS)
    release = engine.new_release(lease, TERMS)
    hand.submit(engine, extension, NOW)
    assert hand.outgoing(engine, 0) == b""
    assert extension.verdict is Verdict.UNREACHABLE
    assert "the lease was released" in str(said_of(extension))
    hand.start(engine, release, NOW)
    assert hand.outgoing(engine, 0) != b""


def test_extension_of_a_batch_is_not_sent_after_the_release_was_made(
    engine: Engine, lease: Round
) -> None:
    other = engine.new_adopted(b"other", b"token", TERMS)
    extensions = [engine.new_extension(each, TERMS) for each in (lease, other)]
    engine.new_release(lease, TERMS)
    batch = Batch(extensions)
    hand.submit(engine, batch, NOW)
    assert hand.outgoing(engine, 0).count(EXTEND_SHA1) == 1
    hand.receive(engine, 0, b":1\r\n", NOW)
    hand.finish(engine, NOW)
    assert batch.is_finished
    assert [round.is_won for round in extensions] == [False, True]


def test_extension_on_a_lost_connection_ends_where_the_release_was_made_since(
    engine: Engine, lease: Round
) -> None:
    """Seen in the simulator: its caller waited for ever."""
    extension = engine.new_extension(lease, TERMS)
    hand.submit(engine, extension, NOW)
    hand.outgoing(engine, 0)
    engine.new_release(lease, TERMS)
    hand.lost(engine, 0, "connection lost", NOW)
    make_ready(engine, [info(run_id="a", uptime_in_seconds=9)], NOW + MS)
    hand.pass_time(engine, NOW + MS)
    hand.finish(engine, NOW + MS)
    assert EXTEND_SHA1 not in hand.outgoing(engine, 0)
    assert extension.is_finished
    assert extension.verdict is Verdict.UNREACHABLE


def test_extension_is_not_repeated_after_the_release_was_made(
    engine: Engine, lease: Round
) -> None:
    extension = engine.new_extension(lease, TERMS)
    hand.start(engine, extension, NOW)
    assert EXTEND_SHA1 in hand.outgoing(engine, 0)
    engine.new_release(lease, TERMS)
    hand.receive(engine, 0, b"-NOSCRIPT no script\r\n", NOW)
    assert hand.outgoing(engine, 0) == b""


@pytest.mark.parametrize(
    "end", ["given up", "closed", "a batch closed", "closed without a quorum"]
)
def test_extension_in_the_place_of_a_release_is_sent_whatever_ends(end: str) -> None:
    """Seen: of `at_least`, beside other threads, 13 of 7,394 keys stood for a ttl."""
    engine, now_ns = new_engine(3), NOW + 30 * MS
    make_ready(engine, [info(run_id=name, uptime_in_seconds=9) for name in "abc"])
    hand.by_hand(engine)
    lease = engine.new_adopted(b"key", b"token", TERMS)
    last = engine.new_extension(lease, TERMS)
    last.is_released = True
    if end == "given up":
        hand.withdraw(engine, last, now_ns)
    elif end == "closed without a quorum":
        for master in (1, 2):
            hand.lost(engine, master, "connection lost", NOW)
        hand.submit(engine, last, now_ns)
        assert hand.outgoing(engine, 0) == b""
        hand.begin_close(engine, now_ns)
    else:
        hand.begin_close(engine, now_ns)
        hand.submit(engine, Batch([last]) if "batch" in end else last, now_ns)
    sent = hand.outgoing(engine, 0)
    assert EXTEND_SHA1 in sent or EXTEND in sent
    hand.receive(engine, 0, b"-NOSCRIPT No matching script.\r\n", now_ns)
    assert (EXTEND in sent) != (EXTEND in hand.outgoing(engine, 0))


def test_connection_on_its_way_when_a_client_ends_is_tried_once_more() -> None:
    """Seen: refused while nobody looked, and the server back since; its key stood."""
    engine = make_ready(new_engine(), [info(run_id="a", uptime_in_seconds=9)])
    hand.by_hand(engine)
    lease = engine.new_adopted(b"key", b"token", TERMS)
    hand.lost(engine, 0, "cut", NOW)
    hand.submit(engine, engine.new_release(lease, TERMS), NOW)
    states = []
    hand.open_due(engine, True, NOW + S)
    hand.begin_close(engine, NOW + S)
    for _ in range(2):
        hand.lost(engine, 0, "connection refused", NOW + S)
        hand.pass_time(engine, NOW + S)
        states.append(engine.states[0][0])
    assert states == [MasterState.CONNECTING, MasterState.BACKOFF]
    assert not hand.awaits_replies(engine)
