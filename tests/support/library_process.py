"""A lock of either library, in this process or another one, behind four commands.

    python -m tests.support.library_process KIND MODULE KEY URL...

It reads lines: `take` (one try; answers True or False), `wait` (until it is ours),
`release`, and `count PATH TIMES`: read, pause and write a number so often under the
lock.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

TTL = 20  # s; more than any test takes


def count_up(counter: Path) -> None:
    """Read, pause, write: loses updates as soon as two overlap."""
    value = int(counter.read_text())
    time.sleep(0.001)  # the time in which another may read
    counter.write_text(str(value + 1))


class Held:
    """One lock on one key, whatever the library; of asyncio, on a loop of its own."""

    is_asyncio = False

    def __init__(self, module: ModuleType, key: str, urls: list[str]) -> None:
        self._loop = asyncio.new_event_loop() if self.is_asyncio else None
        self._clients: list[Any] = []
        self._lock = self.made(module, key, urls)

    def made(self, module: ModuleType, key: str, urls: list[str]) -> Any:
        raise NotImplementedError

    def run(self, result: Any) -> Any:
        return self._loop.run_until_complete(result) if self._loop else result

    def client(self, url: str) -> Any:
        import redis.asyncio

        kind: Any = redis.asyncio.Redis if self.is_asyncio else redis.Redis
        self._clients.append(kind.from_url(url))
        return self._clients[-1]

    def take(self) -> bool:
        return bool(self.run(self._lock.acquire(blocking=False)))

    def wait(self) -> bool:
        return bool(self.run(self._lock.acquire()))

    def release(self) -> None:
        self.run(self._lock.release())

    def close(self) -> None:
        for client in self._clients:
            self.run(client.aclose()) if self._loop else client.close()
        if self._loop:
            self._loop.close()

    def count(self, path: str, times: str) -> None:
        counter = Path(path)
        for _ in range(int(times)):
            while not self.take():
                time.sleep(0.002)  # no other way: these libraries poll
            count_up(counter)
            self.release()


class RedlockPy(Held):
    def made(self, module: ModuleType, key: str, urls: list[str]) -> Any:
        self._key, self._grant = key, None
        return module.Redlock(urls, retry_count=1, retry_delay=0.001)

    def take(self) -> bool:
        grant = self._lock.lock(self._key, TTL * 1000)
        self._grant = grant or self._grant
        return bool(grant)

    def release(self) -> None:
        self._lock.unlock(self._grant)


class Pottery(Held):
    """pottery: one Redlock, with a redis-py client for each master."""

    name = "Redlock"

    def made(self, module: ModuleType, key: str, urls: list[str]) -> Any:
        masters = {self.client(url) for url in urls}
        kind = getattr(module, self.name)
        return kind(key=key, masters=masters, auto_release_time=TTL)


class PotteryAsyncio(Pottery):
    is_asyncio, name = True, "AIORedlock"


class Aioredlock(Held):
    """aioredlock: a manager, and a Lock for each grant."""

    is_asyncio = True

    def made(self, module: ModuleType, key: str, urls: list[str]) -> Any:
        self._key, self._error = key, module.LockError

        async def managed() -> Any:
            return module.Aioredlock(urls, retry_count=1)

        return self.run(managed())

    def take(self) -> bool:
        try:
            self._grant = self.run(self._lock.lock(self._key, lock_timeout=TTL))
        except self._error:
            return False
        return True

    def release(self) -> None:
        self.run(self._lock.unlock(self._grant))

    def close(self) -> None:
        self.run(self._lock.destroy())
        self.run(asyncio.sleep(0.01))  # its roll-backs are tasks in the background
        super().close()


class RedisPy(Held):
    """redis-py: a Lock on one server."""

    options = {"timeout": TTL}  # noqa: RUF012

    def made(self, module: ModuleType, key: str, urls: list[str]) -> Any:
        return module.Lock(self.client(urls[0]), key, **self.options)


class RedisAsyncio(RedisPy):
    is_asyncio = True


class RedisLock(RedisPy):
    """python-redis-lock; without expiry, a waiter waits for the signal alone."""

    options = {}  # noqa: RUF012


KINDS: dict[str, type[Held]] = {
    "aioredlock": Aioredlock,
    "redlock-py": RedlockPy,
    "pottery": Pottery,
    "pottery-asyncio": PotteryAsyncio,
    "redis-py": RedisPy,
    "asyncio": RedisAsyncio,
    "redis-lock": RedisLock,
}


def main() -> None:
    kind, module, key, *urls = sys.argv[1:]
    lock = KINDS[kind](importlib.import_module(module), key, urls)
    for line in sys.stdin:
        name, *words = line.split()
        print(getattr(lock, name)(*words), flush=True)
    lock.close()


if __name__ == "__main__":
    main()
