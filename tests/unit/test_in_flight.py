"""Commands in flight on a lost connection, and those sent on the next: by hand."""

from __future__ import annotations

import pytest

from fastredlock._core import (
    Engine,
    MasterState,
    Operation,
    Round,
    Terms,
    Verdict,
)
from fastredlock._options import scripts
from tests.support import by_hand as hand
from tests.support.by_hand import MS, TERMS, TIME_REPLY, S, begin, info, sent

T0 = hand.START_NS + 3600 * S  # ready for so long that the connection is known to work
SMALL = Terms(ttl_ms=300, drift_ns=5 * MS, timeout_ns=15 * MS)


def ready_engine(count: int = 1, max_ttl_ns: int = 0) -> Engine:
    """Connect `count` masters by hand, long ago."""
    engine = hand.ready_engine(count, max_ttl_ns)
    hand.by_hand(engine)
    return engine


def cut(engine: Engine, at_ns: int) -> None:
    """Lose the connection of master 0 with all replies in flight."""
    sent(engine)
    hand.lost(engine, 0, "cut", at_ns)


def cut_round(operation: Operation = Operation.ACQUIRE) -> tuple[Engine, Round]:
    """Begin a round, and lose the connection that it was sent on."""
    engine = ready_engine()
    round = begin(engine, T0, operation)
    cut(engine, T0 + MS)
    return engine, round


def won(engine: Engine) -> Round:
    """Let all masters grant a round."""
    lease = begin(engine, T0)
    for i in range(len(engine.states)):
        hand.receive(engine, i, b"+OK\r\n" + TIME_REPLY, T0 + MS)
    return lease


def release_of(engine: Engine, lease: Round, at_ns: int) -> Round:
    release = engine.new_release(lease, TERMS)
    hand.start(engine, release, at_ns)
    return release


@pytest.mark.parametrize("operation", [Operation.ACQUIRE, Operation.EXTEND])
def test_repeated_command_when_answered_by_an_error_then_the_first_counts_as_done(
    operation: Operation,
) -> None:
    """An error says that the second did nothing, and nothing of the first."""
    engine, round = cut_round(operation)
    hand.reconnect(engine, T0 + 2 * MS)
    hand.receive(engine, 0, b"-OOM command not allowed\r\n", T0 + 3 * MS)
    assert (round.verdict, round.may_hold) == (Verdict.UNREACHABLE, 1)
    hand.conclude(engine, round, T0 + 3 * MS)
    releases = [words[:2] for words in sent(engine)]
    is_acquire = operation is Operation.ACQUIRE
    assert releases == [[b"EVAL", scripts.RELEASE]] * is_acquire


@pytest.mark.parametrize("text", [b"BUSY Redis is busy", b"LOADING Redis is loading"])
def test_release_when_the_master_is_busy_then_goes_out_when_it_is_not(
    text: bytes,
) -> None:
    """A slow script, or a restart with its data: nobody would send it again."""
    engine = ready_engine()
    lease = won(engine)
    release = release_of(engine, lease, T0 + 2 * MS)
    hand.receive(engine, 0, b"-%b\r\n" % text, T0 + 3 * MS)
    assert release.verdict is Verdict.UNREACHABLE
    commands = ("CLIENT", "INFO", "COMMAND", "SCRIPT")
    busy: dict[str, hand.Reply] = dict.fromkeys(commands, b"-%b\r\n" % text)
    for second in (1, 2):
        assert hand.open_due(engine, True, T0 + second * S) == [0]
        assert hand.reconnect(engine, T0 + second * S, busy) == []
        assert engine.states[0][0] is MasterState.BACKOFF
    assert hand.open_due(engine, True, T0 + 3 * S) == [0]
    assert [words[:2] for words in hand.reconnect(engine, T0 + 3 * S)] == [
        [b"EVAL", scripts.RELEASE]
    ]
    hand.receive(engine, 0, b":1\r\n", T0 + 4 * S)
    assert release.may_hold == 0


# ---- the connection that was lost


def connected_again(engine: Engine, client_id: int, run_id: str) -> list[list[bytes]]:
    return hand.reconnect(engine, T0 + S, client_id=client_id, told=info(run_id=run_id))


def lost_with_client_id(client_id: int) -> Engine:
    """Lose a connection that the server knows under this id, with a reply in flight."""
    engine = ready_engine()
    begin(engine, T0)
    cut(engine, T0 + MS)
    hand.reconnect(engine, T0 + 2 * MS, client_id=client_id)
    begin(engine, T0 + 3 * MS)
    hand.receive(engine, 0, b":1\r\n", T0 + 4 * MS)
    cut(engine, T0 + 5 * MS)
    return engine


def test_lost_connection_when_it_owed_replies_then_is_ended_before_all_else() -> None:
    """The part that the server has not executed by then is lost."""
    said = connected_again(lost_with_client_id(77), 78, "id0")
    assert said[0] == [b"CLIENT", b"KILL", b"ID", b"77"]
    assert [words[0] for words in said[1:]] == [b"EVAL"]
    said = connected_again(lost_with_client_id(77), 3, "another")  # whose id is that?
    assert [words[0] for words in said] == [b"EVAL"]


# ---- what is kept for a silent master is bounded


def test_silent_master_when_it_owes_too_much_then_is_given_up() -> None:
    """Seen: memory grew by 80 MB/s, and each release cost more than the one before."""
    engine = ready_engine(3)
    begin(engine, T0 - S)
    for i in range(3):
        hand.receive(engine, i, b"+OK\r\n" + TIME_REPLY, T0 - S)
    at_ns = T0
    while engine.states[0][0] is MasterState.READY and at_ns < T0 + S:
        at_ns += 1000
        round = begin(engine, at_ns)
        for i in (1, 2):
            hand.receive(engine, i, b"+OK\r\n", at_ns)
            hand.outgoing(engine, i)
        hand.withdraw(engine, round, at_ns)
        for i in (1, 2):
            hand.receive(engine, i, b":1\r\n", at_ns)
    assert "replies and is silent" in engine.states[0][1]
    assert engine.counters.releases_dropped == 0
    assert len(hand.outgoing(engine, 0)) == 0
    assert at_ns < T0 + 100 * MS


@pytest.mark.slow
def test_releases_beyond_the_bound_are_counted_and_left_to_their_ttl() -> None:
    engine = ready_engine(1)
    for turn in range(2):
        for i in range(40_000):
            round = engine.new_round(int(Operation.ACQUIRE), b"k", b"t%d" % i, SMALL)
            hand.start(engine, round, T0 + turn * 2 * S)
            hand.withdraw(engine, round, T0 + turn * 2 * S)
        sent(engine)
        hand.lost(engine, 0, "cut", T0 + turn * 2 * S)
        if turn == 0:
            hand.open_due(engine, True, T0 + S)
            assert len(hand.reconnect(engine, T0 + S)) == 40_000
    assert engine.counters.releases_dropped == 80_000 - 65_536
