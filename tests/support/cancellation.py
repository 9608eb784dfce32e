"""Cancel a call of the awaitable client at every step, and see what is left of it.

A test is a coroutine under one of three decorators: `on_each_loop` runs it on both
kinds of loop; `with_locks` gives it a client as well; `with_client` one that is
connected, and sees at the end that this client is sane. `every_cut` cancels a call
after k turns of the loop, or after some milliseconds, for k = 0, 1, 2 ... until it ends
by itself.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any

import redis

from fastredlock import ReleaseStatus, Vote
from fastredlock.asyncio import FastRedlock, Lease
from tests.support.awaited import run_on
from tests.support.keys import KEY, NOBODY, values
from tests.support.waiting import turn, until

ALL = ("a", "b", "c")
CUT = object()  # the outcome of a call that was cancelled

Work = Callable[[], Coroutine[Any, Any, Any]]
Begin = Callable[[], Awaitable[Work]]  # makes ready for the next call
Check = Callable[[Any], Awaitable[None]]  # looks at what a call has left
Wait = Callable[[], Awaitable[None]]  # until it is time to cancel
How = Callable[[Work, Wait], Coroutine[Any, Any, Any]]
Test = Callable[..., Coroutine[Any, Any, None]]


# --- ways to be cancelled; each returns CUT or the call's outcome ---------------------


async def outcome(task: asyncio.Future[Any]) -> Any:
    """Wait for the end of a task that may have been cancelled."""
    await asyncio.wait([task])
    return CUT if task.cancelled() else task.result()


async def by_cancel(work: Work, wait: Wait) -> Any:
    task = asyncio.ensure_future(work())
    await wait()
    task.cancel()
    return await outcome(task)


async def by_two_cancels(work: Work, wait: Wait) -> Any:
    task = asyncio.ensure_future(work())
    await wait()
    task.cancel()
    await turn()
    task.cancel()
    return await outcome(task)


class SiblingError(Exception):
    """Fail a task group."""


QUICK_WAYS = [by_cancel, by_two_cancels]


def after_turns(k: int) -> Wait:
    async def wait() -> None:
        for _ in range(k):
            await turn()

    return wait


def strides(step: int = 1) -> Iterator[int]:
    """Yield 0, step, 2 * step ...: every step, later ones sparser."""
    k = 0
    while True:
        yield k
        k += step if k < 40 * step else k // 8


# --- the state of the world -----------------------------------------------------------


class World:
    """Five servers, a client whose calls are cancelled, and another client."""

    def __init__(self, servers: list[redis.Redis], urls: list[str]) -> None:
        self.servers = servers
        self.urls = urls
        self.other = FastRedlock([f"redis://{address(each)}/0" for each in servers])

    async def until(
        self, wanted: list[bytes | None], key: str = KEY, within: float = 1.0
    ) -> None:
        """Wait for what has been sent to arrive, for far less than a ttl."""
        await until(lambda: values(self.servers, key) == wanted, within)

    async def is_free(self, *keys: str) -> None:
        """See that the keys are free, and that another client can take them at once."""
        for key in keys:
            await self.until(NOBODY, key)
        lease = await self.other.acquire_all(keys, timeout=0)
        assert lease is not None
        assert await lease.release() is ReleaseStatus.RELEASED
        for key in keys:
            await self.until(NOBODY, key)

    def undone(self, *keys: str) -> Check:
        """Return a check: nothing is left of a call, once what it won is released."""

        async def check(result: Any) -> None:
            assert result is not None
            if isinstance(result, Lease):
                await released(result)
            await self.is_free(*keys)

        return check

    async def is_sane(self, locks: FastRedlock) -> None:
        """See that a client's next replies are those to its own commands."""
        theirs = await self.other.acquire("theirs", timeout=0)
        assert theirs is not None
        await self.until([theirs.token] * 5, "theirs")
        assert await locks.acquire("theirs", timeout=0) is None
        mine = await locks.acquire("mine", timeout=2)
        assert mine is not None
        await self.until([mine.token] * 5, "mine")
        votes = await locks.holders("mine")
        assert [vote.vote for vote in votes] == [Vote.TAKEN] * 5
        votes = await locks.holders("nobodys")
        assert [vote.vote for vote in votes] == [Vote.GRANTED] * 5
        assert await mine.extend(30) > 20
        assert await mine.release() is ReleaseStatus.RELEASED
        assert await theirs.release() is ReleaseStatus.RELEASED
        for key in ("mine", "theirs"):
            await self.until(NOBODY, key)
        assert locks.stats().losses == 0


