"""How many pairs of acquire and release does each contestant do?  By pytest-benchmark.

`pytest --benchmark-only` from the root of the checkout. The contestants of one table
run in alternation, with the processes, blocks and placement of `bench.pair` and
`bench.throughput`; pytest-benchmark is given the time per pair of each block, as the
contestant's process measured it. So a round is a block, OPS are pairs per second, and
the number in brackets is the ratio to the best of the table.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from bench.contestants.tables import ONE_CALLER, contestant_of, for_server
from bench.harness.alternation import Round, alternate
from bench.harness.placement import placed
from bench.harness.process import Block
from bench.harness.servers import local_masters

BLOCKS = 9
SECONDS = float(os.environ.get("BENCH_SECONDS", "0.3"))  # of a block; CI's are short
MANY = (
    "floor:100",
    "each:100",
    "asyncio:100",
    "uvloop:100",
    "threads:16",
    "redis-py:100",
    "redlock-py-threads:16",
)
Measured = tuple[list[str], int, list[Round], list[str]]  # entries, masters, ..., notes


class Stopwatch:
    """A clock that pytest-benchmark reads, on which blocks pass at once."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def pass_block(self, block: Block) -> None:
        """Let the time of one of its pairs pass."""
        self._seconds += 1 / block.pairs_per_s

    def now(self) -> float:
        """Return the time that has passed."""
        return self._seconds


STOPWATCH = Stopwatch()
pytestmark = [pytest.mark.slow, pytest.mark.benchmark(timer=STOPWATCH.now)]


def _selected(request: pytest.FixtureRequest, test: str) -> list[str]:
    """Return the entries that this run has asked for, in their order."""
    items = [
        item for item in request.session.items if isinstance(item, pytest.Function)
    ]
    asked = {
        item.callspec.params["entry"] for item in items if item.originalname == test
    }
    known = ONE_CALLER if test == "test_one_caller" else MANY
    return [entry for entry in known if entry in asked]


@pytest.fixture(scope="module", params=[1, 3, 5], ids="N{}".format)
def one_caller(request: pytest.FixtureRequest) -> Iterator[Measured]:
    entries = _selected(request, "test_one_caller")
    with local_masters(request.param) as urls, placed("servers"):
        yield _measured(entries, urls)


@pytest.fixture(scope="module", params=[3, 5], ids="N{}".format)
def many_callers(request: pytest.FixtureRequest) -> Iterator[Measured]:
    entries = _selected(request, "test_many_callers")
    with local_masters(request.param) as urls:
        yield _measured(entries, urls)


@pytest.mark.parametrize("entry", ONE_CALLER)
def test_one_caller(benchmark: Any, one_caller: Measured, entry: str) -> None:
    benchmark.group = f"acquire + release by one caller, N = {one_caller[1]}"
    benchmark.name = entry
    _report(benchmark, one_caller, entry)


@pytest.mark.parametrize("entry", MANY)
def test_many_callers(benchmark: Any, many_callers: Measured, entry: str) -> None:
    benchmark.group = f"acquire + release by many callers, N = {many_callers[1]}"
    benchmark.name = entry
    _report(benchmark, many_callers, entry)


def _measured(entries: list[str], urls: list[str]) -> Measured:
    able = for_server(entries, urls[0])
    return able, len(urls), *alternate(able, urls, seconds=SECONDS, blocks=BLOCKS)


def _report(benchmark: Any, measured: Measured, entry: str) -> None:
    able, _, rounds, notes = measured
    if missing := contestant_of(entry).missing():
        pytest.skip(f"no module {missing}: pip install -e '.[test]' --group bench")
    if entry not in able:
        pytest.skip("these servers have no DELIFEQ: Valkey has, from 9.0")
    if entry not in rounds[0]:
        is_ours = contestant_of(entry).module.startswith(("bench", "fastredlock"))
        (pytest.fail if is_ours else pytest.skip)("; ".join(notes))
    blocks = iter(rounds)
    benchmark.pedantic(
        lambda: STOPWATCH.pass_block(next(blocks)[entry]), rounds=len(rounds)
    )
