"""A lease that is kept inside of its `async with`: a loss cancels that body, too."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import redis

from fastredlock import LeaseLostError
from fastredlock.asyncio import FastRedlock, Lease
from tests.support.kept_bodies import delete, lose, runner
from tests.support.keys import KEY

pytestmark = pytest.mark.slow


@pytest.fixture
def run(kind: str, urls: list[str]) -> Callable[..., Any]:
    """Return what runs a body of a FastRedlock on each kind of loop."""
    return runner(kind, urls)


Enter = Callable[[FastRedlock], Any]


async def of_lock(locks: FastRedlock) -> Any:
    return locks.lock(KEY)


async def of_lease(locks: FastRedlock) -> Any:
    return await locks.acquire(KEY)


async def of_adopted(locks: FastRedlock) -> Any:
    lease = await locks.acquire(KEY)
    assert lease is not None
    return locks.adopt(KEY, lease.token)


async def of_several(locks: FastRedlock) -> Any:
    return locks.lock_all([KEY, "other"])


@pytest.mark.parametrize("enter", [of_lock, of_lease, of_adopted, of_several])
@pytest.mark.parametrize("is_extended", [False, True])
def test_body_when_its_lease_is_kept_in_there_then_is_cancelled_as_well(
    run: Callable[..., Any],
    servers: list[redis.Redis],
    enter: Enter,
    is_extended: bool,
) -> None:
    async def body(locks: FastRedlock) -> None:
        block = await enter(locks)

        async def hold() -> None:
            async with block as lease:
                if is_extended:
                    await lease.extend(1)
                lease.keep_alive(60)
                await asyncio.sleep(0.1)
                delete(servers)
                await asyncio.sleep(6)

        with pytest.raises(LeaseLostError, match=r"'orders:42'.*: lost: "):
            await hold()
        await asyncio.sleep(0.01)  # nothing of the cancellation is left

    run(body)


def test_body_when_another_task_keeps_its_lease_then_the_body_is_cancelled(
    run: Callable[..., Any],
) -> None:
    async def body(locks: FastRedlock) -> None:
        async def keep(lease: Lease) -> None:
            lease.keep_alive()
            asyncio.get_running_loop().call_soon(lose, lease)
            await asyncio.sleep(0.1)

        async def hold() -> None:
            async with locks.lock(KEY) as lease:
                helpers.append(asyncio.create_task(keep(lease)))
                await asyncio.sleep(6)

        helpers: list[asyncio.Task[None]] = []
        with pytest.raises(LeaseLostError):
            await hold()
        await helpers[0]  # it is none of its business

    run(body)


def test_body_when_an_extension_by_hand_finds_the_key_gone_then_is_cancelled_at_once(
    run: Callable[..., Any], servers: list[redis.Redis]
) -> None:
    async def body(locks: FastRedlock) -> None:
        async def extend(lease: Lease) -> None:
            with pytest.raises(LeaseLostError):
                await lease.extend()

        async def hold() -> None:
            async with locks.lock(KEY, ttl=300, keep_alive=True) as lease:
                delete(servers)
                helpers.append(asyncio.create_task(extend(lease)))
                await asyncio.sleep(6)

        helpers: list[asyncio.Task[None]] = []
        with pytest.raises(LeaseLostError, match="expired or taken"):
            await asyncio.wait_for(hold(), 2)
        await helpers[0]

    run(body)


def test_task_when_its_lease_is_in_no_block_then_is_not_cancelled(
    run: Callable[..., Any],
) -> None:
    async def body(locks: FastRedlock) -> None:
        lease = await locks.acquire(KEY)
        assert lease is not None
        lease.keep_alive()
        assert lease._round.lease_state.watch is None  # it costs nothing either
        asyncio.get_running_loop().call_soon(lose, lease)
        assert await lease.lost.wait(5)
        await asyncio.sleep(0.1)

    run(body)


def test_nested_blocks_when_the_outer_one_is_kept_in_the_inner_then_it_is_blamed(
    run: Callable[..., Any],
) -> None:
    async def body(locks: FastRedlock) -> list[str]:
        seen: list[str] = []
        try:
            async with locks.lock("outer") as outer:
                try:
                    async with locks.lock("inner", keep_alive=True):
                        outer.keep_alive()
                        asyncio.get_running_loop().call_soon(lose, outer)
                        await asyncio.sleep(6)
                except BaseException as error:
                    seen.append(f"inner {type(error).__name__}")
                    raise
        except LeaseLostError as error:
            seen.append(f"{error.resource!s} is blamed")
        return seen

    assert run(body) == ["inner CancelledError", "outer is blamed"]
