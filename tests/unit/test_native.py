"""Commands of the server in the place of scripts; the script that a gate is sent."""

from __future__ import annotations

import pytest

from fastredlock._core import Engine, Operation, Round, Verdict, Vote
from fastredlock._options import scripts
from fastredlock._options.scripts import (
    EXTEND,
    EXTEND_SHA1,
    RELEASE,
    RELEASE_ALL_SHA1,
    RELEASE_SHA1,
)
from tests.support import by_hand as hand
from tests.support.by_hand import MS, NO_NATIVE, TERMS, TIME_REPLY, begin, bulk, said_of
from tests.support.gate_by_hand import GATE, KEY, LAST, NEXT, TELL, Gate, Gates

NOW = hand.START_NS + MS
VALKEY = b"*2\r\n*1\r\n$7\r\ndelifeq\r\n_\r\n"
REDIS = b"*2\r\n_\r\n*1\r\n$5\r\ndelex\r\n"
NOPERM = b"-NOPERM User u has no permissions to run the 'delifeq' command\r\n"
OOM = b"-OOM command not allowed when used memory > 'maxmemory'.\r\n"
UNKNOWN = b"-ERR unknown command 'DELIFEQ', with args beginning with: 'key' \r\n"


def ready(*native: bytes) -> Engine:
    infos = [hand.info(run_id=f"{i}", uptime_in_seconds=9) for i in range(len(native))]
    return hand.make_ready(hand.new_engine(len(native)), infos, native=native)


def lease_of(engine: Engine, count: int = 1) -> Round:
    """Let every master grant one."""
    round = begin(engine, NOW)
    for i in range(count):
        hand.outgoing(engine, i)
        hand.receive(engine, i, b"+OK\r\n" + TIME_REPLY, NOW)
    hand.finish(engine, NOW)
    assert round.is_won
    return round


def release(engine: Engine, lease: Round) -> Round:
    round = engine.new_release(lease, TERMS)
    hand.start(engine, round, NOW)
    return round


def extend(engine: Engine, lease: Round) -> Round:
    round = engine.new_extension(lease, TERMS)
    hand.start(engine, round, NOW)
    return round


@pytest.mark.parametrize(
    ("native", "words"),
    [
        (VALKEY, b"*3\r\n$7\r\nDELIFEQ\r\n$3\r\nkey\r\n%b"),
        (REDIS, b"*4\r\n$5\r\nDELEX\r\n$3\r\nkey\r\n$4\r\nIFEQ\r\n%b"),
    ],
)
@pytest.mark.parametrize(
    ("reply", "vote"), [(b":1\r\n", Vote.GRANTED), (b":0\r\n", Vote.TAKEN)]
)
def test_release_is_one_command_and_its_reply_that_of_the_script(
    native: bytes, words: bytes, reply: bytes, vote: Vote
) -> None:
    engine = ready(native)
    round = release(engine, lease_of(engine))
    token = b"$%d\r\n%b\r\n" % (len(round.token), round.token)
    assert hand.outgoing(engine, 0) == words % token
    hand.receive(engine, 0, reply, NOW)
    assert said_of(round) == (vote, None)


@pytest.mark.parametrize("native", [VALKEY, REDIS])
@pytest.mark.parametrize(
    ("reply", "vote"),
    [(b"+OK\r\n", Vote.GRANTED), (b"_\r\n", Vote.TAKEN), (b"$-1\r\n", Vote.TAKEN)],
)
def test_extension_is_a_set_where_the_token_stands(
    native: bytes, reply: bytes, vote: Vote
) -> None:
    engine = ready(native)
    round = extend(engine, lease_of(engine))
    token = b"$%d\r\n%b\r\n" % (len(round.token), round.token)
    assert hand.outgoing(engine, 0) == (
        b"*7\r\n$3\r\nSET\r\n$3\r\nkey\r\n" + token + b"$4\r\nIFEQ\r\n" + token
        + b"$2\r\nPX\r\n$5\r\n10000\r\n"
    )  # fmt: skip
    hand.receive(engine, 0, reply, NOW)
    assert said_of(round) == (vote, "gone or taken" if vote is Vote.TAKEN else None)


