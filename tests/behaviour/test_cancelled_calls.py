"""A with block, a release, an extension, a connect or a close that is cancelled.

After each cancellation: CancelledError came out, the keys are gone, others can take the
lock, and the client's next replies are its own.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from fastredlock import FastRedlockError, LeaseLostError, ReleaseStatus, Vote
from fastredlock._locking.validity import extensions_of
from fastredlock.asyncio import FastRedlock, Lease
from tests.support.awaited import run_on
from tests.support.cancellation import (
    CUT,
    QUICK_WAYS,
    How,
    SiblingError,
    Work,
    World,
    after_turns,
    always,
    by_cancel,
    every_cut,
    on_each_loop,
    outcome,
    released,
    with_client,
)
from tests.support.keys import KEY, NOBODY, settled_values

# --- the with block -------------------------------------------------------------------


@pytest.mark.parametrize("way", QUICK_WAYS)
@with_client
async def test_lock_when_cancelled_at_any_turn_then_leaves_no_key(
    world: World, client: FastRedlock, way: How
) -> None:
    seen: list[str] = []

    async def block() -> bool:
        async with client.lock(KEY, ttl=60) as lease:
            seen.append("body")
            assert lease.is_valid
            await after_turns(3)()
            seen.append("leaving")
        seen.append("left")
        return True

    await every_cut(way, always(block), world.undone(KEY))
    assert seen.count("body") >= seen.count("leaving") >= seen.count("left") > 0


@with_client
async def test_lock_when_cancelled_leaving_on_an_error_then_cancellation_comes_out(
    world: World, client: FastRedlock
) -> None:
    async def block() -> bool:
        with suppress(SiblingError):
            async with client.lock(KEY, ttl=60):
                raise SiblingError
        return True

    await every_cut(by_cancel, always(block), world.undone(KEY))


# --- release --------------------------------------------------------------------------


@pytest.mark.parametrize("way", QUICK_WAYS)
@with_client
async def test_release_when_cancelled_once_begun_then_still_releases(
    world: World, client: FastRedlock, way: How
) -> None:
    lease: Lease | None = None
    has_begun = False

    async def release() -> ReleaseStatus:
        nonlocal has_begun
        assert lease is not None
        has_begun = True
        return await lease.release()

    async def begin() -> Work:
        nonlocal lease, has_begun
        has_begun = False
        lease = await client.acquire(KEY, ttl=60)
        return release

    async def check(result: Any) -> None:
        assert lease is not None
        assert result in (CUT, ReleaseStatus.RELEASED)
        assert lease.is_valid is not has_begun
        if not has_begun:  # a task that is cancelled before it runs does not
            await released(lease)
        await world.is_free(KEY)
        assert await lease.release() in (
            ReleaseStatus.RELEASED if result is not CUT else ReleaseStatus.GONE,
            ReleaseStatus.GONE,
        )

    await every_cut(way, begin, check)


@with_client
async def test_release_when_cancelled_again_and_again_then_still_releases(
    world: World, client: FastRedlock
) -> None:
    for first in range(4):
        lease = await client.acquire(KEY, ttl=60)
        assert lease is not None
        task = asyncio.ensure_future(lease.release())
        await after_turns(1 + first)()
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0)
        assert await outcome(task) in (CUT, ReleaseStatus.RELEASED)
        again = asyncio.ensure_future(lease.release())
        await asyncio.sleep(0)
        again.cancel()
        await outcome(again)
        await world.is_free(KEY)


@pytest.mark.parametrize("limit", [None, 0])
@pytest.mark.parametrize("call", ["release", "release_each"])
@with_client
async def test_release_when_cancelled_before_its_first_step_then_still_releases(
    world: World, client: FastRedlock, call: str, limit: int | None
) -> None:
    """Seen: the last tasks of a loop that ends left their keys for the ttl."""
    lease = await client.acquire(KEY, ttl=60)
    assert lease is not None
    task: asyncio.Future[Any] = asyncio.ensure_future(
        lease.release() if call == "release" else client.release_each([lease])
    )
    if limit is None:
        task.cancel()
    with pytest.raises((asyncio.TimeoutError, asyncio.CancelledError)):
        await asyncio.wait_for(task, limit)
    assert not lease.is_valid
    await world.is_free(KEY)


# --- extend and the other calls -------------------------------------------------------


@pytest.mark.parametrize("way", QUICK_WAYS)
@with_client
async def test_extend_when_cancelled_at_any_turn_then_lease_counts_on_the_earlier_end(
    world: World, client: FastRedlock, way: How
) -> None:
    lease: Lease | None = None

    async def begin() -> Work:
        nonlocal lease
        held = lease = await client.acquire(KEY, ttl=20)
        assert held is not None
        return lambda: held.extend(60)

    async def check(result: Any) -> None:
        assert lease is not None
        assert (lease.remaining() > 50) is (result is not CUT)
        assert lease.is_valid
        least = 1000 * lease.remaining() if result is CUT else 0
        # The quorum was enough for the extension: the others may still be on their way.
        assert sorted(each.pttl(KEY) for each in world.servers)[2] > least
        assert await lease.extend(30) > 25  # the cancelled one is in no way
        await released(lease)
        await world.is_free(KEY)

    await every_cut(way, begin, check)


@pytest.mark.parametrize("way", QUICK_WAYS)
@with_client
async def test_extend_each_when_cancelled_at_any_turn_then_bounds_no_later_one(
    world: World, client: FastRedlock, way: How
) -> None:
    leases: list[Lease | None] = []

    async def begin() -> Work:
        leases[:] = await client.acquire_each(["a", "b"], ttl=20)
        return lambda: client.extend_each(leases, 60)

    async def check(result: Any) -> None:
        for lease in leases:
            assert lease is not None
            assert (lease.remaining() > 50) is (result is not CUT)
            assert not extensions_of(lease).under_way
        assert min(left or 0 for left in await client.extend_each(leases, 30)) > 25
        assert await client.release_each(leases) == [ReleaseStatus.RELEASED] * 2
        await world.is_free("a")
        await world.is_free("b")

    await every_cut(way, begin, check)


@with_client
async def test_extend_when_cancelled_and_the_key_is_lost_then_says_so_next(
    world: World, client: FastRedlock
) -> None:
    lease = await client.acquire(KEY, ttl=20)
    assert lease is not None
    task = asyncio.ensure_future(lease.extend())
    await asyncio.sleep(0)
    task.cancel()
    assert await outcome(task) is CUT
    for server in world.servers:
        server.delete(KEY)
    with pytest.raises(LeaseLostError):
        await lease.extend()


@with_client
async def test_holders_when_cancelled_at_any_turn_then_the_next_reads_its_own_replies(
    world: World, client: FastRedlock
) -> None:
    lease = await client.acquire(KEY, ttl=60)
    assert lease is not None
    await world.until([lease.token] * 5)

    async def check(_: object) -> None:
        votes = await client.holders(KEY)
        assert [vote.vote for vote in votes] == [Vote.TAKEN] * 5

    await every_cut(by_cancel, always(lambda: client.holders("nobodys")), check)
    await released(lease)


@pytest.mark.parametrize("call", ["connect", "close"])
@on_each_loop
async def test_connections_when_cancelled_at_any_turn_then_are_as_usable_or_all_closed(
    world: World, call: str
) -> None:
    fresh: list[FastRedlock] = []

    async def begin() -> Work:
        fresh.append(FastRedlock(world.urls))
        if call == "close":
            await released(await fresh[-1].acquire(KEY, ttl=60))
            return fresh[-1].close
        return fresh[-1].connect

    async def check(result: Any) -> None:
        locks = fresh.pop()
        if call == "close" and result is not CUT:
            with pytest.raises(FastRedlockError, match="closed"):
                await locks.acquire(KEY, timeout=0)
        else:
            # One that was cancelled in its last wait has closed all the same.
            with suppress(FastRedlockError):
                await released(await locks.acquire(KEY, ttl=60))
        await locks.close()
        await world.until(NOBODY)

    await every_cut(by_cancel, begin, check)


@on_each_loop
async def test_close_when_calls_are_under_way_then_each_is_told_and_no_key_is_left(
    world: World,
) -> None:
    for turns in (0, 1, 2, 5, 20):
        locks = FastRedlock(world.urls)
        tasks = [
            asyncio.ensure_future(locks.acquire(f"r{i}", ttl=60)) for i in range(5)
        ]
        await after_turns(turns)()
        await locks.close()
        for i, task in enumerate(tasks):
            await asyncio.wait([task])
            if task.exception() is None:
                lease = task.result()
                assert lease is not None
                await world.until([lease.token] * 5, f"r{i}")
                for server in world.servers:
                    server.delete(f"r{i}")
            else:
                assert isinstance(task.exception(), FastRedlockError)
                await world.until(NOBODY, f"r{i}")


@pytest.mark.parametrize("linger", [0, 30])
def test_close_when_cancelled_in_its_first_step_then_the_loops_end_leaves_no_key(
    kind: str, world: World, linger: float
) -> None:
    names = [f"k{i}" for i in range(4)]

    async def main(turns: int) -> None:
        locks = FastRedlock(world.urls, ttl=60, linger=linger)
        for _ in range(3):  # from the second time on the key rests
            await released(await locks.acquire("rests"))
        tasks = [asyncio.ensure_future(locks.acquire(name)) for name in names]
        await after_turns(turns)()
        with suppress(TimeoutError):
            async with asyncio.timeout(0):
                await locks.close()
        for task in tasks:
            task.cancel()
        leases = await asyncio.gather(*tasks, return_exceptions=True)
        for lease in leases:
            if isinstance(lease, Lease):
                await released(lease)
        await locks.close()

    for turns in (1, 2, 3) * 4:
        run_on(kind, main(turns))
        for name in ("rests", *names):
            assert settled_values(world.servers, NOBODY, name) == NOBODY
