"""What do locks cost a master?  Memory, connections, commands, and the gate's CPU.

One process of this bench has all clients; each client is what a process has: one
FastRedlock with a connection and a name in the queue of its own.
"""

from __future__ import annotations

import asyncio
import resource
from typing import Any

import redis

from bench.harness.options import count_of, end_with, new_parser
from bench.harness.servers import local_masters
from fastredlock import FastRedlock
from fastredlock import asyncio as awaitable

PAIRS = 1000
NAME = "orders:42"


def main() -> int:
    """Run the bench; return the exit status."""
    parser = new_parser("capacity", __doc__)
    add = parser.add_argument
    add("--locks", type=count_of, default=20_000, help="held at the same time")
    add("--readers", type=count_of, default=1000, help="who share one lock")
    add("--waiting", type=count_of, default=1000, help="processes that wait for one")
    add("--seconds", type=float, default=10.0, help="for which they wait")
    options = parser.parse_args()
    least = 2 * options.waiting + 200
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < least:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(least, hard), hard))
    with local_masters(1) as (url,), redis.Redis.from_url(url) as server:
        with FastRedlock([url]) as locks:
            held_by(locks, server, options.locks)
            commands_of(locks, server)
            for count in (1, 100, options.readers):
                read_by(locks, server, count)
        asyncio.run(waiting(url, server, options.waiting, options.seconds))
    return 0


def figures(server: redis.Redis) -> dict[str, Any]:
    told: Any = server.info()
    names = "used_memory", "connected_clients", "total_commands_processed"
    cpu = told["used_cpu_user"] + told["used_cpu_sys"]
    return {name: told[name] for name in names} | {"cpu": cpu}


def held_by(locks: FastRedlock, server: redis.Redis, count: int) -> None:
    before = figures(server)
    locks.acquire("first").release()  # type: ignore[union-attr]
    connected = figures(server)
    leases = locks.acquire_each([f"{NAME}:{n}" for n in range(count)], ttl=600)
    assert all(leases)
    grown = figures(server)["used_memory"] - connected["used_memory"]
    connections = connected["connected_clients"] - before["connected_clients"]
    print(f"{connections} connection of a process to each master")
    print(f"{grown / count:.0f} bytes of a master's memory for each lock that is held")
    locks.release_each(leases)


def commands_of(locks: FastRedlock, server: redis.Redis) -> None:
    before = figures(server)
    for _ in range(PAIRS):
        with locks.lock(NAME):
            pass
    after = figures(server)
    name = "total_commands_processed"
    count = (after[name] - before[name] - 1) / PAIRS  # the INFO
    print(
        f"{count:.1f} commands on each master for a lock and its release,"
        " those inside of scripts counted"
    )
    cpu = (after["cpu"] - before["cpu"]) / PAIRS
    print(f"{cpu * 1e6:.0f} us of a master's CPU for them")


def read_by(locks: FastRedlock, server: redis.Redis, count: int) -> None:
    leases = [locks.acquire(NAME, shared=True, ttl=600) for _ in range(count)]
    assert all(leases)
    bytes_each = (server.memory_usage(NAME, samples=0) or 0) / count
    server.config_resetstat()
    for _ in range(PAIRS):
        with locks.lock(NAME, shared=True):
            pass
    told: Any = server.info("commandstats")
    calls = told["cmdstat_evalsha"]["calls"]
    each_us = told["cmdstat_evalsha"]["usec"] / PAIRS
    assert calls >= 2 * PAIRS
    print(
        f"{bytes_each:.0f} bytes of a master's memory for each of {count:,} readers;"
        f" one more, and its release: {each_us:.0f} us of its CPU"
    )
    for lease in leases:
        lease.release()  # type: ignore[union-attr]


async def waiting(url: str, server: redis.Redis, count: int, seconds: float) -> None:
    holder = awaitable.FastRedlock([url])
    before = figures(server)
    clients = [awaitable.FastRedlock([url]) for _ in range(count)]
    for each in clients:
        await each.connect()
    lease = await holder.acquire(NAME, ttl=600)
    assert lease is not None
    grown = (figures(server)["used_memory"] - before["used_memory"]) / count
    print(f"{grown:.0f} bytes of a master's memory for each connection")
    tasks = [asyncio.create_task(each.acquire(NAME)) for each in clients]
    queue = f"fastredlock:queue:{NAME}"
    while server.zcard(queue) < count:  # noqa: ASYNC110  # the server has no event
        await asyncio.sleep(0.1)
    begun = figures(server)
    await asyncio.sleep(seconds)
    after = figures(server)
    place = (server.memory_usage(queue, samples=0) or 0) / count
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await lease.release()
    for each in (holder, *clients):
        await each.close()
    print(f"{place:.0f} bytes of the gate's memory for each place in the queue")
    name = "total_commands_processed"
    rate = (after[name] - begun[name]) / seconds
    cpu = (after["cpu"] - begun["cpu"]) / seconds
    print(
        f"{rate:,.0f} commands/s, {cpu:.1%} of a core of the gate for {count:,} of them"
    )


if __name__ == "__main__":
    end_with(main, "capacity")
