"""Commands of the server in the place of scripts; the script that a gate is sent."""

from __future__ import annotations

import pytest

from fastredlock._core import Engine, Round, Verdict, Vote
from fastredlock._options import scripts
from fastredlock._options.scripts import (
    RELEASE,
)
from tests.support import by_hand as hand
from tests.support.by_hand import (
    MS,
    NO_NATIVE,
    TERMS,
    TIME_REPLY,
    S,
    begin,
    bulk,
    said_of,
)
from tests.support.gate_by_hand import GATE, KEY, LAST, NEXT, TELL, Gate, Gates

NOW = hand.START_NS + MS
VALKEY = b"*2\r\n*1\r\n$7\r\ndelifeq\r\n_\r\n"
REDIS = b"*2\r\n_\r\n*1\r\n$5\r\ndelex\r\n"
NOPERM = b"-NOPERM User u has no permissions to run the 'delifeq' command\r\n"
OOM = b"-OOM command not allowed when used memory > 'maxmemory'.\r\n"


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


def test_extension_whose_key_is_gone_natively_then_asks_the_script_by_whom() -> None:
    engine = ready(VALKEY)
    lease = lease_of(engine)
    round = extend(engine, lease)
    (native,) = hand.commands_in(hand.outgoing(engine, 0))
    hand.receive(engine, 0, b"_\r\n", NOW)
    (asked,) = hand.commands_in(hand.outgoing(engine, 0))
    assert (native[0], asked[0]) == (b"SET", b"EVALSHA")
    assert asked[3:] == [b"key", lease.token, native[-1]]
    hand.receive(engine, 0, bulk(b"!ann@host 7"), NOW)
    assert said_of(round) == (Vote.GONE, b"!ann@host 7")


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


TELLING = scripts.RELEASE_AND_NOTIFY


ASKED = [b"EXISTS", b"fastredlock:queue:" + KEY]


def heard_natively(gates: Gates, release: Round) -> list[list[bytes]]:
    """Let the others confirm what the gate was sent natively; list what that was."""
    for each in (NEXT, LAST):
        gates.hear(each)
        gates.say(each, b":1\r\n")
    assert release.verdict is Verdict.WON
    return gates.hear(GATE)


@pytest.mark.parametrize(("native", "name"), [(VALKEY, b"DELIFEQ"), (REDIS, b"DELEX")])
def test_gate_where_nobody_is_known_to_wait_is_asked_behind_the_native_command(
    native: bytes, name: bytes
) -> None:
    gates = Gates(native=native)
    release = gates.release(gates.take())
    deleted, asked = heard_natively(gates, release)
    assert (deleted[0], asked) == (name, ASKED)
    assert not release.is_finished  # its caller reads nothing once it has ended
    gates.say(GATE, b":1\r\n:0\r\n")
    assert release.is_finished
    assert gates.hear(GATE) == []


NOT_ALLOWED = b"-NOPERM User u has no permissions to run the 'exists' command\r\n"


@pytest.mark.parametrize(
    ("answer", "later_ns"), [(b":1\r\n", 4 * S), (NOT_ALLOWED, 60 * S)]
)
def test_gate_that_has_a_queue_is_sent_the_script_and_from_then_on_at_once(
    answer: bytes, later_ns: int
) -> None:
    gates = Gates(native=VALKEY)
    release = gates.release(lease := gates.take())
    heard_natively(gates, release)
    gates.say(GATE, b":1\r\n" + answer)
    assert release.is_finished
    (told,) = gates.hear(GATE)
    assert told[:5] == [b"EVAL", TELLING, b"1", KEY, lease.token]
    gates.say(GATE, b":3\r\n")
    gates.pass_time(later_ns)
    gates.release(gates.take())
    assert [words[:2] for words in gates.hear(GATE)] == [[b"EVALSHA", TELL]]


def met_taken() -> Gates:
    """Let a single try find the lock taken, a while ago."""
    gates = Gates(native=VALKEY)
    taken = gates.new_round()
    hand.submit(gates.engine, taken, gates.now_ns)
    gates.answer_all(b"_\r\n")
    assert taken.verdict is Verdict.TAKEN
    gates.answer_all()  # its recall
    gates.pass_time(3 * S)
    return gates


def test_gate_is_asked_once_for_all_that_one_write_releases() -> None:
    gate = Gate(native=VALKEY)
    keys = [b"%03d" % i for i in range(40)]
    leases = [gate.take(each) for each in keys]
    releases = [gate.release(each) for each in leases]
    names = [b"fastredlock:queue:" + each for each in keys]
    *_, some, rest = hand.commands_in(gate.hear())
    assert (some, rest) == ([b"EXISTS", *names[:32]], [b"EXISTS", *names[32:]])
    gate.say(b":1\r\n" * 40 + b":0\r\n:1\r\n")  # it counts, and does not name
    assert all(release.is_finished for release in releases)
    assert gate.hear().count(TELLING) == 8


def test_gate_that_is_late_is_sent_the_script_and_for_a_while_nobody_waits_for_it() -> (
    None
):
    gates = Gates(native=VALKEY)
    release = gates.release(gates.take())
    heard_natively(gates, release)
    gates.pass_time(MS)
    assert release.is_finished
    assert [words[:2] for words in gates.hear(GATE)] == [[b"EVAL", TELLING]]
    gates.say(GATE, b":1\r\n:1\r\n:3\r\n")  # its answers do no harm
    assert gates.hear(GATE) == []
    for later_ns, is_asked in ((6 * S, True), (0, False), (101 * MS, True)):
        gates.pass_time(later_ns)
        release = gates.release(gates.take())
        sent = heard_natively(gates, release)
        assert (ASKED in sent, release.is_finished) == (is_asked, not is_asked)
        gates.pass_time(MS)
        assert release.is_finished
        gates.say(GATE, b":1\r\n:0\r\n" if is_asked else b":1\r\n")
        gates.answer_all()


def test_gate_that_lost_its_scripts_is_waited_for() -> None:
    gates = met_taken()
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
    gates = met_taken()
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


def test_native_command_that_its_gate_refuses_is_repeated_as_its_script() -> None:
    gate = Gate(native=VALKEY)
    release = gate.release(gate.take())
    gate.hear()
    gate.say(NOPERM)
    assert bulk(b"EVAL") + bulk(TELLING) in gate.hear()
    gate.say(b":0\r\n")  # EXISTS: before the key was deleted
    assert not release.is_finished
    gate.say(b":2\r\n")
    assert (release.verdict, gate.hear()) == (Verdict.WON, b"")


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
