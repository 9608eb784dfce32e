"""The promises of the engine, reply by reply: no socket, no clock, no server."""

from __future__ import annotations

import time

import pytest

from fastredlock._core import (
    Batch,
    Engine,
    MasterState,
    Operation,
    Round,
    Terms,
    Verdict,
    Vote,
    now_ns,
)
from fastredlock._options import scripts
from fastredlock._options.scripts import EXTEND, EXTEND_SHA1
from tests.support import by_hand as hand
from tests.support.by_hand import MS, TERMS, TIME_REPLY, S, begin, begin_all, sent
from tests.support.core import by_hand_parting

T0 = hand.START_NS + S


def words_again(engine: Engine, at_ns: int) -> list[bytes]:
    """Connect the only master again; return the words of what it is sent then."""
    hand.open_due(engine, True, at_ns)
    return [word for words in hand.reconnect(engine, at_ns) for word in words]


def test_clock_when_read_then_is_the_one_that_no_operator_can_set() -> None:
    before = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    assert before <= now_ns() <= time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def lost_while_undone(engine: Engine, at_ns: int) -> Round:
    """Undo a round of a short ttl; its master says nothing until it is given up."""
    short = Terms(ttl_ms=300, drift_ns=5 * MS, timeout_ns=15 * MS)
    round = engine.new_round(int(Operation.ACQUIRE), b"key", b"short", short)
    hand.start(engine, round, T0)
    hand.withdraw(engine, round, T0 + 20 * MS)
    hand.outgoing(engine, 0)
    hand.lost(engine, 0, "cut", at_ns)
    return round


# A server that was frozen for longer than the ttl sets its keys when it goes on. And
# seed 6353 of the simulator: a server that had been stopped for 1 s set a key of 300 ms
# and answered NOSCRIPT to its release, as the connection was given up.
@pytest.mark.parametrize("after_ns", [300 * MS, 1000 * S])
def test_release_when_its_set_may_have_run_since_then_goes_on_the_next_one(
    after_ns: int,
) -> None:
    engine = hand.ready_engine(1)
    round = lost_while_undone(engine, T0 + S)
    assert round.token in words_again(engine, T0 + S + after_ns)


def test_release_when_lost_again_then_its_key_can_live_no_longer_for_that() -> None:
    engine = hand.ready_engine(1)
    round = lost_while_undone(engine, T0 + S)
    assert round.token in words_again(engine, T0 + S + 200 * MS)
    hand.lost(engine, 0, "cut", T0 + S + 250 * MS)
    assert round.token in words_again(engine, T0 + S + 400 * MS)
    hand.lost(engine, 0, "cut", T0 + S + 450 * MS)
    assert round.token not in words_again(engine, T0 + S + 506 * MS)


def test_connection_when_a_reply_is_overdue_then_is_given_up() -> None:
    engine = hand.ready_engine(1)
    round = begin(engine, T0)
    assert engine.next_ns <= round.deadline_ns
    hand.pass_time(engine, T0 + S - MS)
    assert engine.states[0][0] is MasterState.READY
    hand.pass_time(engine, T0 + S + MS)
    assert engine.states[0] == (MasterState.BACKOFF, "owed a reply for too long")
    hand.pass_time(engine, T0 + S + 401 * MS)  # for its release
    assert engine.states[0][0] is MasterState.CONNECTING


def test_connection_when_no_quorum_is_left_without_it_then_is_sought_at_once() -> None:
    """Seen: a single try behind a freeze raised, where it might have connected."""
    engine = hand.ready_engine(1)
    begin(engine, T0)
    hand.pass_time(engine, T0 + S - MS)
    hand.pass_time(engine, T0 + S + MS)
    assert engine.states[0][0] is MasterState.BACKOFF
    assert hand.open_due(engine, False, T0 + S + MS) == []
    assert hand.open_due(engine, True, T0 + S + MS) == [0]


