"""Callers of one process that want one lock, and the locks of Python beside them."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Sequence
from time import monotonic, sleep
from typing import Any

from bench.contestants.base import TTL
from fastredlock import FastRedlock
from fastredlock.asyncio import FastRedlock as AwaitableFastRedlock

KEY = "cohort"


def cohort_tasks(
    urls: Sequence[str], *, count: int, seconds: float, cohort: float | None, at: float
) -> dict[str, Any]:
    """Return the grants of tasks on one lock; cohort None: of an asyncio.Lock.

    `at`: when they begin, by the clock that all processes of the machine have.
    """
    return asyncio.run(_tasks(urls, count, seconds, cohort, at))


async def _tasks(
    urls: Sequence[str], count: int, seconds: float, cohort: float | None, at: float
) -> dict[str, Any]:
    grants, waits = [0] * count, [0.0] * count
    own = asyncio.Lock()
    locks = AwaitableFastRedlock(urls, ttl=TTL, cohort=cohort or 0.0)
    await locks.connect()
    await asyncio.sleep(at - monotonic())
    stop = max(at, monotonic()) + seconds  # where the machine is busy, it is late

    async def work(i: int) -> None:
        lock = own if cohort is None else locks.lock(KEY)
        while (began := monotonic()) < stop:
            async with lock:
                waits[i] = max(waits[i], monotonic() - began)
                grants[i] += 1
                if cohort is None:
                    await asyncio.sleep(0)  # else it keeps the lock: nobody else runs

    await asyncio.gather(*map(work, range(count)))
    await locks.close()
    return _found(grants, waits, seconds)


def cohort_threads(
    urls: Sequence[str], *, count: int, seconds: float, cohort: float | None, at: float
) -> dict[str, Any]:
    """Return the grants of threads; cohort None: of a lock in Python, fair as ours."""
    locks = FastRedlock(urls, ttl=TTL, cohort=cohort or 0.0)
    locks.connect()
    own, grants, waits = FairLock(), [0] * count, [0.0] * count
    sleep(max(0, at - monotonic()))
    stop = max(at, monotonic()) + seconds  # where the machine is busy, it is late

    def work(i: int) -> None:
        lock = own if cohort is None else locks.lock(KEY)
        while (began := monotonic()) < stop:
            with lock:
                waits[i] = max(waits[i], monotonic() - began)
                grants[i] += 1

    threads = [threading.Thread(target=work, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    locks.close()
    return _found(grants, waits, seconds)


class FairLock:
    """First come, first served, of `threading.Lock`s: the yardstick."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._waiting: deque[threading.Lock] = deque()
        self._is_held = False

    def __enter__(self) -> None:
        with self._mutex:
            if not self._is_held:
                self._is_held = True
                return
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        turn.acquire()

    def __exit__(self, *_: object) -> None:
        with self._mutex:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._is_held = False


def _found(grants: list[int], waits: list[float], seconds: float) -> dict[str, Any]:
    return {
        "rate": sum(grants) / seconds,
        "fair": min(grants) / max(1, max(grants)),
        "wait_ms": max(waits) * 1e3,
    }
