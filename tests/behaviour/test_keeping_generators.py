"""An async generator that holds a kept lock: what its consumer gets at a loss."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
import redis

from fastredlock import LeaseLostError
from fastredlock.asyncio import FastRedlock
from tests.support.kept_bodies import delete, runner
from tests.support.keys import KEY

pytestmark = pytest.mark.slow


@pytest.fixture
def run(kind: str, urls: list[str]) -> Callable[..., Any]:
    """Return what runs a body of a FastRedlock on each kind of loop."""
    return runner(kind, urls)


async def items(locks: FastRedlock, pause: float = 0) -> AsyncIterator[int]:
    """Yield numbers under a lock that is kept."""
    async with locks.lock(KEY, keep_alive=True):
        for number in range(3):
            await asyncio.sleep(pause if number else 0)
            yield number


def is_left_alone() -> bool:
    """Say that nothing is left of a cancellation."""
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling() == 0


async def consume(locks: FastRedlock, servers: list[redis.Redis]) -> None:
    """Work for each number, and lose the lease at the first."""
    async with aclosing(items(locks)) as numbers:  # type: ignore[type-var]
        async for _ in numbers:
            delete(servers)
            await asyncio.sleep(6)


def test_consumer_when_it_closes_its_generator_then_gets_lease_lost_error(
    run: Callable[..., Any], servers: list[redis.Redis]
) -> None:
    async def body(locks: FastRedlock) -> None:
        with pytest.raises(LeaseLostError, match=r"'orders:42'.*: lost: ") as raised:
            await consume(locks, servers)
        assert isinstance(raised.value.__cause__, GeneratorExit)
        assert is_left_alone()
        await asyncio.sleep(0.01)

    run(body)


def test_consumer_when_the_generator_itself_waits_then_gets_lease_lost_error(
    run: Callable[..., Any], servers: list[redis.Redis]
) -> None:
    async def body(locks: FastRedlock) -> None:
        async def consume() -> None:
            async for _ in items(locks, pause=6):
                delete(servers)

        with pytest.raises(LeaseLostError):
            await consume()
        assert is_left_alone()

    run(body)


def test_block_when_its_context_manager_is_a_generator_then_gets_lease_lost_error(
    run: Callable[..., Any], servers: list[redis.Redis]
) -> None:
    async def body(locks: FastRedlock) -> None:
        @asynccontextmanager
        async def holding() -> AsyncIterator[None]:
            async with locks.lock(KEY, keep_alive=True):
                yield

        async def work() -> None:
            async with holding():
                delete(servers)
                await asyncio.sleep(6)

        with pytest.raises(LeaseLostError):
            await work()
        assert is_left_alone()

    run(body)


def test_consumer_when_it_leaves_its_generator_open_then_its_error_names_the_lease(
    run: Callable[..., Any], servers: list[redis.Redis]
) -> None:
    async def body(locks: FastRedlock) -> None:
        numbers: Any = items(locks)

        async def consume() -> None:
            async for _ in numbers:
                delete(servers)
                await asyncio.sleep(6)

        with pytest.raises(asyncio.CancelledError, match="the lease of 'orders:42'"):
            await consume()
        with pytest.raises(LeaseLostError):  # whoever closes it gets the reason
            await numbers.aclose()
        assert is_left_alone()

    run(body)


def test_consumer_when_cancelled_by_another_as_well_then_stays_cancelled(
    run: Callable[..., Any], servers: list[redis.Redis]
) -> None:
    async def body(locks: FastRedlock) -> None:
        async def consume() -> None:
            async with aclosing(items(locks)) as numbers:  # type: ignore[type-var]
                async for _ in numbers:
                    delete(servers)
                    try:
                        await asyncio.sleep(6)
                    finally:
                        task.cancel()

        task = asyncio.create_task(consume())
        with pytest.raises(asyncio.CancelledError):
            await task

    run(body)


def test_consumer_when_it_breaks_off_a_generator_that_holds_then_nothing_is_raised(
    run: Callable[..., Any],
) -> None:
    async def body(locks: FastRedlock) -> None:
        async with aclosing(items(locks)) as numbers:  # type: ignore[type-var]
            async for _ in numbers:
                break
        async with locks.lock(KEY, timeout=0):
            pass

    run(body)
