"""Do readers who share a lock starve its writer, or each other?

Threads of four processes read without a pause, for 5 to 20 ms each, and one writer
comes every 0.2 s. It alternates with what is built without shared locks: readers take a
slot of a semaphore behind a plain lock, the gate, and the writer takes the gate and all
slots. Then: how long a reader that died among others keeps a writer waiting beyond its
ttl, what one more reader costs beside a thousand, and a pair of acquire and release of
a reader beside that of a lock, in blocks that alternate, with five masters.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple

import redis

from fastredlock import AcquireError, FastRedlock
from fastredlock.testing import LocalMasters

NAME = "catalog"
PROCESSES = 4
WRITE, PAUSE, PATIENCE = 0.002, 0.2, 5.0  # s
DEAD_TTL = 1.0  # s
Block = Callable[[FastRedlock], Any]


class Did(NamedTuple):
    """What one thread did: how often it had the lock, and its longest wait and hold."""

    way: str
    times: int
    wait: float  # s
    hold: float  # s


@contextmanager
def behind_gate(locks: FastRedlock, slots: int, of: int) -> Iterator[None]:
    """Hold so many slots of the semaphore, which were taken behind the gate."""
    with ExitStack() as stack:
        with locks.lock("gate", timeout=PATIENCE):
            for _ in range(slots):
                lease = locks.acquire(NAME, permits=of, timeout=PATIENCE)
                stack.enter_context(lease)  # type: ignore[arg-type]
        yield


def blocks_of(way: str, readers: int) -> tuple[Block, Block]:
    """Return what a reader and a writer enter."""
    if way == "gate":
        return (
            lambda locks: behind_gate(locks, 1, readers),
            lambda locks: behind_gate(locks, readers, readers),
        )
    return (
        lambda locks: locks.lock(NAME, shared=True, timeout=PATIENCE),
        lambda locks: locks.lock(NAME, timeout=PATIENCE),
    )


def repeat(locks: FastRedlock, block: Block, what: str, until: float, out: Any) -> None:
    """Take it again and again, and put what that came to into the queue."""
    drawn, count, longest, held = random.Random(), 0, 0.0, 0.0
    while (asked := time.monotonic()) < until:
        try:
            with block(locks):
                began = time.monotonic()
                time.sleep(WRITE if what == "w" else drawn.uniform(0.005, 0.02))
                held = max(held, time.monotonic() - began)
        except AcquireError:  # it waited in vain, or for masters that are too busy
            longest = max(longest, time.monotonic() - asked)
            continue
        count, longest = count + 1, max(longest, began - asked)
        time.sleep(PAUSE if what == "w" else 0)
    out.put(Did(what, count, longest, held))


def member(
    urls: list[str], way: str, readers: int, what: str, threads: int, seconds: float,
    ready: Any, out: Any,
) -> None:  # fmt: skip
    """Be one process."""
    block = blocks_of(way, readers)[what == "w"]
    with FastRedlock(urls, ttl=10) as locks:
        locks.connect()
        ready.wait()
        until = time.monotonic() + seconds
        each = [
            threading.Thread(target=repeat, args=(locks, block, what, until, out))
            for _ in range(threads)
        ]
        for thread in each:
            thread.start()
        for thread in each:
            thread.join()


def contend(urls: list[str], way: str, readers: int, seconds: float) -> str:
    """Let all contend for so long; return the line of it."""
    start = multiprocessing.get_context("spawn")
    out: Any = start.Queue()
    ready = start.Barrier(PROCESSES + 1)
    threads = readers // PROCESSES
    places = [*[("r", threads)] * PROCESSES, ("w", 1)]
    each = [
        start.Process(
            target=member, args=(urls, way, readers, *place, seconds, ready, out)
        )
        for place in places
    ]
    for process in each:
        process.start()
    done = [out.get() for _ in range(threads * PROCESSES + 1)]
    for process in each:
        process.join()
    read = [one for one in done if one.way == "r"]
    (write,) = (one for one in done if one.way == "w")
    counts = [one.times for one in read]
    return (
        f"{way:6} {sum(counts):6} {write.times:7} {write.wait * 1e3:13.1f}"
        f" {max(one.wait for one in read) * 1e3:13.1f}"
        f" {max(one.hold for one in read) * 1e3:13.1f}"
        f" {min(counts) / max(*counts, 1):9.2f}"
    )


def after_death(urls: list[str]) -> float:
    """Return for how long beyond the ttl of a dead reader a writer waits (s)."""
    over = threading.Event()

    def go_on(locks: FastRedlock) -> None:
        while not over.is_set():
            with locks.lock(NAME, shared=True, timeout=PATIENCE):
                time.sleep(0.01)

    with ExitStack() as stack:
        make = partial(FastRedlock, urls, ttl=10)
        dying, writing, *reading = (stack.enter_context(make()) for _ in range(4))
        for locks in (dying, writing):
            locks.connect()
        each = [threading.Thread(target=go_on, args=(locks,)) for locks in reading]
        for thread in each:
            thread.start()
        time.sleep(0.1)
        dead = dying.acquire(NAME, shared=True, ttl=DEAD_TTL, timeout=PATIENCE)
        ends = time.monotonic() + DEAD_TTL
        with writing.lock(NAME, timeout=PATIENCE):
            waited = time.monotonic() - ends
        over.set()
        for thread in each:
            thread.join()
        del dead
    return waited


def crowd(urls: list[str], count: int) -> str:
    """Return what the first and the last of so many readers cost."""
    took, leases = [], []
    with FastRedlock(urls, ttl=60) as locks, redis.Redis.from_url(urls[0]) as master:
        locks.connect()
        for _ in range(count):
            began = time.perf_counter()
            leases.append(locks.acquire(NAME, shared=True, timeout=0))
            took.append(time.perf_counter() - began)
        size = master.memory_usage(NAME, samples=0) / count
        locks.release_each(leases)
    ends = [statistics.median(part) * 1e6 for part in (took[:100], took[-100:])]
    return (
        f"{count:,} readers: an acquire takes {ends[0]:.0f} us among the first hundred "
        f"(p50), {ends[1]:.0f} us among the last; {size:.0f} bytes each at a master"
    )


def pairs(blocks: int = 20, size: int = 200) -> str:
    """Return what a pair of a reader takes, and one of a lock."""
    took: dict[bool, list[float]] = {False: [], True: []}
    with LocalMasters(5) as masters, FastRedlock(masters.urls, ttl=10) as locks:
        locks.connect()
        for block in range(2 * blocks):
            shared = bool(block % 2)
            for _ in range(size):
                began = time.perf_counter()
                locks.acquire(NAME, shared=shared).release()  # type: ignore[union-attr]
                took[shared].append(time.perf_counter() - began)
    lock, reader = (statistics.median(took[shared]) * 1e6 for shared in (False, True))
    return (
        f"a pair at 5 masters takes {lock:.0f} us of a lock (p50), {reader:.0f} us of "
        f"a reader, {reader / lock:.2f} times"
    )


def main() -> int:
    """Run the bench; return 0."""
    parser = argparse.ArgumentParser("python -m bench.readers", description=__doc__)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--readers", type=int, nargs="+", default=[12, 16])
    parser.add_argument("--deaths", type=int, default=5)
    given = parser.parse_args()
    with LocalMasters(3) as masters:
        urls = list(masters.urls)
        print(
            "way     reads  writes  writer's wait reader's wait  longest hold  few/most"
        )
        for readers in given.readers:
            print(f"{readers} readers")
            for _ in range(given.rounds):
                for way in ("gate", "shared"):
                    print(contend(urls, way, readers, given.seconds), flush=True)
        over = [after_death(urls) * 1e3 for _ in range(given.deaths)]
        print(
            "a reader died among others: beyond its ttl a writer waits "
            f"{statistics.median(over):.1f} ms, at most {max(over):.1f}"
        )
        print(crowd(urls, 1000))
    print(pairs())
    return 0


if __name__ == "__main__":
    sys.exit(main())
