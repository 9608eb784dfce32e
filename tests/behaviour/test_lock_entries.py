"""One lock object for many: entered by threads and tasks, by each for itself."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from fastredlock import (
    FastRedlock,
    FastRedlockError,
    LeaseLostError,
    ResourceTakenError,
)
from fastredlock.asyncio import FastRedlock as AwaitableFastRedlock
from tests.support.awaited import run_on
from tests.support.fixtures import blocking
from tests.support.keys import KEY, NOBODY, settled_values
from tests.support.threads import in_threads

NOBODYS = (None, None, None)


@blocking
def test_lock_when_many_threads_enter_it_then_one_at_a_time_is_inside(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    lock = locks.lock(KEY, ttl=20)
    inside, total = 0, 0

    def work() -> None:
        nonlocal inside, total
        for _ in range(20):
            with lock as lease:
                inside += 1
                assert inside == 1
                assert lease.is_valid
                total += 1
                inside -= 1

    in_threads([work] * 8)
    assert total == 160
    assert settled_values(servers, NOBODY) == NOBODY


def test_lock_when_many_tasks_enter_it_then_one_at_a_time_is_inside(
    kind: str, urls: list[str], servers: list[redis.Redis]
) -> None:
    async def main() -> int:
        async with AwaitableFastRedlock(urls) as locks:
            lock = locks.lock(KEY, ttl=20)
            inside = total = 0

            async def work() -> None:
                nonlocal inside, total
                for _ in range(20):
                    async with lock as lease:
                        inside += 1
                        assert inside == 1
                        await asyncio.sleep(0)
                        assert lease.is_valid
                        total += 1
                        inside -= 1

            await asyncio.gather(*(work() for _ in range(8)))
            return total

    assert run_on(kind, main()) == 160
    assert settled_values(servers, NOBODY) == NOBODY


def test_lock_when_the_first_task_has_lost_it_then_each_leaves_its_own(
    kind: str, urls: list[str], servers: list[redis.Redis]
) -> None:
    async def main() -> None:
        async with AwaitableFastRedlock(urls) as locks:
            lock, is_lost, may_leave = locks.lock(KEY), asyncio.Event(), asyncio.Event()

            async def lose() -> None:
                async with lock:
                    for server in servers:
                        server.flushall()
                    is_lost.set()
                    await may_leave.wait()

            first = asyncio.create_task(lose())
            await is_lost.wait()
            async with lock as lease:
                may_leave.set()
                with pytest.raises(LeaseLostError):
                    await first
                assert await lease.extend() > 0

    run_on(kind, main())


def test_lock_when_left_by_a_task_without_an_entry_then_is_refused_where_two_have_one(
    kind: str, urls: list[str], servers: list[redis.Redis]
) -> None:
    async def main() -> None:
        async with AwaitableFastRedlock(urls) as locks:
            lock = locks.lock(KEY)

            async def leave() -> None:
                await lock.__aexit__(*NOBODYS)

            for _ in range(2):
                await asyncio.create_task(lock.__aenter__())
                for server in servers:
                    server.flushall()
            gc.collect()  # both tasks are gone, and a later one may be at an address
            with pytest.raises(FastRedlockError, match="2 others did"):
                await asyncio.create_task(leave())

    run_on(kind, main())


def test_lock_when_entered_inside_itself_then_waits_and_is_refused(
    locks: FastRedlock,
) -> None:
    lock = locks.lock(KEY, timeout=0)
    with lock as lease:
        with pytest.raises(ResourceTakenError), lock:
            pass
        assert lease.is_valid
    with lock as lease:
        assert lease.is_valid


@blocking
def test_lock_when_a_generator_ends_on_another_thread_then_is_released(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    lock = locks.lock(KEY, ttl=60)

    def dependency() -> Iterator[bytes]:
        with lock as lease:
            yield lease.token

    with ThreadPoolExecutor(1) as first, ThreadPoolExecutor(1) as second:
        held = dependency()
        token = first.submit(next, held).result()
        assert settled_values(servers, [token] * 5) == [token] * 5
        second.submit(next, held, None).result()
    assert settled_values(servers, NOBODY) == NOBODY
    assert lock._entries is None


def test_lock_when_an_async_generator_ends_in_another_task_then_is_released(
    kind: str, urls: list[str], servers: list[redis.Redis]
) -> None:
    async def main() -> None:
        async with AwaitableFastRedlock(urls) as locks:
            lock = locks.lock(KEY, ttl=60)

            async def dependency() -> AsyncIterator[bytes]:
                async with lock as lease:
                    yield lease.token

            held = dependency()

            async def step() -> bytes | None:
                return await anext(held, None)

            assert await asyncio.create_task(step()) is not None
            assert await asyncio.create_task(step()) is None
            assert lock._entries is None

    run_on(kind, main())
    assert settled_values(servers, NOBODY) == NOBODY


def test_lock_when_a_task_is_cancelled_while_it_enters_then_has_no_entry(
    kind: str, urls: list[str]
) -> None:
    async def main() -> None:
        async with AwaitableFastRedlock(urls) as locks:
            lock = locks.lock(KEY, ttl=60)
            async with lock:
                waiting = asyncio.create_task(lock.__aenter__())
                await asyncio.sleep(0.05)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
            assert lock._entries is None
            async with lock as lease:
                assert lease.is_valid

    run_on(kind, main())
