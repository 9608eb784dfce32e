"""How many pairs of acquire and release does each contestant do?  By pytest-benchmark.

`pytest --benchmark-only` from the root of the checkout.  One round is a block of
`PAIRS` pairs in the contestant's own process, so the times shown are per block.  The
contestants of one N share their servers but do not alternate: `bench_pair` does, and
is the place for figures to be quoted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from bench._contestant import Contestant
from bench._peers import CONTESTANTS, FLOOR, is_installed
from bench._servers import local_masters

PAIRS = 100
ROUNDS = 40
WARM_UP_ROUNDS = 10


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
    try:
        contestant = Contestant(name, urls)
    except FileNotFoundError as error:
        if name != FLOOR:
            raise
        pytest.skip(str(error))
    with contestant:
        benchmark.pedantic(
            contestant.run, args=(PAIRS,), rounds=ROUNDS, warmup_rounds=WARM_UP_ROUNDS
        )
