"""What do semaphores and rates cost, and do they keep their numbers?

Processes take one of k slots, hold it and give it back, beside processes that do so
with a lock; a loop has a thousand tasks that wait; and processes begin as often as a
rate lets them. All begins and ends are noted by one clock.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from statistics import median
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

import redis

from bench.contestants.base import TTL
from bench.harness.machine import machine_line, versions_line
from bench.harness.options import count_of, end_with, new_parser, report_with
from bench.harness.servers import local_masters, server_version
from bench.report import Report, Table, target
from fastredlock import FastRedlock
from fastredlock.asyncio import FastRedlock as AwaitableFastRedlock

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

NAME = "slots"
PERMITS = 4
HOLD = 0.005  # s
WAITERS = 1000
RATE = 100
WINDOW = 1.0  # s
EXTERNAL = ("evalsha", "eval", "delifeq", "delex")  # commands that no script calls


@dataclass(frozen=True, slots=True)
class Load:
    """Processes that take something, hold it and pause."""

    name: str
    permits: int  # 0: a lock
    processes: int
    pause: float = 0.0
    is_own: bool = False  # each process has a lock of its own


FULL = Load("4 slots, 16 processes", PERMITS, 16)
FULL_LOCK = Load("a lock, 4 processes", 0, 4)
HALF = Load("4 slots, half used", PERMITS, PERMITS, HOLD)
HALF_LOCK = Load("4 locks, half used", 0, PERMITS, HOLD, is_own=True)
LOADS = (FULL, FULL_LOCK, HALF, HALF_LOCK)


def main() -> int:
    """Run the bench; return 0."""
    return report_with(_parser(), _measure)


def _measure(options: argparse.Namespace) -> Report:
    found: dict[str, list[dict[str, float]]] = {load.name: [] for load in LOADS}
    with local_masters(options.n) as urls:
        server = server_version(urls[0])
        for _ in range(options.blocks):
            for load in LOADS:
                found[load.name].append(_run(urls, load, options.seconds))
        idle = asyncio.run(_idle(urls, options.seconds))
        begun = _rate(urls, options.rate_seconds)
    middle = {
        name: {figure: median(run[figure] for run in runs) for figure in runs[0]}
        for name, runs in found.items()
    }
    full, full_lock, half, half_lock = (middle[load.name] for load in LOADS)
    goals = [
        target("full, of the ideal", full["of ideal"], ">=", 0.95),
        target("full, fewest / most", full["fewest / most"], ">=", 0.9),
        target("full, holders at once", full["most at once"], "<=", PERMITS),
        target("full, p50 of a lock's", full["p50"] / full_lock["p50"], "<=", 2),
        target("half, p50 of a lock's", half["p50"] / half_lock["p50"], "<=", 1.1),
        target("commands per grant", full["commands"], "<=", 2 * options.n + 8),
        target("1,000 tasks wait, commands/s per master", idle, "<=", 10),
    ]  # fmt: skip
    columns = (
        ("load", ""), ("grants/s", ",.0f"), ("of ideal", ".2f"), ("p50 ms", ",.2f"),
        ("fewest / most", ".2f"), ("most at once", ".0f"),
        ("commands per grant", ".1f"),
    )  # fmt: skip
    table = Table(
        columns,
        [[name, *figures.values()] for name, figures in middle.items()],
        f"Held for {HOLD * 1e3:.0f} ms, N = {options.n}.",
        goals,
    )
    most, reached = _judged(begun, options.rate_seconds)
    rates = Table(
        (("begins", ",.0f"), ("most in a window", ".0f"), ("of the rate", ".2f")),
        [[len(begun), most, reached]],
        f"8 processes, a rate of {RATE} per {WINDOW:g} s, {options.rate_seconds:g} s.",
        [
            target("most in a window", most, "<=", RATE),
            target("of the rate", reached, ">=", 0.95),
        ],
    )
    versions = versions_line(["fastredlock"])
    return Report("slots", [table, rates], machine_line(server), versions)


# --- processes that hold --------------------------------------------------------------


def _run(urls: Sequence[str], load: Load, seconds: float) -> dict[str, float]:
    held: list[list[tuple[float, float, float]]]
    with _Fleet(load.processes, _work, urls, load, seconds) as fleet:
        before = [_counted(url) for url in urls]
        held = fleet.run()
        after = [_counted(url) for url in urls]
    grants = [each for process in held for each in process]
    slots = load.processes if load.is_own else max(1, load.permits)
    ideal = min(load.processes / (1 + (load.pause > 0)), slots) / HOLD
    begins = [(begin, 1) for _, begin, _ in grants] + [(end, -1) for *_, end in grants]
    inside = most = 0
    for _, step in sorted(begins):
        inside += step
        most = max(most, inside)
    counts = [len(process) for process in held]
    sent = _sent(before, after, load)
    return {
        "grants": len(grants) / seconds,
        "of ideal": len(grants) / seconds / ideal,
        "p50": median(begin - asked for asked, begin, _ in grants) * 1e3,
        "fewest / most": min(counts) / max(counts),
        "most at once": most,
        "commands": sent / len(grants),
    }


def _work(
    urls: Sequence[str], load: Load, seconds: float, start: Connection
) -> list[tuple[float, float, float]]:
    """Return when a slot or the lock was asked for, granted and given back."""
    permits = load.permits or None
    name = f"{NAME}:{os.getpid()}" if load.is_own else NAME
    held = []
    with FastRedlock(urls, ttl=TTL) as locks:
        locks.connect()
        until = _begin(start) + seconds
        while (asked := monotonic()) < until:
            lease: Any = locks.acquire(name, timeout=30, permits=permits)
            begun = monotonic()
            sleep(HOLD)
            held.append((asked, begun, monotonic()))
            lease.release()
            if load.pause:
                sleep(load.pause)
    return held


def _counted(url: str) -> dict[str, int]:
    with redis.Redis.from_url(url) as client:
        stats: Any = client.info("commandstats")
    return {
        name.removeprefix("cmdstat_"): figures["calls"]
        for name, figures in stats.items()
    }


def _sent(before: list[dict[str, int]], after: list[dict[str, int]], load: Load) -> int:
    """Count the commands of clients; a gate's SETs are those of its script."""
    done = [
        {name: count - old.get(name, 0) for name, count in new.items()}
        for old, new in zip(before, after, strict=True)
    ]
    sets = [each.get("set", 0) for each in done]
    of_scripts = sum(each.get(name, 0) for each in done for name in EXTERNAL)
    is_gated = load.pause == 0
    return of_scripts + sum(sets) - is_gated * max(sets)


