"""Thousands of tasks at once, on real masters: none is the price of the others."""

from __future__ import annotations

import asyncio
from time import process_time
from uuid import uuid4

import pytest
import redis

from fastredlock.asyncio import FastRedlock

CROWD = 10_000


async def acquire_all_at_once(locks: FastRedlock) -> float:
    """Let each of a crowd take a lock of its own; return the CPU time of it (s)."""
    run = uuid4().hex
    began = process_time()
    leases = await asyncio.gather(
        *[locks.acquire(f"{run}:{i}", timeout=30) for i in range(CROWD)]
    )
    assert all(leases)
    return process_time() - began


@pytest.mark.slow
def test_acquire_when_a_crowd_begins_without_connections_then_it_costs_no_more(
    urls: list[str], servers: list[redis.Redis]
) -> None:
    # 20,000 tasks with a timeout of 1 s: 13,052 were unreachable on five healthy
    # masters, because to wait for connections took 2.8 s of CPU (issue 27, D).
    async def check() -> None:
        async with FastRedlock(urls, ttl=60, round_timeout=20) as locks:
            cold = await acquire_all_at_once(locks)
            connected = await acquire_all_at_once(locks)
            for server in servers:
                server.client_kill_filter(_type="normal", skipme=True)
            after_an_outage = await acquire_all_at_once(locks)
        assert cold < 3 * connected
        assert after_an_outage < 3 * connected

    asyncio.run(check())
