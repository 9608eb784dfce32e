"""One measurement of bench_scale, in a process of its own; prints one line of JSON.

`python -m bench._scale_worker JOB ARGUMENTS URL...`, the arguments in JSON. Memory is
resident memory, so everything that the libraries and the allocators take is in it: it
is read before and after, in a process that has warmed up, and divided by many. What the
caller brings (keys, a list for the leases) exists beforehand.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from time import perf_counter_ns, process_time_ns
from typing import Any

from bench._crowd_peers import FastRedlockThreads
from bench._crowds import open_crowd
from bench._drivers import Stopwatch
from bench._memory import open_fds, resident_bytes
from bench._peers import TTL
from bench._servers import commands_done, hold

_HELD_TTL = 3600.0  # s
_CHUNK = 20_000  # pairs in one go, where only the memory counts
_STAGGER = 20  # tasks that begin in one step; they are to wait, not to storm
_SETTLE = 1.0  # s; the first tries of the last task are over, and the next ones spread

Told = dict[str, Any]


def waiting(urls: Sequence[str], *, who: str, count: int, seconds: float) -> Told:
    """Tell what `count` tasks cost that all want one lock which another one holds."""
    return asyncio.new_event_loop().run_until_complete(
        _waiting(urls, who, count, seconds)
    )


async def _waiting(urls: Sequence[str], who: str, count: int, seconds: float) -> Told:
    key, wait = _waiter(who, urls)
    for url in urls:
        hold(url, key)
    tasks = await _begin(wait, count)
    await asyncio.sleep(_SETTLE)
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


def waiting_memory(urls: Sequence[str], *, who: str, first: int, count: int) -> Told:
    """Tell what `count` waiting tasks take each, beside `first` that wait already."""
    return asyncio.new_event_loop().run_until_complete(
        _waiting_memory(urls, who, first, count)
    )


async def _waiting_memory(
    urls: Sequence[str], who: str, first: int, count: int
) -> Told:
    key, wait = _waiter(who, urls)
    for url in urls:
        hold(url, key)
    tasks = await _begin(wait, first)
    await asyncio.sleep(_SETTLE)
    before = resident_bytes()
    tasks += await _begin(wait, count)
    await asyncio.sleep(_SETTLE)
    after = resident_bytes()
    _check(tasks)
    return {"bytes_each": (after - before) / count}


def _waiter(
    who: str, urls: Sequence[str]
) -> tuple[str, Callable[[], Coroutine[Any, Any, object]]]:
    """Return the key that is held, and what a task does to wait for it."""
    key = f"scale:waiting:{os.urandom(4).hex()}"
    if who == "asyncio.sleep":
        return key, lambda: asyncio.sleep(3600)
    if who == "redis-py":
        from redis.asyncio import Redis

        client: Any = Redis.from_url(urls[0], max_connections=100_000)
        return key, lambda: client.lock(key, timeout=TTL).acquire()
    locks = importlib.import_module("fastredlock.asyncio").FastRedlock(urls, ttl=TTL)
    return key, lambda: locks.acquire(key)


async def _begin(
    wait: Callable[[], Coroutine[Any, Any, object]], count: int
) -> list[asyncio.Task[object]]:
    tasks = []
    for i in range(count):
        tasks.append(asyncio.create_task(wait()))
        if i % _STAGGER == 0:
            await asyncio.sleep(0.005)
    return tasks


def _check(tasks: Sequence[asyncio.Task[object]]) -> None:
    for task in tasks:
        if task.done():
            raise RuntimeError(f"a task did not wait: {task!r}")


def held(urls: Sequence[str], *, who: str, steps: list[int], pairs: int) -> Told:
    """Tell, after each step, what a held lease takes and what a pair costs then.

    `steps`: how many leases are held then, ascending. The bytes are those of the leases
    added by that step.
    """
    run = os.urandom(4).hex()  # the keys of other runs are still there
    keys = [f"scale:{run}:{i:07d}" for i in range(steps[-1])]
    leases: list[Any] = [None] * steps[-1]
    peer = FastRedlockThreads()
    peer.open(urls, ["scale:pair"])
    take = _TAKERS[who](urls)
    _time_pairs(peer, pairs)
    take([f"scale:{run}:warm-up:{i:07d}" for i in range(100)])
    told: Told = {"held": [], "bytes_each": [], "cpu_us": [], "p50_us": []}
    start = 0
    for end in steps:
        batch = keys[start:end]
        before = resident_bytes()
        leases[start:end] = take(batch)
        told["bytes_each"].append((resident_bytes() - before) / (end - start))
        if None in leases[start:end]:
            raise RuntimeError("not granted")
        start = end
        p50_us, cpu_us = _time_pairs(peer, pairs)
        told["held"].append(end)
        told["p50_us"].append(p50_us)
        told["cpu_us"].append(cpu_us)
    return told


def _time_pairs(peer: FastRedlockThreads, pairs: int) -> tuple[float, float]:
    latencies_ns = [0] * pairs
    watch = Stopwatch()
    for i in range(pairs):
        start_ns = perf_counter_ns()
        peer.pair(0)
        latencies_ns[i] = perf_counter_ns() - start_ns
    timing: Any = watch.stop(pairs, latencies_ns)
    return sorted(latencies_ns)[pairs // 2] / 1e3, timing["cpu_ns"] / 1e3 / pairs


def _take_one_by_one(urls: Sequence[str]) -> Callable[[list[str]], list[Any]]:
    from fastredlock import FastRedlock

    locks = FastRedlock(urls, ttl=_HELD_TTL)
    return lambda keys: [locks.acquire(key, timeout=0) for key in keys]


def _take_each(urls: Sequence[str]) -> Callable[[list[str]], list[Any]]:
    from fastredlock import FastRedlock

    locks: Any = FastRedlock(urls, ttl=_HELD_TTL)

    def take(keys: list[str]) -> list[Any]:
        parts = [keys[i : i + 100] for i in range(0, len(keys), 100)]
        return [lease for part in parts for lease in locks.acquire_each(part)]

    return take


def _take_awaited(urls: Sequence[str]) -> Callable[[list[str]], list[Any]]:
    awaitable = importlib.import_module("fastredlock.asyncio")
    locks = awaitable.FastRedlock(urls, ttl=_HELD_TTL)
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


def pairs(urls: Sequence[str], *, player: str, warm_up: int, pairs: int) -> Told:
    """Tell how much memory and how many open fds many pairs leave behind."""
    driver = open_crowd(player, urls, "scale:pairs")
    _do(driver.run, warm_up)
    before, fds_before = resident_bytes(), open_fds()
    _do(driver.run, pairs)
    growth, fds = resident_bytes() - before, open_fds() - fds_before
    driver.close()
    return {"growth_bytes": growth, "growth_fds": fds}


def _do(run: Callable[[int], object], pairs: int) -> None:
    for _ in range(0, pairs, _CHUNK):
        run(_CHUNK)


_JOBS: dict[str, Callable[..., Told]] = {
    job.__name__: job for job in (waiting, waiting_memory, held, pairs)
}


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C: end without a traceback
    name, arguments, *masters = sys.argv[1:]
    print(json.dumps(_JOBS[name](masters, **json.loads(arguments))))
    sys.stdout.flush()
    os._exit(0)  # neither leases nor waiting tasks need be taken apart
