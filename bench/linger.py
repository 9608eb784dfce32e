"""What does a lock cost that its process wants again, and another one asks for?

One caller takes the same lock again and again: with a key that is idle in between,
without, and a C program that does the least; `asyncio.Lock` beside tasks. Then another
process takes it: from one where it is idle, and from a holder that releases it.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from multiprocessing import get_context
from statistics import median
from time import monotonic, perf_counter, sleep
from typing import TYPE_CHECKING, Any

from bench.contestants.base import TTL
from bench.contestants.tables import FLOOR, OURS
from bench.harness.alternation import alternate, middle, ratio
from bench.harness.machine import machine_line, versions_line
from bench.harness.options import count_of, end_with, new_parser, report_with
from bench.harness.servers import local_masters, server_version
from bench.report import Report, Table, target
from fastredlock import FastRedlock
from fastredlock.asyncio import FastRedlock as AwaitableFastRedlock

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

KEY = "linger"
LINGER = 5.0  # s
FORGOTTEN = 1.1  # s; from then on it is not known any more that another process asked
PAIRS = 20_000


def main() -> int:
    """Run the bench; return 0."""
    return report_with(_parser(), _measure)


def _measure(options: argparse.Namespace) -> Report:
    with local_masters(options.n) as urls:
        server = server_version(urls[0])
        entries = [FLOOR, OURS, "linger"]
        rounds, notes = alternate(
            entries, urls, seconds=options.seconds, blocks=options.blocks
        )
        tasks = [asyncio.run(_tasks(urls)) for _ in range(options.blocks)]
        gaps = [_gaps(urls, options.asks) for _ in range(2)]
    pairs = [[name, middle(rounds, name, "p50_us")] for name in entries]
    ours, own = (median(each[i] for each in tasks) for i in (0, 1))
    pairs += [["linger, asyncio", ours], ["asyncio.Lock", own]]
    share = ratio(rounds, "linger", FLOOR, "p50_us") or 0.0
    idle, held = (median(each[i] for each in gaps) for i in (0, 1))
    title = f"One caller, the same lock again and again, N = {options.n}."
    goals = [
        target("linger, of the floor", share, "<=", 1 / 50),
        target("linger, of asyncio.Lock", ours / own, "<=", 3),
    ]
    table = Table((("lock", ""), ("us per pair", ",.2f")), pairs, title, goals)
    asked = Table(
        (("taken from", ""), ("p50 ms", ",.2f")),
        [["a process where it is idle", idle], ["a holder that releases", held]],
        "The first grant of another process.",
        [target("idle, of released", idle / held, "<=", 2)],
    )
    versions = versions_line(["fastredlock"])
    return Report("linger", [table, asked], machine_line(server), versions, notes=notes)


async def _tasks(urls: Sequence[str]) -> tuple[float, float]:
    """Return the us of a pair: ours, and of a lock of asyncio."""
    async with AwaitableFastRedlock(urls, ttl=TTL, linger=LINGER) as locks:
        await (await locks.acquire(KEY, timeout=5)).release()  # type: ignore[union-attr]
        began = perf_counter()
        for _ in range(PAIRS):
            lease: Any = await locks.acquire(KEY, timeout=5)
            await lease.release()
        ours = perf_counter() - began
    own = asyncio.Lock()
    began = perf_counter()
    for _ in range(PAIRS):
        await own.acquire()
        own.release()
    return ours / PAIRS * 1e6, (perf_counter() - began) / PAIRS * 1e6


def _gaps(urls: Sequence[str], asks: int) -> tuple[float, float]:
    """Return the p50 (ms) of the other process's wait: of a rest, and of a release."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=_hold, args=(urls, theirs), daemon=True)
    child.start()
    theirs.close()  # else nobody is told if the child has ended
    locks = FastRedlock(urls, ttl=TTL)
    locks.connect()
    found: dict[str, list[float]] = {"rest": [], "hold": []}
    for _ in range(asks):
        for how, waits in found.items():
            ours.send(how)
            ours.recv()
            sleep(0.01)
            began = monotonic()
            lease = locks.acquire(KEY, timeout=5)
            granted = monotonic()
            waits.append((granted - (ours.recv() if how == "hold" else began)) * 1e3)
            if lease is not None:
                lease.release()
            sleep(FORGOTTEN)
    ours.send("")
    child.join()
    locks.close()
    return median(found["rest"]), median(found["hold"])


def _hold(urls: Sequence[str], asked: Connection) -> None:
    """Let the key rest, or hold it for a while, as often as it is asked for."""
    locks = FastRedlock(urls, ttl=TTL, linger=LINGER)
    while how := asked.recv():
        lease: Any = locks.acquire(
            KEY, timeout=5, linger=LINGER if how == "rest" else 0
        )
        if how == "rest":
            lease.release()
            asked.send("")
            continue
        asked.send("")
        sleep(0.05)
        at = monotonic()
        lease.release()
        asked.send(at)
    locks.close()


def _parser() -> argparse.ArgumentParser:
    parser = new_parser("linger", __doc__)
    add = parser.add_argument
    add("--n", type=count_of, default=5, help="masters")
    add("--blocks", type=count_of, default=5, help="of runs")
    add("--seconds", type=float, default=0.5, help="of each run")
    add("--asks", type=count_of, default=15, help="of another process, twice")
    return parser


if __name__ == "__main__":
    end_with(main, "linger")
