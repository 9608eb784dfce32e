"""A native release at its gate, and the question whether anybody waits, by hand."""

from __future__ import annotations

import pytest

from fastredlock._core import (
    MasterState,
    Round,
    Verdict,
    by_hand_finish,
    by_hand_open_due,
)
from fastredlock._options import scripts
from tests.support.by_hand import NO_NATIVE, S, bulk
from tests.support.gate_by_hand import KEY, MS, Gate

VALKEY = b"*2\r\n*1\r\n$7\r\ndelifeq\r\n_\r\n"
REDIS = b"*2\r\n_\r\n*1\r\n$5\r\ndelex\r\n"
EXISTS = b"*2\r\n$6\r\nEXISTS\r\n" + bulk(b"fastredlock:queue:" + KEY)
NOPERM = b"-NOPERM User u has no permissions to run the 'exists' command\r\n"
TELLING = scripts.RELEASE_AND_NOTIFY


@pytest.fixture
def gate() -> Gate:
    return Gate(native=VALKEY)


@pytest.mark.parametrize(
    ("native", "command"), [(VALKEY, b"$7\r\nDELIFEQ"), (REDIS, b"$5\r\nDELEX")]
)
def test_release_where_nobody_is_known_to_wait_is_native_with_a_check_behind_it(
    native: bytes, command: bytes
) -> None:
    gate = Gate(native=native)
    release = gate.release(gate.take())
    said = gate.hear()
    assert command in said
    assert said.endswith(EXISTS)
    gate.say(b":1\r\n")
    assert release.verdict is Verdict.WON
    assert not release.is_finished
    gate.say(b":0\r\n")
    assert release.is_finished
    assert gate.hear() == b""


def test_script_follows_where_somebody_waits(gate: Gate) -> None:
    gate.release(gate.take())
    gate.hear()
    gate.say(b":1\r\n:1\r\n")
    said = gate.hear()
    assert TELLING in said  # by its source: nobody reads NOSCRIPT
    assert said.endswith(bulk(b"0000000000000001"))  # our entry may be left
    gate.say(b":3\r\n")
    gate.release(gate.take())  # and from now on the script goes at once
    assert scripts.RELEASE_AND_NOTIFY_SHA1 in gate.hear()
    gate.say(b":1\r\n")
    gate.now_ns += S + MS
    gate.release(gate.take())
    assert gate.hear().endswith(EXISTS)


def test_own_waiter_that_came_meanwhile_keeps_its_entry(gate: Gate) -> None:
    gate.release(gate.take())
    gate.hear()
    gate.wait(is_answered=False)
    gate.hear()
    gate.say(b":1\r\n:1\r\n")
    said = gate.hear()
    assert TELLING in said
    assert said.endswith(bulk(b""))  # nobody is named that leaves


def test_check_that_is_refused_is_made_by_the_script_and_not_again(gate: Gate) -> None:
    gate.release(gate.take())
    gate.hear()
    gate.say(b":1\r\n" + NOPERM)
    assert TELLING in gate.hear()
    gate.say(b":0\r\n")
    gate.now_ns += 2 * S
    gate.release(gate.take(b"other"))
    assert scripts.RELEASE_AND_NOTIFY_SHA1 in gate.hear()


def test_native_release_that_is_refused_goes_by_its_script(gate: Gate) -> None:
    release = gate.release(gate.take())
    gate.hear()
    gate.say(b"-OOM command not allowed\r\n:1\r\n")
    assert release.verdict is Verdict.OPEN
    said = gate.hear()
    assert scripts.RELEASE in said
    assert TELLING in said
    gate.say(b":1\r\n")
    assert release.is_won
    gate.say(b":3\r\n")
    assert gate.engine.states[0][0] is MasterState.READY


def test_release_whose_check_takes_too_long_ends_with_the_script(gate: Gate) -> None:
    release = gate.release(gate.take())
    gate.hear()
    gate.say(b":1\r\n")
    gate.pass_time(MS - 1)
    assert not release.is_finished
    gate.pass_time(1)
    assert release.is_finished
    assert TELLING in gate.hear()
    gate.say(b":1\r\n:3\r\n")  # it was late: the script is sent once
    assert gate.hear() == b""


