"""Bodies of an `async with` whose lease is kept, and what takes it away."""

from __future__ import annotations

import asyncio

from fastredlock import LeaseLostError
from fastredlock.asyncio import Lease

TTL = 0.6  # s
LONGEST = 5.0  # s


async def until_cancelled() -> None:
    """Sleep for longer than a test may take: something has to cancel that."""
    await asyncio.sleep(2 * LONGEST)


def lose(lease: Lease) -> None:
    """Let its keeper tell the loss in this moment."""
    lease._round.lease_state.lose(LeaseLostError(lease.resource, "lost: a test"))
