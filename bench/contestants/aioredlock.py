"""aioredlock: one `Aioredlock` for all tasks, and a lock with a timeout per use."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from bench.contestants.base import TTL, Replacement, tasks


class Awaited:
    """Locks by one manager, which raises where one is not granted."""

    def __init__(self, module: str) -> None:
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


REPLACEMENTS = {
    "aioredlock": Replacement(
        "aioredlock",
        "aioredlock",
        tasks(Awaited),
        theirs="aioredlock",
        ours="fastredlock.compat.aioredlock",
        wanted={1: 2.0},
    )
}
