"""A few seconds of chaos, and that its checker and its schedule can be believed."""

from __future__ import annotations

import random

import pytest

from .checker import Window, violations
from .run import run
from .schedule import Options, draw_schedule

SEED = 20_261_121  # one seed, one schedule; python -m tests.chaos --seed for others


def windows_of(*spans: tuple[int, int, int]) -> list[Window]:
    return [Window(*span, worker) for worker, span in enumerate(spans)]


def test_windows_when_they_touch_or_differ_in_resource_then_are_no_violation() -> None:
    assert violations(windows_of((0, 1, 5), (0, 5, 9), (1, 2, 8), (0, 9, 9))) == []


@pytest.mark.parametrize(
    "spans",
    [
        [(0, 1, 5), (0, 4, 9)],
        [(0, 1, 9), (0, 2, 3), (0, 9, 10)],
        [(0, 1, 5), (0, 1, 5)],
        [(0, 1, 9), (0, 2, 2), (0, 8, 10)],
    ],
)
def test_windows_when_two_overlap_then_are_one_violation(
    spans: list[tuple[int, int, int]],
) -> None:
    assert len(violations(windows_of(*spans))) == 1


def test_windows_when_drawn_at_random_then_are_judged_as_by_comparing_all_pairs() -> (
    None
):
    drawn = random.Random(SEED)
    for _ in range(300):
        spans = [(drawn.randrange(2), drawn.randrange(200)) for _ in range(8)]
        windows = windows_of(*((r, at, at + drawn.randrange(20)) for r, at in spans))
        overlaps = [
            (a, b)
            for a in windows
            for b in windows
            if a.worker < b.worker
            and a.resource == b.resource
            and max(a.begin_ns, b.begin_ns) < min(a.end_ns, b.end_ns)
        ]
        assert bool(violations(windows)) == bool(overlaps), windows


def test_schedule_when_drawn_twice_from_a_seed_then_is_the_same() -> None:
    assert draw_schedule(1, 60, Options()) == draw_schedule(1, 60, Options())
    kinds = {fault.kind for fault in draw_schedule(1, 60, Options())}
    assert kinds == {"pause", "kill", "cut"}


@pytest.mark.slow
@pytest.mark.parametrize("restarts_at_once", [False, True])
def test_exclusion_when_masters_fail_by_schedule_then_is_never_violated(
    restarts_at_once: bool,
) -> None:
    figures = run("fastredlock", 4, SEED, Options(restarts_at_once))
    assert (figures.violations, figures.lost_updates, figures.hung) == (0, 0, 0)
    assert figures.faults > 5
    assert figures.leases > 10
