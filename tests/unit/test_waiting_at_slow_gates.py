"""A gate that is slow is passed over: who finds it so, who follows, when it ends."""

from __future__ import annotations

import pytest

from fastredlock._core import Verdict, by_hand_withdraw
from fastredlock._options import scripts
from tests.support.by_hand import MS, START_NS, S
from tests.support.gate_by_hand import (
    ASK,
    GATE,
    HELD,
    KEY,
    LAST,
    NEXT,
    TAKE,
    TELL,
    Gates,
    moved,
)

MARK, TAKEN = b"4", b"$-1\r\n"
BEHIND = b"*4\r\n:0\r\n:-1\r\n:90\r\n:0\r\n"


def flag_of_question(gates: Gates) -> bytes:
    """Return how a caller that waits asks its gate, for the second time."""
    round = gates.wait()
    gates.heard(GATE, ASK)
    gates.say(GATE, HELD)
    by_hand_withdraw(gates.engine, round, gates.now_ns)
    gates.answer(GATE)
    gates.wait()
    (asked,) = gates.heard(GATE, ASK)
    return asked[-1]


def waiting_elsewhere() -> Gates:
    """Return masters whose gate has answered a caller that its queue has moved."""
    gates = Gates()
    gates.wait()
    assert gates.heard(GATE, ASK)
    gates.say(GATE, moved())
    return gates


# --- who is slow ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "late_ms", "pause_ms", "is_looked_for", "prompt", "is_marked"),
    [
        (40, 2, 60, True, 0, False),  # less than 3 ms
        (100, 5, 0, True, 0, False),  # all within a second
        (20, 5, 60, False, 0, False),  # they were only read late
        (0, 0, 0, True, 0, True),  # slow for a second
        (0, 0, 0, True, 12, True),
        (0, 0, 0, True, 16, False),  # prompt again
    ],
)
def test_gate_when_its_replies_are_late_for_a_second_then_is_marked(
    count: int,
    late_ms: int,
    pause_ms: int,
    is_looked_for: bool,
    prompt: int,
    is_marked: bool,
) -> None:
    gates = Gates()
    for _ in range(count):
        gates.take(late_ms * MS, is_looked_for=is_looked_for)
        gates.pass_time(pause_ms * MS)
    if not count:
        gates.be_slow()
    for _ in range(prompt):
        gates.take()
    assert (flag_of_question(gates) == MARK) is is_marked


def test_gate_when_its_callers_wait_for_many_resources_then_is_not_marked() -> None:
    gates = Gates()
    gates.be_slow()
    for i in range(17):
        gates.wait(b"other-%d" % i)
    for each in (GATE, NEXT, LAST):
        gates.heard(each, ASK)
    gates.wait()
    assert gates.heard(GATE, ASK)[0][-1] != MARK


# --- who follows ------------------------------------------------------------------


def test_caller_when_its_queue_has_moved_then_enters_that_of_the_next() -> None:
    gates = waiting_elsewhere()
    (asked,) = gates.heard(NEXT, ASK)
    assert asked[0] == KEY
    assert not gates.hear(LAST)


def test_caller_when_the_queue_has_moved_twice_then_enters_the_third() -> None:
    gates = waiting_elsewhere()
    gates.heard(NEXT, ASK)
    gates.say(NEXT, moved())
    assert gates.heard(LAST, ASK)


def test_callers_when_the_queue_has_moved_everywhere_then_poll() -> None:
    gates = waiting_elsewhere()
    gates.heard(NEXT, ASK)
    gates.say(NEXT, moved())
    gates.heard(LAST, ASK)
    gates.say(LAST, moved())
    assert [words[0] for words in gates.hear(GATE)][-1] == b"SET"  # a try
    assert not gates.engine.may_wait_in_turn(KEY, gates.now_ns)


def test_caller_when_it_is_called_from_a_moved_queue_then_asks_at_once() -> None:
    gates = Gates()
    gates.wait()
    gates.heard(GATE, ASK)
    gates.say(GATE, HELD)
    push = b">3\r\n$7\r\nmessage\r\n$7\r\nchannel\r\n$4\r\n~key\r\n"
    gates.say(GATE, push)
    assert gates.heard(GATE, ASK)
    gates.say(GATE, moved())
    assert gates.heard(NEXT, ASK)


def test_caller_when_the_mark_is_over_then_asks_the_first_gate_and_leaves() -> None:
    gates = waiting_elsewhere()
    gates.heard(NEXT, ASK)
    gates.say(NEXT, BEHIND)
    for _ in range(22):
        if gates.heard(GATE, ASK):
            break
        gates.pass_time(500 * MS)
        if gates.now_ns < START_NS + 10 * S:
            gates.answer(NEXT, to_ask=BEHIND)
    assert START_NS + 10 * S <= gates.now_ns <= START_NS + 11 * S
    assert scripts.LEAVE_QUEUE in gates.hear(NEXT)[-1]


@pytest.mark.parametrize("reply", [b":4", b":5"])
def test_turn_when_the_queue_has_moved_meanwhile_then_is_tried_all_the_same(
    reply: bytes,
) -> None:
    gates = Gates()
    taken = gates.wait()
    gates.heard(GATE, ASK)
    gates.say(GATE, b"*4\r\n:1\r\n:-2\r\n:0\r\n:1\r\n")
    assert gates.heard(GATE, TAKE)
    gates.say(GATE, reply + b"\r\n")
    gates.answer(NEXT)
    gates.answer(LAST)
    assert taken.verdict is Verdict.WON
    gates.wait()
    assert gates.heard(NEXT, ASK)


# --- who releases -----------------------------------------------------------------


def released(gates: Gates) -> bytes:
    """Release; the gate has deleted the key, and the queue is not there."""
    taken = gates.take()
    gates.release(taken)
    assert gates.heard(GATE, TELL)
    gates.say(GATE, b":5\r\n")
    return taken.token


def test_release_when_the_queue_has_moved_then_is_told_at_the_next_gate() -> None:
    gates = Gates()
    token = released(gates)
    commands = [words for words in gates.hear(NEXT) if token in words]
    assert [words[0] for words in commands] == [b"EVALSHA", b"EVAL"]
    assert b"notify()" in commands[1][1]


def test_release_when_its_token_may_be_used_again_then_is_sent_once() -> None:
    """It would come behind the next SET of this token, and delete that one's key."""
    gates = Gates(tokens_are_given=True)
    token = released(gates)
    assert len([words for words in gates.hear(NEXT) if token in words]) == 1


# --- who keeps it so --------------------------------------------------------------


def test_mark_when_half_of_its_time_is_over_then_is_set_again() -> None:
    gates = Gates()
    gates.be_slow()
    gates.wait()
    gates.heard(GATE, ASK)
    gates.say(GATE, moved(5_100))
    gates.heard(NEXT, ASK)
    gates.say(NEXT, HELD)
    assert not gates.hear(GATE)
    gates.pass_time(250 * MS)  # a try, as the first
    for each in (NEXT, LAST, GATE):
        gates.answer(each, TAKEN)
    gates.wait()
    (asked,) = gates.heard(GATE, ASK)
    assert asked[-1] == MARK
    gates.say(GATE, moved())
    assert len(gates.heard(NEXT, ASK)) == 1  # it stays there