def test_gate_that_is_behind_again_and_again_is_not_asked_for_a_while(
    gate: Gate,
) -> None:
    for _ in range(30):
        gate.release(gate.take())
        if not gate.hear().endswith(EXISTS):
            break
        gate.say(b":1\r\n")
        gate.now_ns += MS // 4
        gate.say(b":0\r\n")
    else:
        pytest.fail("each release waits for it")
    gate.say(b":1\r\n")
    for wait_ns, command in (
        (9 * S // 10, scripts.RELEASE_AND_NOTIFY_SHA1),
        (S // 5, EXISTS),
    ):
        gate.now_ns += wait_ns
        gate.release(gate.take())
        assert command in gate.hear()
        gate.say(b":1\r\n")


def test_gate_that_was_behind_once_is_asked_again(gate: Gate) -> None:
    for late_ns in (MS, 0, 0):
        gate.release(gate.take())
        assert gate.hear().endswith(EXISTS)
        gate.say(b":1\r\n")
        gate.now_ns += late_ns
        gate.say(b":0\r\n")


def test_check_that_is_lost_with_its_connection_holds_up_nobody(gate: Gate) -> None:
    release = gate.release(gate.take())
    gate.hear()
    gate.say(b":1\r\n")
    gate.cut()
    by_hand_finish(gate.engine, gate.now_ns)
    assert release.is_finished
    by_hand_open_due(gate.engine, True, gate.now_ns)
    gate.connect()
    assert scripts.RELEASE not in gate.hear()


def test_script_behind_a_check_counts_as_no_vote(gate: Gate) -> None:
    gate.release(gate.take())
    gate.hear()
    gate.say(b":1\r\n:1\r\n")
    before = gate.engine.figures
    gate.say(b":3\r\n")
    assert gate.engine.figures == before


def test_release_that_is_lost_with_its_check_is_sent_again_once(gate: Gate) -> None:
    release = gate.release(gate.take())
    gate.hear()
    gate.cut()
    gate.connect()
    assert gate.hear().count(TELLING) == 1
    gate.say(b":0\r\n")
    assert release.is_won


def test_answer_of_another_kind_ends_the_connection(gate: Gate) -> None:
    gate.release(gate.take())
    gate.hear()
    gate.say(b":1\r\n+OK\r\n")
    assert gate.engine.states[0][0] is not MasterState.READY


# --- gathered: of a batch, or of the tasks of one loop --------------------------------


def exists(*keys: bytes) -> bytes:
    names = b"".join(bulk(b"fastredlock:queue:" + key) for key in keys)
    return b"*%d\r\n$6\r\nEXISTS\r\n" % (len(keys) + 1) + names


def released_together(gate: Gate, *keys: bytes) -> list[Round]:
    taken = [gate.take(key) for key in keys]
    return [gate.release(each) for each in taken]


@pytest.fixture
def gathering() -> Gate:
    return Gate(native=VALKEY, gathers=True)


def test_releases_of_one_write_have_one_check_behind_all(gathering: Gate) -> None:
    releases = released_together(gathering, b"a", b"b", b"c")
    said = gathering.hear()
    assert said.count(b"DELIFEQ") == 3
    assert said.endswith(exists(b"a", b"b", b"c"))
    gathering.say(b":1\r\n" * 3)
    assert [release.verdict for release in releases] == [Verdict.WON] * 3
    assert not any(release.is_finished for release in releases)
    gathering.say(b":0\r\n")
    assert all(release.is_finished for release in releases)
    assert gathering.hear() == b""


@pytest.mark.parametrize("answer", [b":1\r\n", NOPERM], ids=["a queue", "refused"])
def test_where_one_of_several_is_waited_for_each_is_asked_alone(
    gathering: Gate, answer: bytes
) -> None:
    releases = released_together(gathering, b"a", b"b")
    gathering.hear()
    gathering.say(b":1\r\n" * 2 + answer)
    assert gathering.hear() == exists(b"a") + exists(b"b")
    gathering.say(b":0\r\n")
    assert [release.is_finished for release in releases] == [True, False]
    gathering.say(b":1\r\n")
    assert all(release.is_finished for release in releases)
    said = gathering.hear()
    assert said.count(TELLING) == 1
    assert bulk(b"b") in said


def test_so_many_releases_do_not_wait_for_one_check(gathering: Gate) -> None:
    keys = [b"%02d" % i for i in range(20)]
    released_together(gathering, *keys)
    said = gathering.hear()
    assert exists(*keys[:16]) in said
    assert said.endswith(exists(*keys[16:]))


def test_gathered_check_that_is_lost_holds_up_nobody(gathering: Gate) -> None:
    releases = released_together(gathering, b"a", b"b")
    gathering.hear()
    gathering.say(b":1\r\n" * 2)
    gathering.cut()
    by_hand_finish(gathering.engine, gathering.now_ns)
    assert all(release.is_finished for release in releases)


def test_gathered_check_that_was_not_written_is_not_sent_to_the_next_connection(
    gathering: Gate,
) -> None:
    releases = released_together(gathering, b"a", b"b")
    gathering.cut()
    gathering.connect()
    said = gathering.hear()
    assert said.count(TELLING) == 2
    assert b"EXISTS" not in said
    gathering.say(b":0\r\n" * 2)
    assert all(release.is_finished for release in releases)


@pytest.mark.parametrize("native", [VALKEY, NO_NATIVE])
@pytest.mark.parametrize("is_told", [False, True])
def test_release_that_was_cut_tells_who_waits_on_the_next_connection(
    native: bytes, is_told: bool
) -> None:
    # It may have been executed, natively, and the queue never been asked for.
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


def test_releases_that_were_cut_tell_as_far_as_they_are_few(gathering: Gate) -> None:
    keys = [b"%03d" % i for i in range(100)]
    releases = released_together(gathering, *keys)
    gathering.cut()
    gathering.connect()
    said = gathering.hear()
    assert (said.count(TELLING), said.count(scripts.RELEASE)) == (64, 36)
    gathering.say(b":1\r\n" * 100)
    assert all(release.is_finished for release in releases)


def test_gathered_check_whose_answer_is_late_ends_with_the_scripts(
    gathering: Gate,
) -> None:
    releases = released_together(gathering, b"a", b"b")
    gathering.hear()
    gathering.say(b":1\r\n" * 2)
    gathering.pass_time(MS)
    assert all(release.is_finished for release in releases)
    assert gathering.hear().count(TELLING) == 2
    gathering.say(b":2\r\n" + b":3\r\n" * 2)
    assert gathering.hear() == b""


def test_answer_of_another_kind_to_a_gathered_check_ends_the_connection(
    gathering: Gate,
) -> None:
    released_together(gathering, b"a", b"b")
    gathering.hear()
    gathering.say(b":1\r\n" * 2 + b"+OK\r\n")
    assert gathering.engine.states[0][0] is not MasterState.READY
