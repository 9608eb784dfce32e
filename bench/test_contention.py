"""How long does a contended lock take from grant to grant?  By pytest-benchmark.

`pytest --benchmark-only`, as `bench.test_throughput`: the callers of one process want
one lock, and give it back at once. The contestants run in alternation; a round is a
window of `bench.contend`, and OPS are grants per second. A client that lets the last
holder have it again is the fastest: `extra_info` of a saved run has the fewest / most
grants of its callers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from statistics import median
from typing import Any

import pytest

from bench.contending.clients import ASYNCIO, LIBRARIES, OURS
from bench.contending.crew import Crew
from bench.contending.turns import Run
from bench.harness.servers import local_masters

BLOCKS = 7
SECONDS = 0.3  # of a window; in a shorter one a busy machine may grant none
CALLERS = {OURS: 4, ASYNCIO: 20, "redis-py": 4, "python-redis-lock": 4}
Measured = tuple[int, dict[str, list[Run]]]  # masters, the windows of each


class Clock:
    """A clock that pytest-benchmark reads, on which a grant passes at once."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def pass_grant(self, run: Run) -> None:
        """Let the time of one of its grants pass."""
        self._seconds += 1 / max(1, run.rate())

    def now(self) -> float:
        """Return the time that has passed."""
        return self._seconds


CLOCK = Clock()
pytestmark = [pytest.mark.slow, pytest.mark.benchmark(timer=CLOCK.now)]


@pytest.fixture(scope="module", params=[1, 5], ids="N{}".format)
def contended(request: pytest.FixtureRequest) -> Iterator[Measured]:
    with local_masters(request.param) as urls, ExitStack() as opened:
        crews = {
            library: opened.enter_context(closing(Crew(urls, library, callers=callers)))
            for library, callers in CALLERS.items()
            if not _missing(library)
        }
        runs: dict[str, list[Run]] = {library: [] for library in crews}
        for _ in range(BLOCKS):
            for library, crew in crews.items():
                if not crew.notes:
                    runs[library].append(crew.run(SECONDS))
        yield request.param, runs


@pytest.mark.parametrize("library", CALLERS)
def test_contention(benchmark: Any, contended: Measured, library: str) -> None:
    masters, runs = contended
    if missing := _missing(library):
        pytest.skip(f"no module {missing}: pip install -e '.[test]' --group bench")
    unit = "tasks" if library == ASYNCIO else "threads"
    benchmark.group = f"grants of one lock to many callers, N = {masters}"
    benchmark.name = f"{library}, {CALLERS[library]} {unit}"
    if library != ASYNCIO and LIBRARIES[library].one_master:
        benchmark.name += " (1 master)"
    for run in runs[library]:
        assert not run.notes
        assert not run.overlaps()
        assert not run.lost_updates()
    fairness = median(run.fairness() for run in runs[library])
    benchmark.extra_info["fewest / most"] = fairness
    windows = iter(runs[library])
    benchmark.pedantic(lambda: CLOCK.pass_grant(next(windows)), rounds=BLOCKS)


def _missing(library: str) -> str | None:
    return None if library == ASYNCIO else LIBRARIES[library].missing()
