"""What does a stopped master cost a process with 100,000 locks/s?

One event loop takes and releases a hundred locks at a time, without a pause, first with
five healthy masters, then for `--seconds` while one of them is paused (SIGSTOP), then
after it goes on. For each ttl: pairs per second beside the healthy ones, the longest
time for which the loop was blocked, and the memory. Then the keys left on the masters.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import sys
import time
from typing import Any

from bench.harness.machine import machine_line
from bench.harness.memory import resident_bytes
from bench.harness.options import end_with, new_parser, report_with
from bench.harness.servers import keys_left, server_version
from bench.report import RATIO, Report, Table
from fastredlock.asyncio import FastRedlock
from fastredlock.testing import LocalMasters

_KEYS = [f"silent:{i}" for i in range(100)]
_TICK = 0.005  # s
_HEALTHY_SECONDS = 5.0
_COLUMNS = (
    ("ttl s", "g"),
    ("masters", ""),
    ("for s", "g"),
    ("pairs/s", ",.0f"),
    ("of healthy", RATIO),
    ("longest lag ms", ".0f"),
    ("MiB", ".0f"),
    ("releases dropped", ",d"),
)


def main() -> int:
    """Run the bench; return 0."""
    parser = new_parser("silent", __doc__)
    add = parser.add_argument
    add("--seconds", type=float, default=60.0, help="of the pause")
    add("--ttl", type=float, nargs="+", default=[10.0, 60.0, 300.0], help="the ttls")
    return report_with(parser, _measure)


class LagWatch:
    """The longest time for which the event loop was blocked since the last question."""

    def __init__(self) -> None:
        self._longest = 0.0
        self._task = asyncio.create_task(self._tick())

    async def _tick(self) -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(_TICK)
            self._longest = max(self._longest, time.perf_counter() - began - _TICK)

    def lag(self) -> float:
        longest, self._longest = self._longest, 0.0
        return longest

    def end(self) -> None:
        self._task.cancel()


def _measure(options: argparse.Namespace) -> Report:
    rows: list[list[Any]] = []
    with LocalMasters(5) as masters:
        machine = machine_line(server_version(masters.urls[0]))
        for ttl in options.ttl:
            print(f"ttl {ttl:g} ...", file=sys.stderr, flush=True)
            rows += asyncio.run(_pause_one(ttl, options.seconds, masters))
        left = sum(map(keys_left, masters.urls))
    method = [f"Keys left on the masters: {left}."]
    return Report("silent", [Table(_COLUMNS, rows)], machine, method=method)


async def _pause_one(
    ttl: float, seconds: float, masters: LocalMasters
) -> list[list[Any]]:
    """Return the rows of before, during and after a pause of so many seconds."""
    rows: list[list[Any]] = []
    async with FastRedlock(masters.urls, ttl=ttl) as locks:
        await locks.connect()
        await _pairs_per_second(locks, 0.5)
        gc.collect()
        watch = LagWatch()
        healthy = 0.0
        for condition, length in (
            ("all healthy", _HEALTHY_SECONDS),
            ("one paused", seconds),
            ("all again", _HEALTHY_SECONDS),
        ):
            if condition == "one paused":
                masters.pause(0)
            elif condition == "all again":
                masters.resume(0)
            rate = await _pairs_per_second(locks, length)
            healthy = healthy or rate
            lag = watch.lag()
            resident = resident_bytes() / 2**20
            dropped = locks.stats().releases_dropped
            rows.append(
                [
                    *(ttl, condition, length, rate, rate / healthy),
                    *(lag * 1e3, resident, dropped),
                ]
            )
        watch.end()
    return rows


async def _pairs_per_second(locks: FastRedlock, seconds: float) -> float:
    """Take and release hundreds until the time is over."""
    count, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        leases = await locks.acquire_each(_KEYS)
        await locks.release_each(leases)
        count += len(leases) - leases.count(None)
    return count / (time.perf_counter() - began)


if __name__ == "__main__":
    end_with(main, "silent")