@pytest.mark.parametrize("reply", [b":1\r\n", b":0\r\n", b":2\r\n"])
def test_extension_when_answered_as_a_script_then_counts_for_nothing(
    reply: bytes,
) -> None:
    engine = ready(VALKEY)
    round = extend(engine, lease_of(engine))
    hand.receive(engine, 0, reply, NOW)
    assert said_of(round)[0] is Vote.FAILED


def test_masters_of_a_mixed_fleet_are_each_sent_their_form() -> None:
    engine = ready(VALKEY, NO_NATIVE, REDIS)
    lease = lease_of(engine, 3)
    round = extend(engine, lease)
    sent = [hand.outgoing(engine, i) for i in range(3)]
    assert sent[0] == sent[2]
    assert b"IFEQ" in sent[0]
    assert EXTEND_SHA1 in sent[1]
    for i, reply in enumerate((b"+OK\r\n", b":1\r\n", b"_\r\n")):
        hand.receive(engine, i, reply, NOW)
    assert round.is_won
    release(engine, lease)
    sent = [hand.outgoing(engine, i) for i in range(3)]
    assert (b"DELIFEQ" in sent[0], RELEASE_SHA1 in sent[1]) == (True, True)
    assert b"DELEX" in sent[2]


@pytest.mark.parametrize("operation", ["release", "extend"])
@pytest.mark.parametrize("error", [NOPERM, UNKNOWN, OOM])
def test_script_is_asked_where_the_command_is_refused(
    operation: str, error: bytes
) -> None:
    engine = ready(VALKEY)
    lease = lease_of(engine)
    round = {"release": release, "extend": extend}[operation](engine, lease)
    hand.outgoing(engine, 0)
    hand.receive(engine, 0, error, NOW)
    assert round.verdict is Verdict.OPEN
    assert {"release": RELEASE, "extend": EXTEND}[operation] in hand.outgoing(engine, 0)
    hand.receive(engine, 0, b":1\r\n", NOW)
    hand.finish(engine, NOW)
    assert round.is_won
    # An ACL, and a proxy that does not know it, refuse the next one as well.
    extend(engine, engine.new_adopted(b"key", b"token", TERMS))
    is_native_still = b"IFEQ" in hand.outgoing(engine, 0)
    assert is_native_still is (error == OOM)


def test_error_of_an_extension_is_not_asked_again_behind_the_release() -> None:
    engine = ready(VALKEY)
    lease = lease_of(engine)
    round = extend(engine, lease)
    hand.outgoing(engine, 0)
    release(engine, lease)
    hand.outgoing(engine, 0)
    hand.receive(engine, 0, OOM, NOW)
    assert hand.outgoing(engine, 0) == b""
    assert said_of(round)[0] is Vote.FAILED


def test_roll_back_goes_by_source_until_the_command_was_answered_once() -> None:
    """Nobody may be there to read that it is refused, and then the key stands."""
    engine = ready(VALKEY)
    for is_proven in (False, True):
        round = begin(engine, NOW)
        hand.outgoing(engine, 0)
        hand.withdraw(engine, round, NOW)
        sent = hand.outgoing(engine, 0)
        assert (b"DELIFEQ" in sent, RELEASE in sent) == (is_proven, not is_proven)
        hand.receive(
            engine, 0, b"+OK\r\n" + TIME_REPLY * (not is_proven) + b":1\r\n", NOW
        )
        release(engine, engine.new_adopted(b"key", b"token", TERMS))
        hand.receive(engine, 0, b":0\r\n", NOW)
        hand.outgoing(engine, 0)


def test_rounds_of_several_keys_go_by_script_and_an_acquire_stays_a_set_nx() -> None:
    engine = ready(VALKEY)
    begin(engine, NOW, Operation.ACQUIRE)
    assert b"$2\r\nNX\r\n" in hand.outgoing(engine, 0)
    engine = ready(VALKEY)
    lease = hand.begin_all(engine, NOW)
    hand.outgoing(engine, 0)
    hand.receive(engine, 0, b":1\r\n" + TIME_REPLY, NOW)
    hand.finish(engine, NOW)
    release(engine, lease)
    assert RELEASE_ALL_SHA1 in hand.outgoing(engine, 0)


