"""The players of bench_compat that no other bench has; see `_peers` for the rules."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from bench._peers import TTL, NotGrantedError


class PythonRedisLockPeer:
    """One `redis_lock.Lock`, on the first master alone: no Redlock."""

    def __init__(self, module: str = "redis_lock") -> None:
        self._module = module

    def open(self, urls: Sequence[str], key: str) -> None:
        from redis import Redis

        self._client = Redis.from_url(urls[0])
        self._lock: Any = importlib.import_module(self._module).Lock(
            self._client, key, expire=int(TTL)
        )

    def pair(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise NotGrantedError("python-redis-lock: not granted")
        self._lock.release()

    def close(self) -> None:
        self._client.close()


class AioredlockTasks:
    """One `Aioredlock` for all tasks, and a lock with a timeout for every use."""

    def __init__(self, module: str = "aioredlock") -> None:
        self._module = module

    async def open(self, urls: Sequence[str], keys: Sequence[str]) -> None:
        library = importlib.import_module(self._module)
        self._manager: Any = library.Aioredlock(list(urls), retry_count=1)
        self._keys = keys

    async def pair(self, slot: int) -> None:
        lock = await self._manager.lock(self._keys[slot], lock_timeout=TTL)
        await self._manager.unlock(lock)

    async def close(self) -> None:
        await self._manager.destroy()
