"""A job in many crontabs: one host runs it, and a run that lost its lock stops."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from fastredlock.testing import LocalMasters
from tests.support.waiting import wait_until

from .programs import PATIENCE, Journal, Process, Trouble, program

PARTS = 60
Start = Callable[..., Process]
pytestmark = pytest.mark.slow


@pytest.fixture
def start(emptied: LocalMasters, journal: Journal) -> Iterator[Start]:
    """Return what starts a run, as the cron of one host does."""
    with ExitStack() as opened:
        yield lambda *urls: opened.enter_context(
            program("cron", str(journal.path), urls=urls or emptied.urls)
        )


def said(run: Process) -> tuple[int, str]:
    """Return the exit code of a run, and the text that cron would mail."""
    text = run.communicate(timeout=PATIENCE)[1]
    return run.returncode, text


def until_another_runs(start: Start, journal: Journal) -> Process:
    """Start runs, as crons do, until one of them has done a part of the job."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        run = start()
        if has_begun(run, journal):
            return run
        time.sleep(0.2)  # crons start seldom, and a run costs 0.2 s of CPU
    raise AssertionError("the lock is never free")


def has_begun(run: Process, journal: Journal) -> bool:
    """Wait until a run has ended, or done a part of the job: then it has the lock."""
    assert wait_until(lambda: run.poll() is not None or journal.pid() == run.pid)
    return journal.pid() == run.pid


def test_job_when_hosts_begin_together_then_runs_once(
    start: Start, journal: Journal
) -> None:
    runs = [start() for _ in range(4)]
    assert [said(run) for run in runs] == [(0, "")] * 4
    assert len(journal.check()) == 1
    assert len(journal.steps()) == PARTS


def test_run_when_killed_then_a_later_one_does_the_job(
    start: Start, journal: Journal
) -> None:
    first = start()
    journal.until_new()
    first.kill()
    second = until_another_runs(start, journal)
    assert said(second) == (0, "")
    assert journal.check() == [first.pid, second.pid]
    assert journal.steps()[-1].number == PARTS - 1


def test_run_when_in_trouble_then_stops_before_another_begins(
    start: Start, journal: Journal, trouble: Trouble
) -> None:
    first = start(*trouble.urls)
    journal.until_new()
    trouble.begin(first.pid)
    second = until_another_runs(start, journal)
    if not trouble.is_cut:
        trouble.end(first.pid)
    code, text = said(first)
    assert code == 1
    assert "'cron:invoices': lost" in text
    journal.until_new(first.pid)
    assert journal.check() == [first.pid, second.pid]
