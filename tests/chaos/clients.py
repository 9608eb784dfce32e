"""The replaced libraries behind one small face: one try, and what it tells its caller.

A client says how long the resource is ours: redlock-py by a validity; pottery and
redis-py say nothing, so their caller has to believe the ttl.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

TTL = 1.0  # s


class Held(NamedTuple):
    """A resource that is ours for `validity` s, counted from the return of the try."""

    validity: float
    release: Callable[[], object]


Try = Callable[[str], "Held | None"]


def redlock_py(urls: list[str]) -> Try:
    from redlock import MultipleRedlockException, Redlock

    locks = Redlock(urls, retry_count=1, retry_delay=0.001)

    def try_once(resource: str) -> Held | None:
        with suppress(MultipleRedlockException):
            if lock := locks.lock(resource, int(TTL * 1000)):
                return Held(lock.validity / 1000, lambda: locks.unlock(lock))
        return None

    return try_once


def pottery(urls: list[str]) -> Try:
    from pottery import Redlock
    from redis import Redis, RedisError

    masters = {Redis.from_url(url) for url in urls}

    def try_once(resource: str) -> Held | None:
        lock = Redlock(key=resource, masters=masters, auto_release_time=TTL)
        with suppress(RedisError, RuntimeError):
            if lock.acquire(blocking=False):
                return Held(TTL, lock.release)
        return None

    return try_once


def redis_py(urls: list[str]) -> Try:
    from redis import Redis, RedisError

    server = Redis.from_url(urls[0])  # its Lock knows one server

    def try_once(resource: str) -> Held | None:
        # Else the token is the thread's, and of another lock in the meantime.
        lock = server.lock(resource, timeout=TTL, blocking=False, thread_local=False)
        with suppress(RedisError):
            if lock.acquire():
                return Held(TTL, lock.release)
        return None

    return try_once


PEERS: dict[str, Callable[[list[str]], Try]] = {
    "redlock-py": redlock_py,
    "pottery": pottery,
    "redis-py": redis_py,
}
CLIENTS = ("fastredlock", *PEERS)
