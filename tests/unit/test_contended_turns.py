"""The figures of `bench.contend`, of stamps written by hand."""

from __future__ import annotations

import pytest

from bench.contend import is_broken
from bench.contending.findings import exclusion, table_of
from bench.contending.turns import Run, Turn, Window
from bench.report import Report

MS = 1_000_000
WINDOW = Window(begin_ns=0, start_ns=100, end_ns=1_000)


def run_of(
    *turns: Turn, callers: int = 2, updates: int = 0, window: Window = WINDOW
) -> Run:
    return Run(window, callers, turns, updates)


def in_ms(*turns: Turn) -> Run:
    """Make a run of one second, its stamps in ms."""
    scaled = [Turn(*turn[:2], *(MS * stamp for stamp in turn[2:])) for turn in turns]
    return run_of(*scaled, window=Window(0, 0, 1_000 * MS))


def test_grants_count_in_the_window_alone_and_a_caller_without_any_has_none() -> None:
    run = run_of(
        Turn(0, 0, 0, 99, 100), Turn(0, 0, 0, 100, 110), Turn(0, 0, 0, 1_000, 1_010)
    )
    assert run.grants() == [1, 0]
    assert run.fairness() == 0
    assert run.rate() == pytest.approx(1 / 900e-9)


# Turns: the caller, when it asks, has it, and gives it back; each is a process.
@pytest.mark.parametrize(
    ("figure", "turns", "value"),
    [
        # From release to the next grant of another process: their logs come in turn.
        ("gaps_ns", [(1, 0, 240, 300), (1, 0, 320, 330), (0, 0, 150, 200)], [40]),
        ("gaps_ns", [(0, 0, 150, 0), (1, 0, 500, 510)], []),  # a holder was killed
        ("gaps_ns", [(0, 0, 950, 990), (1, 0, 1_020, 1_030)], []),  # outside the window
        # One begins before another has ended, although others are in between.
        ("overlaps", [(0, 0, 100, 500), (1, 0, 200, 210), (1, 211, 400, 410)], 2),
        ("overlaps", [(1, 0, 500, 600), (0, 0, 100, 500)], 0),
        # Of those that the window has a part of, up to its end.
        ("longest_wait_ns", [(0, 20, 0, 0)], 980),
        ("longest_wait_ns", [(0, 20, 5_000, 6_000)], 980),
        ("longest_wait_ns", [(0, 0, 90, 110), (0, 110, 130, 140)], 20),
        # A free lock that a waiter does not get, for over 0.1 s: in ms.
        ("stalls", [(0, 0, 1, 10), (1, 0, 111, 112)], 1),
        ("stalls", [(0, 0, 1, 10), (1, 200, 201, 202)], 0),  # nobody wanted it before
        ("stalls", [(0, 0, 1, 10), (1, 200, 201, 202), (0, 20, 300, 301)], 1),
    ],
)
def test_figure_of_turns_is_as_its_definition_says(
    figure: str, turns: list[tuple[int, int, int, int]], value: object
) -> None:
    make = in_ms if figure == "stalls" else run_of
    assert getattr(make(*(Turn(t[0], *t) for t in turns)), figure)() == value


def test_update_is_lost_when_fewer_are_counted_than_turns_that_made_one() -> None:
    turns = (Turn(0, 0, 0, 100, 200), Turn(1, 1, 0, 150, 210), Turn(0, 0, 220, 0, 0))
    assert run_of(*turns, updates=1).lost_updates() == 1
    assert run_of(*turns, updates=2).lost_updates() == 0


@pytest.mark.parametrize("second", [Turn(1, 1, 0, 199, 300), Turn(1, 1, 0, 200, 300)])
def test_report_is_broken_when_two_held_the_lock_at_once(second: Turn) -> None:
    run = run_of(Turn(0, 0, 0, 100, 200), second, updates=2)
    table = table_of("", [("two processes", exclusion([run]))])
    assert is_broken(Report("contend", [table], "")) is bool(run.overlaps())
