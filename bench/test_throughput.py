"""How many pairs of acquire and release does each contestant do?  By pytest-benchmark.

`pytest --benchmark-only` from the root of the checkout.  One round is a block of
`PAIRS` pairs by one caller, or of `CROWD_PAIRS` by many, in the contestant's own
process, so the times shown are per block.  The contestants of one N share their servers
but do not alternate: `bench_pair` and `bench_throughput` do, and are the places for
figures to be quoted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from bench._contestant import Contestant
from bench._crowds import CROWDS, crowd_and_size
from bench._peers import CONTESTANTS, FLOOR, is_installed
from bench._servers import local_masters

PAIRS = 100
ROUNDS = 40
WARM_UP_ROUNDS = 10
CROWD_PAIRS = 2000
CROWD_ROUNDS = 10
CROWDS_HERE = (
    "floor:100",
    "each:100",
    "asyncio:100",
    "uvloop:100",
    "threads:16",
    "redis-py:100",
    "redlock-py-threads:16",
)


@pytest.fixture(scope="module", params=[1, 3, 5], ids=lambda n: f"N={n}")
def urls(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    with local_masters(request.param) as found:
        yield found


@pytest.mark.slow
@pytest.mark.parametrize("name", CONTESTANTS)
def test_pairs(benchmark: Any, urls: list[str], name: str) -> None:
    if not is_installed(name):
        pytest.skip(f"{name} is not installed: pip install -e '.[bench]'")
    benchmark.group = f"{PAIRS} pairs of acquire + release, N = {len(urls)}"
    with _started(name, urls) as contestant:
        benchmark.pedantic(
            contestant.run, args=(PAIRS,), rounds=ROUNDS, warmup_rounds=WARM_UP_ROUNDS
        )


@pytest.mark.slow
@pytest.mark.parametrize("player", CROWDS_HERE)
def test_pairs_of_many_callers(benchmark: Any, urls: list[str], player: str) -> None:
    if missing := CROWDS[crowd_and_size(player)[0]].missing():
        pytest.skip(f"no {missing}")
    benchmark.group = f"{CROWD_PAIRS} pairs by many callers, N = {len(urls)}"
    with _started(player, urls) as contestant:
        benchmark.pedantic(
            contestant.run, args=(CROWD_PAIRS,), rounds=CROWD_ROUNDS, warmup_rounds=1
        )


def _started(name: str, urls: list[str]) -> Contestant:
    try:
        return Contestant(name, urls)
    except FileNotFoundError as error:
        if not name.startswith(FLOOR):
            raise
        pytest.skip(str(error))
