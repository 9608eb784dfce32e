"""Each library as the callers of one lock: wait until it is ours, give it back.

With the defaults of each, as its README shows them; all callers of a process share one
client, and have a lock each where locks are objects. An acquire has no time limit: the
process has one (`crew`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from bench.contestants.base import NotGrantedError, first_missing

ASYNCIO = "asyncio"
OURS = "fastredlock"


class Caller(NamedTuple):
    """The calls of one thread; `release` gets what `acquire` returned."""

    acquire: Callable[[], Any]
    release: Callable[[Any], object]


class AwaitingCaller(NamedTuple):
    """The calls of one task."""

    acquire: Callable[[], Awaitable[Any]]
    release: Callable[[Any], Awaitable[object]]


Open = Callable[[Sequence[str], str, int, float], list[Caller]]  # ..., callers, ttl


@dataclass(frozen=True, slots=True)
class Library:
    """A blocking library; one of `one_master` uses the first alone."""

    label: str
    open: Open
    module: str = "fastredlock"
    distribution: str = "fastredlock"
    one_master: bool = False

    def missing(self) -> str | None:
        """Return the module if it is not there, or None."""
        return first_missing((self.module,))


def open_tasks(
    urls: Sequence[str], key: str, callers: int, ttl: float
) -> list[AwaitingCaller]:
    """Return the tasks' calls of one awaitable `FastRedlock`."""
    from fastredlock import ReleaseStatus
    from fastredlock.asyncio import FastRedlock

    locks = FastRedlock(urls, ttl=ttl)

    async def release(lease: Any) -> None:
        _check(await lease.release() is ReleaseStatus.RELEASED)

    return [AwaitingCaller(lambda: locks.acquire(key), release)] * callers


def _fastredlock(
    urls: Sequence[str], key: str, callers: int, ttl: float
) -> list[Caller]:
    from fastredlock import FastRedlock, ReleaseStatus

    locks = FastRedlock(urls, ttl=ttl)
    locks.connect()
    released = ReleaseStatus.RELEASED

    def release(lease: Any) -> None:
        _check(lease.release() is released)

    return [Caller(lambda: locks.acquire(key), release)] * callers


def _redis_py(urls: Sequence[str], key: str, callers: int, ttl: float) -> list[Caller]:
    from redis import Redis

    client = Redis.from_url(urls[0])
    return [_of_object(client.lock(key, timeout=ttl)) for _ in range(callers)]


def _python_redis_lock(
    urls: Sequence[str], key: str, callers: int, ttl: float
) -> list[Caller]:
    import redis_lock  # type: ignore[import-untyped, unused-ignore]
    from redis import Redis

    client = Redis.from_url(urls[0])
    return [
        _of_object(redis_lock.Lock(client, key, expire=int(ttl)))
        for _ in range(callers)
    ]


def _pottery(urls: Sequence[str], key: str, callers: int, ttl: float) -> list[Caller]:
    from pottery import Redlock
    from redis import Redis

    masters = {Redis.from_url(url) for url in urls}
    return [
        _of_object(Redlock(key=key, masters=masters, auto_release_time=ttl))
        for _ in range(callers)
    ]


def _redlock_py(
    urls: Sequence[str], key: str, callers: int, ttl: float
) -> list[Caller]:
    from redis import Redis
    from redlock import Redlock

    manager = Redlock([Redis.from_url(url) for url in urls])

    def acquire() -> Any:
        while not (lock := manager.lock(key, int(ttl * 1000))):
            pass  # it gave up after three tries of 0.2 s each
        return lock

    return [Caller(acquire, manager.unlock)] * callers


def _of_object(lock: Any) -> Caller:
    return Caller(lambda: _check(lock.acquire()), lambda _: lock.release())


def _check(is_granted: bool) -> None:
    if not is_granted:
        raise NotGrantedError("not granted, or not released")


LIBRARIES = {
    OURS: Library("fastredlock", _fastredlock),
    "redis-py": Library(
        "redis-py Lock", _redis_py, "redis.lock", "redis", one_master=True
    ),
    "python-redis-lock": Library(
        "python-redis-lock",
        _python_redis_lock,
        "redis_lock",
        "python-redis-lock",
        one_master=True,
    ),
    "pottery": Library("pottery Redlock", _pottery, "pottery", "pottery"),
    "redlock-py": Library("redlock-py", _redlock_py, "redlock", "redlock-py"),
}
