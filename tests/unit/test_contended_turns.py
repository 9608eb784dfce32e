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


def test_gap_is_from_release_to_the_next_grant_of_another_process() -> None:
    run = run_of(
        Turn(1, 1, 0, 240, 300),  # the logs of two processes, one after the other
        Turn(1, 1, 301, 320, 330),
        Turn(0, 0, 0, 150, 200),
    )
    assert run.gaps_ns() == [40]


def test_gap_is_none_where_a_holder_was_killed_or_the_grant_is_outside() -> None:
    killed = run_of(Turn(0, 0, 0, 150, 0), Turn(1, 1, 0, 500, 510))
    outside = run_of(Turn(0, 0, 0, 950, 990), Turn(1, 1, 0, 1_020, 1_030))
    assert killed.gaps_ns() == outside.gaps_ns() == []


def test_overlap_is_found_although_a_later_turn_of_others_is_in_between() -> None:
    run = run_of(
        Turn(0, 0, 0, 100, 500), Turn(1, 1, 0, 200, 210), Turn(1, 1, 211, 400, 410)
    )
    assert run.overlaps() == 2


def test_turns_that_follow_each_other_are_no_overlap() -> None:
    run = run_of(Turn(1, 1, 0, 500, 600), Turn(0, 0, 0, 100, 500))
    assert run.overlaps() == 0


def test_update_is_lost_when_fewer_are_counted_than_turns_that_made_one() -> None:
    turns = (Turn(0, 0, 0, 100, 200), Turn(1, 1, 0, 150, 210), Turn(0, 0, 220, 0, 0))
    assert run_of(*turns, updates=1).lost_updates() == 1
    assert run_of(*turns, updates=2).lost_updates() == 0


def test_wait_that_is_not_over_with_the_window_counts_up_to_its_end() -> None:
    assert run_of(Turn(0, 0, 20, 0, 0)).longest_wait_ns() == 980
    assert run_of(Turn(0, 0, 20, 5_000, 6_000)).longest_wait_ns() == 980


def test_wait_that_was_over_before_the_window_does_not_count() -> None:
    run = run_of(Turn(0, 0, 0, 90, 110), Turn(0, 0, 110, 130, 140))
    assert run.longest_wait_ns() == 20


def test_stall_is_a_free_lock_that_a_waiter_does_not_get() -> None:
    run = in_ms(Turn(0, 0, 0, 1, 10), Turn(1, 1, 0, 111, 112))
    assert run.stalls() == 1


def test_free_lock_is_no_stall_before_somebody_wants_it() -> None:
    run = in_ms(Turn(0, 0, 0, 1, 10), Turn(1, 1, 200, 201, 202))
    assert run.stalls() == 0


def test_free_lock_is_a_stall_when_another_waiter_came_earlier() -> None:
    run = in_ms(
        Turn(0, 0, 0, 1, 10), Turn(1, 1, 200, 201, 202), Turn(0, 0, 20, 300, 301)
    )
    assert run.stalls() == 1


def test_pair_lasts_from_a_call_to_the_next_one() -> None:
    run = run_of(Turn(0, 0, 100, 130, 131), Turn(0, 0, 160, 180, 181))
    assert pairs_ms(run) == [60 / 1e6]


@pytest.mark.parametrize(("percent", "value"), [(1, 1), (50, 2), (51, 3), (99, 4)])
def test_percentile_is_a_value_that_was_measured(percent: int, value: int) -> None:
    assert percentile([4, 2, 1, 3], percent) == value


def test_percentile_of_nothing_is_none() -> None:
    assert percentile([], 50) is None


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
