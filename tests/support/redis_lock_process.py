"""A Lock of redis-py's kin in a process of its own, told what to do line by line.

    python -m tests.support.redis_lock_process KIND MODULE KEY URL

It reads `take` (one try), `wait` (until it is ours) and `release`, and answers with
the result.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
from types import ModuleType
from typing import Any

import redis
import redis.asyncio

TTL = 20  # s; more than any test takes


class RedisPy:
    def __init__(self, module: ModuleType, key: str, url: str) -> None:
        self.lock: Any = module.Lock(redis.Redis.from_url(url), key, timeout=TTL)

    def take(self) -> Any:
        return self.lock.acquire(blocking=False)

    def wait(self) -> Any:
        return self.lock.acquire()

    def release(self) -> Any:
        return self.lock.release()


class RedisAsyncio:
    def __init__(self, module: ModuleType, key: str, url: str) -> None:
        self.loop = asyncio.new_event_loop()
        client = redis.asyncio.Redis.from_url(url)
        self.lock: Any = module.Lock(client, key, timeout=TTL)

    def take(self) -> Any:
        return self.loop.run_until_complete(self.lock.acquire(blocking=False))

    def wait(self) -> Any:
        return self.loop.run_until_complete(self.lock.acquire())

    def release(self) -> Any:
        return self.loop.run_until_complete(self.lock.release())


class RedisLock(RedisPy):
    def __init__(self, module: ModuleType, key: str, url: str) -> None:
        # Without expiry, as by default: a waiter then waits for the signal alone.
        self.lock = module.Lock(redis.Redis.from_url(url), key)


KINDS = {"redis-py": RedisPy, "asyncio": RedisAsyncio, "redis-lock": RedisLock}


def main() -> None:
    kind, module, key, url = sys.argv[1:]
    lock: Any = KINDS[kind](importlib.import_module(module), key, url)
    for line in sys.stdin:
        print(getattr(lock, line.strip())(), flush=True)


if __name__ == "__main__":
    main()
