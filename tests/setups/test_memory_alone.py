"""In memory: a call that waits where nobody else can act ends at its timeout, soon."""

from __future__ import annotations

import asyncio
import threading
import time
import warnings
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from fastredlock import FastRedlock, Lease
from fastredlock.asyncio import FastRedlock as LoopFastRedlock
from fastredlock.testing import MemoryLocks, in_memory
from fastredlock.testing.asyncio import MemoryLocks as LoopMemoryLocks
from tests.support.waiting import turn, wait_until

NOWHERE = [("127.0.0.1", port) for port in (1, 2, 3)]
locks, loop_locks = FastRedlock(NOWHERE), LoopFastRedlock(NOWHERE)
Run = Callable[[Coroutine[Any, Any, Any]], Any]
LOOPS = pytest.mark.parametrize("run", [asyncio.run, uvloop.run])


@pytest.mark.parametrize(
    "timeout", [0.5, 5, pytest.param(1000, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("where", ["here", "a thread"])
def test_caller_when_it_is_alone_then_ends_at_its_timeout(
    where: str, timeout: float
) -> None:
    memory, results = MemoryLocks(), list[Lease | None]()
    kept = memory.acquire("r", keep_alive=True)

    def wait() -> None:
        results.append(memory.acquire("r", timeout=timeout))

    if where == "here":
        wait()
    else:
        thread = threading.Thread(target=wait)
        thread.start()
        thread.join()
    assert results == [None]
    assert kept is not None
    assert kept.is_valid
    assert memory.masters.time() == pytest.approx(timeout, abs=0.1)


def test_callers_when_they_all_wait_then_end_at_their_timeouts_soon() -> None:
    memory, began = MemoryLocks(), time.monotonic()
    memory.steal("r", ttl=60)
    callers = [
        threading.Thread(target=memory.acquire, args=("r",), kwargs={"timeout": 5})
        for _ in range(4)
    ]
    for each in callers:
        each.start()
    for each in callers:
        each.join()
    assert time.monotonic() - began < 4
    assert memory.masters.time() == pytest.approx(5, abs=0.1)


def test_caller_when_a_thread_works_then_the_clock_stands_still_as_in_life() -> None:
    """It waits for the release, and for no longer than its timeout of real time."""
    memory, results = MemoryLocks(), list[Lease | None]()
    lease = memory.acquire("r")

    def wait() -> None:
        began = time.monotonic()
        results.append(memory.acquire("r", timeout=1))
        assert 1 <= time.monotonic() - began < 3
        results.append(memory.acquire("r"))

    thread = threading.Thread(target=wait)
    thread.start()
    assert wait_until(lambda: results == [None])
    assert memory.masters.time() == 1
    assert lease is not None
    lease.release()
    thread.join(5)
    assert results[1] is not None


@LOOPS
def test_task_when_it_is_alone_then_ends_at_its_timeout(run: Run) -> None:
    async def main() -> float:
        memory = LoopMemoryLocks()
        memory.steal("r", ttl=60)
        assert await memory.acquire("r", timeout=5) is None
        return memory.masters.time()

    assert run(main()) == 5


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


@pytest.mark.parametrize("path", ["/task", "/thread"])
def test_endpoint_when_the_test_holds_its_lock_then_ends_at_the_timeout(
    path: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fastapi = pytest.importorskip("fastapi")
        client_of = pytest.importorskip("fastapi.testclient").TestClient
    app = fastapi.FastAPI()

    @app.get("/task")
    async def in_task() -> bool:
        return await loop_locks.acquire("r", timeout=5) is None

    @app.get("/thread")
    def in_thread() -> bool:
        return locks.acquire("r", timeout=5) is None

    with in_memory() as masters, client_of(app) as client, locks.lock("r"):
        began = time.monotonic()
        assert client.get(path).json() is True
        assert time.monotonic() - began < 3
        assert masters.time() == 5
    assert "Traceback" not in "".join(capfd.readouterr())
