"""Slots of a semaphore, event by event."""

from __future__ import annotations

import pytest

from fastredlock._core import (
    Operation,
    Permits,
    Round,
)
from fastredlock._locking.slots import rate_terms
from fastredlock._options import scripts
from fastredlock._options.settings import Settings
from tests.support import by_hand as hand
from tests.support.by_hand import MS
from tests.support.gate_by_hand import COUNT, KEY, TAKE, Gate, Gates

INSPECT = int(Operation.INSPECT)
TWO, THREE = Permits(KEY, 2), Permits(KEY, 3)
NAME = THREE.name
NEXT_IS_FIRST = b":3\r\n"


def try_slot(gates: Gates) -> Round:
    """Take a slot of two, by all masters."""
    round = gates.new_round(TWO)
    hand.submit(gates.engine, round, gates.now_ns)
    gates.answer_all()
    return round


def slot_key(slot: int) -> bytes:
    """Return the key of a slot."""
    return b"%b%d" % (NAME, slot)


def seen(*replies: bytes) -> Gates:
    """Return masters that have looked at the slots of two, and replied so."""
    gates = Gates()
    look(gates, *replies)
    return gates


def look(gates: Gates, *replies: bytes) -> None:
    """Let masters look at the slots of two, and reply so."""
    round = gates.engine.new_round(INSPECT, TWO, b"-", hand.TERMS)
    hand.submit(gates.engine, round, gates.now_ns)
    for master, reply in enumerate(replies):
        gates.hear(master)
        gates.say(master, b"$2\r\n%b\r\n" % reply)


# --- which slot is tried --------------------------------------------------------------


@pytest.mark.parametrize(("reply", "is_next"), [(b":1\r\n", True), (b":0\r\n", False)])
def test_slot_when_released_then_is_the_next_to_be_tried_unless_it_was_gone(
    reply: bytes, is_next: bool
) -> None:
    """It had expired, and may be another's by now."""
    gates = Gates()
    first = try_slot(gates)
    gates.release(first)
    for master in range(COUNT):
        gates.hear(master)
        gates.say(master, reply)
    assert (try_slot(gates).slot == first.slot) is is_next


@pytest.mark.parametrize(
    ("replies", "is_full"),
    [
        ((b"11", b"11", b"11"), True),
        ((b"11", b"11", b"00"), True),  # by two that have replied first
        ((b"11", b"10", b"10"), False),  # one has a key of slot 1
    ],
)
def test_look_when_answered_then_a_quorum_decides_which_slot_is_taken(
    replies: tuple[bytes, ...], is_full: bool
) -> None:
    gates = seen(*replies)
    assert gates.engine.has_no_slot(TWO, gates.now_ns) is is_full
    assert is_full or try_slot(gates).slot == 1


@pytest.mark.parametrize(("reply", "slot"), [(b"01", 0), (b"10", 1)])
def test_look_when_slots_were_free_before_then_the_one_nobody_has_is_first(
    reply: bytes, slot: int
) -> None:
    """Seen: timeout=0 tried five that others had at a quorum, and not the free one."""
    gates = seen(b"00", b"00", b"00")
    look(gates, reply, b"00", b"00")
    assert try_slot(gates).slot == slot


def test_waiter_when_the_first_slot_expires_then_asks_whatever_its_place_was() -> None:
    """Seen: a dead holder's slot was free for 200 ms, and thirteen waited."""
    gate = Gate()
    gate.wait(key=THREE)
    gate.pass_time(250 * MS)
    gate.answer(0, 5000, 8, 100)
    gate.pass_time(101 * MS)
    assert scripts.ASK_TURN_SHA1 not in gate.hear()
    gate.pass_time(3 * MS)
    assert scripts.ASK_TURN_SHA1 in gate.hear()


# --- who hears of it ------------------------------------------------------------------


def test_waiter_when_told_of_a_slot_then_tries_it_or_asks_beyond_its_own() -> None:
    gate = Gate()
    round = gate.wait(key=THREE)
    gate.tell(slot_key(1))
    assert (round.is_opened, round.slot) == (True, 1)
    gate = Gate()
    round = gate.wait(key=TWO)
    gate.tell(slot_key(2))
    assert not round.is_opened
    gate.answer(1, 0, 0)
    assert round.slot == 0


def test_waiter_when_told_while_another_is_opened_then_tries_that_slot_next() -> None:
    gate = Gate()
    first, second = gate.wait(key=THREE), gate.wait(key=THREE)
    gate.tell(slot_key(0))
    gate.tell(slot_key(2))
    assert not second.is_opened
    gate.hear()
    gate.say(NEXT_IS_FIRST)
    assert first.is_won
    assert second.is_opened
    assert second.slot == 2


def test_waiter_when_another_was_opened_as_it_came_then_asks_soon() -> None:
    """Seen, with cohort=0.5: a slot was free elsewhere, and it asked 0.25 s later."""
    gate = Gate()
    gate.engine.cohort_ns = 500 * MS
    first = gate.wait(key=THREE)
    gate.tell(slot_key(0))
    gate.hear()
    gate.wait(key=THREE, is_answered=False)
    gate.say(b":1\r\n")  # nobody of ours is in the queue
    assert first.is_won
    gate.pass_time(3 * MS)
    assert scripts.ASK_TURN_SHA1 in gate.hear()


def test_slot_when_released_and_one_waits_beside_it_then_is_tried_in_one_write() -> (
    None
):
    gate = Gate()
    taken = gate.take(THREE)
    next_here = gate.wait(key=THREE)
    gate.release(taken)
    assert next_here.slot == taken.slot
    told = gate.hear()
    assert told.index(scripts.RELEASE_SHA1) < told.index(TAKE)
    assert told.count(slot_key(taken.slot)) == 2


# --- rates ----------------------------------------------------------------------------


@pytest.mark.parametrize("per", [0.1, 1.0, 60.0])
def test_rate_when_its_clocks_differ_by_the_drift_then_no_window_has_two_begins(
    per: float,
) -> None:
    settings = Settings(["redis://127.0.0.1:7001"])
    terms = rate_terms(settings, per)
    last_begin_ns = terms.ttl_ms * MS - terms.drift_ns
    assert terms.is_of_rate
    assert last_begin_ns > 0
    shortest_life_ns = int(terms.ttl_ms * MS * (1 - settings.drift_factor))
    assert shortest_life_ns - last_begin_ns >= per * 1e9
