"""How many masters there are, and how many descriptors stay open for them."""

from __future__ import annotations

import pytest
import redis

from fastredlock import FastRedlock, QuorumUnreachableError
from fastredlock.testing import LocalMasters
from tests.support.calls import connected
from tests.support.fixtures import MakeLocks
from tests.support.keys import KEY, NOBODY, settled_values
from tests.support.masters import start, stop
from tests.support.processes import open_files
from tests.support.waiting import settled


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_masters_when_all_run_then_any_number_of_them_locks(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis], count: int
) -> None:
    with connected(make_locks(urls[:count])).lock(KEY) as lease:
        wanted = [lease.token] * count + [None] * (5 - count)
        assert settled_values(servers, wanted) == wanted
    assert settled_values(servers, NOBODY) == NOBODY


@pytest.mark.parametrize(("count", "stopped"), [(1, 0), (2, 0), (3, 1), (4, 1), (5, 2)])
def test_masters_when_one_more_than_the_quorum_allows_stops_then_none_locks(
    masters: LocalMasters, make_locks: MakeLocks, count: int, stopped: int
) -> None:
    locks = connected(make_locks(masters.urls[:count]))
    stop(masters, stopped)
    assert locks.acquire(KEY, timeout=0)
    masters.stop(stopped)
    with pytest.raises(QuorumUnreachableError):
        locks.acquire("more", timeout=0)


@pytest.mark.parametrize(
    ("count", "warnings"), [(1, 0), (2, 1), (3, 0), (4, 1), (5, 0)]
)
def test_masters_when_their_number_is_even_then_one_warning_is_logged(
    urls: list[str], caplog: pytest.LogCaptureFixture, count: int, warnings: int
) -> None:
    caplog.set_level("WARNING")
    with FastRedlock(urls[:count]) as locks, locks.lock(KEY), locks.lock("more"):
        pass
    assert len(caplog.records) == warnings
    assert all(each.name.startswith("fastredlock") for each in caplog.records)
    assert all(str(count) in each.getMessage() for each in caplog.records)


@pytest.mark.slow
def test_descriptors_when_500_pairs_are_done_then_are_as_many_as_before(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    files = open_files()
    for _ in range(500):
        with locks.lock(KEY):
            pass
    assert open_files() == files
    assert locks.stats().connects == 5
    assert settled_values(servers, NOBODY) == NOBODY


@pytest.mark.slow
def test_descriptors_when_masters_came_and_went_then_are_as_many_as_before(
    masters: LocalMasters, make_locks: MakeLocks
) -> None:
    locks = connected(
        make_locks([url.replace("127.0.0.1", "localhost") for url in masters.urls])
    )
    files = open_files()
    for _ in range(5):
        stop(masters, 2)
        for _ in range(5):
            with locks.lock(KEY, timeout=0):
                pass
        start(masters, 2)

    def files_when_reconnected() -> int:
        locks.connect()
        return open_files()

    assert settled(files_when_reconnected, files) == files
