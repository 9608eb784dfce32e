"""A release at its gate, by hand: its script there, also among native commands."""

from __future__ import annotations

import pytest

from fastredlock._core import Verdict
from fastredlock._options import scripts
from tests.support.by_hand import MS, NO_NATIVE, bulk
from tests.support.gate_by_hand import KEY, Gate
from tests.support.slow_gate_by_hand import GATE, LAST, NEXT, TELL, Gates

VALKEY = b"*2\r\n*1\r\n$7\r\ndelifeq\r\n_\r\n"
REDIS = b"*2\r\n_\r\n*1\r\n$5\r\ndelex\r\n"
NOPERM = b"-NOPERM User u has no permissions to run the 'delifeq' command\r\n"
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
    release = gates.release(gates.take())
    gates.hear(GATE)
    for each in (NEXT, LAST):
        gates.say(each, b":1\r\n")
    gates.say(GATE, b"-NOSCRIPT No matching script\r\n")
    assert not release.is_finished
    assert [words[:2] for words in gates.hear(GATE)] == [[b"EVAL", TELLING]]
    gates.say(GATE, b":2\r\n")
    assert release.is_finished


def test_native_command_that_is_refused_is_repeated_as_the_script_of_no_gate() -> None:
    gates = Gates(native=VALKEY)
    release = gates.release(gates.take())
    gates.hear(GATE)
    gates.hear(NEXT)
    gates.say(NEXT, NOPERM)
    assert [words[:2] for words in gates.hear(NEXT)] == [[b"EVAL", scripts.RELEASE]]
    gates.say(GATE, b":1\r\n")
    gates.say(NEXT, b":1\r\n")
    assert release.verdict is Verdict.WON


def test_gate_that_has_lost_the_script_is_sent_its_text() -> None:
    gate = Gate(native=VALKEY)
    lease = gate.take()
    release = gate.release(lease)
    gate.hear()
    gate.say(b"-NOSCRIPT No matching script\r\n")
    assert release.verdict is Verdict.OPEN
    assert bulk(TELLING) + bulk(b"1") + bulk(KEY) + bulk(lease.token) in gate.hear()
    gate.say(b":2\r\n")
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
