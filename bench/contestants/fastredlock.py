"""fastredlock: one client for the life of the process, one try per acquire."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

from bench.contestants.base import (
    BATCHES,
    TASKS,
    THREADS,
    TTL,
    Contestant,
    NotGrantedError,
)
from bench.harness.drivers import Driver, Tasks, Threads


class Blocking:
    """One blocking `FastRedlock` for all threads."""

    options: dict[str, Any] = {}  # noqa: RUF012

    def open(self, urls: Sequence[str], keys: Sequence[str]) -> None:
        from fastredlock import FastRedlock, ReleaseStatus

        self._locks: Any = FastRedlock(urls, ttl=TTL, **self.options)
        self._locks.connect()
        self._keys = keys
        self._released = ReleaseStatus.RELEASED

    def pair(self, slot: int) -> None:
        lease = self._locks.acquire(self._keys[slot], timeout=0)
        if lease is None:
            raise NotGrantedError("fastredlock: not granted")
        status = lease.release()
        if status is not self._released:
            raise NotGrantedError(f"fastredlock: {status}")

    def close(self) -> None:
        self._locks.close()


class Fencing(Blocking):
    """The same, with numbers that grow."""

    options: dict[str, Any] = {"fencing": True}  # noqa: RUF012


class Lingering(Blocking):
    """The same with keys that are idle between two calls."""

    options: dict[str, Any] = {"linger": 1.0}  # noqa: RUF012


class Observed(Blocking):
    """The same with an observer that does nothing."""

    @property
    def options(self) -> dict[str, Any]:  # type: ignore[override]
        """Return the options of its `FastRedlock`."""
        return {"observer": self.new_observer()}

    def new_observer(self) -> object:
        """Make the observer."""

        class Idle:
            def acquired(self, *_: object) -> None:
                """Do nothing."""

        return Idle()


class Prometheus(Observed):
    """The same with metrics for Prometheus."""

    def new_observer(self) -> object:
        from prometheus_client import CollectorRegistry

        from fastredlock.prometheus import Collector

        return Collector(CollectorRegistry())


class OpenTelemetry(Observed):
    """The same with spans and metrics, by a batch processor whose exporter is idle."""

    def new_observer(self) -> object:
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import InMemoryMetricReader
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

        from fastredlock.otel import Telemetry

        class Idle(SpanExporter):
            def export(self, spans: Any) -> Any:
                """Drop them."""

        tracers = TracerProvider()
        tracers.add_span_processor(BatchSpanProcessor(Idle()))
        return Telemetry(tracers, MeterProvider([InMemoryMetricReader()]))


class BlockingBatch(Blocking):
    """`acquire_each` and `release_each` of all keys at a time."""

    def pair(self, slot: int) -> None:
        leases = self._locks.acquire_each(self._keys, ttl=TTL)
        if None in leases:
            raise NotGrantedError("fastredlock: not all granted")
        statuses = self._locks.release_each(leases)
        if statuses.count(self._released) != len(self._keys):
            raise NotGrantedError("fastredlock: not all released")


class Awaited:
    """One awaitable `FastRedlock` for all tasks of the loop."""

    options: dict[str, Any] = {}  # noqa: RUF012

    async def open(self, urls: Sequence[str], keys: Sequence[str]) -> None:
        from fastredlock import ReleaseStatus
        from fastredlock.asyncio import FastRedlock

        self._locks: Any = FastRedlock(urls, ttl=TTL, **self.options)
        self._keys = keys
        self._released = ReleaseStatus.RELEASED
        await self.pair(0)  # connected, before 1,000 tasks ask at once

    async def pair(self, slot: int) -> None:
        lease = await self._locks.acquire(self._keys[slot], timeout=0)
        if lease is None:
            raise NotGrantedError("fastredlock.asyncio: not granted")
        status = await lease.release()
        if status is not self._released:
            raise NotGrantedError(f"fastredlock.asyncio: {status}")

    async def close(self) -> None:
        await self._locks.close()


class AwaitedBatch(Awaited):
    """`acquire_each` and `release_each` of all keys at a time, awaited by one task."""

    async def pair(self, slot: int) -> None:
        leases = await self._locks.acquire_each(self._keys, ttl=TTL)
        if None in leases:
            raise NotGrantedError("fastredlock.asyncio: not all granted")
        statuses = await self._locks.release_each(leases)
        if statuses.count(self._released) != len(self._keys):
            raise NotGrantedError("fastredlock.asyncio: not all released")


def _threads(_: str, urls: Sequence[str], keys: Sequence[str]) -> Driver:
    return Threads(Blocking(), urls, keys, callers=len(keys))


def _threads_of(kind: type[Blocking]) -> Callable[..., Driver]:
    def new_driver(_: str, urls: Sequence[str], keys: Sequence[str]) -> Driver:
        return Threads(kind(), urls, keys, callers=len(keys))

    return new_driver


def _batches(_: str, urls: Sequence[str], keys: Sequence[str]) -> Driver:
    return Threads(BlockingBatch(), urls, keys, callers=1)


def _tasks(_: str, urls: Sequence[str], keys: Sequence[str]) -> Driver:
    return Tasks(Awaited(), urls, keys, callers=len(keys))


def _awaited_batches(_: str, urls: Sequence[str], keys: Sequence[str]) -> Driver:
    return Tasks(AwaitedBatch(), urls, keys, callers=1)


def _uvloop_tasks(_: str, urls: Sequence[str], keys: Sequence[str]) -> Driver:
    new_loop = importlib.import_module("uvloop").new_event_loop
    return Tasks(Awaited(), urls, keys, callers=len(keys), new_loop=new_loop)


ONE_CALLER = Contestant("fastredlock", _threads)
BY_NAME_ALONE = {
    "fencing": Contestant("fastredlock, fencing", _threads_of(Fencing)),
    "linger": Contestant("fastredlock, linger", _threads_of(Lingering)),
    "observed": Contestant("fastredlock, an idle observer", _threads_of(Observed)),
    "prometheus": Contestant(
        "fastredlock, Prometheus",
        _threads_of(Prometheus),
        libraries=("fastredlock", "prometheus-client"),
        needs=("prometheus_client",),
    ),
    "otel": Contestant(
        "fastredlock, OpenTelemetry",
        _threads_of(OpenTelemetry),
        libraries=("fastredlock", "opentelemetry-sdk"),
        needs=("opentelemetry",),
    ),
}
MANY_CALLERS = {
    "each": Contestant(
        "fastredlock acquire_each", _batches, unit="batch", sizes=BATCHES
    ),
    "each-asyncio": Contestant(
        "fastredlock acquire_each, awaited",
        _awaited_batches,
        unit="batch",
        sizes=BATCHES,
    ),
    "asyncio": Contestant("fastredlock, asyncio", _tasks, unit="task", sizes=TASKS),
    "uvloop": Contestant(
        "fastredlock, uvloop",
        _uvloop_tasks,
        unit="task",
        sizes=TASKS,
        libraries=("fastredlock", "uvloop"),
        needs=("uvloop",),
    ),
    "threads": Contestant("fastredlock, blocking", _threads, sizes=THREADS),
}
