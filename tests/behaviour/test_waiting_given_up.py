"""Callers that leave the queue: interrupted, cancelled, closed, forked, left behind."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from contextlib import suppress
from threading import Event

import pytest
import redis

from fastredlock import FastRedlock, FastRedlockError, Lease
from fastredlock import asyncio as awaitable
from tests.support.awaited import LOOPS
from tests.support.calls import connected, granted
from tests.support.cancellation import (
    CUT,
    World,
    by_cancel,
    on_each_loop,
    released,
    strides,
)
from tests.support.fixtures import MakeLocks, blocking
from tests.support.interrupts import Interrupt, alarm, interrupt
from tests.support.keys import KEY
from tests.support.processes import Fork
from tests.support.waiters import (
    PROMPT,
    Waiters,
    begins_to_wait,
    counter,
    is_over,
    is_prompt,
    queued,
)
from tests.support.waiting import wait_until

# --- interrupted ----------------------------------------------------------------------


@pytest.mark.parametrize("is_one_client", [True, False])
@pytest.mark.parametrize("is_head", [True, False])
def test_interrupt_when_waiting_then_the_next_has_its_turn_promptly(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis],
    is_one_client: bool, is_head: bool,
) -> None:  # fmt: skip
    holder, locks = [connected(make_locks(urls)) for _ in range(2)]
    other = locks if is_one_client else connected(make_locks(urls))

    def trial() -> float:
        with Waiters() as waiters:
            lease = granted(holder.acquire(KEY, ttl=30))
            if not is_head:
                waiters.come("first", other)
            before = counter(locks, "waits")

            def come_behind() -> None:
                assert wait_until(lambda: counter(locks, "waits") > before)
                waiters.take("second", other, timeout=8)

            with begins_to_wait(other):
                waiters.start(come_behind)
                with pytest.raises(Interrupt), alarm(0.1, interrupt):
                    locks.acquire(KEY)
            assert wait_until(lambda: queued(servers) == 1)
            began = time.monotonic()
            lease.release()
            waiters.end()
        assert waiters.served == ["second"] if is_head else ["first", "second"]
        return waiters.at["second"] - began

    assert is_prompt(trial)
    assert is_over(servers)


@pytest.mark.slow
@blocking
def test_interrupt_when_told_or_about_to_be_then_the_next_has_its_turn_promptly(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis]
) -> None:
    holder, locks, other = [connected(make_locks(urls)) for _ in range(3)]
    took = []
    for i in range(20):
        with Waiters() as waiters:
            lease = granted(holder.acquire(KEY, ttl=30))
            before, sent = counter(locks, "waits"), Event()

            def release_and_interrupt(
                i: int = i, before: int = before, sent: Event = sent,
                waiters: Waiters = waiters, lease: Lease = lease,
            ) -> None:  # fmt: skip
                assert wait_until(lambda: counter(locks, "waits") > before)
                waiters.come("second", other)
                assert wait_until(lambda: queued(servers) == 2)
                lease.release()
                time.sleep(i * 0.0001)
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)
                sent.set()

            helper = waiters.start(release_and_interrupt)
            with suppress(Interrupt), alarm(60, interrupt):
                with locks.lock(KEY, ttl=30):
                    pass
                assert sent.wait(10)
            began = time.monotonic()
            helper.result()
            waiters.end()
            took.append(waiters.at["second"] - began)
    assert sum(each > PROMPT for each in took) <= 3, took
    assert is_over(servers)


@on_each_loop
async def test_cancel_when_told_or_about_to_be_then_the_next_has_its_turn_promptly(
    world: World,
) -> None:
    async with (
        awaitable.FastRedlock(world.urls) as holder,
        awaitable.FastRedlock(world.urls) as locks,
        awaitable.FastRedlock(world.urls) as next_one,
    ):
        for each in (holder, locks, next_one):
            await each.connect()
        took, ends = [], 0
        loop = asyncio.get_running_loop()
        for k in strides():
            lease = await holder.acquire(KEY, ttl=30)
            assert lease is not None
            second: asyncio.Task[awaitable.Lease | None] | None = None

            waits: list[asyncio.Task[object]] = []

            async def until_told(
                lease: awaitable.Lease = lease, k: int = k,
                waits: list[asyncio.Task[object]] = waits,
            ) -> None:  # fmt: skip
                nonlocal second
                await waiting(locks)
                second = asyncio.ensure_future(next_one.acquire(KEY, timeout=8))
                await waiting(next_one)
                await asyncio.sleep(0.005)
                release = asyncio.ensure_future(lease.release())
                for _ in range(k):
                    await asyncio.sleep(0)
                waits.append(release)

            got = await by_cancel(lambda: locks.acquire(KEY, ttl=30), until_told)
            began = loop.time()
            if got is not CUT:
                await released(got)
            assert second is not None
            await released(await second)
            took.append(loop.time() - began)
            await waits[0]
            ends += got is not CUT
            if ends == 2:
                break
        assert sum(each > PROMPT for each in took) <= 2, took
        await world.until([None] * 5)
        assert queued(world.servers) == 0


async def waiting(locks: awaitable.FastRedlock) -> None:
    """Wait until one more caller waits."""
    before, ends = locks.stats().waits, time.monotonic() + 8
    while locks.stats().waits == before:
        assert time.monotonic() < ends
        await asyncio.sleep(0.001)


# --- ends of clients ------------------------------------------------------------------


def test_close_when_callers_wait_then_they_are_told_and_others_have_their_turn(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis]
) -> None:
    holder, other = [connected(make_locks(urls)) for _ in range(2)]

    def trial() -> float:
        locks = connected(make_locks(urls))
        with Waiters() as waiters:
            lease = granted(holder.acquire(KEY, ttl=30))
            ends = [waiters.come(f"{i}", locks) for i in range(3)]
            second = waiters.come("second", other)
            locks.close()
            for end in ends:
                assert isinstance(end.exception(5), FastRedlockError)
            assert wait_until(lambda: queued(servers) == 1)
            began = time.monotonic()
            lease.release()
            assert second.result(10)
            waiters.forget(ends)
        return waiters.at["second"] - began

    assert is_prompt(trial)
    assert is_over(servers)


@pytest.mark.parametrize("way", ["cancelled", "left behind"])
def test_loop_when_it_ends_with_waiters_then_others_have_their_turn_and_the_next_works(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis], kind: str,
    way: str,
) -> None:  # fmt: skip
    holder, other = [connected(make_locks(urls)) for _ in range(2)]
    locks = awaitable.FastRedlock(urls)

    async def wait_a_while() -> list[asyncio.Task[awaitable.Lease | None]]:
        await locks.connect()
        tasks = []
        for _ in range(3):
            tasks.append(asyncio.ensure_future(locks.acquire(KEY, ttl=30)))
            await waiting(locks)
        await asyncio.sleep(0.02)
        if way == "cancelled":
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        return tasks

    async def take_it() -> None:
        async with locks:
            await released(await locks.acquire(KEY, timeout=5))

    with Waiters() as waiters:
        lease = granted(holder.acquire(KEY, ttl=30))
        loop = LOOPS[kind]()
        loop.set_exception_handler(lambda *_: None)  # tasks that are left behind
        tasks = loop.run_until_complete(wait_a_while())
        waiters.come("other", other)
        loop.close()
        del tasks
        loop = LOOPS[kind]()
        lease.release()
        waiters.end()
        loop.run_until_complete(take_it())
        loop.close()
    assert is_over(servers)


def test_fork_when_callers_wait_then_parent_and_child_queue_as_two(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis]
) -> None:
    holder, locks = [connected(make_locks(urls)) for _ in range(2)]
    with Waiters() as waiters:
        lease = granted(holder.acquire(KEY, ttl=30))
        waiters.come("parent", locks)
        child = Fork(lambda: take_at(locks))
        assert wait_until(lambda: queued(servers) == 2)
        lease.release()
        waiters.end()
        assert child.result() > waiters.at["parent"]
    assert locks.stats().losses == 0
    assert is_over(servers)


def take_at(locks: FastRedlock) -> float:
    """Wait for the lock; return when it was had (s, monotonic)."""
    with locks.lock(KEY, timeout=7):
        return time.monotonic()


def test_fork_when_the_child_ends_then_the_parents_waiter_is_still_told(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis]
) -> None:
    holder, locks = [connected(make_locks(urls)) for _ in range(2)]

    def trial() -> float:
        with Waiters() as waiters:
            lease = granted(holder.acquire(KEY, ttl=30))
            waiters.come("parent", locks)
            assert Fork(lambda: bool(locks.acquire("child"))).result() is True
            began = time.monotonic()
            lease.release()
            waiters.end()
        return waiters.at["parent"] - began

    assert is_prompt(trial)
    assert is_over(servers)
