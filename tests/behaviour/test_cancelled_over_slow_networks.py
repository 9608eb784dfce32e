"""Calls that are cancelled in any millisecond, behind proxies that slow each step."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from fastredlock import ReleaseStatus
from fastredlock.asyncio import FastRedlock, Lease
from tests.support.cancellation import (
    ALL,
    CUT,
    WAYS,
    How,
    Wait,
    Work,
    World,
    after_seconds,
    by_cancel,
    every_cut,
    on_each_loop,
    outcome,
    released,
    with_client,
)
from tests.support.keys import KEY
from tests.support.proxy import Proxy
from tests.support.waiting import PATIENCE


@pytest.fixture
def slow(world: World) -> Iterator[list[Proxy]]:
    """Stand five proxies before the servers, which add 3 ms each way."""
    world.lag = 0.01
    with ExitStack() as opened:
        proxies = [opened.enter_context(Proxy(url)) for url in world.urls]
        for proxy in proxies:
            proxy.set(delay=0.003)
        world.urls = [proxy.url for proxy in proxies]
        yield proxies


def every_ms(step: float = 2.0) -> Iterator[Wait]:
    at = 0.0
    while True:
        yield after_seconds(at / 1000)
        at += step


@pytest.mark.slow
@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize(
    ("call", "way"),
    [
        *((call, by_cancel) for call in ("acquire_all", "each", "lock", "release")),
        *(("acquire", way) for way in WAYS),
    ],
)
@with_client
async def test_call_when_cancelled_at_any_ms_of_slow_round_trips_then_leaves_no_key(
    world: World, client: FastRedlock, call: str, way: How
) -> None:
    async def block() -> bool:
        async with client.lock(KEY, ttl=60):
            await asyncio.sleep(0.003)
        return True

    async def each() -> object:
        leases = await client.acquire_each([KEY, "b"], ttl=60)
        return await client.release_each(leases)

    calls: dict[str, Work] = {
        "acquire": lambda: client.acquire(KEY, ttl=60),
        "acquire_all": lambda: client.acquire_all(ALL, ttl=60),
        "each": each,
        "lock": block,
    }

    async def begin() -> Work:
        if call != "release":
            return calls[call]
        lease = await client.acquire(KEY, ttl=60)
        assert lease is not None
        return lease.release

    check = world.undone(KEY, *ALL)
    await every_cut(way, begin, check, at_least=2, moments=every_ms())


@pytest.mark.slow
@pytest.mark.usefixtures("slow")
@on_each_loop
async def test_acquire_when_cancelled_in_any_ms_of_a_slow_handshake_then_leaves_no_key(
    world: World,
) -> None:
    fresh: list[FastRedlock] = []

    async def begin() -> Work:
        fresh.append(FastRedlock(world.urls))
        return lambda: fresh[-1].acquire(KEY, ttl=60)

    async def check(result: object) -> None:
        await world.undone(KEY)(result)
        await fresh.pop().close()

    async with world.other:
        await every_cut(by_cancel, begin, check, at_least=4, moments=every_ms(4))


@pytest.mark.slow
@pytest.mark.parametrize("call", ["acquire", "release", "extend"])
@on_each_loop
async def test_call_when_cancelled_while_replies_are_dropped_then_leaves_no_key(
    world: World, slow: list[Proxy], call: str
) -> None:
    # The servers have executed; the client never gets their replies.
    async with world.other:
        await world.other.connect()
        for at in (0.0, 0.004, 0.01, 0.02):
            locks = FastRedlock(world.urls)
            await locks.connect()
            lease = None
            if call != "acquire":
                lease = await locks.acquire(KEY, ttl=60)
                assert lease is not None
            for proxy in slow:
                proxy.set(drops_replies=True)
            await cut_after(at, work_of(call, locks, lease))
            for proxy in slow:
                proxy.set(drops_replies=False)
                proxy.reset()
            if call == "extend":
                assert lease is not None
                assert lease.remaining() < 60
                await released_in_the_end(lease)
            elif call == "release" and at == 0.0 and lease and lease.is_valid:
                await released_in_the_end(lease)
            # Not before each has noticed that its connection is gone.
            while locks.stats().losses < 5 or not is_ready(locks):
                await released(await locks.acquire("mine", timeout=5))
            await world.is_free(KEY)  # what was carried went with the connections
            await locks.close()


def work_of(call: str, locks: FastRedlock, lease: Lease | None) -> Work:
    if lease is None:
        return lambda: locks.acquire(KEY, ttl=60)
    return lease.release if call == "release" else lambda: lease.extend(90)


async def cut_after(delay: float, work: Work) -> None:
    """Cancel the work after a delay in s: it cannot have ended by itself."""
    task = asyncio.ensure_future(work())
    await asyncio.sleep(delay)
    await asyncio.sleep(0)
    task.cancel()
    assert await outcome(task) is CUT


def is_ready(locks: FastRedlock) -> bool:
    return {each.state.name for each in locks.health()} == {"READY"}


async def released_in_the_end(lease: Lease) -> None:
    """Release it over connections that have to be opened again."""

    async def release() -> None:
        while await lease.release() is ReleaseStatus.UNKNOWN:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    await asyncio.wait_for(release(), PATIENCE)
