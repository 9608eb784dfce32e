"""Blocks inside blocks of the same resource and caller: refused, or joined."""

from __future__ import annotations

import asyncio
import pickle
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import pytest
import redis

from fastredlock import (
    ConfigurationError,
    FastRedlock,
    LeaseLostError,
    ReentryError,
    ResourceTakenError,
)
from fastredlock.asyncio import FastRedlock as AwaitableFastRedlock
from tests.support.calls import granted
from tests.support.fixtures import MakeLocks, blocking
from tests.support.keys import KEY, settled_values
from tests.support.threads import in_threads
from tests.support.waiting import stopwatch, wait_until

OTHER = "orders:43"
ENTRIES = {
    "lock": lambda locks: locks.lock(KEY, ttl=20),
    "kept": lambda locks: locks.lock(KEY, ttl=2, keep_alive=True),
    "all": lambda locks: locks.lock_all([KEY, OTHER], ttl=20),
    "lease": lambda locks: granted(locks.acquire(KEY, ttl=20)),
}
CALLS = {
    "acquire": lambda locks: locks.acquire(KEY),
    "timeout": lambda locks: locks.acquire(KEY, timeout=20),
    "all": lambda locks: locks.acquire_all([OTHER, KEY]),
    "lock": lambda locks: locks.lock(KEY).__enter__(),
}


# --- refused --------------------------------------------------------------------------


@blocking
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("entry", ENTRIES)
def test_acquire_when_inside_of_a_block_of_its_caller_then_is_refused_at_once(
    locks: FastRedlock, servers: list[redis.Redis], entry: str, call: str
) -> None:
    with ENTRIES[entry](locks) as lease:
        with stopwatch() as took, pytest.raises(ReentryError, match=KEY) as caught:
            CALLS[call](locks)
        assert took() < 1.0
        assert 0.0 < caught.value.held < 5.0
        assert "reentrant=True" in str(caught.value)
        assert pickle.loads(pickle.dumps(caught.value)).held == caught.value.held
        assert lease.is_valid
        assert locks.acquire(KEY, timeout=0) is None
    assert settled_values(servers, [None] * len(servers)) == [None] * len(servers)
    granted(locks.acquire(KEY)).release()


@blocking
def test_acquire_when_inside_of_a_block_under_a_key_prefix_then_is_refused(
    make_locks: MakeLocks, urls: list[str]
) -> None:
    locks = make_locks(urls, key_prefix="shop:")
    with locks.lock(KEY), pytest.raises(ReentryError):
        locks.acquire(KEY, timeout=5)


@blocking
def test_acquire_when_the_block_was_left_or_its_lease_released_then_is_not_refused(
    locks: FastRedlock,
) -> None:
    with locks.lock(KEY) as lease:
        lease.release()
        with locks.lock(KEY):
            pass
    with pytest.raises(ZeroDivisionError), locks.lock(KEY):
        raise ZeroDivisionError
    assert not locks._driver.entered
    granted(locks.acquire(KEY)).release()


@blocking
def test_acquire_when_the_validity_of_the_block_is_over_then_waits(
    locks: FastRedlock,
) -> None:
    outer = locks.lock(KEY, ttl=0.3)
    lease = outer.__enter__()
    assert wait_until(lambda: not lease.is_valid)
    with locks.lock(KEY, timeout=5):
        pass
    with pytest.raises(LeaseLostError):
        outer.__exit__(None, None, None)


@blocking
def test_acquire_of_several_when_others_hold_one_and_its_caller_another_then_is_refused(
    locks: FastRedlock,
) -> None:
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with locks.lock("a"):
            entered.set()
            leave.wait(10)

    with ThreadPoolExecutor(1) as pool:
        holding = pool.submit(hold)
        assert entered.wait(10)
        with locks.lock("b"), pytest.raises(ReentryError):
            locks.acquire_all(["a", "b"], timeout=5)
        leave.set()
        holding.result()


