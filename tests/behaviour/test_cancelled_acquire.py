"""An acquire that is cancelled at any step leaves no key behind.

After each cancellation: CancelledError came out, the keys are gone, others can take the
lock, and the client's next replies are its own.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import Any

import pytest

from fastredlock import QuorumUnreachableError, ReleaseStatus, ResourceTakenError
from fastredlock.asyncio import FastRedlock
from tests.support.cancellation import (
    ALL,
    CUT,
    QUICK_WAYS,
    How,
    Work,
    World,
    after_turns,
    always,
    by_cancel,
    every_cut,
    on_each_loop,
    outcome,
    released,
    strides,
    with_client,
)
from tests.support.keys import KEY, NOBODY, set_all


@pytest.mark.parametrize("way", QUICK_WAYS)
@with_client
async def test_acquire_when_cancelled_at_any_turn_then_leaves_no_key(
    world: World, client: FastRedlock, way: How
) -> None:
    work = always(lambda: client.acquire(KEY, ttl=60))
    await every_cut(way, work, world.undone(KEY))


@on_each_loop
async def test_acquire_when_cancelled_while_it_connects_then_leaves_no_key(
    world: World,
) -> None:
    fresh: list[FastRedlock] = []

    async def begin() -> Work:
        fresh.append(FastRedlock(world.urls))
        return lambda: fresh[-1].acquire(KEY, ttl=60)

    async def check(result: Any) -> None:
        await world.undone(KEY)(result)
        await fresh[-1].connect()
        await fresh.pop().close()

    async with world.other:
        await every_cut(by_cancel, begin, check, at_least=3)


@with_client
async def test_acquire_when_others_hold_it_and_cancelled_then_theirs_stands(
    world: World, client: FastRedlock
) -> None:
    theirs: list[bytes | None] = [b"theirs", b"theirs", b"theirs", None, None]

    async def check(result: Any) -> None:
        assert result is CUT or result is None
        await world.until(theirs)

    set_all(world.servers[:3], b"theirs")
    work = always(lambda: client.acquire(KEY, ttl=60, timeout=0.02))
    rare = map(after_turns, strides(step=7))
    await every_cut(by_cancel, work, check, at_least=5, moments=rare)
    for server in world.servers:
        server.delete(KEY)


@on_each_loop
async def test_acquire_when_too_few_answer_and_cancelled_then_it_is_told(
    world: World,
) -> None:
    dead = [f"redis://127.0.0.1:{port}" for port in (1, 2, 3)]
    async with FastRedlock([*world.urls[:2], *dead]) as locks:

        async def acquire() -> bool:
            with suppress(QuorumUnreachableError):
                await locks.acquire(KEY, ttl=60, timeout=0.02)
            return True

        async def check(_: object) -> None:
            await world.until(NOBODY)

        rare = map(after_turns, strides(step=7))
        await every_cut(by_cancel, always(acquire), check, at_least=3, moments=rare)


@pytest.mark.parametrize("way", QUICK_WAYS)
@with_client
async def test_acquire_all_when_cancelled_at_any_turn_then_leaves_no_key(
    world: World, client: FastRedlock, way: How
) -> None:
    work = always(lambda: client.acquire_all(ALL, ttl=60))
    await every_cut(way, work, world.undone(*ALL))


@pytest.mark.parametrize("count", [3, 300])
@with_client
async def test_each_when_cancelled_at_any_turn_then_leaves_no_key(
    world: World, client: FastRedlock, count: int
) -> None:
    keys = [f"r{i}" for i in range(count)]

    async def pair() -> bool:
        leases = await client.acquire_each(keys, ttl=60)
        statuses = await client.release_each(leases)
        return set(statuses) == {ReleaseStatus.RELEASED}

    async def check(result: Any) -> None:
        assert result is CUT or result is True
        await world.is_free(*keys[:: count // 3])

    await every_cut(by_cancel, always(pair), check)
    for key in keys:
        await world.until(NOBODY, key)


@with_client
async def test_acquire_when_cancelled_with_the_reply_read_then_what_was_won_is_undone(
    world: World, client: FastRedlock
) -> None:
    # The future is done and the task does not know yet: cancel() cannot reach it.
    before = client.stats()
    task = asyncio.ensure_future(client.acquire(KEY, ttl=60))
    while client.stats().won == before.won:  # noqa: ASYNC110
        await asyncio.sleep(0)
    task.cancel()
    if await outcome(task) is CUT:
        assert client.stats().rolled_back == before.rolled_back + 1
    else:
        await released(task.result())
    await world.is_free(KEY)


@with_client
async def test_acquires_when_many_share_a_write_and_half_are_cancelled_then_half_hold(
    world: World, client: FastRedlock
) -> None:
    for turns in range(6):
        tasks = [
            asyncio.ensure_future(client.acquire(f"r{i}", ttl=60)) for i in range(40)
        ]
        await after_turns(turns)()
        for task in tasks[::2]:
            task.cancel()
        leases = [await outcome(task) for task in tasks]
        assert CUT not in leases[1::2]
        held = {f"r{i}": each for i, each in enumerate(leases) if each != CUT}
        for i in range(40):
            lease = held.get(f"r{i}")
            await world.until([lease and lease.token] * 5, f"r{i}")
        await asyncio.gather(*[released(lease) for lease in held.values()])


@pytest.mark.slow
@with_client
async def test_tasks_when_cancelled_at_random_for_a_second_then_no_key_is_left(
    world: World, client: FastRedlock
) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    draw = random.Random(seed)

    async def use(key: str) -> None:
        while True:
            with suppress(ResourceTakenError):
                async with client.lock(key, ttl=60, timeout=0.01) as lease:
                    await lease.extend(50)
            await asyncio.sleep(0)

    ended = asyncio.get_running_loop().time() + 1
    tasks: list[asyncio.Task[None]] = []
    while asyncio.get_running_loop().time() < ended:
        while len(tasks) < 30:
            tasks.append(asyncio.ensure_future(use(draw.choice(ALL))))
        await asyncio.sleep(draw.random() / 500)
        for _ in range(10):
            tasks.pop(draw.randrange(len(tasks))).cancel()
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    await world.is_free(*ALL)
