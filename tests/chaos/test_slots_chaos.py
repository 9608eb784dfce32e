"""A few seconds of slots under faults, and that their judge can be believed."""

from __future__ import annotations

from math import inf

import pytest

from .checker import Window
from .clients import TTL
from .slot_judge import granted_again, held_at_once
from .slot_worker import DIED
from .slots import Setup, run

SEED = 20_261_125
TTL_NS = int(TTL * 1e9)


def held(*spans: tuple[int, int], permits: int = 2) -> tuple[int, int]:
    return held_at_once([Window(0, *span, 0) for span in spans], permits)


def test_slots_when_one_begins_as_another_ends_then_count_as_one() -> None:
    assert held((0, 5), (5, 9), (9, 9)) == (1, 0)


def test_slots_when_more_than_k_are_held_then_the_time_of_it_is_counted() -> None:
    assert held((0, 9), (1, 8), (3, 5), (4, 6)) == (4, 3)


def test_slot_of_a_dead_holder_when_granted_again_then_is_late_behind_its_ttl() -> None:
    dead = Window(1, 0, TTL_NS // 10, 1, DIED)
    other = Window(0, TTL_NS // 2, TTL_NS, 2)
    next_one = Window(1, TTL_NS * 5 // 4, TTL_NS * 2, 3)
    (times,) = granted_again([dead, other, next_one])
    assert times == pytest.approx((1.15 * TTL, 0.25 * TTL))


def test_slot_of_a_dead_holder_when_nobody_gets_it_then_is_late_for_ever() -> None:
    dead = Window(1, 0, TTL_NS // 10, 1, DIED)
    assert list(granted_again([dead, Window(0, 9 * TTL_NS, 10 * TTL_NS, 2)])) == [
        (inf, inf)
    ]
    assert not list(granted_again([dead, Window(0, TTL_NS, 2 * TTL_NS, 2)]))


@pytest.mark.slow
def test_semaphore_when_masters_and_holders_die_then_never_more_than_k_hold() -> None:
    told = run("fastredlock", Setup(5, 3, processes=8), 4, SEED)
    assert (told.most, told.excess, told.left) == (3, 0, 0)
    assert told.faults > 3
    assert inf not in told.late


@pytest.mark.slow
def test_counting_semaphore_when_many_race_then_more_than_k_hold() -> None:
    told = run("counting", Setup(5, 3, has_faults=False), 4, SEED)
    assert told.most > 3
    assert told.excess > 0