@blocking
def test_acquire_when_another_thread_is_in_the_block_then_waits_and_has_its_name(
    locks: FastRedlock,
) -> None:
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with locks.lock(KEY):
            entered.set()
            leave.wait(10)

    with ThreadPoolExecutor(1) as pool:
        holding = pool.submit(hold)
        assert entered.wait(10)
        with pytest.raises(ResourceTakenError, match="another caller in this process"):
            locks.lock(KEY, timeout=0.05).__enter__()
        threading.Timer(0.05, leave.set).start()
        granted(locks.acquire(KEY, timeout=10)).release()
        holding.result()


def test_task_when_inside_of_its_own_block_then_is_refused_and_a_child_waits(
    urls: list[str],
) -> None:
    async def main() -> None:
        async with AwaitableFastRedlock(urls, ttl=20) as locks:
            for is_lock in (True, False):
                lease: Any = None if is_lock else await locks.acquire(KEY)
                async with locks.lock(KEY) if is_lock else lease:
                    with pytest.raises(ReentryError):
                        await locks.acquire(KEY)
                    with pytest.raises(ReentryError):
                        async with locks.lock(KEY):
                            pass
                    child = asyncio.create_task(locks.acquire(KEY))
                    await asyncio.sleep(0.05)
                lease = await child
                await lease.release()

    asyncio.run(main())


# --- joined ---------------------------------------------------------------------------


