"""Let threads or tasks call an adapter, in the measured process, and time them.

An adapter makes the calls of one library. Every caller has a key of its own
(`keys[slot]`), so no caller waits for another; with one caller and several keys one
call is for all keys. The callers take numbers, one per call, until none is left, so all
of them are busy to the end. The stopwatch starts when all callers are ready. Latencies
are those of the first caller: to time every pair would slow the fast libraries down.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter_ns, process_time_ns
from typing import Protocol

_REST = 0.02  # s; the loop reads the late replies of a block before it stops

Timing = dict[str, int | list[int]]  # as in the floor's JSON, see floor.c


class Adapter(Protocol):
    """A blocking library."""

    def open(self, urls: Sequence[str], keys: Sequence[str]) -> None:
        """Build the client, and one lock per key where locks are objects."""

    def pair(self, slot: int) -> None:
        """Acquire and release `keys[slot]`; raise when either did not succeed."""

    def close(self) -> None:
        """Close the client's connections."""


class AsyncAdapter(Protocol):
    """A library for asyncio; its loop is the driver's choice."""

    async def open(self, urls: Sequence[str], keys: Sequence[str]) -> None: ...

    async def pair(self, slot: int) -> None: ...

    async def close(self) -> None: ...


class Driver(Protocol):
    """Callers and their adapter, ready to run blocks."""

    def run(self, pairs: int) -> Timing:
        """Do that many pairs, or a few more where only whole batches can be done."""

    def close(self) -> None: ...


class Stopwatch:
    """Wall clock, and CPU of the process with all its threads, from now on."""

    def __init__(self) -> None:
        self._cpu_ns = process_time_ns()
        self._wall_ns = perf_counter_ns()

    def stop(self, pairs: int, latencies_ns: list[int]) -> Timing:
        """Return the time that has passed, beside the arguments."""
        wall_ns = perf_counter_ns() - self._wall_ns
        cpu_ns = process_time_ns() - self._cpu_ns
        return {
            "pairs": pairs,
            "wall_ns": wall_ns,
            "cpu_ns": cpu_ns,
            "latencies_ns": latencies_ns,
        }


class Threads:
    """Threads that share one blocking adapter; the first is the main thread."""

    def __init__(
        self, adapter: Adapter, urls: Sequence[str], keys: Sequence[str], callers: int
    ) -> None:
        self._adapter = adapter
        self._callers = callers
        self._pairs_per_call = len(keys) // callers
        self._errors: list[BaseException] = []
        adapter.open(urls, keys)

    def run(self, pairs: int) -> Timing:
        calls = -(-pairs // self._pairs_per_call)
        numbers = iter(range(calls))
        ready = threading.Barrier(self._callers)
        others = [
            threading.Thread(target=self._untimed, args=(ready, numbers, slot))
            for slot in range(1, self._callers)
        ]
        for thread in others:
            thread.start()
        latencies_ns: list[int] = []
        pair = self._adapter.pair
        ready.wait()
        watch = Stopwatch()
        for _ in numbers:
            start_ns = perf_counter_ns()
            pair(0)
            latencies_ns.append(perf_counter_ns() - start_ns)
        for thread in others:
            thread.join()
        if self._errors:
            raise self._errors[0]
        return watch.stop(calls * self._pairs_per_call, latencies_ns)

    def attempt(self, pairs: int, seconds: float) -> Timing:
        """Have one caller try that many pairs or so long; count the failures."""
        latencies_ns: list[int] = []
        failures = 0
        watch = Stopwatch()
        end_ns = perf_counter_ns() + int(seconds * 1e9)
        while len(latencies_ns) < pairs and perf_counter_ns() < end_ns:
            start_ns = perf_counter_ns()
            try:
                self._adapter.pair(0)
            except Exception:  # whatever it is, the caller has no lock
                failures += 1
            latencies_ns.append(perf_counter_ns() - start_ns)
        return watch.stop(len(latencies_ns), latencies_ns) | {"failures": failures}

    def _untimed(
        self, ready: threading.Barrier, numbers: Iterator[int], slot: int
    ) -> None:
        pair = self._adapter.pair
        try:
            ready.wait()
            for _ in numbers:
                pair(slot)
        except BaseException as error:
            self._errors.append(error)
            raise

    def close(self) -> None:
        self._adapter.close()


class Tasks:
    """Tasks that share one asyncio adapter, in one loop that lives on."""

    def __init__(
        self,
        adapter: AsyncAdapter,
        urls: Sequence[str],
        keys: Sequence[str],
        callers: int,
        new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
    ) -> None:
        self._adapter = adapter
        self._callers = callers
        self._pairs_per_call = len(keys) // callers
        self._loop = new_loop()
        self._loop.run_until_complete(adapter.open(urls, keys))

    def run(self, pairs: int) -> Timing:
        return self._loop.run_until_complete(self._run(pairs))

    async def _run(self, pairs: int) -> Timing:
        calls = -(-pairs // self._pairs_per_call)
        numbers = iter(range(calls))
        latencies_ns: list[int] = []
        calling = [self._timed(numbers, latencies_ns)]
        calling += [self._untimed(numbers, slot) for slot in range(1, self._callers)]
        tasks = [asyncio.ensure_future(caller) for caller in calling]
        watch = Stopwatch()
        try:
            await asyncio.gather(*tasks)
        except BaseException:  # it ends the process: one traceback, not 1,000
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise
        timing = watch.stop(calls * self._pairs_per_call, latencies_ns)
        await asyncio.sleep(_REST)
        return timing

    async def _timed(self, numbers: Iterator[int], latencies_ns: list[int]) -> None:
        pair = self._adapter.pair
        for _ in numbers:
            start_ns = perf_counter_ns()
            await pair(0)
            latencies_ns.append(perf_counter_ns() - start_ns)

    async def _untimed(self, numbers: Iterator[int], slot: int) -> None:
        pair = self._adapter.pair
        for _ in numbers:
            await pair(slot)

    def close(self) -> None:
        self._loop.run_until_complete(self._adapter.close())
        self._loop.close()
