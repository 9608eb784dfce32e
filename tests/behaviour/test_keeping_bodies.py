"""The body of an `async with` is cancelled where its lease is lost."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import redis

from fastredlock import LeaseLostError
from fastredlock.asyncio import FastRedlock, Lease
from tests.support.awaited import run_on
from tests.support.kept_bodies import TTL, delete, lose, runner
from tests.support.keys import KEY, NOBODY, settled_values

pytestmark = pytest.mark.slow


@pytest.fixture
def run(kind: str, urls: list[str]) -> Callable[..., Any]:
    """Return what runs a body of a FastRedlock on each kind of loop."""
    return runner(kind, urls)


def test_body_when_its_lease_is_lost_then_is_cancelled_and_the_block_says_why(
    run: Callable[..., Any], servers: list[redis.Redis]
) -> None:
    async def body(locks: FastRedlock) -> list[object]:
        seen: list[object] = []
        try:
            async with locks.lock(KEY, keep_alive=True) as lease:
                delete(servers)
                try:
                    await asyncio.sleep(6)
                except asyncio.CancelledError:
                    seen += ["cancelled", lease.lost.is_set()]
                    raise
        except LeaseLostError as error:
            seen += [type(error.__cause__).__name__, str(error)]
        await asyncio.sleep(0.01)  # nothing of the cancellation is left
        return seen

    seen = run(body)
    assert seen[:3] == ["cancelled", True, "CancelledError"]
    assert "expired or " in seen[3]


def test_lease_when_it_is_entered_itself_then_its_body_is_cancelled_as_well(
    run: Callable[..., Any], servers: list[redis.Redis]
) -> None:
    async def body(locks: FastRedlock) -> None:
        lease = await locks.acquire(KEY, keep_alive=True)
        assert lease is not None

        async def hold() -> None:
            async with lease:
                delete(servers)
                await asyncio.sleep(6)

        with pytest.raises(LeaseLostError):
            await hold()

    run(body)


def test_body_when_cancelled_by_another_then_that_leaves_the_block_and_frees_the_lock(
    run: Callable[..., Any], servers: list[redis.Redis]
) -> None:
    async def body(locks: FastRedlock) -> None:
        async def hold() -> None:
            async with locks.lock(KEY, keep_alive=True):
                await asyncio.sleep(6)

        task = asyncio.create_task(hold())
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(body)
    assert settled_values(servers, NOBODY) == NOBODY


@pytest.mark.parametrize("is_first", [True, False], ids=["before", "after"])
def test_body_when_cancelled_by_another_as_well_then_stays_cancelled(
    run: Callable[..., Any], servers: list[redis.Redis], is_first: bool
) -> None:
    async def body(locks: FastRedlock) -> None:
        held: list[Lease] = []

        async def hold() -> None:
            async with locks.lock(KEY, keep_alive=True) as lease:
                held.append(lease)
                await asyncio.sleep(6)

        task = asyncio.create_task(hold())
        await asyncio.sleep(0.1)
        cancellations: list[Callable[[], object]] = [task.cancel, lambda: lose(held[0])]
        for cancel in cancellations if is_first else cancellations[::-1]:
            cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(body)


def test_clients_when_made_per_call_then_nothing_is_left_behind_a_kept_lease(
    kind: str, urls: list[str]
) -> None:
    async def body() -> None:
        before = len(os.listdir("/proc/self/fd"))
        for i in range(20):
            locks = FastRedlock(urls, ttl=600)
            async with locks.lock(f"{KEY}{i}", keep_alive=True):
                pass
            del locks
        await asyncio.sleep(0.2)
        assert len(os.listdir("/proc/self/fd")) - before < 10

    run_on(kind, body())


def test_loss_when_the_release_of_a_frozen_loop_sees_it_first_then_is_told_once(
    run: Callable[..., Any],
) -> None:
    async def body(locks: FastRedlock) -> None:
        told: list[LeaseLostError] = []
        lease = await locks.acquire(
            KEY, keep_alive=True, on_lost=lambda _, error: told.append(error)
        )
        assert lease is not None
        time.sleep(1.1 * TTL)  # noqa: ASYNC251
        await lease.release()
        await asyncio.sleep(0.1)
        assert (len(told), lease.lost.is_set()) == (1, True)

    run(body)


@pytest.mark.parametrize("lost", ["outer", "inner", "outer inner", "inner outer"])
def test_nested_blocks_when_one_is_lost_then_that_one_is_blamed(
    run: Callable[..., Any], lost: str
) -> None:
    async def body(locks: FastRedlock) -> list[str]:
        seen: list[str] = []
        try:
            async with locks.lock("outer", keep_alive=True) as outer:
                leases = {"outer": outer}
                try:
                    async with locks.lock("inner", keep_alive=True) as inner:
                        leases["inner"] = inner
                        loop = asyncio.get_running_loop()
                        for name in lost.split():
                            loop.call_soon(lose, leases[name])
                        await asyncio.sleep(6)
                except BaseException as error:
                    seen.append(f"inner {type(error).__name__}")
                    raise
        except LeaseLostError as error:
            seen.append(f"{error.resource!s} is blamed")
        return seen

    expected = ["inner LeaseLostError", "inner is blamed"]
    if "outer" in lost:
        expected = ["inner CancelledError", "outer is blamed"]
    assert run(body) == expected


def test_block_inside_a_timeout_when_the_timeout_ends_then_that_is_raised(
    run: Callable[..., Any],
) -> None:
    async def body(locks: FastRedlock) -> None:
        async def hold() -> None:
            async with locks.lock(KEY, keep_alive=True):
                await asyncio.sleep(6)

        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(hold(), 0.2)

    run(body)


def test_body_when_it_ends_by_an_error_of_its_own_then_that_stands(
    run: Callable[..., Any],
) -> None:
    async def body(locks: FastRedlock) -> None:
        async def hold() -> None:
            async with locks.lock(KEY, keep_alive=True) as lease:
                asyncio.get_running_loop().call_soon(lose, lease)
                try:
                    await asyncio.sleep(6)
                except asyncio.CancelledError:
                    raise ValueError("its own") from None

        with pytest.raises(ValueError, match="its own"):
            await hold()
        await asyncio.sleep(0.01)

    run(body)


def test_body_when_it_swallows_the_cancellation_then_leaving_says_so(
    run: Callable[..., Any],
) -> None:
    async def body(locks: FastRedlock) -> None:
        async def hold() -> None:
            async with locks.lock(KEY, keep_alive=True) as lease:
                asyncio.get_running_loop().call_soon(lose, lease)
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(6)

        with pytest.raises(LeaseLostError):
            await hold()
        await asyncio.sleep(0.01)

    run(body)


def test_tasks_when_many_hold_kept_leases_then_no_task_or_timer_is_left(
    run: Callable[..., Any],
) -> None:
    async def body(locks: FastRedlock) -> None:
        async def hold(i: int) -> None:
            async with locks.lock(f"{KEY}:{i}", keep_alive=True) as lease:
                await asyncio.sleep(2 * TTL)
                lease.check()

        await asyncio.gather(*(hold(i) for i in range(200)))
        assert len(asyncio.all_tasks()) == 1

    run(body)


def test_wait_when_awaited_by_a_watcher_then_tells_the_loss(
    run: Callable[..., Any], servers: list[redis.Redis]
) -> None:
    async def body(locks: FastRedlock) -> None:
        lease = await locks.acquire(KEY, keep_alive=True)
        assert lease is not None
        assert not await lease.lost.wait(0.05)
        watcher = asyncio.create_task(lease.lost.wait())
        await asyncio.sleep(0)
        delete(servers)
        assert await asyncio.wait_for(watcher, 5)
        assert lease.lost.is_set()

    run(body)


def test_loop_when_closed_with_a_kept_lease_then_another_begins_anew(
    kind: str, urls: list[str], servers: list[redis.Redis]
) -> None:
    locks = FastRedlock(urls, ttl=TTL)

    async def take() -> Lease:
        lease = await locks.acquire(KEY, keep_alive=True)
        assert lease is not None
        await asyncio.sleep(TTL)
        assert lease.is_valid
        return lease

    first = run_on(kind, take())
    assert settled_values(servers, NOBODY) == NOBODY
    assert first.lost.is_set()
    second = run_on(kind, take())

    async def close() -> None:
        await second.release()
        await locks.close()

    run_on(kind, close())


def test_function_when_its_lease_is_lost_then_is_cancelled_and_raises(
    run: Callable[..., Any], servers: list[redis.Redis]
) -> None:
    async def body(locks: FastRedlock) -> None:
        @locks.lock(lambda name: f"{KEY}:{name}", keep_alive=True)
        async def work(name: str) -> None:
            delete(servers, f"{KEY}:{name}")
            await asyncio.sleep(6)

        with pytest.raises(LeaseLostError, match="orders:42:a"):
            await work("a")

    run(body)


def test_block_of_several_when_kept_then_outlives_the_ttl(
    run: Callable[..., Any],
) -> None:
    async def body(locks: FastRedlock) -> None:
        lock = locks.lock_all(["a", "b"], keep_alive=True)
        for _ in range(2):  # each entry has a lease of its own
            async with lock as lease:
                await asyncio.sleep(2 * TTL)
                lease.check()

    run(body)
