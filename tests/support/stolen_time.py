"""Run a test again if its failure may say nothing of the package.

Many tests measure milliseconds. A virtual machine stands still whenever its host gives
the CPU to another one, for tens of milliseconds at a time, and a test that fails then
says nothing of the package. Linux counts this time: it is the column `steal` of
/proc/stat, over all CPUs, in ticks of 10 ms (man 5 proc_stat).

The rule, for each test:
1. The column is read before and after it, fixtures included.
2. If it failed, in any phase, and more than `ENOUGH_MS` were stolen meanwhile, it is
   run again with new fixtures: at most `MOST_REPEATS` times. Only the last run counts.
3. So is one that passed although another library's bug had to make it fail (a strict
   xfail), stolen time or none: their race comes out right at times, ours is not asked.
4. So is a failed one of `RACES`, files whose tests wait for turns between processes:
   where the CPU is busy, a turn is missed now and then, which costs time alone.
5. So is any other failed test, once, as long as at most `FEW` tests of a process needed
   it, 24 of all processes: of 8,000 tests on a machine shared with others a few meet a
   server that was slow for no reason that is counted: in CI another part of it, or
   another process. What is broken fails twice, or in many tests.
   (TESTS_RUN_AGAIN=0: none. So the mutants are judged by the first run.)
6. Each test that was run again stands in the summary, with the first failure's reason
   and the time stolen, so that no failure is hidden: one that stands there in every run
   has a defect of its own.

Nothing is run again where the system has no /proc/stat.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from _pytest.runner import runtestprotocol

STAT = Path("/proc/stat")
ENOUGH_MS = 50.0
MOST_REPEATS = 2
_PROCESSES = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
FEW = int(os.environ.get("TESTS_RUN_AGAIN", min(8, 24 // _PROCESSES)))
RACES = ("test_waiting_",)

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PASSED_STRICT_XFAIL = "[XPASS(strict)]"  # pytest's word
_STEAL = 8  # the column of the line that begins with "cpu": its name is column 0


class Repeat(NamedTuple):
    """One failure after which a test was run again."""

    test: str
    stolen_ms: float
    reason: str


ENDINGS = "Error", "Warning"  # of names of exceptions
_RUN_AGAIN = "run again"  # a property of a report: CI's pytest has several processes
_UNEXPLAINED = pytest.StashKey[int]()


# --- pure -----------------------------------------------------------------------------


def stolen_ms(stat: str, ticks_per_s: int = 100) -> float:
    """Return the time stolen since boot that /proc/stat tells, in ms."""
    columns = stat.partition("\n")[0].split()
    if columns[:1] != ["cpu"] or len(columns) <= _STEAL:
        return 0.0  # not of Linux, or before 2.6.11
    return int(columns[_STEAL]) * 1000 / ticks_per_s


def is_explained(failure: str, stolen: float) -> bool:
    """Return whether a failure may say nothing of the package."""
    return stolen > ENOUGH_MS or failure.startswith(_PASSED_STRICT_XFAIL)


def is_run_again(explained: bool, repeats: int, unexplained: int) -> bool:
    """Return whether a failed test is run again that was run again `repeats` times.

    unexplained: tests of this run that were run again without an explanation.
    """
    return repeats < (MOST_REPEATS if explained else 1) and (
        explained or unexplained < FEW
    )


def in_one_line(text: str) -> str:
    """Return the first line that says something, of at most 100 characters."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (lines or ["no reason given"])[0][:100]


def summary(repeats: Sequence[Repeat]) -> list[str]:
    return [
        f"run again: {each.test}, {each.stolen_ms:.0f} ms stolen: {each.reason}"
        for each in repeats
    ]


# --- hooks of pytest, imported by conftest.py -----------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> object:
    """Do as pytest does, and again where the rule says so."""
    if not isinstance(item, pytest.Function) or not STAT.exists():
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in _last_reports(item, nextitem):
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True  # pytest's own loop has nothing left to do


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List each test that was run again."""
    lines = [
        value
        for reports in terminalreporter.stats.values()
        for report in reports
        for name, value in getattr(report, "user_properties", ())
        if name == _RUN_AGAIN and report.when == "teardown"
    ]
    if lines:
        terminalreporter.section("tests that were run again")
        for line in lines:
            terminalreporter.write_line(line)


def _last_reports(
    item: pytest.Function, nextitem: pytest.Item | None
) -> list[pytest.TestReport]:
    """Run a test, again if need be; return the reports of its last run."""
    repeats: list[Repeat] = []
    while True:
        before = _stolen_until_now()
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        stolen = _stolen_until_now() - before
        failures = [_reason(report) for report in reports if report.failed]
        reports[-1].user_properties += [(_RUN_AGAIN, line) for line in summary(repeats)]
        if not failures:
            return reports
        explained = is_explained(failures[0], stolen) or item.path.name.startswith(
            RACES
        )
        unexplained = item.config.stash.get(_UNEXPLAINED, 0)
        if not is_run_again(explained, len(repeats), unexplained):
            return reports
        item.config.stash[_UNEXPLAINED] = unexplained + (not explained)
        repeats.append(Repeat(item.nodeid, stolen, failures[0]))
        _forget_fixtures(item)


def _stolen_until_now() -> float:
    return stolen_ms(STAT.read_text(), _TICKS_PER_S)


def _reason(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash else report.longreprtext
    if text.startswith("ExceptionGroup"):  # the first of them that is none
        lines = (line.strip(" |+-") for line in report.longreprtext.splitlines())
        inside = (each for each in lines if each.partition(":")[0].endswith(ENDINGS))
        text = next((each for each in inside if "Group" not in each), text)
    return in_one_line(text)


def _forget_fixtures(item: pytest.Function) -> None:
    """Let all fixtures be set up anew, those of a module that failed included."""
    for definitions in item._fixtureinfo.name2fixturedefs.values():
        for each in definitions:
            if each.cached_result is not None and each.cached_result[2] is not None:
                each.cached_result = None  # the error of a wider scope is kept, else
    item._initrequest()
