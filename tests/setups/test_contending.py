"""The processes of `bench.contend`, on a real server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from bench.contending import crew as crew_module
from bench.contending.clients import ASYNCIO, LIBRARIES
from bench.contending.crew import Crew
from bench.harness.servers import hold
from fastredlock.testing import LocalMasters

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def urls() -> Iterator[list[str]]:
    with LocalMasters(1) as masters:
        yield list(masters.urls)


@pytest.mark.parametrize("library", [ASYNCIO, *list(LIBRARIES)[:1]])
def test_callers_of_two_processes_take_turns_without_an_overlap(
    urls: list[str], library: str
) -> None:
    if library != ASYNCIO and (missing := LIBRARIES[library].missing()):
        pytest.skip(f"no module {missing}")
    with closing(Crew(urls, library, processes=2, callers=2)) as crew:
        run = crew.run(0.2)
    assert not run.notes
    assert sum(run.grants()) > 2
    assert run.updates == len(run.turns)
    assert run.overlaps() == run.lost_updates() == 0


def test_process_that_never_gets_the_lock_is_killed_and_its_wait_is_known(
    urls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crew_module, "_GRACE", 0.1)
    with closing(Crew(urls)) as crew:
        hold(urls[0], crew.key)
        run = crew.run(0.1, lead=0.0)
    assert run.notes == ["process 1 of 1 did not end in time"]
    assert run.grants() == [0]
    assert run.longest_wait_ns() > 0.09e9
