"""Run a test again if the system took the CPU away while it ran.

Many tests measure milliseconds. A virtual machine stands still whenever its host gives
the CPU to another one, and a busy system lets a thread that is ready wait for one: a
test that fails then says nothing of the package. Linux counts both: the column `steal`
of /proc/stat, over all CPUs, in ticks of 10 ms (man 5 proc_stat), and how long a thread
was ready and had no CPU, the second number of its schedstat in /proc, in ns. A test's
threads are those of its process and the first of each child: the servers that it uses.

The rule, for each test:
1. Both are read before it, fixtures included, and where it failed, in any phase.
2. If the system took more than `ENOUGH_MS` away, it is run again with new fixtures, at
   most `MOST_REPEATS` times. A wait for the CPU is that of the thread that waited most,
   and counts if it was a fifth of the time or more: who share a core wait by turns.
3. Nothing else counts: neither a test's name nor its file, nor how few have failed. A
   failure of a test that lost no time is red at once.
4. pytest counts each failure that was forgiven, "2 rerun", and lists it at the end with
   its reason and the time: one that stands there in every run has a defect of its own.

TESTS_RUN_AGAIN=0 runs none again. So mutants are judged, and so is a release: on a
quiet machine all tests are green by their first run.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator
from pathlib import Path
from typing import NamedTuple

import pytest
from _pytest.runner import runtestprotocol

PROC = Path("/proc")
ENOUGH_MS = 50.0
MOST_REPEATS = 2 if os.environ.get("TESTS_RUN_AGAIN") != "0" else 0

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_STEAL = 8  # the column of the line that begins with "cpu": its name is column 0

ENDINGS = "Error", "Warning"  # of names of exceptions
_BEGUN, _TAKEN = pytest.StashKey["Taken"](), pytest.StashKey[float]()
_RERUN: tuple[str, str, str] = "rerun", "R", "RERUN"  # pytest's three words for it


# --- pure -----------------------------------------------------------------------------


class Taken(NamedTuple):
    """What the system has taken away so far, and when that was read, in ms."""

    stolen: float
    waited: dict[Path, float]  # of each thread
    at: float

    def until(self, later: Taken) -> float:
        """Return what was taken away from a test meanwhile, as far as it counts."""
        stolen = later.stolen - self.stolen
        waits = (ms - self.waited.get(who, 0.0) for who, ms in later.waited.items())
        waited = max(waits, default=0.0)
        return stolen + (waited if waited * 5 >= later.at - self.at else 0.0)


def stolen_ms(stat: str, ticks_per_s: int = 100) -> float:
    """Return the time stolen since boot that /proc/stat tells, in ms."""
    columns = stat.partition("\n")[0].split()
    if columns[:1] != ["cpu"] or len(columns) <= _STEAL:
        return 0.0  # not of Linux, or before 2.6.11
    return int(columns[_STEAL]) * 1000 / ticks_per_s


def waited_ms(schedstat: str) -> float:
    """Return how long a thread was ready and had no CPU, in ms."""
    numbers = schedstat.split()
    return int(numbers[1]) / 1e6 if len(numbers) == 3 else 0.0


def in_one_line(text: str) -> str:
    """Return the first line that says something, of at most 100 characters."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (lines or ["no reason given"])[0][:100]


# --- hooks of pytest, imported by conftest.py -----------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> object:
    """Do as pytest does, and again where the rule says so."""
    if not isinstance(item, pytest.Function):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in _reports(item, nextitem):
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True  # pytest's own loop has nothing left to do


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note what was taken away where a test fails: its servers are still there."""
    report = yield
    if report.failed and _TAKEN not in item.stash:
        item.stash[_TAKEN] = item.stash[_BEGUN].until(_taken_until_now())
    return report


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """Count a failure that was forgiven in pytest's last line."""
    return _RERUN if report.outcome == _RERUN[0] else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List each failure that was forgiven."""
    forgiven = terminalreporter.stats.get(_RERUN[0], ())
    if forgiven:
        terminalreporter.section("tests that were run again")
        for report in forgiven:
            terminalreporter.write_line(dict(report.user_properties)[_RERUN[0]])


def _reports(
    item: pytest.Function, nextitem: pytest.Item | None
) -> list[pytest.TestReport]:
    """Run a test, again if need be; return a report of each run, all of the last."""
    forgiven: list[pytest.TestReport] = []
    while True:
        item.stash[_BEGUN] = _taken_until_now()
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        taken = item.stash.get(_TAKEN, 0.0)
        failed = next((report for report in reports if report.failed), None)
        if failed is None or taken <= ENOUGH_MS or len(forgiven) == MOST_REPEATS:
            return [*forgiven, *reports]
        line = f"{item.nodeid}, {taken:.0f} ms taken away: {_reason(failed)}"
        failed.user_properties.append((_RERUN[0], line))
        failed.outcome = _RERUN[0]  # type: ignore[assignment]
        forgiven.append(failed)
        del item.stash[_TAKEN]
        _forget_fixtures(item)


def _taken_until_now() -> Taken:
    own = list((PROC / "self" / "task").glob("[0-9]*"))
    waits = {
        path: waited_ms(_text(path / "schedstat")) for path in [*own, *_children(own)]
    }
    now = time.monotonic() * 1000
    return Taken(stolen_ms(_text(PROC / "stat"), _TICKS_PER_S), waits, now)


def _children(tasks: list[Path]) -> list[Path]:
    pids = [pid for task in tasks for pid in _text(task / "children").split()]
    return [PROC / pid for pid in pids]


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # not of Linux, or it has just ended
        return ""


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
