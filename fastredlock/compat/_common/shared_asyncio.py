"""What the awaitable replacements share: `_shared.try_once`, to be awaited."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from ... import QuorumUnreachableError
from .shared import is_first_failure

if TYPE_CHECKING:
    from ...asyncio import FastRedlock, Lease

T = TypeVar("T")


async def try_once(locks: FastRedlock, name: str | bytes, ttl: float) -> Lease | None:
    """Try once; the very first try waits for connections as long as it may."""
    return await patiently(locks, lambda: locks.acquire(name, ttl=ttl, timeout=0))


async def patiently(locks: FastRedlock, attempt: Callable[[], Awaitable[T]]) -> T:
    """Do what tries once; the very first one waits for connections as it may."""
    try:
        return await attempt()
    except QuorumUnreachableError:
        if not is_first_failure(locks):
            raise
    with suppress(QuorumUnreachableError):
        await locks.connect()
    return await attempt()
