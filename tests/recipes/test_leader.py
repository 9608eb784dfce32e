"""Leader election: the standby follows, and two never lead at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from fastredlock.testing import LocalMasters
from tests.support.waiting import stopwatch

from .programs import Journal, Process, Trouble, program

TTL = 2.0  # s; the program's
Start = Callable[..., Process]
pytestmark = pytest.mark.slow


@pytest.fixture
def start(emptied: LocalMasters, journal: Journal) -> Iterator[Start]:
    """Return what starts one more process, and waits for a step of the leader."""
    with ExitStack() as opened:

        def started(*urls: str) -> Process:
            way = program("leader", str(journal.path), urls=urls or emptied.urls)
            process = opened.enter_context(way)
            journal.until_new()
            return process

        yield started


@pytest.mark.parametrize("is_killed", [False, True], ids=["in order", "killed"])
def test_leader_when_it_ends_then_the_standby_follows(
    start: Start, journal: Journal, is_killed: bool
) -> None:
    first, second = start(), start()
    for _ in range(10):  # the second stands by now, and the first leads on
        assert journal.until_new() == first.pid
    with stopwatch() as elapsed:
        first.kill() if is_killed else first.terminate()
        assert journal.until_new(first.pid) == second.pid
        assert is_killed or elapsed() < TTL / 2  # at once, and not after the ttl
    if not is_killed:
        assert first.wait() == 0
        assert first.communicate()[1] == ""
    assert journal.check() == [first.pid, second.pid]


def test_leader_when_in_trouble_then_stops_before_the_standby_follows(
    start: Start, journal: Journal, trouble: Trouble
) -> None:
    first, second = start(*trouble.urls), start()
    trouble.begin(first.pid)
    assert journal.until_new(first.pid) == second.pid
    trouble.end(first.pid)
    for _ in range(20):
        assert journal.until_new() == second.pid
    os.kill(second.pid, signal.SIGTERM if trouble.is_cut else signal.SIGKILL)
    assert journal.until_new(second.pid) == first.pid
    assert journal.check() == [first.pid, second.pid, first.pid]