def test_connections_when_a_master_owes_all_of_them_then_come_back_one_by_one() -> None:
    """Seen: 1,000 that connected again at once, so that their handshakes timed out."""
    back = set()
    for seed in range(1, 16):
        engine = hand.ready_engine(1, jitter_seed=seed)
        begin(engine, T0)
        hand.pass_time(engine, T0 + S - MS)
        hand.pass_time(engine, T0 + S + MS)
        back.add(engine.next_ns // (10 * MS))
    assert len(back) > 5


def test_connection_when_we_stood_still_before_the_write_then_is_kept() -> None:
    """Seen: our own pause before a write counted as the master's silence."""
    engine = hand.ready_engine(1)
    round = begin(engine, T0)
    hand.pass_time(engine, T0 + 5 * S)
    hand.pass_time(engine, T0 + 5 * S + 99 * MS)
    assert engine.states[0][0] is MasterState.READY
    hand.pass_time(engine, T0 + 5 * S + 101 * MS)
    assert engine.states[0] == (MasterState.BACKOFF, "owed a reply for too long")
    assert round.verdict is Verdict.UNREACHABLE


@pytest.mark.parametrize("is_frozen", [False, True])
def test_release_when_repeated_then_waits_for_the_others_but_for_no_frozen_master(
    is_frozen: bool,
) -> None:
    """Seen: after a SCRIPT FLUSH the first releases took the time of a round, 0.25 s.

    The slower ones will not know the script either, and are sent it where they are
    read: so it is not finished by the quorum at once.
    """
    engine = hand.ready_engine(3)
    release = hand.release_adopted(engine, T0)
    hand.outgoing(engine, 2)
    hand.receive(engine, 0, b":1\r\n" + TIME_REPLY, T0 + MS)
    hand.receive(engine, 1, b"-NOSCRIPT No\r\n" + TIME_REPLY, T0 + MS)
    hand.receive(engine, 1, b":1\r\n", T0 + 2 * MS)
    hand.finish(engine, T0 + 3 * MS)
    assert (release.verdict, release.is_finished) == (Verdict.WON, False)
    assert engine.next_ns <= T0 + 6 * MS
    if not is_frozen:
        hand.receive(engine, 2, b"-NOSCRIPT No\r\n" + TIME_REPLY, T0 + 3 * MS)
        assert scripts.RELEASE in hand.outgoing(engine, 2)
        hand.receive(engine, 2, b":1\r\n", T0 + 4 * MS)
        assert hand.said_of(release, 2) == (Vote.GRANTED, None)
    hand.finish(engine, T0 + (6 if is_frozen else 4) * MS)
    assert release.is_finished


@pytest.mark.parametrize("end", ["its deadline", "its caller"])
def test_extension_when_it_is_over_then_is_not_repeated_behind_a_later_one(
    end: str,
) -> None:
    """Seen: it undercut the later one, which counted in full: two held the lock."""
    engine = hand.ready_engine(1)
    round = begin(engine, T0, Operation.EXTEND)
    hand.outgoing(engine, 0)
    if end == "its caller":
        hand.withdraw(engine, round, T0)
    else:
        hand.pass_time(engine, round.deadline_ns)
        assert round.verdict is Verdict.UNREACHABLE
    hand.receive(engine, 0, b"-NOSCRIPT No matching script.\r\n", T0 + MS)
    assert hand.outgoing(engine, 0) == b""
    assert round.may_hold == 0


@pytest.mark.parametrize("is_last", [True, False])
def test_extension_when_won_is_repeated_where_it_is_the_last_one(is_last: bool) -> None:
    engine = hand.ready_engine(3)
    lease = begin(engine, T0)
    extension = engine.new_extension(lease, TERMS)
    hand.start(engine, extension, T0)
    for master in (0, 1):
        hand.receive(engine, master, b"+OK\r\n" + TIME_REPLY + b":1\r\n", T0 + MS)
        hand.outgoing(engine, master)
    assert extension.is_won
    if not is_last:
        engine.new_extension(lease, TERMS)
    hand.outgoing(engine, 2)
    hand.receive(engine, 2, b"+OK\r\n" + TIME_REPLY + b"-NOSCRIPT\r\n", T0 + MS)
    assert (b"EVAL\r\n" in hand.outgoing(engine, 2)) is is_last


# ---- what a write was refused for counts for a while


@pytest.mark.parametrize(
    ("reply", "is_noted"),
    [
        (b"-OOM command not allowed\r\n", True),
        (b"-ERR unknown command 'SET'\r\n", True),
        (b"-NOPERM this user has no permissions to run the 'set' command\r\n", True),
        (b"-NOPERM No permissions to access a key\r\n", False),
        (b"-WRONGTYPE Operation against a key\r\n", False),
        (b"+OK\r\n", False),
        (b"_\r\n", False),
    ],
)
def test_write_that_is_refused_counts_for_ten_seconds_or_until_the_next(
    reply: bytes, is_noted: bool
) -> None:
    engine = hand.ready_engine()
    begin(engine, hand.START_NS)
    hand.receive(engine, 0, reply + TIME_REPLY, hand.START_NS + MS)
    refusal, until_ns = engine.health()[0][8:10]
    assert until_ns == (hand.START_NS + MS + 10 * S if is_noted else 0)
    assert (refusal is not None) is is_noted
    begin(engine, hand.START_NS + S)
    hand.receive(engine, 0, b"_\r\n", hand.START_NS + S + MS)
    assert engine.health()[0][9] == 0


NOW = hand.START_NS + MS


@pytest.fixture
def engine() -> Engine:
    return hand.ready_engine()


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
    assert "the lease was released" in str(hand.said_of(extension))
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
    engine, now_ns = hand.new_engine(3), NOW + 30 * MS
    hand.make_ready(
        engine, [hand.info(run_id=name, uptime_in_seconds=9) for name in "abc"]
    )
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
    assert hand.awaits_replies(engine)  # so that close() waits
    hand.receive(engine, 0, b"-NOSCRIPT No matching script.\r\n", now_ns)
    assert (EXTEND in sent) != (EXTEND in hand.outgoing(engine, 0))


def test_connection_that_is_cut_when_a_client_ends_is_opened_again_at_once() -> None:
    """Seen: in a back-off, behind one that had failed; the key stood for its ttl."""
    engine = hand.ready_engine()
    lease = engine.new_adopted(b"key", b"token", TERMS)
    hand.lost(engine, 0, "cut", NOW)
    hand.open_due(engine, True, NOW)
    hand.lost(engine, 0, "connection refused", NOW)
    hand.make_ready(engine, [hand.info(run_id="id0")], NOW + S)
    hand.by_hand(engine)
    hand.submit(engine, engine.new_release(lease, TERMS), NOW + S)
    hand.begin_close(engine, NOW + S)
    hand.lost(engine, 0, "cut", NOW + S)
    hand.pass_time(engine, NOW + S)
    assert engine.states[0][0] is MasterState.CONNECTING


def test_releases_behind_open_acquires_when_a_connection_is_given_up_are_few() -> None:
    """What a socket that was silent does not take was made in vain."""
    engine = hand.ready_engine()
    begin(engine, T0)
    for i in range(100):
        key = b"%d" % i + bytes(65_536)
        round = engine.new_round(int(Operation.ACQUIRE), key, b"token", TERMS)
        hand.start(engine, round, T0 + S - MS)
    hand.outgoing(engine, 0)
    hand.pass_time(engine, T0 + S - MS)
    hand.pass_time(engine, T0 + S + MS)
    assert engine.states[0] == (MasterState.BACKOFF, "owed a reply for too long")
    assert 0 < len(by_hand_parting(engine, 0) or b"") < 6 * 65_536


# --- rounds of several keys


NOSCRIPT = b"-NOSCRIPT No matching script. Please use EVAL.\r\n"


def answer(engine: Engine, *replies: bytes, at_ns: int = T0 + MS) -> None:
    """Let masters 0, 1, ... say this."""
    for master, reply in enumerate(replies):
        hand.receive(engine, master, reply, at_ns)


# Sent once more, the acquire would come behind its own release: the keys would stand
# until their ttl, and nobody would know of it.
@pytest.mark.parametrize("is_lost", [False, True])
def test_acquire_of_all_when_rolled_back_then_is_not_repeated_after_noscript(
    is_lost: bool,
) -> None:
    engine = hand.ready_engine(3)
    round = begin_all(engine, T0)
    sent(engine, 2)
    if is_lost:
        answer(engine, b":0\r\n" + TIME_REPLY, b":0\r\n" + TIME_REPLY)
    else:
        hand.withdraw(engine, round, T0 + MS)
    assert [words[1] for words in sent(engine, 2)] == [scripts.RELEASE_ALL]
    hand.receive(engine, 2, NOSCRIPT + TIME_REPLY, T0 + 2 * MS)
    assert sent(engine, 2) == []
    assert hand.said_of(round, 2) == (Vote.FAILED, NOSCRIPT[1:-2].decode())
    assert not round.may_hold >> 2 & 1