class _Fleet:
    """Processes that begin at the same time."""

    def __init__(self, count: int, work: Any, *given: Any) -> None:
        context = get_context("spawn")
        self._pipes = []
        self._processes = []
        for _ in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=_child, args=(work, given, theirs))
            process.start()
            self._pipes.append(ours)
            self._processes.append(process)

    def __enter__(self) -> _Fleet:
        for pipe in self._pipes:
            pipe.recv()  # it is connected
        return self

    def run(self) -> list[Any]:
        """Let them begin; return what each has found."""
        begin = monotonic() + 0.1
        for pipe in self._pipes:
            pipe.send(begin)
        return [pipe.recv() for pipe in self._pipes]

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.join()


def _child(work: Any, given: tuple[Any, ...], pipe: Connection) -> None:
    pipe.send(work(*given, pipe))


def _begin(start: Connection) -> float:
    start.send("")
    begin: float = start.recv()
    sleep(max(0.0, begin - monotonic()))
    return begin


# --- tasks that wait, and rates -------------------------------------------------------


async def _idle(urls: Sequence[str], seconds: float) -> float:
    """Return the commands per second and master that a thousand waiting tasks cost."""
    async with AwaitableFastRedlock(urls, ttl=60) as locks:
        held = [
            await locks.acquire(NAME, permits=PERMITS, timeout=5)
            for _ in range(PERMITS)
        ]
        tasks = [asyncio.create_task(_wait(locks)) for _ in range(WAITERS)]
        await asyncio.sleep(1.0)
        before = await asyncio.to_thread(lambda: [_counted(url) for url in urls])
        await asyncio.sleep(seconds)
        after = await asyncio.to_thread(lambda: [_counted(url) for url in urls])
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await locks.release_each(held)
    busiest = max(
        sum(new.get(name, 0) - old.get(name, 0) for name in (*EXTERNAL, "set"))
        for old, new in zip(before, after, strict=True)
    )
    return busiest / seconds


async def _wait(locks: AwaitableFastRedlock) -> None:
    await locks.acquire(NAME, permits=PERMITS, timeout=None)


def _rate(urls: Sequence[str], seconds: float) -> list[float]:
    with _Fleet(8, _begin_often, urls, seconds) as fleet:
        return sorted(begun for process in fleet.run() for begun in process)


def _begin_often(urls: Sequence[str], seconds: float, start: Connection) -> list[float]:
    begun = []
    with FastRedlock(urls) as locks:
        locks.connect()
        rate = locks.rate("rate", RATE, per=WINDOW, timeout=10)
        until = _begin(start) + seconds
        while monotonic() < until:
            with rate as permit:
                at = monotonic()
                if permit.remaining() > 0:
                    begun.append(at)
    return begun


def _judged(begun: list[float], seconds: float) -> tuple[int, float]:
    """Return how many at most began in any window, and how many of those allowed."""
    most = first = 0
    for last, at in enumerate(begun):
        while begun[first] <= at - WINDOW:
            first += 1
        most = max(most, last - first + 1)
    return most, len(begun) / (RATE * seconds / WINDOW)


def _parser() -> argparse.ArgumentParser:
    parser = new_parser("slots", __doc__)
    add = parser.add_argument
    add("--n", type=count_of, default=5, help="masters")
    add("--blocks", type=count_of, default=3, help="of each load")
    add("--seconds", type=float, default=4.0, help="of each run")
    add("--rate-seconds", type=float, default=60.0, help="of the rate")
    return parser


if __name__ == "__main__":
    end_with(main, "slots")
