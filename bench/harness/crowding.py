"""The jobs of `bench.crowds`: thousands of tasks of one loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from statistics import quantiles
from time import perf_counter, process_time
from typing import Any

from bench.harness.servers import commands_done
from fastredlock import QuorumUnreachableError
from fastredlock.asyncio import FastRedlock

_TTL = 60.0
_BATCH = 2000  # leases of the holder that are taken, or released, in one call
_SETTLE, _TICK = 3.0, 0.005  # s
_PATIENCE = 30.0


def _names(count: int) -> list[str]:
    run = os.urandom(4).hex()
    return [f"crowds:{run}:{i}" for i in range(count)]


async def cold(
    urls: Sequence[str], *, count: int, timeout: float, is_connected: bool
) -> dict[str, Any]:
    """Let so many tasks begin at once, each with a lock of its own."""
    async with FastRedlock(urls, ttl=_TTL) as locks:
        if is_connected:
            await locks.connect()

        async def one(name: str) -> bool:
            try:
                return bool(await locks.acquire(name, timeout=timeout))
            except QuorumUnreachableError:
                return False

        began, cpu = perf_counter(), process_time()
        served = await asyncio.gather(*map(one, _names(count)))
        cpu = process_time() - cpu
        return {"served": sum(served), "s": perf_counter() - began, "cpu_s": cpu}


async def crowd(
    urls: Sequence[str], *, count: int, seconds: float, **options: Any
) -> dict[str, Any]:
    """Let so many tasks take and release, each a lock of its own, all the time."""
    times: list[float] = []
    pairs = 0
    async with FastRedlock(urls, **{"ttl": _TTL} | options) as locks:

        async def one(name: str) -> None:
            while perf_counter() < until:
                began = perf_counter()
                lease = await locks.acquire(name)
                await lease.release()  # type: ignore[union-attr]  # it waits for ever
                times.append(perf_counter() - began)

        names = _names(count)
        for length in (seconds / 4, seconds):
            times.clear()
            cpu, began = process_time(), perf_counter()
            until = began + length
            await asyncio.gather(*map(one, names))
            pairs += len(times)
        took, cpu = perf_counter() - began, process_time() - cpu
    return {
        "pairs": pairs,  # those of the warm-up as well
        "pairs_per_s": len(times) / took,
        "cpu_us": cpu / len(times) * 1e6,
        "p99_ms": quantiles(times, n=100)[-1] * 1e3,
    }


async def idle(urls: Sequence[str], *, count: int, seconds: float) -> dict[str, Any]:
    """Wait for so many resources, all held; then have them released at once."""
    names = _names(count)
    async with (
        FastRedlock(urls, ttl=600) as holder,
        FastRedlock(urls, ttl=_TTL) as locks,
    ):
        parts = [names[i : i + _BATCH] for i in range(0, count, _BATCH)]
        held = [await holder.acquire_each(part) for part in parts]
        waiters = [asyncio.create_task(locks.acquire(name)) for name in names]
        await asyncio.sleep(_SETTLE + count / 10_000)
        found = await _watch(urls, seconds)
        began = perf_counter()
        for leases in held:
            await holder.release_each([lease for lease in leases if lease])
        await asyncio.wait(waiters, timeout=_PATIENCE)
        found["granted"] = sum(waiter.done() for waiter in waiters)
        found["granted_s"] = perf_counter() - began
        return found


async def _watch(urls: Sequence[str], seconds: float) -> dict[str, Any]:
    """Return the CPU of this process, the lag of its loop, and the busiest master."""
    lags: list[float] = []
    before = [commands_done(url) for url in urls]
    began, cpu = perf_counter(), process_time()
    while perf_counter() - began < seconds:
        slept = perf_counter()
        await asyncio.sleep(_TICK)
        lags.append(perf_counter() - slept - _TICK)
    took, cpu = perf_counter() - began, process_time() - cpu
    after = [commands_done(url) for url in urls]
    return {
        "cpu_percent": cpu / took * 100,
        "lag_ms": max(lags) * 1e3,
        "commands_per_s": max(
            (late - early) / took for early, late in zip(before, after, strict=True)
        ),
    }