TELLING = scripts.RELEASE_AND_NOTIFY


@pytest.mark.parametrize(("native", "name"), [(VALKEY, b"DELIFEQ"), (REDIS, b"DELEX")])
def test_gate_is_sent_the_script_and_the_others_the_native_command(
    native: bytes, name: bytes
) -> None:
    gates = Gates(native=native)
    lease = gates.take()
    release = gates.release(lease)
    (asked,) = gates.hear(GATE)
    assert (asked[0], asked[1], asked[3:5]) == (b"EVALSHA", TELL, [KEY, lease.token])
    for each in (NEXT, LAST):
        assert [words[0] for words in gates.hear(each)] == [name]
        gates.say(each, b":1\r\n")
    assert release.verdict is Verdict.WON


def test_one_release_in_a_while_waits_for_its_gate_which_may_lack_the_script() -> None:
    gates = Gates(native=VALKEY)
    for is_waited_for in (True, False):
        release = gates.release(gates.take())
        for each in (NEXT, LAST):
            gates.say(each, b":1\r\n")
        assert release.is_finished is not is_waited_for
        gates.pass_time(MS)
        assert release.is_finished
        gates.say(GATE, b":1\r\n")
        for each in range(3):
            gates.hear(each)
    gates.pass_time(101 * MS)
    lease = gates.take()
    release = gates.release(lease)
    gates.hear(GATE)
    for each in (NEXT, LAST):
        gates.say(each, b":1\r\n")
    gates.say(GATE, b"-NOSCRIPT No matching script\r\n")
    assert not release.is_finished
    (repeated,) = gates.hear(GATE)
    assert repeated[:5] == [b"EVAL", TELLING, b"1", KEY, lease.token]
    gates.say(GATE, b":2\r\n")
    assert release.is_finished


@pytest.mark.parametrize("is_moved", [False, True])
def test_native_command_that_is_refused_is_repeated_as_the_script_of_no_gate(
    is_moved: bool,
) -> None:
    # Seen: "gone", of a lock that nobody else had deleted (seed 2014491): behind the
    # release of the queue that has moved the repeated one finds nothing.
    gates = Gates(native=VALKEY)
    release = gates.release(gates.take())
    for each in (GATE, NEXT, LAST):
        gates.hear(each)
    gates.say(GATE, b":5\r\n" if is_moved else b":1\r\n")  # deleted
    assert len(gates.hear(NEXT)) == is_moved
    gates.say(NEXT, NOPERM)
    assert [words[:2] for words in gates.hear(NEXT)] == [[b"EVAL", scripts.RELEASE]]
    if is_moved:
        gates.say(LAST, b":0\r\n")
    gates.say(NEXT, b":1\r\n:0\r\n" if is_moved else b":1\r\n")
    assert release.verdict is Verdict.WON


@pytest.mark.parametrize("native", [VALKEY, NO_NATIVE])
@pytest.mark.parametrize("is_told", [False, True])
def test_release_that_was_cut_tells_who_waits_on_the_next_connection(
    native: bytes, is_told: bool
) -> None:
    # It may have been executed, and the next in the queue never been notified.
    gate = Gate(native=native)
    lease = gate.take()
    release = gate.release(lease)
    gate.hear()
    gate.cut()
    gate.connect()
    assert gate.hear().endswith(
        bulk(b"EVAL") + bulk(TELLING) + bulk(b"1") + bulk(KEY) + bulk(lease.token)
    )  # no entry of ours is taken out: another of us may wait by now
    gate.say(b":2\r\n" if is_told else b":0\r\n")
    assert release.verdict is Verdict.WON
    assert release.is_finished
    assert gate.hear() == b""


def test_releases_that_were_cut_tell_as_far_as_they_are_few() -> None:
    gate = Gate(native=VALKEY)
    taken = [gate.take(b"%03d" % i) for i in range(100)]
    releases = [gate.release(each) for each in taken]
    gate.cut()
    gate.connect()
    said = gate.hear()
    assert (said.count(TELLING), said.count(scripts.RELEASE)) == (64, 36)
    gate.say(b":1\r\n" * 100)
    assert all(release.is_finished for release in releases)
