"""The contestants written in Python, each set up as its own README recommends.

A pair is an acquire and the release of one lock that nobody else wants.  Every pair
checks what it can see of its result and raises when it is not a success, so that no
failure is ever timed.  Every contestant parses with hiredis where it can: redis-py
does so of its own accord when hiredis is installed.  Libraries are imported by
`open()`, so that a missing one costs only its own row.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from collections.abc import Sequence
from typing import Any, Protocol

TTL = 10.0
TTL_MS = 10_000


class Peer(Protocol):
    """One contestant, inside the process that is measured."""

    def open(self, urls: Sequence[str], key: str) -> None:
        """Build the client for these masters and this lock; do not time it."""

    def pair(self) -> None:
        """Acquire and release once; raise when either did not succeed."""

    def close(self) -> None:
        """Close the client's connections."""


class NotGrantedError(RuntimeError):
    """A free lock was not granted, or not released: the figures would be worthless."""


class FastRedlockPeer:
    """One `FastRedlock` for the life of the process, one try per acquire."""

    def open(self, urls: Sequence[str], key: str) -> None:
        from fastredlock import FastRedlock, ReleaseStatus

        self._locks = FastRedlock(urls, ttl=TTL)
        self._locks.connect()
        self._key = key
        self._released = ReleaseStatus.RELEASED

    def pair(self) -> None:
        lease = self._locks.acquire(self._key, timeout=0)
        if lease is None:
            raise NotGrantedError("fastredlock: not granted")
        status = lease.release()
        if status is not self._released:
            raise NotGrantedError(f"fastredlock: {status}")

    def close(self) -> None:
        self._locks.close()


class RedlockPyPeer:
    """One `redlock.Redlock` for the life of the process, clients from URLs.

    Its `unlock` swallows errors; the next `lock` of the same key then fails, and that
    is seen, because there is one try only.
    """

    def __init__(self, module: str = "redlock") -> None:
        self._module = module

    def open(self, urls: Sequence[str], key: str) -> None:
        from redis import Redis

        self._clients = [Redis.from_url(url) for url in urls]
        self._manager: Any = importlib.import_module(self._module).Redlock(
            self._clients, retry_count=1, retry_delay=0.001
        )
        self._key = key

    def pair(self) -> None:
        lock = self._manager.lock(self._key, TTL_MS)
        if not lock:
            raise NotGrantedError("redlock-py: not granted")
        self._manager.unlock(lock)

    def close(self) -> None:
        for client in self._clients:
            client.close()


class PotteryPeer:
    """One pottery `Redlock` for the life of the process: cheaper than one per use."""

    def __init__(self, module: str = "pottery") -> None:
        self._module = module

    def open(self, urls: Sequence[str], key: str) -> None:
        from redis import Redis

        self._clients = [Redis.from_url(url) for url in urls]
        self._lock: Any = importlib.import_module(self._module).Redlock(
            key=key, masters=set(self._clients), auto_release_time=TTL
        )

    def pair(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise NotGrantedError("pottery: not granted")
        self._lock.release()

    def close(self) -> None:
        for client in self._clients:
            client.close()


class RedisPyPeer:
    """redis-py's own `Lock`, on the first master alone: no Redlock, one round trip."""

    def __init__(self, module: str = "redis.lock") -> None:
        self._module = module

    def open(self, urls: Sequence[str], key: str) -> None:
        from redis import Redis

        lock_class = importlib.import_module(self._module).Lock
        self._client = Redis.from_url(urls[0])
        self._lock: Any = self._client.lock(key, timeout=TTL, lock_class=lock_class)

    def pair(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise NotGrantedError("redis-py: not granted")
        self._lock.release()

    def close(self) -> None:
        self._client.close()


PEERS: dict[str, type[Peer]] = {
    "fastredlock": FastRedlockPeer,
    "redis-py": RedisPyPeer,
    "redlock-py": RedlockPyPeer,
    "pottery": PotteryPeer,
}
FLOOR = "floor"
CONTROL = "control"  # a second floor: how far it is from the first is the run's noise
CONTESTANTS = (FLOOR, *PEERS)  # the order of play: what is compared closest is adjacent

# name: what the reader of a table sees
LABELS = {
    FLOOR: "floor (C)",
    "fastredlock": "fastredlock",
    "redis-py": "redis-py Lock (1 master)",
    "redlock-py": "redlock-py",
    "pottery": "pottery Redlock",
}
# contestant: its module, its distribution
_PACKAGES = {
    "fastredlock": ("fastredlock", "fastredlock"),
    "redis-py": ("redis", "redis"),
    "redlock-py": ("redlock", "redlock-py"),
    "pottery": ("pottery", "pottery"),
}


def is_installed(contestant: str) -> bool:
    """Tell whether a contestant can play; the floor always can, it is compiled."""
    if contestant == FLOOR:
        return True
    return importlib.util.find_spec(_PACKAGES[contestant][0]) is not None


def version_of(contestant: str) -> str:
    """Return the installed version of a contestant's library."""
    return distribution_version(_PACKAGES[contestant][1])


def distribution_version(name: str) -> str:
    """Return the installed version of a distribution, or say that it is none."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "(source tree)"
