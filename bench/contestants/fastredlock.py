"""The contestants of the throughput bench: many callers in one process.

As in `_peers`: each is set up as its own README recommends, a failure is never timed,
and libraries are imported by `open()`. Nobody waits for anybody: every caller, and
every place in a batch, has a key of its own (`keys[slot]`), and one try. All callers
share one client per process, and what a library builds per lock is built beforehand.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, Protocol

from bench._peers import TTL, TTL_MS, NotGrantedError


class TaskPeer(Protocol):
    """Many asyncio tasks; its loop is the caller's choice."""

    async def open(self, urls: Sequence[str], keys: Sequence[str]) -> None:
        """Build the client, and one lock per key where locks are objects."""

    async def pair(self, slot: int) -> None:
        """Acquire and release `keys[slot]`; raise when either did not succeed."""

    async def close(self) -> None:
        """Close the client's connections."""


class ThreadPeer(Protocol):
    """Many threads; as `TaskPeer`, blocking."""

    def open(self, urls: Sequence[str], keys: Sequence[str]) -> None: ...

    def pair(self, slot: int) -> None: ...

    def close(self) -> None: ...


class BatchPeer(Protocol):
    """One caller that takes and releases all keys at a time."""

    def open(self, urls: Sequence[str], keys: Sequence[str]) -> None: ...

    def pairs(self) -> None: ...

    def close(self) -> None: ...


class FastRedlockTasks:
    """One awaitable `FastRedlock` for all tasks of the loop."""

    async def open(self, urls: Sequence[str], keys: Sequence[str]) -> None:
        from fastredlock import ReleaseStatus

        awaitable = importlib.import_module("fastredlock.asyncio")
        self._locks = awaitable.FastRedlock(urls, ttl=TTL)
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


class FastRedlockAwaitedBatch(FastRedlockTasks):
    """`acquire_each` and `release_each`, awaited by one task."""

    async def pair(self, slot: int) -> None:  # of all keys: there is one slot
        leases = await self._locks.acquire_each(self._keys, ttl=TTL)
        if None in leases:
            raise NotGrantedError("fastredlock.asyncio: not all granted")
        statuses = await self._locks.release_each(leases)
        if statuses.count(self._released) != len(self._keys):
            raise NotGrantedError("fastredlock.asyncio: not all released")


class FastRedlockThreads:
    """One blocking `FastRedlock` for all threads."""

    def open(self, urls: Sequence[str], keys: Sequence[str]) -> None:
        from fastredlock import FastRedlock, ReleaseStatus

        self._locks: Any = FastRedlock(urls, ttl=TTL)
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


class FastRedlockBatch(FastRedlockThreads):
    """`acquire_each` and `release_each`, blocking."""

    def pairs(self) -> None:
        leases = self._locks.acquire_each(self._keys, ttl=TTL)
        if None in leases:
            raise NotGrantedError("fastredlock: not all granted")
        statuses = self._locks.release_each(leases)
        if statuses.count(self._released) != len(self._keys):
            raise NotGrantedError("fastredlock: not all released")


def _async_client(url: str) -> Any:
    """Return a redis-py client whose tasks wait for one of a few connections.

    The pool that it has by default raises at the 101st task. With 10 connections per
    master both libraries were fastest (10, 50, 100, 200 and one per task were tried
    with 10, 200 and 1,000 tasks).
    """
    from redis.asyncio import BlockingConnectionPool, Redis

    pool = BlockingConnectionPool.from_url(url, max_connections=10, timeout=None)
    return Redis.from_pool(pool)  # which the client then owns and closes


class PotteryTasks:
    """One `AIORedlock` per task, over one client per master."""

    def __init__(self, module: str = "pottery") -> None:
        self._module = module

    async def open(self, urls: Sequence[str], keys: Sequence[str]) -> None:
        new_lock = importlib.import_module(self._module).AIORedlock
        self._clients = [_async_client(url) for url in urls]
        self._locks: list[Any] = [
            new_lock(key=key, masters=set(self._clients), auto_release_time=TTL)
            for key in keys
        ]

    async def pair(self, slot: int) -> None:
        lock = self._locks[slot]
        if not await lock.acquire(blocking=False):
            raise NotGrantedError("pottery: not granted")
        await lock.release()

    async def close(self) -> None:
        for client in self._clients:
            await client.aclose()


class RedisPyTasks:
    """redis-py's own asyncio `Lock` per task, on the first master alone: no Redlock."""

    def __init__(self, module: str = "redis.asyncio.lock") -> None:
        self._module = module

    async def open(self, urls: Sequence[str], keys: Sequence[str]) -> None:
        lock_class = importlib.import_module(self._module).Lock
        self._client = _async_client(urls[0])
        self._locks: list[Any] = [
            self._client.lock(key, timeout=TTL, lock_class=lock_class) for key in keys
        ]

    async def pair(self, slot: int) -> None:
        lock = self._locks[slot]
        if not await lock.acquire(blocking=False):
            raise NotGrantedError("redis-py: not granted")
        await lock.release()

    async def close(self) -> None:
        await self._client.aclose()


class RedlockPyThreads:
    """One `redlock.Redlock` for all threads; see `_peers.RedlockPyPeer`."""

    def open(self, urls: Sequence[str], keys: Sequence[str]) -> None:
        from redlock import Redlock

        self._manager: Any = Redlock(list(urls), retry_count=1, retry_delay=0.001)
        self._keys = keys

    def pair(self, slot: int) -> None:
        lock = self._manager.lock(self._keys[slot], TTL_MS)
        if not lock:
            raise NotGrantedError("redlock-py: not granted")
        self._manager.unlock(lock)

    def close(self) -> None:
        for client in self._manager.servers:
            client.close()


class PotteryThreads:
    """One pottery `Redlock` per thread, over one client per master."""

    def open(self, urls: Sequence[str], keys: Sequence[str]) -> None:
        from pottery import Redlock
        from redis import Redis

        self._clients = [Redis.from_url(url) for url in urls]
        self._locks: list[Any] = [
            Redlock(key=key, masters=set(self._clients), auto_release_time=TTL)
            for key in keys
        ]

    def pair(self, slot: int) -> None:
        lock = self._locks[slot]
        if not lock.acquire(blocking=False):
            raise NotGrantedError("pottery: not granted")
        lock.release()

    def close(self) -> None:
        for client in self._clients:
            client.close()
