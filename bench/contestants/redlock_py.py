"""redlock-py: one `Redlock` for all threads, over one client per master."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from bench.contestants.base import (
    THREADS,
    TTL_MS,
    Contestant,
    NotGrantedError,
    Replacement,
    threads,
)


class Blocking:
    """Locks by one manager.

    Its `unlock` swallows errors; the next `lock` of the same key then fails, and that
    is seen, because there is one try only.
    """

    def __init__(self, module: str) -> None:
        self._module = module

    def open(self, urls: Sequence[str], keys: Sequence[str]) -> None:
        from redis import Redis

        self._clients = [Redis.from_url(url) for url in urls]
        self._manager: Any = importlib.import_module(self._module).Redlock(
            self._clients, retry_count=1, retry_delay=0.001
        )
        self._keys = keys

    def pair(self, slot: int) -> None:
        lock = self._manager.lock(self._keys[slot], TTL_MS)
        if not lock:
            raise NotGrantedError("redlock-py: not granted")
        self._manager.unlock(lock)

    def close(self) -> None:
        for client in self._clients:
            client.close()


_new_blocking = threads(Blocking)

MANY_THREADS = Contestant(
    "redlock-py", _new_blocking, "redlock", "thread", THREADS, ("redlock-py",)
)
REPLACEMENTS = {
    "redlock-py": Replacement(
        "redlock-py",
        "redlock-py",
        _new_blocking,
        theirs="redlock",
        ours="fastredlock.compat.redlock",
        wanted={1: 5.0},
    )
}
