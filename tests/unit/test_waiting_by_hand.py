"""Those who wait for a lock, event by event: the orders that are rare on servers."""

import pytest

from fastredlock import Retry
from fastredlock._core import (
    LeaseFields,
    Verdict,
    begin_releases,
    by_hand_hand_on,
)
from fastredlock._locking.attempt import attempts
from fastredlock._options import scripts
from tests.support.by_hand import MS, TERMS, bulk
from tests.support.gate_by_hand import KEY, Gate


def test_turn_when_an_older_waiter_is_undone_then_is_not_lost() -> None:
    """Seen: lock() that had timed out took the queue of those who came meanwhile."""
    gate = Gate()
    old = gate.wait(10 * MS)
    gate.pass_time(10 * MS)  # its last try
    gate.say(b":0\r\n")
    assert old.verdict is Verdict.TAKEN
    assert scripts.LEAVE_QUEUE in gate.hear()
    gate.say(b":1\r\n")
    new = gate.wait()
    gate.withdraw(old)  # what lock() does before it raises
    gate.tell()
    assert new.is_opened
    assert gate.engine.counters.turns_missed == 0


def test_next_waiter_when_it_gives_up_beside_an_open_turn_then_its_entry_goes() -> None:
    """Seen: the gate had its entry for a minute, and told nobody else meanwhile."""
    gate = Gate()
    first, second = gate.wait(), gate.wait()
    gate.tell()
    assert first.is_opened
    gate.withdraw(second)
    gate.hear()
    gate.say(b":3\r\n")  # set, and the second stands in the queue
    assert first.is_won
    assert scripts.LEAVE_QUEUE in gate.hear()


def test_waiter_when_the_one_before_it_gives_up_then_its_entry_is_its_own_at_once() -> (
    None
):
    gate = Gate()
    first, _ = gate.wait(), gate.wait()
    gate.hear()
    gate.withdraw(first)
    asked = gate.hear()
    assert scripts.ASK_TURN_SHA1 in asked
    assert asked.endswith(b"$1\r\n1\r\n")  # by its own ticket


def test_waiter_when_its_time_is_short_then_tries_at_the_end_of_it() -> None:
    """Seen: timeout=0.005 waited for 51 ms, and with slow masters for far longer."""
    gate = Gate()
    driven = attempts(
        gate.engine, "key", KEY, TERMS, lambda: b"token", Retry(), 5 * MS, gate.now_ns
    )
    first = gate.submit(next(driven))
    gate.now_ns += MS
    gate.say(b"$-1\r\n")
    assert first.verdict is Verdict.TAKEN
    second = gate.submit(next(driven))
    gate.pass_time(4 * MS - 1)
    assert not second.is_opened
    gate.pass_time(1)
    assert second.is_opened


def test_caller_when_it_tries_again_and_again_then_counts_as_one_that_waits() -> None:
    """Seen: stats().waits grew by four per second for one caller."""
    gate = Gate()
    driven = attempts(
        gate.engine, "key", KEY, TERMS, lambda: b"token", Retry(), None, gate.now_ns
    )
    gate.submit(next(driven))
    gate.say(b"$-1\r\n")
    for _ in range(3):
        round = gate.submit(next(driven))
        gate.pass_time(250 * MS)
        assert round.is_opened
        gate.say(b":0\r\n")
    assert gate.engine.counters.waits == 1


def test_waiter_when_its_gate_is_silent_then_tries_on_all_masters() -> None:
    """Seen: all who waited stood still for 1 s and more, though a quorum was well."""
    gate = Gate()
    round = gate.wait(is_answered=False)
    gate.pass_time(250 * MS - 1)
    assert not round.is_opened
    gate.pass_time(1)
    assert round.is_opened


