"""What does a master that stands still cost a process with 100,000 locks/s?

One event loop takes and releases a hundred locks at a time, without a pause, first with
five healthy masters, then for `--seconds` while one of them is paused (SIGSTOP), then
after it goes on. For each ttl: pairs per second beside the healthy ones, the longest
time for which the loop stood still, and the memory. Then what was left on the masters.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import redis

from bench._machine import machine_line
from bench._marked import fill
from bench._servers import server_version
from fastredlock.asyncio import FastRedlock
from fastredlock.testing import LocalMasters

KEYS = [f"silent:{i}" for i in range(100)]
TICK = 0.005  # s
HEALTHY_SECONDS = 5.0
_PAGE = os.sysconf("SC_PAGE_SIZE") / 2**20


class Row(NamedTuple):
    """One stretch of time."""

    ttl: float
    masters: str
    seconds: float
    pairs_per_second: float
    share: float  # of the healthy ones
    lag: float  # s
    mebibytes: float  # resident, at the end
    dropped: int  # releases


class Loop:
    """The longest time for which the event loop stood still since the last question."""

    def __init__(self) -> None:
        self._longest = 0.0
        self._task = asyncio.create_task(self._tick())

    async def _tick(self) -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(TICK)
            self._longest = max(self._longest, time.perf_counter() - began - TICK)

    def lag(self) -> float:
        longest, self._longest = self._longest, 0.0
        return longest

    def end(self) -> None:
        self._task.cancel()


async def pairs_per_second(locks: FastRedlock, seconds: float) -> float:
    """Take and release hundreds until the time is over."""
    count, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        leases = await locks.acquire_each(KEYS)
        await locks.release_each(leases)
        count += len(leases) - leases.count(None)
    return count / (time.perf_counter() - began)


def resident() -> float:
    """Return the memory of this process in MiB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE


async def measure(ttl: float, seconds: float, masters: LocalMasters) -> list[Row]:
    """Return what a pause of so many seconds costs, and what comes after it."""
    rows: list[Row] = []
    async with FastRedlock(masters.urls, ttl=ttl) as locks:
        await locks.connect()
        await pairs_per_second(locks, 0.5)
        gc.collect()
        loop = Loop()

        async def stretch(name: str, length: float) -> None:
            rate = await pairs_per_second(locks, length)
            share = rate / rows[0].pairs_per_second if rows else 1.0
            dropped = locks.stats().releases_dropped
            rows.append(
                Row(ttl, name, length, rate, share, loop.lag(), resident(), dropped)
            )

        await stretch("all healthy", HEALTHY_SECONDS)
        masters.pause(0)
        await stretch("one paused", seconds)
        masters.resume(0)
        await stretch("all again", HEALTHY_SECONDS)
        loop.end()
    return rows


def keys_left(urls: Sequence[str]) -> int:
    """Count the keys of all masters."""
    left = 0
    for url in urls:
        with redis.Redis.from_url(url, protocol=2) as server:
            left += server.dbsize()
    return left


def table(rows: Sequence[Row], left: int, machine: str) -> str:
    """Write the rows as Markdown."""
    head = (
        "| ttl s | masters | for s | pairs/s | of healthy | longest lag ms | MiB "
        "| releases dropped |\n|--:|:--|--:|--:|--:|--:|--:|--:|\n"
    )
    body = "".join(
        f"| {row.ttl:g} | {row.masters} | {row.seconds:g} "
        f"| {row.pairs_per_second:,.0f} | {row.share:.2f}x | {row.lag * 1e3:.0f} "
        f"| {row.mebibytes:.0f} | {row.dropped:,} |\n"
        for row in rows
    )
    return f"{head}{body}\n- Keys left on the masters: {left}.\n- Machine: {machine}.\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the bench; return 0."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.bench_silent",
        description=__doc__,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="of the pause")
    parser.add_argument("--ttl", type=float, nargs="+", default=[10.0, 60.0, 300.0])
    parser.add_argument(
        "--into", type=Path, help="a Markdown file with the marks of this table"
    )
    options = parser.parse_args(arguments)
    rows: list[Row] = []
    left = 0
    with LocalMasters(5) as masters:
        machine = machine_line(server_version(masters.urls[0]))
        for ttl in options.ttl:
            print(f"ttl {ttl:g} ...", file=sys.stderr, flush=True)
            rows += asyncio.run(measure(ttl, options.seconds, masters))
        left = keys_left(masters.urls)
    text = table(rows, left, machine)
    print(text)
    if options.into:
        fill(options.into, "silent", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
