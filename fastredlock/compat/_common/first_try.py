"""The first try of a FastRedlock: it waits for connections longer than others do.

One try waits for them no longer than for a round, which is too short for the very first
one with a ttl of some ms.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

from ... import FastRedlock, Lease, QuorumUnreachableError

if TYPE_CHECKING:
    from ... import asyncio as awaitable

T = TypeVar("T")

_tried: WeakSet[Any] = WeakSet()  # every FastRedlock whose first try has failed


def try_once(locks: FastRedlock, name: str | bytes, ttl: float) -> Lease | None:
    """Try once to take the lock; raises as `acquire` does."""
    try:
        return locks.acquire(name, ttl=ttl, timeout=0)
    except QuorumUnreachableError:
        if not _is_first_failure(locks):
            raise
    with suppress(QuorumUnreachableError):
        locks.connect()
    return locks.acquire(name, ttl=ttl, timeout=0)


async def try_once_awaited(
    locks: awaitable.FastRedlock, name: str | bytes, ttl: float
) -> awaitable.Lease | None:
    """Try once to take the lock; raises as `acquire` does."""
    return await patiently(locks, lambda: locks.acquire(name, ttl=ttl, timeout=0))


async def patiently(
    locks: awaitable.FastRedlock, attempt: Callable[[], Awaitable[T]]
) -> T:
    """Await one attempt; repeat it once connected, if it is the first to fail."""
    try:
        return await attempt()
    except QuorumUnreachableError:
        if not _is_first_failure(locks):
            raise
    with suppress(QuorumUnreachableError):
        await locks.connect()
    return await attempt()


def _is_first_failure(locks: object) -> bool:
    is_first = locks not in _tried
    _tried.add(locks)
    return is_first
