"""Bodies of an `async with` whose lease is kept, and what takes it away."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import redis

from fastredlock import LeaseLostError
from fastredlock.asyncio import FastRedlock, Lease
from tests.support.awaited import run_on
from tests.support.keys import KEY

TTL = 0.6  # s
LONGEST = 5.0  # s


def runner(kind: str, urls: list[str]) -> Callable[..., Any]:
    """Return what runs a body of a FastRedlock on a loop of this kind.

    Bodies sleep for longer than they may take: a loss has to cancel that.
    """

    def run(body: Callable[[FastRedlock], Any]) -> Any:
        async def main() -> Any:
            async with FastRedlock(urls, ttl=TTL) as locks:
                began = time.monotonic()
                result = await body(locks)
                assert time.monotonic() - began < LONGEST, "nothing was cancelled"
                return result

        return run_on(kind, main())

    return run


def delete(servers: list[redis.Redis], key: str = KEY) -> None:
    """Take the key away from all masters."""
    for server in servers:
        server.delete(key)


def lose(lease: Lease) -> None:
    """Let its keeper tell the loss in this moment."""
    lease._round.lease_state.kept.lose(LeaseLostError(lease.resource, "lost: a test"))