# Of a question each: whose turn, the ttl left; and the time until the next one.
ANSWERS = {
    "nobody was notified, for a second": ([(0, -2, 10)] * 101, True),
    "each that is notified lets its turn pass": ([(3, -2, 52)] * 21, True),
    "less than a second": ([(0, -2, 10)] * 100, False),
    "others are notified, by their releases": ([(2, -2, 250)] * 8, False),
    "a key in between": ([(3, -2, 52)] * 18 + [(0, 5, 475)] + [(3, -2, 52)] * 9, False),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_waiter_when_a_free_key_is_left_alone_then_tries_out_of_turn(case: str) -> None:
    """Seen: behind 100,000 entries of nobody a free lock was out of reach for 11 s."""
    answers, is_tried = ANSWERS[case]
    gate = Gate()
    round = gate.wait(is_answered=False)
    gate.say(b">3\r\n" + bulk(b"subscribe") + bulk(b"channel") + b":1\r\n")
    for whose, left_ms, again_ms in answers:
        assert not round.is_opened
        gate.answer(whose, left_ms, 9)
        gate.pass_time(again_ms * MS)
    assert round.is_opened == is_tried
    said = gate.hear()
    assert (b"SET" in said) == is_tried
    assert scripts.TAKE_TURN_SHA1 not in said  # which would refuse
    if is_tried:
        gate.say(b"+OK\r\n")
        assert round.is_won
        assert scripts.LEAVE_QUEUE in gate.hear()


def test_release_when_nobody_waits_here_then_takes_the_entry_out() -> None:
    """Seen: behind the entry of a process that is idle one waited for 20 s."""
    gate = Gate()
    taken = gate.wait()
    gate.tell()
    gate.say(b":1\r\n")
    assert taken.is_won
    gate.hear()
    gate.release(taken)
    said = gate.hear()
    assert scripts.RELEASE_AND_NOTIFY_SHA1 in said
    assert said.endswith(bulk(b"0000000000000001"))  # the process


def test_connections_when_lost_during_the_wait_then_are_opened_again() -> None:
    """Seen: QuorumUnreachableError with all masters up, where it is tried once."""
    gate = Gate()
    round = gate.wait()
    gate.cut()
    gate.pass_time(250 * MS)
    assert round.verdict is Verdict.OPEN
    gate.connect()
    assert b"SET" in gate.hear()
    gate.say(b"+OK\r\n")
    assert round.is_won


@pytest.mark.parametrize(
    "key",
    [
        b"*1000000000",  # what stands behind its length begins a line
        b"a\n*1000000000",
        b"\r\n>9999999\r\n",
        b"$1000000000\r\n%1000000000\r\n",
        b"\n" * 30,
        b"k" * 1_048_576,
    ],
    ids=lambda key: repr(key[:12]),
)
@pytest.mark.parametrize("size", [1, 7, 1 << 30])
def test_turn_when_its_resource_reads_as_a_header_then_the_connection_lives(
    key: bytes, size: int
) -> None:
    """Seen: "announces a million elements", at each turn; of 1 MiB: too long."""
    if len(key) > 1000 and size == 1:
        size = 100_000
    gate = Gate()
    round = gate.wait(key=key)
    push = b">3\r\n" + bulk(b"message") + bulk(b"channel") + bulk(key)
    for at in range(0, len(push), size):
        gate.say(push[at : at + size])
        assert gate.engine.states[0][1] == ""
    assert round.is_opened


def test_giant_when_it_stands_behind_a_bulk_string_then_is_found() -> None:
    gate = Gate()
    gate.wait()
    gate.hear()
    gate.say(b">3\r\n" + bulk(b"message") + bulk(b"") + b"*1000000")
    assert "announces a million elements" in gate.engine.states[0][1]


def test_turn_when_undone_and_eval_is_forbidden_then_the_gate_is_asked_by_hash() -> (
    None
):
    """Seen: NOPERM, a lost connection, and "its user may not release locks"."""
    gate = Gate(b"-NOPERM no permissions to run the 'eval' command\r\n")
    round = gate.wait()
    gate.tell()
    gate.hear()
    gate.withdraw(round)
    said = gate.hear()
    assert scripts.RELEASE_AND_NOTIFY_SHA1 in said
    assert b"EVAL\r\n" not in said


# ---- called: those before us may be frozen


def test_waiter_when_called_then_asks_at_once_and_again_when_their_time_is_over() -> (
    None
):
    """Seen: a lock stayed free for 5.9 s behind 40 processes that stood still."""
    gate = Gate()
    waiter = gate.wait()
    gate.tell(b"~" + KEY)
    gate.answer(0, 5000, 40)
    gate.tell(b"?" + KEY)
    assert not waiter.is_opened
    gate.pass_time(52 * MS - 1)
    assert gate.hear() == b""
    gate.pass_time(1)
    gate.answer(3, -2, 40)  # the first let its turn pass: all are called
    gate.pass_time(52 * MS)
    gate.answer(1, -2, 0)
    assert waiter.is_opened
    assert gate.engine.counters.turns_missed == 0


def test_waiter_when_called_by_the_question_of_another_then_says_that_it_is_there() -> (
    None
):
    gate = Gate()
    waiter = gate.wait()
    gate.tell(b"~" + KEY)
    gate.answer(2, -2, 20)  # the one that called looks again, not everybody
    gate.pass_time(240 * MS)
    assert gate.hear() == b""
    gate.tell()
    assert waiter.is_opened


def test_first_when_called_again_and_again_then_has_one_question_under_way() -> None:
    gate = Gate()
    gate.wait()
    for _ in range(100):
        gate.tell(b"~" + KEY)
    assert gate.hear().count(scripts.ASK_TURN_SHA1) == 1


def test_call_when_nobody_waits_for_it_then_is_a_turn_of_that_name_that_is_missed() -> (
    None
):
    gate = Gate()
    gate.wait()
    gate.tell(b"~another")
    assert scripts.LEAVE_QUEUE in gate.hear()
    assert gate.engine.counters.turns_missed == 1


def test_turns_when_thousands_are_unknown_then_a_few_are_passed_on_at_a_time() -> None:
    """Seen: a gate that sent 2,000 before each reply doubled timeout=1."""
    gate = Gate()
    gate.wait()
    sent = []
    for _ in range(3):
        for i in range(1000):
            gate.tell(b"unknown%d" % i)
        sent.append(gate.hear().count(scripts.LEAVE_QUEUE))
        gate.pass_time(30 * MS)
    assert sent == [16, 0, 16]
    assert gate.engine.counters.turns_missed == 3000


def test_caller_when_it_comes_in_a_stay_then_the_release_that_ends_it_asks_before() -> (
    None
):
    """Seen by chance alone: it waited for its next question, and others came first."""
    gate = Gate()
    gate.engine.cohort_ns = 20 * MS
    first, second = gate.wait(), gate.wait()
    gate.tell()
    gate.hear()
    gate.say(b":1\r\n")  # set
    gate.hear()
    lease = LeaseFields(None, "key", first)
    (release,) = begin_releases(gate.engine, [lease], "unknown")
    assert release is not None
    assert by_hand_hand_on(gate.engine, release, gate.now_ns) is second
    third = gate.wait(is_answered=False)
    assert scripts.ASK_TURN_SHA1 not in gate.hear()  # it may be handed on once more
    gate.release(second)
    asked = gate.hear()
    assert not third.is_opened
    assert 0 <= asked.find(scripts.ASK_TURN_SHA1) < asked.find(b"token-1")
