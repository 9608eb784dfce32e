"""`MemoryLocks`: who waits, and how the clock moves."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import pytest
import uvloop

from fastredlock import (
    ConfigurationError,
    Lease,
    QuorumUnreachableError,
    ReleaseStatus,
)
from fastredlock.testing import MemoryLocks, MemoryMasters
from fastredlock.testing.asyncio import MemoryLocks as LoopMemoryLocks
from tests.support.masters import stop
from tests.support.processes import Fork, run_to_its_end
from tests.support.threads import beside
from tests.support.waiting import turn, wait_until

pytestmark = pytest.mark.usefixtures("thawed")
RELEASED = ReleaseStatus.RELEASED


@contextmanager
def waiting_caller(locks: MemoryLocks, **options: Any) -> Iterator[Future[Any]]:
    """Let a thread wait for "r"; yield the future of its lease once it does."""
    before = locks.stats().waits
    with beside(lambda: locks.acquire("r", **options)) as (caller,):
        wait_until(lambda: locks.stats().waits > before)
        yield caller


# --- threads ----------------------------------------------------------------------


@pytest.mark.parametrize("clients", [1, 2])
def test_acquire_when_it_waits_then_the_release_wakes_it_in_no_time(
    clients: int,
) -> None:
    masters = MemoryMasters(5)
    locks = [MemoryLocks(masters) for _ in range(clients)]
    lease = locks[0].acquire("r")
    assert lease is not None
    with waiting_caller(locks[-1]) as caller:
        before = lease.remaining()
        assert lease.release() is RELEASED
    assert caller.result().remaining() == before


def test_acquire_when_its_timeout_passes_by_advance_then_is_none() -> None:
    locks = MemoryLocks(ttl=60)
    assert locks.acquire("r")
    with waiting_caller(locks, timeout=5) as caller:
        locks.advance(4.9)
        assert not caller.done()
        locks.advance(0.2)
    assert caller.result() is None


@pytest.mark.parametrize("is_lost", [False, True])
def test_acquire_when_the_holders_key_is_over_then_advance_brings_the_turn(
    is_lost: bool,
) -> None:
    locks = MemoryLocks(ttl=60 if is_lost else 3)
    assert locks.acquire("r")
    with waiting_caller(locks, ttl=3) as caller:
        if is_lost:
            locks.lose("r")
        locks.advance(3.5)
    assert caller.result().remaining() > 2.3 or is_lost  # since then


NOBODY_RELEASES = """
import asyncio
from fastredlock.testing import MemoryLocks, _world
from fastredlock.testing.asyncio import MemoryLocks as LoopMemoryLocks

_world.LONGEST_WAIT = 60
locks = MemoryLocks()
lease = locks.acquire(keep_alive=True)
try:
    locks.acquire()
except RuntimeError as error:
    assert "nobody releases" in str(error)
assert locks.holders()[0].waiting == 0, locks.holders()
print(lease.release().name)

async def main():
    locks = LoopMemoryLocks()
    lease = await locks.acquire(keep_alive=True)
    try:
        await locks.acquire()
    except RuntimeError as error:
        print(str(error)[:12])

asyncio.run(main())
"""


def test_acquire_when_nobody_ever_releases_then_raises() -> None:
    told = run_to_its_end(NOBODY_RELEASES).stdout  # its main thread is alone
    assert told.splitlines() == ["RELEASED", "a call has w"]


def test_locks_when_forked_then_the_child_is_refused() -> None:
    locks = MemoryLocks()

    def use() -> None:
        with pytest.raises(RuntimeError):
            locks.acquire(timeout=0)

    assert Fork(use).result() is None


# --- a clock that moves by itself -------------------------------------------------


def test_acquire_when_unreachable_and_the_clock_moves_then_tries_again() -> None:
    masters = MemoryMasters(auto_advance=True)
    locks = MemoryLocks(masters)
    stop(masters, 2)
    with pytest.raises(QuorumUnreachableError, match="after 3 attempts"):
        locks.acquire("r")
    masters.start(0)
    assert locks.acquire("r")


# --- arguments --------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda: MemoryMasters(0),
        lambda: MemoryLocks(["redis://a"]),  # type: ignore[arg-type]
        lambda: MemoryLocks(MemoryMasters(), auto_advance=True),
        lambda: MemoryLocks(ttl=-1),
        lambda: MemoryLocks().advance(-1),
        lambda: MemoryLocks().advance(float("nan")),
        lambda: MemoryLocks().steal(b"r", ttl=0),
        lambda: MemoryLocks().lose(7),  # type: ignore[arg-type]
    ],
)
def test_memory_when_an_argument_is_wrong_then_says_so(
    make: Callable[[], object],
) -> None:
    with pytest.raises(ConfigurationError):
        make()


# --- alone: whoever nobody else can serve ends at its timeout, soon -------------------


Run = Callable[[Coroutine[Any, Any, Any]], Any]
LOOPS = pytest.mark.parametrize("run", [asyncio.run, uvloop.run])


@pytest.mark.parametrize("timeout", [0.5, 5, 1000])
def test_caller_when_it_is_alone_then_ends_at_its_timeout(timeout: float) -> None:
    memory = MemoryLocks()
    kept = memory.acquire("r", keep_alive=True)
    assert memory.acquire("r", timeout=timeout) is None
    assert kept is not None
    assert kept.is_valid
    assert memory.masters.time() == pytest.approx(timeout, abs=0.1)


def test_caller_when_a_thread_works_then_the_clock_stands_still_as_in_life() -> None:
    """It waits for the release, and for no longer than its timeout of real time."""
    memory, results = MemoryLocks(), list[Lease | None]()
    lease = memory.acquire("r")

    def wait() -> None:
        began = time.monotonic()
        results.append(memory.acquire("r", timeout=1))
        assert 1 <= time.monotonic() - began < 3
        results.append(memory.acquire("r"))

    with beside(wait):
        assert wait_until(lambda: results == [None])
        assert memory.masters.time() == 1
        assert lease is not None
        lease.release()
    assert results[1] is not None


@LOOPS
def test_task_when_the_real_time_limits_it_then_is_timed_out(run: Run) -> None:
    async def main() -> float:
        memory = LoopMemoryLocks()
        memory.steal("r")
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(memory.acquire("r"), 0.2)
        return memory.masters.time()

    assert run(main()) == 0


@LOOPS
def test_task_when_the_holder_sleeps_then_waits_for_it(run: Run) -> None:
    async def main() -> float:
        memory = LoopMemoryLocks()

        async def hold() -> None:
            async with memory.lock("r"):
                await asyncio.sleep(0.3)  # of real time

        holder = asyncio.create_task(hold())
        await turn()  # the holder has it
        assert await memory.acquire("r", timeout=5) is not None
        await holder
        return memory.masters.time()

    assert run(main()) == 0
