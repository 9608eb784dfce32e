"""What the awaitable replacements share: `_shared.try_once`, to be awaited."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from .. import QuorumUnreachableError
from ._shared import is_first_failure

if TYPE_CHECKING:
    from ..asyncio import FastRedlock, Lease


async def try_once(locks: FastRedlock, name: str | bytes, ttl: float) -> Lease | None:
    """Try once; the very first try waits for connections as long as it may."""
    try:
        return await locks.acquire(name, ttl=ttl, timeout=0)
    except QuorumUnreachableError:
        if not is_first_failure(locks):
            raise
    with suppress(QuorumUnreachableError):
        await locks.connect()
    return await locks.acquire(name, ttl=ttl, timeout=0)
