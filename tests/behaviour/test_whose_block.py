"""Whose block it is: of a task, of a frame on this stack, or of nobody knows whom."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import redis

from fastredlock import (
    FastRedlock,
    LeaseLostError,
    ReentryError,
    ResourceTakenError,
)
from fastredlock._locking import attempt
from fastredlock._reports import log
from fastredlock.asyncio import FastRedlock as AwaitableFastRedlock
from tests.support.calls import granted
from tests.support.fixtures import blocking
from tests.support.keys import KEY, settled_values
from tests.support.waiting import stopwatch

WAYS: dict[str, Callable[[FastRedlock], Any]] = {
    "lock": lambda locks: locks.lock(KEY),
    "timeout": lambda locks: locks.lock(KEY, timeout=20),
    "reentrant": lambda locks: locks.lock(KEY, reentrant=True),
    "all": lambda locks: locks.lock_all([KEY, "other"]),
    "semaphore": lambda locks: locks.semaphore(KEY, 1),
}


@pytest.fixture(autouse=True)
def _nothing_was_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "logged", set())


@blocking
@pytest.mark.parametrize("way", WAYS)
def test_task_when_another_task_is_in_the_block_then_is_refused_at_once(
    locks: FastRedlock, caplog: pytest.LogCaptureFixture, way: str
) -> None:
    inside = 0

    async def task(lock: Any) -> str:
        nonlocal inside
        try:
            with stopwatch() as took, lock:
                inside += 1
                assert inside == 1
                await asyncio.sleep(0.05)
                inside -= 1
                return "done"
        except ReentryError as error:
            return str(error) if error.is_of_task and took() < 1 else "wrong"

    async def main() -> list[str]:
        shared = WAYS[way](locks)
        return await asyncio.gather(
            task(shared), *(task(WAYS[way](locks)) for _ in range(4))
        )

    done, *refused = asyncio.run(main())
    assert done == "done"
    for text in refused:
        assert "fastredlock.asyncio" in text
        assert "reentrant" not in text
    assert caplog.messages == [attempt.REFUSED]


@blocking
def test_task_when_it_is_in_the_block_itself_then_is_its_own_caller(
    locks: FastRedlock,
) -> None:
    async def main() -> None:
        with ExitStack() as stack:  # whatever entered it
            lease = stack.enter_context(locks.lock(KEY))
            await asyncio.sleep(0)
            with locks.lock(KEY, reentrant=True) as inner:
                assert inner is lease is locks.current(KEY)
            with pytest.raises(ReentryError, match="this caller itself"):
                locks.acquire(KEY)
            taken = asyncio.to_thread(locks.acquire, KEY, timeout=0.05)
            assert await taken is None  # a copied context proves nothing

    asyncio.run(main())


@blocking
def test_task_when_a_block_is_around_its_loop_then_is_refused(
    locks: FastRedlock,
) -> None:
    async def main() -> None:
        with pytest.raises(ReentryError, match="around the event loop"):
            locks.lock(KEY, reentrant=True).__enter__()

    with locks.lock(KEY, reentrant=True):
        asyncio.run(main())


@blocking
def test_semaphore_when_tasks_share_it_then_each_releases_its_own_slot(
    locks: FastRedlock,
) -> None:
    slots = locks.semaphore(KEY, 3)

    async def task(number: int) -> None:
        with slots as lease:
            await asyncio.sleep(0.05 * (3 - abs(number - 1)))
            assert lease.is_valid
            assert locks.current(KEY) is lease

    async def main() -> None:
        await asyncio.gather(*(task(number) for number in range(3)))

    asyncio.run(main())
    assert slots._entries is None


# As a framework runs a plain dependency with `yield`: in threads of a pool.
@blocking
@pytest.mark.parametrize("reentrant", [False, True])
def test_thread_when_another_request_has_left_it_in_a_block_then_waits(
    locks: FastRedlock, reentrant: bool
) -> None:
    def dependency() -> Iterator[None]:
        with locks.lock(KEY, timeout=10, reentrant=reentrant):
            yield

    with ThreadPoolExecutor(1) as pool, ThreadPoolExecutor(1) as elsewhere:
        first, second = dependency(), dependency()
        pool.submit(next, first).result()
        waiting = pool.submit(next, second)
        with pytest.raises(TimeoutError):
            waiting.result(timeout=0.1)
        with pytest.raises(LeaseLostError, match="in no block"):
            elsewhere.submit(locks.current, KEY).result()
        elsewhere.submit(next, first, None).result()
        waiting.result()
        elsewhere.submit(next, second, None).result()


@blocking
@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0), (2, 0, 1)])
def test_semaphore_when_generators_end_in_any_order_elsewhere_then_leave_their_own(
    locks: FastRedlock, servers: list[redis.Redis], order: tuple[int, ...]
) -> None:
    slots = locks.semaphore(KEY, 3)

    def dependency() -> Iterator[Any]:
        with slots as lease:
            yield lease

    with ThreadPoolExecutor(1) as pool, ThreadPoolExecutor(1) as elsewhere:
        held = [dependency() for _ in order]
        leases = [pool.submit(next, one).result() for one in held]
        for number, place in enumerate(order):
            elsewhere.submit(next, held[place], None).result()
            valid = [lease.is_valid for lease in leases]
            assert valid == [at not in order[: number + 1] for at in range(3)]
    assert slots._entries is None
    assert settled_values(servers, [None] * 5, f"{KEY}#0") == [None] * 5


def test_semaphore_when_generators_of_one_task_end_then_leave_their_own(
    urls: list[str],
) -> None:
    async def main() -> None:
        async with AwaitableFastRedlock(urls) as locks:
            slots = locks.semaphore(KEY, 3)

            async def dependency() -> AsyncIterator[Any]:
                async with slots as lease:
                    yield lease

            held = [dependency() for _ in range(3)]
            leases = [await anext(one) for one in held]
            assert await asyncio.create_task(asyncio.wait_for(anext(held[1], 1), 9))
            assert [lease.is_valid for lease in leases] == [True, False, True]
            assert await anext(held[0], None) is None
            assert [lease.is_valid for lease in leases] == [False, False, True]
            assert await anext(held[2], None) is None

    asyncio.run(main())


@blocking
def test_context_manager_when_it_is_a_generator_then_is_its_callers(
    locks: FastRedlock,
) -> None:
    @contextmanager
    def critical(reentrant: bool) -> Iterator[Any]:
        with locks.lock(KEY, reentrant=reentrant) as lease:
            yield lease

    @contextmanager
    def around() -> Iterator[Any]:
        with critical(True) as lease:
            yield lease

    with around() as lease:
        with critical(True) as inner, around() as again:
            assert again is inner is lease is locks.current(KEY)
        with pytest.raises(ReentryError), critical(False):
            pass
        assert lease.is_valid


@blocking
def test_acquire_when_this_thread_entered_otherwise_then_waits_and_says_so(
    locks: FastRedlock, caplog: pytest.LogCaptureFixture
) -> None:
    with ExitStack() as stack:
        lease = stack.enter_context(locks.lock(KEY))
        with pytest.raises(ResourceTakenError, match="this thread entered is still"):
            locks.lock(KEY, timeout=0.05).__enter__()
        assert caplog.messages == []
        for _ in range(2):
            release = threading.Timer(0.1, lease.release)
            release.start()
            lease = granted(locks.acquire(KEY))
        lease.release()
    assert caplog.messages == [attempt.OPEN % repr(KEY)]


@blocking
def test_acquire_when_a_generator_of_this_thread_is_in_a_block_then_names_it(
    locks: FastRedlock,
) -> None:
    def dependency() -> Iterator[None]:
        with locks.lock(KEY):
            yield

    held = dependency()
    next(held)
    with pytest.raises(ResourceTakenError, match=r"dependency\(\) is still open"):
        locks.lock(KEY, timeout=0.05).__enter__()
    assert next(held, None) is None


@blocking
def test_generator_when_it_runs_inside_its_own_block_then_is_refused(
    locks: FastRedlock,
) -> None:
    def steps() -> Iterator[None]:
        with locks.lock(KEY):
            yield
            with pytest.raises(ReentryError):
                locks.acquire(KEY)
            yield

    assert len(list(steps())) == 2
