"""The figures of `bench.contend`, of stamps written by hand."""

from __future__ import annotations

import pytest

from bench.contend import is_broken
from bench.contending.commands import count_sent
from bench.contending.findings import Finding, exclusion, middle_run, table_of
from bench.contending.scene import pairs_ms
from bench.contending.turns import RECORD, Run, Turn, Window, percentile, turns_of
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


def test_log_is_read_up_to_the_rows_that_nobody_used() -> None:
    log = RECORD.pack(2, 10, 20, 30) + RECORD.pack(1, 15, 0, 0) + bytes(RECORD.size)
    turns = [*turns_of(log, process=3, callers=2)]
    assert turns == [Turn(3, 7, 10, 20, 30), Turn(3, 6, 15, 0, 0)]


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


def test_pair_lasts_from_a_call_to_the_next_one() -> None:
    run = run_of(Turn(0, 0, 100, 130, 131), Turn(0, 0, 160, 180, 181))
    assert pairs_ms(run) == [60 / 1e6]


@pytest.mark.parametrize(("percent", "value"), [(1, 1), (50, 2), (51, 3), (99, 4)])
def test_percentile_is_a_value_that_was_measured(percent: int, value: int) -> None:
    assert percentile([4, 2, 1, 3], percent) == value
    assert percentile([], percent) is None


def test_middle_run_has_the_median_fairness() -> None:
    fair = run_of(Turn(0, 0, 0, 100, 101), Turn(1, 1, 0, 102, 103))
    unfair = run_of(Turn(0, 0, 0, 100, 101))
    assert middle_run([unfair, fair, fair]).fairness() == 1


def test_commands_of_scripts_are_not_counted() -> None:
    lines = (
        b'+1.5 [0 127.0.0.1:5000] "evalsha" "abc" "1" "key"\r\n'
        b'+1.6 [0 lua] "get" "key"\r\n'
        b'+1.7 [0 unix:/tmp/s] "set" "key" "a"\r\n'
    )
    assert count_sent(lines) == 2


@pytest.mark.parametrize(
    ("value", "sign", "verdict"),
    [(0.9, ">=", True), (0.8, ">=", False), (0.9, "<=", True), (None, "<=", None)],
)
def test_finding_is_judged_by_its_bound(
    value: float | None, sign: str, verdict: bool | None
) -> None:
    assert Finding("", value, sign=sign, bound=0.9).is_met() is verdict


@pytest.mark.parametrize("second", [Turn(1, 1, 0, 199, 300), Turn(1, 1, 0, 200, 300)])
def test_report_is_broken_when_two_held_the_lock_at_once(second: Turn) -> None:
    run = run_of(Turn(0, 0, 0, 100, 200), second, updates=2)
    table = table_of("", [("two processes", exclusion([run]))])
    assert is_broken(Report("contend", [table], "")) is bool(run.overlaps())
