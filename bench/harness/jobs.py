"""One measurement of cost or memory, in a process of its own.

`python -m bench.harness.jobs JOB ARGUMENTS URL...` prints one line of JSON; the
arguments are JSON as well, and `run_job` is the caller's end of it. Memory is
resident memory, so everything that the libraries and the allocators take is in it: it
is read before and after, in a process that has warmed up, and divided by many. The
caller's own objects (keys, a list for the leases) exist beforehand.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine, Sequence
from time import perf_counter_ns, process_time_ns
from typing import Any

from bench.contestants.base import TTL
from bench.contestants.fastredlock import Blocking
from bench.contestants.tables import open_entry
from bench.harness.cohorts import cohort_tasks, cohort_threads
from bench.harness.crowding import cold, crowd, idle
from bench.harness.drivers import Stopwatch
from bench.harness.keeping import kept, lost
from bench.harness.memory import open_fds, settled_bytes
from bench.harness.process import ROOT
from bench.harness.servers import commands_done, hold
from fastredlock import FastRedlock
from fastredlock.asyncio import FastRedlock as AwaitableFastRedlock

_HELD_TTL = 3600.0  # s
_CHUNK = 20_000  # pairs in one go, where only the memory counts
_STAGGER = 20  # tasks that begin in one step; they are to wait, not to storm
_SETTLE = 1.0  # s; the first tries of the last task are over, and the next ones spread

Findings = dict[str, Any]
Wait = Callable[[], Coroutine[Any, Any, object]]


def run_job(job: str, urls: Sequence[str], **arguments: Any) -> Findings:
    """Run one of the jobs below in a process of its own; return its findings."""
    command = [sys.executable, "-m", "bench.harness.jobs", job, json.dumps(arguments)]
    done = subprocess.run(
        [*command, *urls], stdout=subprocess.PIPE, text=True, cwd=ROOT, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{job} {arguments} ended with status {done.returncode}")
    found: Findings = json.loads(done.stdout)
    return found


async def waiting(
    urls: Sequence[str], *, client: str, count: int, seconds: float
) -> Findings:
    """Return the cost of `count` tasks that all want one lock, which is held."""
    tasks = await _begin(_waiter(client, urls), count)
    commands = sum(map(commands_done, urls))
    cpu_ns, wall_ns = process_time_ns(), perf_counter_ns()
    await asyncio.sleep(seconds)
    wall_ns, cpu_ns = perf_counter_ns() - wall_ns, process_time_ns() - cpu_ns
    commands = sum(map(commands_done, urls)) - commands
    _check(tasks)
    return {
        "cpu_us_per_s": cpu_ns / wall_ns * 1e6,
        "commands_per_s": commands / wall_ns * 1e9,
    }


async def waiting_memory(
    urls: Sequence[str], *, client: str, first: int, count: int
) -> Findings:
    """Return the bytes of each of `count` waiting tasks, beside `first` that wait."""
    wait = _waiter(client, urls)
    tasks = await _begin(wait, first)
    before = settled_bytes()
    tasks += await _begin(wait, count)
    after = settled_bytes()
    _check(tasks)
    return {"bytes_each": (after - before) / count}


def _waiter(client: str, urls: Sequence[str]) -> Wait:
    """Hold a lock on all masters; return the call that waits for it."""
    key = f"scale:waiting:{os.urandom(4).hex()}"
    for url in urls:
        hold(url, key)
    if client == "asyncio.sleep":
        return lambda: asyncio.sleep(3600)
    if client == "redis-py":
        from redis.asyncio import Redis

        redis: Any = Redis.from_url(urls[0], max_connections=100_000)
        return lambda: redis.lock(key, timeout=TTL).acquire()
    locks = AwaitableFastRedlock(urls, ttl=TTL)
    return lambda: locks.acquire(key)


async def _begin(wait: Wait, count: int) -> list[asyncio.Task[object]]:
    """Start tasks that wait; return when they have settled."""
    tasks = []
    for i in range(count):
        tasks.append(asyncio.create_task(wait()))
        if i % _STAGGER == 0:
            await asyncio.sleep(0.005)
    await asyncio.sleep(_SETTLE)
    return tasks


def _check(tasks: Sequence[asyncio.Task[object]]) -> None:
    for task in tasks:
        if task.done():
            raise RuntimeError(f"a task did not wait: {task!r}")


def held(
    urls: Sequence[str], *, taken_by: str, steps: list[int], pairs: int
) -> Findings:
    """Return, after each step, the bytes of a held lease and the cost of a pair.

    `steps`: how many leases are held then, ascending. The bytes are those of the leases
    added by that step.
    """
    run = os.urandom(4).hex()  # the keys of other runs are still there
    keys = [f"scale:{run}:{i:07d}" for i in range(steps[-1])]
    leases: list[Any] = [None] * steps[-1]
    adapter = Blocking()
    adapter.open(urls, ["scale:pair"])
    take = _TAKERS[taken_by](urls)
    _time_pairs(adapter, pairs)
    take([f"scale:{run}:warm-up:{i:07d}" for i in range(100)])
    found: Findings = {"held": [], "bytes_each": [], "cpu_us": [], "p50_us": []}
    start = 0
    for end in steps:
        batch = keys[start:end]
        before = settled_bytes()
        leases[start:end] = take(batch)
        found["bytes_each"].append((settled_bytes() - before) / (end - start))
        if None in leases[start:end]:
            raise RuntimeError("not granted")
        start = end
        p50_us, cpu_us = _time_pairs(adapter, pairs)
        found["held"].append(end)
        found["p50_us"].append(p50_us)
        found["cpu_us"].append(cpu_us)
    return found


def _time_pairs(adapter: Blocking, pairs: int) -> tuple[float, float]:
    latencies_ns = [0] * pairs
    watch = Stopwatch()
    for i in range(pairs):
        start_ns = perf_counter_ns()
        adapter.pair(0)
        latencies_ns[i] = perf_counter_ns() - start_ns
    timing: Any = watch.stop(pairs, latencies_ns)
    return sorted(latencies_ns)[pairs // 2] / 1e3, timing["cpu_ns"] / 1e3 / pairs


def _take_one_by_one(urls: Sequence[str]) -> Callable[[list[str]], list[Any]]:
    locks = FastRedlock(urls, ttl=_HELD_TTL)
    return lambda keys: [locks.acquire(key, timeout=0) for key in keys]


def _take_each(urls: Sequence[str]) -> Callable[[list[str]], list[Any]]:
    locks: Any = FastRedlock(urls, ttl=_HELD_TTL)

    def take(keys: list[str]) -> list[Any]:
        parts = [keys[i : i + 100] for i in range(0, len(keys), 100)]
        return [lease for part in parts for lease in locks.acquire_each(part)]

    return take


def _take_awaited(urls: Sequence[str]) -> Callable[[list[str]], list[Any]]:
    locks: Any = AwaitableFastRedlock(urls, ttl=_HELD_TTL)
    loop = asyncio.new_event_loop()

    async def some(keys: list[str]) -> list[Any]:
        return await asyncio.gather(*(locks.acquire(key, timeout=0) for key in keys))

    def take(keys: list[str]) -> list[Any]:
        parts = [keys[i : i + 100] for i in range(0, len(keys), 100)]
        return [
            lease for part in parts for lease in loop.run_until_complete(some(part))
        ]

    return take


_TAKERS = {
    "acquire": _take_one_by_one,
    "acquire_each": _take_each,
    "asyncio": _take_awaited,
}


def growth(urls: Sequence[str], *, entry: str, warm_up: int, pairs: int) -> Findings:
    """Return the memory and the open fds before and after many pairs."""
    driver = open_entry(entry, urls, "scale:growth")
    _do(driver.run, warm_up)
    before, fds_before = settled_bytes(), open_fds()
    _do(driver.run, pairs)
    found = {"bytes": [before, settled_bytes()], "fds": [fds_before, open_fds()]}
    driver.close()
    return found


def _do(run: Callable[[int], object], pairs: int) -> None:
    for done in range(0, pairs, _CHUNK):
        run(min(_CHUNK, pairs - done))


_JOBS: dict[str, Callable[..., Any]] = {
    job.__name__: job
    for job in (
        *(waiting, waiting_memory, held, growth, kept, lost, cold, crowd, idle),
        *(cohort_tasks, cohort_threads),
    )
}


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C: end without a traceback
    name, arguments, *masters = sys.argv[1:]
    found = _JOBS[name](masters, **json.loads(arguments))
    if asyncio.iscoroutine(found):
        found = asyncio.new_event_loop().run_until_complete(found)
    print(json.dumps(found), flush=True)
    os._exit(0)  # neither leases nor waiting tasks need be taken apart


if __name__ == "__main__":
    main()
