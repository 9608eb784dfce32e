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


def commands_done(servers: list[redis.Redis]) -> int:
    """Count what the busiest of the servers was sent so far."""
    names = ("cmdstat_set", "cmdstat_evalsha", "cmdstat_eval")
    figures = [server.info("commandstats") for server in servers]
    return max(
        sum(int(of_one.get(name, {}).get("calls", 0)) for name in names)
        for of_one in figures
    )


async def cost(servers: list[redis.Redis], seconds: float) -> tuple[int, float]:
    """Return how many commands a server is sent in this time, and our CPU time (s)."""
    commands, cpu = commands_done(servers), process_time()
    await asyncio.sleep(seconds)
    return commands_done(servers) - commands, process_time() - cpu


@pytest.mark.slow
def test_waiters_when_idle_on_many_resources_then_cost_little_and_hear_of_releases(
    urls: list[str], servers: list[redis.Redis]
) -> None:
    # 5,000 took half a core, and sent 30,000 commands per second to each of the masters
    # (issue 27, G).
    names = [f"{uuid4().hex}:{i}" for i in range(1000)]

    async def check() -> None:
        async with FastRedlock(urls, ttl=60) as holder, FastRedlock(urls) as locks:
            held = await holder.acquire_each(names)
            waiters = [asyncio.create_task(locks.acquire(name)) for name in names]
            async with asyncio.timeout(30):  # until all are in their queues
                while (await cost(servers, 1))[0] > 12 or locks.stats().waits < 1000:
                    pass
            commands, cpu = await cost(servers, 4)
            assert commands <= 4 * 12  # 4 x 10, and what begins or ends in this time
            assert cpu < 4 * 0.1
            for server in servers:  # as a client that tells nobody
                server.delete(*names[:10])
            await asyncio.wait_for(asyncio.gather(*waiters[:10]), 10)
            await holder.release_each([lease for lease in held[10:] if lease])
            leases = await asyncio.wait_for(asyncio.gather(*waiters), 10)
            assert all(leases)

    asyncio.run(check())