@blocking
def test_reentrant_lock_when_entered_inside_then_has_the_lease_of_the_outermost(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    lock = locks.lock(KEY, ttl=20, reentrant=True)
    before = locks.stats().acquires.won
    with lock as outer:
        for inner in (lock, locks.lock(KEY, reentrant=True)):
            with inner as lease, inner as again:
                assert lease is again is outer
            assert outer.is_valid
        assert servers[0].exists(KEY)
    assert settled_values(servers, [None] * len(servers)) == [None] * len(servers)
    assert locks.stats().acquires.won - before == 1
    assert not locks._driver.entered


@blocking
def test_reentrant_lock_when_more_ttl_is_asked_for_then_extends(
    locks: FastRedlock,
) -> None:
    with locks.lock(KEY, ttl=2, reentrant=True) as lease:
        with locks.lock(KEY, ttl=1, reentrant=True):
            assert lease.remaining() < 2
        with locks.lock(KEY, ttl=30, reentrant=True):
            assert lease.remaining() > 20
        with locks.lock(KEY, keep_alive=True, ttl=1, reentrant=True):
            pass
        assert lease._round.lease_state.kept is not None


@blocking
def test_reentrant_lock_when_its_inner_body_raises_then_the_outermost_still_holds(
    locks: FastRedlock,
) -> None:
    lock = locks.lock(KEY, reentrant=True)
    with lock as lease:
        with pytest.raises(ZeroDivisionError), lock:
            raise ZeroDivisionError
        assert lease.is_valid
    assert not lease.is_valid


@blocking
def test_reentrant_function_when_it_calls_itself_then_takes_once(
    locks: FastRedlock,
) -> None:
    @locks.lock(lambda times: KEY, reentrant=True)
    def again(times: int) -> int:
        return times and 1 + again(times - 1)

    before = locks.stats().acquires.won
    assert again(20) == 20
    assert locks.stats().acquires.won - before == 1


@blocking
def test_reentrant_lock_when_other_threads_use_it_then_they_exclude_each_other(
    locks: FastRedlock,
) -> None:
    lock, inside, most = locks.lock(KEY, reentrant=True), 0, 0

    def use() -> None:
        nonlocal inside, most
        for _ in range(10):
            with lock, lock:
                inside += 1
                most = max(most, inside)
                inside -= 1

    in_threads([use] * 6)
    assert most == 1


@blocking
def test_reentrant_lock_when_callers_overlap_then_each_leaves_its_own_entries(
    locks: FastRedlock,
) -> None:
    """One whose validity is over is still in its blocks when the next one enters.

    Seen: its inner exit took the other's inner entry, whose exit then released.
    """
    lock = locks.lock(KEY, ttl=1, reentrant=True)
    held, second = [], threading.Event()

    def stay() -> None:
        with lock as lease, lock:
            held.append(lease)
            second.wait(10)

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(stay)
        assert wait_until(lambda: bool(held) and not held[0].is_valid)
        with lock as ours:
            ours.extend(20)
            with lock:
                second.set()
                with pytest.raises(LeaseLostError):
                    first.result()
            assert ours.is_valid
        assert not ours.is_valid


def test_reentrant_lock_when_tasks_use_it_then_each_joins_its_own_block(
    urls: list[str],
) -> None:
    async def main() -> None:
        async with AwaitableFastRedlock(urls, ttl=20) as locks:
            lock, inside = locks.lock(KEY, reentrant=True), 0

            @lock
            async def again(times: int) -> None:
                nonlocal inside
                if times == 2:
                    inside += 1
                    assert inside == 1
                if times:
                    await asyncio.sleep(0)
                    await again(times - 1)
                if times == 2:
                    inside -= 1

            await asyncio.gather(*(again(2) for _ in range(10)))
            async with lock as outer, locks.lock(KEY, ttl=60, reentrant=True) as inner:
                assert outer is inner
                assert outer.remaining() > 40

    asyncio.run(main())


@blocking
@pytest.mark.parametrize("ttl", ["x", 0, -1, float("nan")])
def test_reentrant_lock_when_its_inner_ttl_is_none_then_is_refused(
    locks: FastRedlock, ttl: Any
) -> None:
    with locks.lock(KEY) as outer:
        with pytest.raises(ConfigurationError, match="ttl="):
            locks.lock(KEY, ttl=ttl, reentrant=True).__enter__()
        assert outer.is_valid


class Interruption(BaseException):
    """What a signal handler may raise."""


@contextmanager
def interrupted_in(name: str) -> Iterator[None]:
    """Raise as a function of Python begins, where CPython looks at signals."""

    def trace(frame: FrameType, event: str, value: Any) -> None:
        if frame.f_code.co_name == name:
            raise Interruption

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


@pytest.mark.parametrize("is_inner", [False, True])
def test_kept_lock_when_interrupted_as_its_body_is_entered_then_leaves_no_key(
    urls: list[str], servers: list[redis.Redis], is_inner: bool
) -> None:
    """Seen: the entry stayed, and the lease was renewed for ever."""

    async def enter(lock: Any) -> None:
        with interrupted_in("_enter_kept"):
            async with lock:
                pass

    async def main() -> None:
        async with AwaitableFastRedlock(urls) as locks:
            lock = locks.lock(KEY, ttl=1, reentrant=True, keep_alive=True)
            if is_inner:
                async with lock:
                    await enter(lock)  # nothing of an inner one is Python
            else:
                with pytest.raises(Interruption):
                    await enter(lock)
            assert lock._entries is None
            free = locks.lock(KEY, timeout=3)
            async with free:
                pass

    asyncio.run(main())
    assert settled_values(servers, [None] * len(servers)) == [None] * len(servers)


def test_kept_lock_when_interrupted_as_it_is_left_then_leaves_no_key(
    urls: list[str], servers: list[redis.Redis]
) -> None:
    """Seen: the entry stayed, so the outer block left the inner one's, and no lease.

    From Python 3.12 on nothing of it is Python.
    """

    async def leave(lock: Any) -> None:
        with interrupted_in("current_task"):
            await lock.__aexit__(None, None, None)

    async def main() -> None:
        async with AwaitableFastRedlock(urls) as locks:
            lock = locks.lock(KEY, ttl=1, reentrant=True, keep_alive=True)
            async with lock:
                await lock.__aenter__()
                with suppress(Interruption):
                    await leave(lock)
            assert lock._entries is None
            two = locks.semaphore(OTHER, 2, ttl=1, keep_alive=True)
            async with two:
                await asyncio.create_task(enter_and_leave(two))
            assert two._entries is None
            async with locks.lock(KEY, timeout=3), locks.semaphore(OTHER, 1, timeout=3):
                pass

    async def enter_and_leave(lock: Any) -> None:
        await lock.__aenter__()
        with suppress(Interruption):
            await leave(lock)

    asyncio.run(main())
    assert settled_values(servers, [None] * len(servers)) == [None] * len(servers)
