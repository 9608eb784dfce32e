"""Leader election: the standby follows, and two never lead at once."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from fastredlock.testing import LocalMasters
from tests.support.waiting import stopwatch

from .programs import Journal, cut, cut_off_later, go_on, heal, program, stop

TTL = 2.0  # s; the program's
Start = Callable[..., "subprocess.Popen[str]"]
pytestmark = pytest.mark.slow


@pytest.fixture
def start(emptied: LocalMasters, journal: Journal) -> Iterator[Start]:
    """Return what starts one more process."""
    with ExitStack() as opened:
        yield lambda *urls: opened.enter_context(
            program("leader", str(journal.path), urls=urls or emptied.urls)
        )


def test_leader_when_it_ends_in_order_then_the_standby_follows_at_once(
    start: Start, journal: Journal
) -> None:
    first = start()
    journal.until_new()
    second = start()
    for _ in range(10):  # the second stands by now, and the first leads on
        assert journal.until_new() == first.pid
    with stopwatch() as elapsed:
        first.terminate()
        assert journal.until_new(first.pid) == second.pid
        assert elapsed() < TTL / 2
    assert first.wait() == 0
    assert first.communicate()[1] == ""
    assert journal.check() == [first.pid, second.pid]


def test_leader_when_killed_then_the_standby_follows_after_the_ttl(
    start: Start, journal: Journal
) -> None:
    first = start()
    journal.until_new()
    second = start()
    journal.until_new()
    first.kill()
    assert journal.until_new(first.pid) == second.pid
    assert journal.check() == [first.pid, second.pid]


def test_leader_when_stopped_beyond_its_ttl_then_stands_by_when_it_wakes_up(
    start: Start, journal: Journal
) -> None:
    first = start()
    journal.until_new()
    second = start()
    journal.until_new()
    stop(first.pid)
    assert journal.until_new(first.pid) == second.pid
    go_on(first.pid)
    for _ in range(20):
        assert journal.until_new() == second.pid
    os.kill(second.pid, signal.SIGKILL)
    assert journal.until_new(second.pid) == first.pid
    assert journal.check() == [first.pid, second.pid, first.pid]


def test_leader_when_cut_off_then_stops_before_the_standby_follows(
    start: Start, journal: Journal, emptied: LocalMasters
) -> None:
    with cut_off_later(emptied) as ways:
        first = start(*(way.url for way in ways))
        journal.until_new()
        second = start()
        journal.until_new()
        cut(ways)
        assert journal.until_new(first.pid) == second.pid
        heal(ways)
        for _ in range(20):
            assert journal.until_new() == second.pid
        second.terminate()
        assert journal.until_new(second.pid) == first.pid
        assert journal.check() == [first.pid, second.pid, first.pid]
