"""Locks of two accounts at once, beside locks of one: do they get their turn?

    python -m bench.transfers [--seconds 5] [--accounts 4] [--hold 0.002]

Tellers lock one account again and again, so that each account is always wanted. A
transfer locks two of them: by `lock_all`, or one block inside another, in the order of
their names, which is how it is done without `lock_all`.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import chain
from typing import Any

from fastredlock.asyncio import FastRedlock
from fastredlock.testing import LocalMasters

TELLERS, TRANSFERS = 3, 2  # processes
TASKS = 4  # of each
Waits = list[float]  # s


async def lock_all(locks: FastRedlock, names: Sequence[str], hold: float) -> None:
    async with locks.lock_all(names, timeout=60):
        await asyncio.sleep(hold)


async def nested(locks: FastRedlock, names: Sequence[str], hold: float) -> None:
    first, second = sorted(names)
    async with locks.lock(first, timeout=60), locks.lock(second, timeout=60):
        await asyncio.sleep(hold)


async def one(locks: FastRedlock, names: Sequence[str], hold: float) -> None:
    async with locks.lock(names[0], timeout=60):
        await asyncio.sleep(hold)


WAYS: dict[str, Callable[[FastRedlock, Sequence[str], float], Any]] = {
    "lock_all": lock_all,
    "nested": nested,
    "one": one,
}


def work(urls: list[str], way: str, given: argparse.Namespace, seed: int) -> Waits:
    """Lock again and again; return how long each took, without the hold."""

    async def main() -> Waits:
        draw = random.Random(seed)
        names = [f"account:{n}" for n in range(given.accounts)]
        waits: Waits = []
        ends = time.monotonic() + given.seconds

        async def task(locks: FastRedlock) -> None:
            while (began := time.monotonic()) < ends:
                await WAYS[way](locks, draw.sample(names, 2), given.hold)
                waits.append(time.monotonic() - began - given.hold)

        async with FastRedlock(urls) as locks:
            await asyncio.gather(*(task(locks) for _ in range(TASKS)))
        return waits

    return asyncio.run(main())


def measure(urls: list[str], way: str, given: argparse.Namespace) -> tuple[Waits, int]:
    """Return the waits of transfers, and the number of the tellers' locks."""
    ways = [way] * TRANSFERS + ["one"] * TELLERS
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(len(ways), spawn) as pool:
        runs = [pool.submit(work, urls, each, given, n) for n, each in enumerate(ways)]
        waits = [run.result() for run in runs]
    return list(chain(*waits[:TRANSFERS])), sum(map(len, waits[TRANSFERS:]))


def main() -> None:
    """Measure both ways, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m bench.transfers")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--accounts", type=int, default=4)
    parser.add_argument("--hold", type=float, default=0.002, help="s")
    given = parser.parse_args()
    print(f"{'':10}{'transfers':>10}{'mean ms':>9}{'most ms':>9}{'of one':>9}")
    counts = {}
    with LocalMasters(3) as masters:
        for way in ("nested", "lock_all"):
            waits, others = measure(masters.urls, way, given)
            counts[way] = len(waits)
            mean, most = 1e3 * sum(waits) / len(waits), 1e3 * max(waits)
            print(f"{way:10}{len(waits):10}{mean:9.1f}{most:9.1f}{others:9}")
    print(f"lock_all, of nested: {counts['lock_all'] / counts['nested']:.2f} (>= 0.50)")


if __name__ == "__main__":
    main()
