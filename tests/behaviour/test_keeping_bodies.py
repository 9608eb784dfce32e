"""The body of an `async with` is cancelled where its lease is lost.

By a lease that was kept from the beginning, by one that is kept in there; and what the
consumer of an async generator gets that holds a kept lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any
from unittest.mock import Mock

import pytest

from fastredlock import LeaseLostError, ReleaseStatus
from fastredlock.asyncio import FastRedlock, Lease
from tests.support.awaited import run_on
from tests.support.cancellation import after_turns, with_locks
from tests.support.fixtures import Servers
from tests.support.keys import KEY, NOBODY, delete, settled_values
from tests.support.loop_calls import taken, until_cancelled
from tests.support.waiting import until

pytestmark = pytest.mark.slow
TTL = 0.6  # s
# Bodies sleep for longer than they may take: a loss has to cancel that.
in_a_body = with_locks(longest=5, ttl=TTL)


def lose(lease: Lease) -> None:
    """Let its keeper tell the loss in this moment."""
    lease._round.lease_state.lose(LeaseLostError(lease.resource, "lost: a test"))


def soon_lost(lease: Lease) -> None:
    """Let it be lost in the next turn of the loop."""
    asyncio.get_running_loop().call_soon(lose, lease)


@in_a_body
async def test_body_when_its_lease_is_lost_then_is_cancelled_and_the_block_says_why(
    locks: FastRedlock, servers: Servers
) -> None:
    seen: list[object] = []
    try:
        async with locks.lock(KEY, keep_alive=True) as lease:
            delete(servers)
            try:
                await until_cancelled()
            except asyncio.CancelledError:
                seen += ["cancelled", lease.lost.is_set()]
                raise
    except LeaseLostError as error:
        seen += [type(error.__cause__).__name__, "expired or " in str(error)]
    await after_turns(5)()  # nothing of the cancellation is left
    assert seen == ["cancelled", True, "CancelledError", True]


@pytest.mark.parametrize("order", ["cancel", "cancel lose", "lose cancel"])
@in_a_body
async def test_body_when_cancelled_by_another_then_that_leaves_the_block_and_frees_it(
    locks: FastRedlock, servers: Servers, order: str
) -> None:
    held: list[Lease] = []

    async def hold() -> None:
        async with locks.lock(KEY, keep_alive=True) as lease:
            held.append(lease)
            await until_cancelled()

    task = asyncio.create_task(hold())
    await until(lambda: bool(held))
    for what in order.split():
        task.cancel() if what == "cancel" else lose(held[0])
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(settled_values, servers, NOBODY) == NOBODY


@in_a_body
async def test_body_when_it_finds_the_loss_by_its_own_release_then_is_not_cancelled(
    locks: FastRedlock, servers: Servers
) -> None:
    told = Mock()
    async with locks.lock(KEY, keep_alive=True, on_lost=told) as lease:
        delete(servers)
        assert await lease.release() is ReleaseStatus.GONE
        await until(lambda: told.called)  # else it is cancelled in there


@pytest.mark.parametrize("kept", ["both", "inner, and then the outer"])
@pytest.mark.parametrize("lost", ["outer", "inner", "outer inner", "inner outer"])
@in_a_body
async def test_nested_blocks_when_one_is_lost_then_that_one_is_blamed(
    locks: FastRedlock, lost: str, kept: str
) -> None:
    seen: list[str] = []
    try:
        async with locks.lock("outer", keep_alive=kept == "both") as outer:
            leases = {"outer": outer}
            try:
                async with locks.lock("inner", keep_alive=True) as inner:
                    leases["inner"] = inner
                    outer.keep_alive()
                    for name in lost.split():
                        soon_lost(leases[name])
                    await until_cancelled()
            except BaseException as error:
                seen.append(f"inner {type(error).__name__}")
                raise
    except LeaseLostError as error:
        seen.append(f"{error.resource!s} is blamed")
    expected = ["inner LeaseLostError", "inner is blamed"]
    if "outer" in lost:
        expected = ["inner CancelledError", "outer is blamed"]
    assert seen == expected


@pytest.mark.parametrize("error", [ValueError, LeaseLostError])
@in_a_body
async def test_body_when_it_swallows_the_cancellation_then_leaving_says_so_or_its_error(
    locks: FastRedlock, error: type[Exception]
) -> None:
    async def hold() -> None:
        async with locks.lock(KEY, keep_alive=True) as lease:
            soon_lost(lease)
            with suppress(asyncio.CancelledError):
                await until_cancelled()
            if error is ValueError:
                raise ValueError("its own")

    with pytest.raises(error):
        await hold()
    await after_turns(5)()  # nothing of the cancellation is left


def test_loop_when_closed_with_a_kept_lease_then_another_begins_anew(
    kind: str, urls: list[str], servers: Servers
) -> None:
    locks = FastRedlock(urls, ttl=TTL)

    async def take() -> Lease:
        lease = await taken(locks, keep_alive=True)
        assert not await lease.lost.wait(TTL)
        return lease

    first = run_on(kind, take())
    assert settled_values(servers, NOBODY) == NOBODY
    assert first.lost.is_set()
    second = run_on(kind, take())

    async def close() -> None:
        await second.release()
        await locks.close()

    run_on(kind, close())


# --- kept in there --------------------------------------------------------------------


async def block_of(locks: FastRedlock, kind: str) -> Any:
    if kind in ("lock", "several"):
        return locks.lock(KEY) if kind == "lock" else locks.lock_all([KEY, "other"])
    lease = await taken(locks, keep_alive=kind == "kept")
    return locks.adopt(KEY, lease.token) if kind == "adopted" else lease


@pytest.mark.parametrize("of", ["lock", "lease", "kept", "adopted", "several"])
@pytest.mark.parametrize("is_extended", [False, True])
@in_a_body
async def test_body_when_its_lease_is_kept_in_there_then_is_cancelled_as_well(
    locks: FastRedlock, servers: Servers, of: str, is_extended: bool
) -> None:
    block = await block_of(locks, of)
    with pytest.raises(LeaseLostError, match=r"'orders:42'.*: lost: "):  # noqa: PT012
        async with block as lease:
            if is_extended:
                await lease._prolong(1)
            lease.keep_alive(60)
            assert not await lease.lost.wait(0.1)
            delete(servers)
            await until_cancelled()
    await after_turns(5)()  # nothing of the cancellation is left


@in_a_body
async def test_task_when_its_lease_is_in_no_block_then_is_not_cancelled(
    locks: FastRedlock,
) -> None:
    lease = await taken(locks)
    lease.keep_alive()
    assert lease._round.lease_state.body is None  # it costs nothing either
    soon_lost(lease)
    assert await lease.lost.wait(5)
    await asyncio.sleep(0.1)  # it is not cancelled in it


# --- async generators -----------------------------------------------------------------


async def items(locks: FastRedlock, waits: bool = False) -> AsyncIterator[int]:
    async with locks.lock(KEY, keep_alive=True):
        for number in range(3):
            if waits and number:
                await until_cancelled()
            yield number


def is_left_alone() -> bool:
    """Say that nothing is left of a cancellation."""
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling() == 0


@asynccontextmanager
async def holding(locks: FastRedlock) -> AsyncIterator[None]:
    async with locks.lock(KEY, keep_alive=True):
        yield


async def by_closing(locks: FastRedlock, lose: Callable[[], None]) -> None:
    async with aclosing(items(locks)) as numbers:  # type: ignore[type-var]
        async for _ in numbers:
            lose()
            await until_cancelled()


async def while_it_waits_itself(locks: FastRedlock, lose: Callable[[], None]) -> None:
    async for _ in items(locks, waits=True):
        lose()


async def in_its_context(locks: FastRedlock, lose: Callable[[], None]) -> None:
    async with holding(locks):
        lose()
        await until_cancelled()


@pytest.mark.parametrize("consume", [by_closing, while_it_waits_itself, in_its_context])
@in_a_body
async def test_consumer_of_a_generator_when_the_lease_is_lost_then_gets_its_error(
    locks: FastRedlock, servers: Servers, consume: Any
) -> None:
    with pytest.raises(LeaseLostError, match=r"'orders:42'.*: lost: ") as raised:
        await consume(locks, lambda: delete(servers))
    if consume is by_closing:
        assert isinstance(raised.value.__cause__, GeneratorExit)
    assert is_left_alone()
    await after_turns(5)()  # nothing of the cancellation is left


@in_a_body
async def test_consumer_when_it_leaves_its_generator_open_then_its_error_names_it(
    locks: FastRedlock, servers: Servers
) -> None:
    numbers: Any = items(locks)
    with pytest.raises(asyncio.CancelledError, match="the lease of 'orders:42'"):  # noqa: PT012
        async for _ in numbers:
            delete(servers)
            await until_cancelled()
    with pytest.raises(LeaseLostError):  # whoever closes it gets the reason
        await numbers.aclose()
    assert is_left_alone()
