"""A lock of either library, in this process or another one, behind three commands.

    python -m tests.support.library_process KIND MODULE KEY URL...

It reads lines: `take` (one try; answers True or False), `release`, and `count PATH
TIMES`: read, pause and write a number so often under the lock.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

TTL = 20  # s; more than any test takes


class Held(Protocol):
    """One lock on one key, whatever the library."""

    def take(self) -> bool: ...

    def release(self) -> None: ...

    def close(self) -> None: ...


class RedlockPy:
    """redlock-py: a manager, and a Lock for each grant."""

    def __init__(self, module: ModuleType, key: str, urls: list[str]) -> None:
        self._manager = module.Redlock(urls, retry_count=1, retry_delay=0.001)
        self._key = key
        self._lock: Any = None

    def take(self) -> bool:
        lock = self._manager.lock(self._key, TTL * 1000)
        self._lock = lock or self._lock
        return bool(lock)

    def release(self) -> None:
        self._manager.unlock(self._lock)

    def close(self) -> None:
        pass


class Pottery:
    """pottery: one Redlock, with a redis-py client for each master."""

    def __init__(self, module: ModuleType, key: str, urls: list[str]) -> None:
        from redis import Redis

        self._clients = set(map(Redis.from_url, urls))
        self._lock = module.Redlock(
            key=key, masters=self._clients, auto_release_time=TTL
        )

    def take(self) -> bool:
        return bool(self._lock.acquire(blocking=False))

    def release(self) -> None:
        self._lock.release()

    def close(self) -> None:
        for client in self._clients:
            client.close()


class PotteryAsyncio:
    """pottery: one AIORedlock, with a client of redis.asyncio for each master."""

    def __init__(self, module: ModuleType, key: str, urls: list[str]) -> None:
        from redis.asyncio import Redis

        self._loop = asyncio.new_event_loop()
        self._run = self._loop.run_until_complete
        self._clients = set(map(Redis.from_url, urls))
        self._lock = module.AIORedlock(
            key=key, masters=self._clients, auto_release_time=TTL
        )

    def take(self) -> bool:
        return bool(self._run(self._lock.acquire(blocking=False)))

    def release(self) -> None:
        self._run(self._lock.release())

    def close(self) -> None:
        for client in self._clients:
            self._run(client.aclose())
        self._loop.close()


class Aioredlock:
    """aioredlock: a manager, and a Lock for each grant."""

    def __init__(self, module: ModuleType, key: str, urls: list[str]) -> None:
        self._loop = asyncio.new_event_loop()
        self._run = self._loop.run_until_complete
        self._error = module.LockError
        self._manager = self._run(self._managed(module, urls))
        self._key = key
        self._lock: Any = None

    async def _managed(self, module: ModuleType, urls: list[str]) -> Any:
        return module.Aioredlock(urls, retry_count=1)

    def take(self) -> bool:
        try:
            self._lock = self._run(self._manager.lock(self._key, lock_timeout=TTL))
        except self._error:
            return False
        return True

    def release(self) -> None:
        self._run(self._manager.unlock(self._lock))

    def close(self) -> None:
        self._run(self._manager.destroy())
        self._run(asyncio.sleep(0.01))  # its roll-backs are tasks in the background
        self._loop.close()


KINDS: dict[str, Any] = {
    "aioredlock": Aioredlock,
    "redlock-py": RedlockPy,
    "pottery": Pottery,
    "pottery-asyncio": PotteryAsyncio,
}


def count(lock: Held, path: Path, times: int) -> None:
    """Read, pause, write: loses updates as soon as two processes overlap."""
    for _ in range(times):
        while not lock.take():
            time.sleep(0.002)
        value = int(path.read_text())
        time.sleep(0.001)
        path.write_text(str(value + 1))
        lock.release()


def main() -> None:
    kind, module, key, *urls = sys.argv[1:]
    lock: Held = KINDS[kind](importlib.import_module(module), key, urls)
    for line in sys.stdin:
        match line.split():
            case ["take"]:
                print(lock.take(), flush=True)
            case ["release"]:
                print(lock.release(), flush=True)
            case ["count", path, times]:
                print(count(lock, Path(path), int(times)), flush=True)
    lock.close()


if __name__ == "__main__":
    main()