def address(server: redis.Redis) -> str:
    told = server.connection_pool.connection_kwargs
    return f"{told['host']}:{told['port']}"


@asynccontextmanager
async def connected(world: World) -> AsyncIterator[FastRedlock]:
    """Open a client that is connected to all, and whose scripts are known."""
    async with FastRedlock(world.urls) as locks, world.other:
        await locks.connect()
        await world.other.connect()
        yield locks


async def every_cut(
    way: How,
    begin: Begin,
    check: Check,
    at_least: int = 1,
    moments: Iterator[Wait] | None = None,
) -> None:
    """Cancel the work one step later each time, until it ends by itself twice."""
    cuts = ends = 0
    for wait in moments or map(after_turns, strides()):
        result = await way(await begin(), wait)
        cuts += result is CUT
        ends += result is not CUT
        await check(result)
        if ends == 2:
            break
    assert cuts >= at_least


async def released(lease: Lease | None) -> None:
    assert lease is not None
    assert await lease.release() is ReleaseStatus.RELEASED


def always(work: Work) -> Begin:
    """Return what needs no preparation: the same call each time."""

    async def begin() -> Work:
        return work

    return begin


# --- the frame of a test --------------------------------------------------------------


def on_each_loop(test: Test) -> Callable[..., None]:
    """Run a coroutine as a test on each kind of loop."""

    @wraps(test)
    def run(kind: str, **fixtures: Any) -> None:
        run_on(kind, test(**fixtures))

    _ask_for(run, {"kind", *inspect.signature(test).parameters})
    return run


def with_client(test: Test) -> Callable[..., None]:
    """Give a coroutine a connected `client`, which has to be sane after it."""

    @wraps(test)
    def run(kind: str, world: World, **fixtures: Any) -> None:
        async def main() -> None:
            async with connected(world) as client:
                await test(client=client, world=world, **fixtures)
                await world.is_sane(client)

        run_on(kind, main())

    _ask_for(run, {"kind", "world", *inspect.signature(test).parameters} - {"client"})
    return run


def with_locks(longest: float = 60.0, **options: Any) -> Callable[[Test], Any]:
    """Give a coroutine the `locks` of these options, on each kind of loop.

    longest: s that it may take, where it sleeps for more than that until it is
    cancelled.
    """

    def decorate(test: Test) -> Callable[..., None]:
        wanted = {*inspect.signature(test).parameters}

        @wraps(test)
        def run(kind: str, urls: list[str], **fixtures: Any) -> None:
            async def main() -> None:
                async with FastRedlock(urls, **options) as locks:
                    began = time.monotonic()
                    await test(locks=locks, **fixtures)
                    assert time.monotonic() - began < longest

            if "urls" in wanted:
                fixtures["urls"] = urls
            run_on(kind, main())

        _ask_for(run, {"kind", "urls", *wanted} - {"locks"})
        return run

    return decorate


def _ask_for(run: Callable[..., None], fixtures: set[str]) -> None:
    """Set the signature, where pytest reads which fixtures a test wants."""
    kind = inspect.Parameter.KEYWORD_ONLY
    wanted = [inspect.Parameter(name, kind) for name in sorted(fixtures)]
    run.__signature__ = inspect.Signature(wanted)  # type: ignore[attr-defined]
