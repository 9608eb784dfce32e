"""Calls that are cancelled, after any turn of the loop.

After each cancellation: CancelledError came out, the keys are gone, others can take the
lock, and the client's next replies are its own.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

import pytest

from fastredlock import FastRedlockError, ReleaseStatus
from fastredlock._locking.loop_driver import LoopDriver
from fastredlock._locking.validity import extended
from fastredlock.asyncio import FastRedlock, Lease
from tests.support.awaited import run_on
from tests.support.cancellation import (
    ALL,
    CUT,
    QUICK_WAYS,
    Begin,
    How,
    SiblingError,
    Work,
    World,
    after_turns,
    by_cancel,
    every_cut,
    on_each_loop,
    released,
    with_client,
)
from tests.support.keys import KEY, NOBODY, is_empty, settled_values
from tests.support.loop_calls import taken
from tests.support.threads import in_threads
from tests.support.waiting import turn, until


def begin_of(call: str, client: FastRedlock) -> Begin:
    """Return what makes ready for a call, and returns it."""

    async def block() -> bool:
        with suppress(SiblingError):
            async with client.lock(KEY, ttl=60) as lease:
                assert lease.is_valid
                await after_turns(3)()
                if call == "lock that fails":
                    raise SiblingError
        return True

    async def each() -> bool:
        many = [f"r{i}" for i in range(300)] if call == "each of many" else []
        leases = await client.acquire_each([KEY, "b", *many], ttl=60)
        statuses = await client.release_each(leases)
        return {*statuses} == {ReleaseStatus.RELEASED}

    async def begin() -> Work:
        if call == "acquire":
            return lambda: client.acquire(KEY, ttl=60)
        if call == "acquire_all":
            return lambda: client.acquire_all(ALL, ttl=60)
        if call == "release":
            return (await taken(client, ttl=60)).release
        return block if call.startswith("lock") else each

    return begin


# --- in any turn ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "way"),
    [
        *(
            (call, way)
            for call in ("acquire", "acquire_all", "lock")
            for way in QUICK_WAYS
        ),
        *((call, by_cancel) for call in ("lock that fails", "each", "each of many")),
    ],
)
@with_client
async def test_call_when_cancelled_at_any_turn_then_leaves_no_key(
    world: World, client: FastRedlock, call: str, way: How
) -> None:
    await every_cut(way, begin_of(call, client), world.undone(KEY, *ALL))
    assert await asyncio.to_thread(is_empty, world.servers)


# --- release --------------------------------------------------------------------------


@pytest.mark.parametrize("way", QUICK_WAYS)
@with_client
async def test_release_when_cancelled_once_begun_then_still_releases(
    world: World, client: FastRedlock, way: How
) -> None:
    lease: Lease | None = None
    has_begun = False

    async def release() -> ReleaseStatus:
        nonlocal has_begun
        assert lease is not None
        has_begun = True
        return await lease.release()

    async def begin() -> Work:
        nonlocal lease, has_begun
        has_begun = False
        lease = await taken(client, ttl=60)
        return release

    async def check(result: Any) -> None:
        assert lease is not None
        assert result in (CUT, ReleaseStatus.RELEASED)
        assert lease.is_valid is not has_begun
        if not has_begun:  # a task that is cancelled before it runs does not
            await released(lease)
        await world.is_free(KEY)
        first = ReleaseStatus.GONE if result is CUT else ReleaseStatus.RELEASED
        assert await lease.release() in (first, ReleaseStatus.GONE)

    await every_cut(way, begin, check)


@pytest.mark.parametrize("limit", [None, 0])
@pytest.mark.parametrize("call", ["release", "release_each"])
@with_client
async def test_release_when_cancelled_before_its_first_step_then_still_releases(
    world: World, client: FastRedlock, call: str, limit: int | None
) -> None:
    """Seen: the last tasks of a loop that ends left their keys for the ttl."""
    lease = await taken(client, ttl=60)
    task: asyncio.Future[Any] = asyncio.ensure_future(
        lease.release() if call == "release" else client.release_each([lease])
    )
    if limit is None:
        task.cancel()
    with pytest.raises((asyncio.TimeoutError, asyncio.CancelledError)):
        await asyncio.wait_for(task, limit)
    assert not lease.is_valid
    await world.is_free(KEY)


# --- extend and the other calls -------------------------------------------------------


@pytest.mark.parametrize("way", QUICK_WAYS)
@pytest.mark.parametrize("call", ["extend", "extend_each"])
@with_client
async def test_extend_when_cancelled_at_any_turn_then_lease_counts_on_the_earlier_end(
    world: World, client: FastRedlock, call: str, way: How
) -> None:
    leases: list[Any] = []

    async def begin() -> Work:
        leases[:] = await client.acquire_each(
            ["a", "b"][: 1 + (call != "extend")], ttl=20
        )
        if call == "extend":
            return lambda: leases[0].extend(60)
        return lambda: client.extend_each(leases, 60)

    async def check(result: Any) -> None:
        for lease in leases:
            assert lease.is_valid
            assert (lease.remaining() > 50) is (result is not CUT)
            assert not extended(lease).under_way
            least = 1000 * lease.remaining() if result is CUT else 0
            # The quorum was enough for it: the others may still be on their way.
            lives = sorted(each.pttl(lease.resource) for each in world.servers)
            assert lives[2] > least
            assert await lease.extend(30) > 25  # the cancelled one is in no way
        assert {*await client.release_each(leases)} == {ReleaseStatus.RELEASED}
        await world.is_free("a", "b")

    await every_cut(way, begin, check)


@pytest.mark.parametrize("call", ["connect", "close"])
@on_each_loop
async def test_connections_when_cancelled_at_any_turn_then_are_as_usable_or_all_closed(
    world: World, call: str
) -> None:
    fresh: list[FastRedlock] = []

    async def begin() -> Work:
        fresh.append(FastRedlock(world.urls))
        if call == "close":
            await released(await fresh[-1].acquire(KEY, ttl=60))
            return fresh[-1].close
        return fresh[-1].connect

    async def check(result: Any) -> None:
        locks = fresh.pop()
        if call == "close" and result is not CUT:
            with pytest.raises(FastRedlockError, match="closed"):
                await locks.acquire(KEY, timeout=0)
        else:
            # One that was cancelled in its last wait has closed all the same.
            with suppress(FastRedlockError):
                await released(await locks.acquire(KEY, ttl=60))
        await locks.close()
        await world.until(NOBODY)

    await every_cut(by_cancel, begin, check)


@pytest.mark.parametrize("linger", [0, 30])
def test_close_when_cancelled_in_its_first_step_then_the_loops_end_leaves_no_key(
    kind: str, world: World, linger: float
) -> None:
    names = [f"k{i}" for i in range(4)]

    async def main(turns: int) -> None:
        locks = FastRedlock(world.urls, ttl=60, linger=linger)
        for _ in range(3):  # from the second time on the key rests
            await released(await locks.acquire("rests"))
        tasks = [asyncio.ensure_future(locks.acquire(name)) for name in names]
        await after_turns(turns)()
        with suppress(TimeoutError):
            async with asyncio.timeout(0):
                await locks.close()
        for task in tasks:
            task.cancel()
        for lease in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(lease, Lease):
                await released(lease)
        await locks.close()

    for turns in (1, 2, 3) * 3:
        run_on(kind, main(turns))
        for name in ("rests", *names):
            assert settled_values(world.servers, NOBODY, name) == NOBODY


def test_close_with_release_when_cancelled_then_frees_what_was_taken_meanwhile(
    kind: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    leases: list[Lease | None] = []

    async def main() -> None:
        locks = FastRedlock(world.urls, ttl=60)

        async def close(_: LoopDriver) -> None:
            leases.append(await locks.acquire(KEY))  # by another task
            raise asyncio.CancelledError

        with monkeypatch.context() as patched:
            patched.setattr(LoopDriver, "close", close)
            with pytest.raises(asyncio.CancelledError):
                await locks.close(release=True)
        await locks.close()

    run_on(kind, main())
    assert all(leases)
    assert settled_values(world.servers, NOBODY) == NOBODY


# --- what `await` and the user make of a call: an object of C, like a coroutine -------


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
async def test_extend_when_dropped_under_way_then_bounds_no_later_one(
    world: World, client: FastRedlock
) -> None:
    """Seen: the table of the lease had the call itself, which never ended."""
    [lease] = await client.acquire_each([KEY], ttl=60)
    assert lease is not None
    waits(lease.extend(30))
    assert not extended(lease).under_way
    await lease.release()


@with_client
async def test_release_when_closed_under_way_then_is_sent_all_the_same(
    world: World, client: FastRedlock
) -> None:
    call = (await taken(client)).release()
    waits(call)
    call.close()
    await world.until(NOBODY)


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
    await until(lambda: client.stats().waits == is_taken)
    await turn()
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
    in_threads([gc.collect])
    await world.until(NOBODY)


@with_client
async def test_delay_when_cancelled_behind_a_round_that_was_finished_then_ends_at_once(
    world: World, client: FastRedlock
) -> None:
    """Seen: 0.45 s. An acquire runs its last round again behind a look at the key."""
    lease = await taken(client)
    here = client._driver.here()
    delay = asyncio.create_task(asyncio.wait_for(here.sleep(5), None))
    await after_turns(5)()  # it sleeps
    here.submit(lease._round)
    delay.cancel()
    done, _ = await asyncio.wait([delay], timeout=0.1)
    assert done
    assert await lease.release() is ReleaseStatus.RELEASED
