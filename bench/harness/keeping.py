"""The jobs of `bench.keep`: leases that are kept, and lost."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter_ns, process_time
from typing import Any

from bench.harness.memory import resident_bytes, settled_bytes
from fastredlock import FastRedlock, _core
from fastredlock._locking import keeper
from fastredlock.asyncio import FastRedlock as AwaitableFastRedlock

_CHUNK = 100
_SETTLE = 8.0  # s; every lease was renewed by then
_READINGS, _BETWEEN = 51, 0.1  # of the memory, s
_TURNS = 5  # of pairs with and without kept leases
_STEADY = 4.0  # s; from then on leases that were taken together are renewed apart


class Client:
    """Either FastRedlock, whose calls block, and whose batches are counted."""

    def __init__(self, kind: str, urls: Sequence[str], ttl: float) -> None:
        self.batches = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        if kind == "blocking":
            self.locks: Any = FastRedlock(urls, ttl=ttl)
        else:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._loop.run_forever, daemon=True).start()
            self.locks = AwaitableFastRedlock(urls, ttl=ttl)
        setattr(keeper, "Batch", self._batch)  # noqa: B010 - the name of a class

    def _batch(self, rounds: list[Any]) -> _core.Batch:
        self.batches += 1
        return _core.Batch(rounds)

    def run(self, call: Callable[[], Any]) -> Any:
        """Make a call, on the loop where there is one."""
        if self._loop is None:
            return call()

        async def main() -> Any:
            found = call()
            return await found if asyncio.iscoroutine(found) else found

        return asyncio.run_coroutine_threadsafe(main(), self._loop).result()

    def pair_us(self, pairs: int) -> list[float]:
        """Time so many pairs of one caller."""
        if self._loop is None:
            return [self._pair() for _ in range(pairs)]
        return list(self.run(lambda: self._awaited_pairs(pairs)))

    def _pair(self) -> float:
        began = perf_counter_ns()
        self.locks.acquire("keep:pair", timeout=0).release()
        return (perf_counter_ns() - began) / 1e3

    async def _awaited_pairs(self, pairs: int) -> list[float]:
        found = []
        for _ in range(pairs):
            began = perf_counter_ns()
            lease = await self.locks.acquire("keep:pair", timeout=0)
            await lease.release()
            found.append((perf_counter_ns() - began) / 1e3)
        return found


def kept(
    urls: Sequence[str],
    *,
    kind: str,
    count: int,
    ttl: float,
    seconds: float,
    pairs: int,
    pids: list[int],
) -> dict[str, Any]:
    """Return the cost of so many kept leases, and of a pair beside them."""
    client = Client(kind, urls, ttl)
    names = [f"keep:{i:06d}" for i in range(count)]
    leases: list[Any] = [None] * count
    _take(client, leases, names[:_CHUNK])
    client.pair_us(pairs)  # the allocator is warm
    before = settled_bytes()
    for start in range(_CHUNK, count, _CHUNK):
        _take(client, leases, names[start : start + _CHUNK], start)
    time.sleep(_SETTLE)
    size = (_usual_bytes() - before) / (count - _CHUNK)
    rounds, batches = client.locks.stats().rounds, client.batches
    cpu, masters, began = process_time(), _cpu_of(pids), time.perf_counter()
    time.sleep(seconds)
    took = time.perf_counter() - began
    cpu, masters = process_time() - cpu, _cpu_of(pids) - masters
    found = {
        "cpu": 100 * cpu / took,
        "master_cpu": 100 * masters / took / len(pids),
        "renewals": (client.locks.stats().rounds - rounds) / took,
        "writes": (client.batches - batches) / took,
        "bytes_each": size,
    }
    found["lost"] = sum(lease.lost.is_set() for lease in leases)
    return found | _beside(client, leases, names, pairs // _TURNS)


def _usual_bytes() -> float:
    """Return the median of the resident memory over some renewals.

    A batch of them has its rounds and its bytes for a few ms: one reading has them or
    not, and with them what the allocator gives back later.
    """
    settled_bytes()
    found = []
    for _ in range(_READINGS):
        time.sleep(_BETWEEN)
        found.append(resident_bytes())
    return median(found)


def _beside(
    client: Client, leases: list[Any], names: list[str], pairs: int
) -> dict[str, Any]:
    """Time pairs beside the kept leases and without any, in turns.

    Each after the same rest and the same warm-up: a processor that has slept is slower.
    """
    kept: list[tuple[float, float]] = []
    alone: list[tuple[float, float]] = []
    for turn in range(_TURNS):
        for start in range(0, len(names) if turn else 0, _CHUNK):
            _take(client, leases, names[start : start + _CHUNK], start)
        kept.append(_rested_pair_us(client, pairs))
        for start in range(0, len(names), _CHUNK):
            chunk = leases[start : start + _CHUNK]
            client.run(partial(client.locks.release_each, chunk))
        alone.append(_rested_pair_us(client, pairs))
    return {
        "beside": [
            [count, *(median(row[i] for row in rows) for i in (0, 1))]
            for count, rows in ((0, alone), (len(names), kept))
        ],
        "ratios": [
            median(a[i] / b[i] for a, b in zip(kept, alone, strict=True))
            for i in (0, 1)
        ],
    }


def _rested_pair_us(client: Client, pairs: int) -> tuple[float, float]:
    time.sleep(_STEADY)
    client.pair_us(pairs // 4)
    return _middle_and_tail(client.pair_us(pairs))


def _take(client: Client, leases: list[Any], names: list[str], start: int = 0) -> None:
    def keep() -> None:
        for lease in leases[start : start + len(names)]:
            lease.keep_alive(True)

    leases[start : start + len(names)] = client.run(
        lambda: client.locks.acquire_each(names)
    )
    client.run(keep)


def _middle_and_tail(times: list[float]) -> tuple[float, float]:
    times = sorted(times)
    return times[len(times) // 2], times[len(times) * 99 // 100]


def _cpu_of(pids: list[int]) -> float:
    """Return the CPU time (s) of other processes."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def lost(
    urls: Sequence[str],
    *,
    kind: str,
    ttl: float,
    harm: str,
    count: int,
    pids: list[int],
) -> dict[str, Any]:
    """Lose `count` leases; return when that was reported.

    `before_ms`: before the end of the validity that was last seen; `after`: s after the
    harm was done, on average.
    """
    client = Client(kind, urls, ttl)
    times: dict[int, int] = {}

    def on_lost(lease: Any, error: object) -> None:
        times[id(lease)] = _core.now_ns()

    def take(i: int) -> Any:
        name = f"lost:{i}"
        return client.locks.acquire(name, keep_alive=True, on_lost=on_lost)

    leases = [client.run(partial(take, i)) for i in range(count)]
    time.sleep(ttl)
    harmed_ns = _core.now_ns()
    _harm(urls, harm, pids)
    ends: dict[int, int] = {}
    while len(times) < count:
        for lease in leases:
            ends[id(lease)] = max(ends.get(id(lease), 0), lease._valid_until_ns)
        time.sleep(0.005)
    after = [(lost_ns - harmed_ns) / 1e9 for lost_ns in times.values()]
    return {
        "before_ms": [(ends[lease] - times[lease]) / 1e6 for lease in times],
        "after": sum(after) / count,
    }


def _harm(urls: Sequence[str], harm: str, pids: list[int]) -> None:
    if harm == "flushed":
        from bench.harness.servers import flush

        for url in urls:
            flush(url)
        return
    for pid in pids[:3]:
        os.kill(pid, signal.SIGKILL if harm == "killed" else signal.SIGSTOP)
