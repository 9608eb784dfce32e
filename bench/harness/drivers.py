"""Drive a peer inside the measured process: one caller, tasks, threads or batches.

`run(pairs)` returns what one block took, `Timing`, in the words of the floor's JSON.
The callers of a crowd draw tickets, one per pair, until none is left, so all of them
are busy to the end. The stopwatch starts when all callers stand ready. Latencies are
those that the first caller sees; to time every pair would slow the fast ones down.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter_ns, process_time_ns
from typing import Protocol

from bench._crowd_peers import BatchPeer, TaskPeer, ThreadPeer
from bench._peers import Peer

_REST = 0.02  # s; the loop reads the late replies of a block before it stands still

Timing = dict[str, int | list[int]]  # pairs, wall_ns, cpu_ns, latencies_ns


class Driver(Protocol):
    """What the worker has of a contestant."""

    def run(self, pairs: int) -> Timing:
        """Do that many pairs, or a few more where only whole batches can be done."""

    def close(self) -> None: ...


class Stopwatch:
    """Wall clock, and CPU of the process with all its threads, from now on."""

    def __init__(self) -> None:
        self._cpu_ns = process_time_ns()
        self._wall_ns = perf_counter_ns()

    def stop(self, pairs: int, latencies_ns: list[int]) -> Timing:
        """Return what it took."""
        wall_ns = perf_counter_ns() - self._wall_ns
        cpu_ns = process_time_ns() - self._cpu_ns
        return {
            "pairs": pairs,
            "wall_ns": wall_ns,
            "cpu_ns": cpu_ns,
            "latencies_ns": latencies_ns,
        }


class Single:
    """One caller, every pair timed."""

    def __init__(self, peer: Peer, urls: Sequence[str], key: str) -> None:
        self._peer = peer
        self._peer.open(urls, key)

    def run(self, pairs: int) -> Timing:
        pair = self._peer.pair
        latencies_ns = [0] * pairs
        watch = Stopwatch()
        for i in range(pairs):
            start_ns = perf_counter_ns()
            pair()
            latencies_ns[i] = perf_counter_ns() - start_ns
        return watch.stop(pairs, latencies_ns)

    def close(self) -> None:
        self._peer.close()


class Tasks:
    """As many asyncio tasks as there are slots, in one loop that lives on."""

    def __init__(
        self,
        peer: TaskPeer,
        urls: Sequence[str],
        keys: Sequence[str],
        *,
        slots: int,
        pairs_per_call: int = 1,
        new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
    ) -> None:
        self._peer = peer
        self._slots = slots
        self._pairs_per_call = pairs_per_call
        self._loop = new_loop()
        self._loop.run_until_complete(peer.open(urls, keys))

    def run(self, pairs: int) -> Timing:
        return self._loop.run_until_complete(self._run(pairs))

    async def _run(self, pairs: int) -> Timing:
        calls = -(-pairs // self._pairs_per_call)
        tickets = iter(range(calls))
        latencies_ns: list[int] = []
        calling = [self._timed(tickets, latencies_ns)]
        calling += [self._untimed(tickets, slot) for slot in range(1, self._slots)]
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

    async def _timed(self, tickets: Iterator[int], latencies_ns: list[int]) -> None:
        pair = self._peer.pair
        for _ in tickets:
            start_ns = perf_counter_ns()
            await pair(0)
            latencies_ns.append(perf_counter_ns() - start_ns)

    async def _untimed(self, tickets: Iterator[int], slot: int) -> None:
        pair = self._peer.pair
        for _ in tickets:
            await pair(slot)

    def close(self) -> None:
        self._loop.run_until_complete(self._peer.close())
        self._loop.close()


class Threads:
    """As many threads as there are slots; the first is the main one."""

    def __init__(
        self, peer: ThreadPeer, urls: Sequence[str], keys: Sequence[str]
    ) -> None:
        self._peer = peer
        self._slots = len(keys)
        self._errors: list[BaseException] = []
        peer.open(urls, keys)

    def run(self, pairs: int) -> Timing:
        tickets = iter(range(pairs))
        ready = threading.Barrier(self._slots)
        others = [
            threading.Thread(target=self._untimed, args=(ready, tickets, slot))
            for slot in range(1, self._slots)
        ]
        for thread in others:
            thread.start()
        latencies_ns: list[int] = []
        pair = self._peer.pair
        ready.wait()
        watch = Stopwatch()
        for _ in tickets:
            start_ns = perf_counter_ns()
            pair(0)
            latencies_ns.append(perf_counter_ns() - start_ns)
        for thread in others:
            thread.join()
        if self._errors:
            raise self._errors[0]
        return watch.stop(pairs, latencies_ns)

    def _untimed(
        self, ready: threading.Barrier, tickets: Iterator[int], slot: int
    ) -> None:
        pair = self._peer.pair
        try:
            ready.wait()
            for _ in tickets:
                pair(slot)
        except BaseException as error:
            self._errors.append(error)
            raise

    def close(self) -> None:
        self._peer.close()


class Batches:
    """One caller, all keys at a time."""

    def __init__(
        self, peer: BatchPeer, urls: Sequence[str], keys: Sequence[str]
    ) -> None:
        self._peer = peer
        self._size = len(keys)
        peer.open(urls, keys)

    def run(self, pairs: int) -> Timing:
        calls = -(-pairs // self._size)
        call = self._peer.pairs
        latencies_ns = [0] * calls
        watch = Stopwatch()
        for i in range(calls):
            start_ns = perf_counter_ns()
            call()
            latencies_ns[i] = perf_counter_ns() - start_ns
        return watch.stop(calls * self._size, latencies_ns)

    def close(self) -> None:
        self._peer.close()
