"""The calls of the libraries whose locks are objects with `acquire` and `release`."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

from bench.contestants.base import NotGrantedError

# Builds clients to close later, and one lock per key: library, URLs, keys.
Build = Callable[[Any, Sequence[str], Sequence[str]], tuple[list[Any], list[Any]]]


# Of a free lock, which a library gives up now and then (seen: pottery). It counts as
# one pair, with the time of all tries.
TRIES = 3


class LockObjects:
    """One lock per thread, built by a library or by a module that replaces it."""

    def __init__(self, build: Build, module: str) -> None:
        self._build = build
        self._module = module

    def open(self, urls: Sequence[str], keys: Sequence[str]) -> None:
        library = importlib.import_module(self._module)
        self._clients, self._locks = self._build(library, urls, keys)

    def pair(self, slot: int) -> None:
        lock = self._locks[slot]
        for _ in range(TRIES):
            if lock.acquire(blocking=False):
                lock.release()
                return
        raise NotGrantedError(f"{self._module}: not granted")

    def close(self) -> None:
        for client in self._clients:
            client.close()


class AwaitedLockObjects:
    """One lock per task; as `LockObjects`."""

    def __init__(self, build: Build, module: str) -> None:
        self._build = build
        self._module = module

    async def open(self, urls: Sequence[str], keys: Sequence[str]) -> None:
        library = importlib.import_module(self._module)
        self._clients, self._locks = self._build(library, urls, keys)

    async def pair(self, slot: int) -> None:
        lock = self._locks[slot]
        for _ in range(TRIES):
            if await lock.acquire(blocking=False):
                await lock.release()
                return
        raise NotGrantedError(f"{self._module}: not granted")

    async def close(self) -> None:
        for client in self._clients:
            await client.aclose()


def async_client(url: str) -> Any:
    """Return a redis-py client whose tasks wait for one of a few connections.

    The pool that it has by default raises at the 101st task. With 10 connections per
    master both libraries that use it were fastest (10, 50, 100, 200 and one per task
    were tried with 10, 200 and 1,000 tasks).
    """
    from redis.asyncio import BlockingConnectionPool, Redis

    pool = BlockingConnectionPool.from_url(url, max_connections=10, timeout=None)
    return Redis.from_pool(pool)  # which the client then owns and closes
