"""Acquires and releases as coroutines: what asyncio, `await` and the user make of them.

They are objects of C with the methods of a coroutine (calls/call.pyx).
"""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
from collections.abc import Coroutine
from typing import Any

import pytest

from fastredlock import FastRedlockError, ReleaseStatus
from fastredlock.asyncio import FastRedlock, Lease
from tests.support.cancellation import World, with_client
from tests.support.keys import KEY, NOBODY
from tests.support.loop_calls import taken

NEVER = "coroutine '{}' was never awaited"


def drop(call: Coroutine[Any, Any, Any]) -> None:
    """Let nobody await it."""


def waits(call: Coroutine[Any, Any, Any]) -> Any:
    """Begin a call by hand; return the future that it waits for."""
    return call.send(None)


@with_client
async def test_calls_when_never_awaited_then_warn_once_each(
    world: World, client: FastRedlock
) -> None:
    lease = await taken(client)
    with pytest.warns(RuntimeWarning, match=NEVER.format("FastRedlock.acquire")):
        drop(client.acquire(KEY))
    with pytest.warns(RuntimeWarning, match=NEVER.format("Lease.release")):
        drop(lease.release())
    assert await lease.release() is ReleaseStatus.RELEASED


@with_client
async def test_call_when_closed_before_it_is_awaited_then_is_silent_and_over(
    world: World, client: FastRedlock
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call = client.acquire(KEY)
        call.close()
        with pytest.raises(RuntimeError, match="cannot reuse"):
            await call
    await world.until(NOBODY)


@with_client
async def test_call_when_awaited_again_then_raises_and_its_lease_stands(
    world: World, client: FastRedlock
) -> None:
    call = client.acquire(KEY, ttl=60)
    lease = await call
    assert lease is not None
    with pytest.raises(RuntimeError, match="cannot reuse"):
        await call
    await world.until([lease.token] * 5)
    await lease.release()


@pytest.mark.parametrize("end", ["closed", "collected", "thrown into"])
@with_client
async def test_acquire_when_it_ends_in_its_first_try_then_leaves_no_key(
    world: World, client: FastRedlock, end: str
) -> None:
    calls = [client.acquire(KEY, ttl=60)]
    waits(calls[0])
    if end == "closed":
        calls[0].close()
    elif end == "collected":
        calls.clear()
        gc.collect()
    else:
        with pytest.raises(KeyError, match="mine"):
            calls[0].throw(KeyError("mine"))
    await world.is_free(KEY)


@with_client
async def test_release_when_closed_under_way_then_is_sent_all_the_same(
    world: World, client: FastRedlock
) -> None:
    call = (await taken(client)).release()
    waits(call)
    call.close()
    await world.until(NOBODY)


@with_client
async def test_calls_in_a_task_then_are_named_in_its_repr(
    world: World, client: FastRedlock
) -> None:
    task = asyncio.ensure_future(client.acquire(KEY, ttl=60))
    assert "FastRedlock.acquire()" in repr(task)
    lease = await task
    assert lease is not None
    assert asyncio.iscoroutinefunction(lease.release)
    task_of_release = asyncio.ensure_future(lease.release())
    assert "Lease.release()" in repr(task_of_release)
    assert await task_of_release is ReleaseStatus.RELEASED


def test_calls_when_no_loop_runs_then_say_so() -> None:
    client = FastRedlock(["redis://127.0.0.1:1/0"])
    with pytest.raises(FastRedlockError, match="without a running loop"):
        client.acquire(KEY).send(None)
    with pytest.raises(FastRedlockError, match="without a running loop"):
        client.adopt(KEY, "token").release().send(None)


@pytest.mark.parametrize("drives", [False, True], ids=["awaits", "drives"])
@pytest.mark.parametrize("is_taken", [False, True], ids=["first try", "later tries"])
@with_client
async def test_call_when_a_second_task_awaits_or_drives_it_then_that_one_is_told(
    world: World, client: FastRedlock, is_taken: bool, drives: bool
) -> None:
    other = await taken(client) if is_taken else None
    call = client.acquire(KEY, timeout=10)

    async def awaits() -> Lease | None:
        return await call

    first = asyncio.create_task(call if drives else awaits())
    await asyncio.sleep(0.1 if is_taken else 0)  # until it waits
    second = asyncio.create_task(call if drives else awaits())
    async with asyncio.timeout(5):
        with pytest.raises(RuntimeError, match="awaited already"):
            await second
        if other is not None:
            await other.release()
        lease = await first
    assert lease is not None
    assert await lease.release() is ReleaseStatus.RELEASED


@with_client
async def test_call_when_collected_by_another_thread_then_is_undone_by_the_loop(
    world: World, client: FastRedlock
) -> None:
    asyncio.get_running_loop().set_debug(True)  # it raises where threads are confused
    held: list[Any] = [client.acquire(KEY)]
    waits(held[0])
    held.append(held)
    del held
    collector = threading.Thread(target=gc.collect)
    collector.start()
    collector.join()
    await world.until(NOBODY)


@with_client
async def test_delay_when_cancelled_behind_a_round_that_was_finished_then_ends_at_once(
    world: World, client: FastRedlock
) -> None:
    """Seen: 0.45 s. An acquire runs its last round again behind a look at the key."""
    lease = await taken(client)
    here = client._driver.here()
    delay = asyncio.create_task(asyncio.wait_for(here.sleep(5), None))
    await asyncio.sleep(0.05)  # until it sleeps
    here.submit(lease._round)
    delay.cancel()
    done, _ = await asyncio.wait([delay], timeout=0.1)
    assert done
    assert await lease.release() is ReleaseStatus.RELEASED
