"""Decorated functions, on real masters: one call at a time, on every driver."""

from __future__ import annotations

import asyncio

import pytest
import redis

from fastredlock import FastRedlock, ResourceTakenError
from fastredlock.asyncio import FastRedlock as AwaitableFastRedlock
from tests.support.awaited import run_on
from tests.support.fixtures import MakeLocks, blocking
from tests.support.keys import KEY, NOBODY, settled_values
from tests.support.threads import in_threads


@blocking
def test_function_when_many_threads_call_it_then_runs_once_at_a_time(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    inside, total = 0, 0

    @locks.lock(KEY, ttl=20)
    def work() -> None:
        nonlocal inside, total
        inside += 1
        assert inside == 1
        total += 1
        inside -= 1

    in_threads([lambda: [work() for _ in range(10)]] * 8)
    assert total == 80
    assert settled_values(servers, NOBODY) == NOBODY


@blocking
def test_function_when_it_runs_elsewhere_then_raises_and_is_not_called(
    locks: FastRedlock, make_locks: MakeLocks, urls: list[str]
) -> None:
    @locks.lock(lambda order, **_: f"orders:{order}", timeout=0)
    def ship(order: int, *, by: str) -> str:
        return f"{order} by {by}"

    with make_locks(urls).lock("orders:42"):
        with pytest.raises(ResourceTakenError, match="'orders:42'"):
            ship(42, by="rail")
        assert ship(7, by="sea") == "7 by sea"
    assert ship(42, by="rail") == "42 by rail"


@blocking
def test_function_when_it_calls_itself_with_no_time_to_wait_then_is_taken(
    locks: FastRedlock,
) -> None:
    @locks.lock(KEY, timeout=0)
    def again(times: int) -> int:
        return times and again(times - 1)

    assert again(0) == 0
    with pytest.raises(ResourceTakenError, match="this caller itself in this process"):
        again(1)


def test_coroutine_function_when_many_tasks_call_it_then_runs_once_at_a_time(
    kind: str, urls: list[str], servers: list[redis.Redis]
) -> None:
    async def main() -> None:
        async with AwaitableFastRedlock(urls, ttl=20) as locks:
            inside = 0

            class Account:
                @locks.lock(lambda self, amount: f"{KEY}:{amount % 2}")
                async def pay(self, amount: int) -> int:
                    nonlocal inside
                    inside += 1
                    assert inside <= 2
                    await asyncio.sleep(0)
                    inside -= 1
                    return amount

            account = Account()
            paid = await asyncio.gather(*(account.pay(i) for i in range(60)))
            assert paid == [*range(60)]

    run_on(kind, main())
    for name in (f"{KEY}:0", f"{KEY}:1"):
        assert settled_values(servers, NOBODY, name) == NOBODY


def test_coroutine_function_when_cancelled_then_releases(
    kind: str, urls: list[str], servers: list[redis.Redis]
) -> None:
    async def main() -> None:
        async with AwaitableFastRedlock(urls, ttl=20) as locks:
            began = asyncio.Event()

            @locks.lock(KEY)
            async def wait() -> None:
                began.set()
                await asyncio.sleep(60)

            task = asyncio.create_task(wait())
            await began.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    run_on(kind, main())
    assert settled_values(servers, NOBODY) == NOBODY
