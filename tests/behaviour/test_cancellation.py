"""A task that is cancelled at any step of any call leaves nothing behind.

Each call is cancelled after k turns of the loop, or ms behind slow proxies, for
k = 0, 1, 2 ... until it ends by itself. After each: CancelledError came out, the keys
are gone, others can take the lock, and the client's next replies are its own.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import Any

import pytest
import redis

import fastredlock
from fastredlock import LeaseLostError, QuorumUnreachableError, ReleaseStatus, Vote
from fastredlock.asyncio import FastRedlock, Lease
from tests.support.awaited import run_on
from tests.support.keys import KEY, NOBODY, set_all, values
from tests.support.proxy import Proxy
from tests.support.waiting import PATIENCE

ALL = ("a", "b", "c")
CUT = object()  # the outcome of what was cancelled

Work = Callable[[], Coroutine[Any, Any, Any]]
Wait = Callable[[], Awaitable[None]]  # until it is time to cancel
How = Callable[[Work, Wait], Coroutine[Any, Any, Any]]

since_3_11 = pytest.mark.skipif(sys.version_info < (3, 11), reason="is of Python 3.11")


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
    await asyncio.sleep(0)
    task.cancel()
    return await outcome(task)


async def by_wait_for(work: Work, wait: Wait) -> Any:
    async def limited() -> Any:
        return await asyncio.wait_for(work(), 60)

    task = asyncio.ensure_future(limited())
    await wait()
    task.cancel()
    return await outcome(task)


async def by_timeout(work: Work, wait: Wait) -> Any:
    loop = asyncio.get_running_loop()
    opened: asyncio.Future[Any] = loop.create_future()

    async def limited() -> Any:
        async with asyncio.timeout(None) as scope:
            opened.set_result(scope)
            return await work()

    task = asyncio.ensure_future(limited())
    scope = await opened
    await wait()
    if not task.done():
        scope.reschedule(loop.time())
    await asyncio.wait([task])
    return CUT if isinstance(task.exception(), TimeoutError) else task.result()


class SiblingError(Exception):
    """Fail a task group."""


async def by_task_group(work: Work, wait: Wait) -> Any:
    task: asyncio.Task[Any] | None = None

    async def fail() -> None:
        await wait()
        raise SiblingError

    with suppress(BaseException):  # an ExceptionGroup, which Python 3.10 has not
        async with asyncio.TaskGroup() as group:
            task = group.create_task(work())
            group.create_task(fail())
    assert task is not None
    return CUT if task.cancelled() else task.result()


QUICK_WAYS = [by_cancel, by_two_cancels]  # the others take turns themselves
WAYS = [
    by_cancel,
    by_two_cancels,
    by_wait_for,
    pytest.param(by_timeout, marks=since_3_11),
    pytest.param(by_task_group, marks=since_3_11),
]


def after_turns(k: int) -> Wait:
    async def wait() -> None:
        for _ in range(k):
            await asyncio.sleep(0)

    return wait


def after_seconds(seconds: float) -> Wait:
    async def wait() -> None:
        await asyncio.sleep(seconds)

    return wait


def strides(step: int = 1) -> Iterator[int]:
    """Yield 0, step, 2 * step ...: every step, later ones sparser."""
    k = 0
    while True:
        yield k
        k += step if k < 40 * step else k // 8


# --- the state of the world -----------------------------------------------------------


class World:
    """Five servers, a client whose calls are cancelled, and somebody else's."""

    def __init__(self, servers: list[redis.Redis], urls: list[str]) -> None:
        self.servers = servers
        self.urls = urls
        self.other = FastRedlock([f"redis://{address(each)}/0" for each in servers])
        self.lag = 0.0  # s that what was sent takes to arrive

    async def until(
        self, wanted: list[bytes | None], key: str = KEY, within: float = 1.0
    ) -> None:
        """Wait for what has been sent to arrive, for far less than a ttl."""
        ended = asyncio.get_running_loop().time() + within
        while (found := values(self.servers, key)) != wanted:
            assert asyncio.get_running_loop().time() < ended, found
            await asyncio.sleep(0.0005)

    async def is_free(self, *keys: str) -> None:
        """See that nobody holds the keys, and that somebody else can at once."""
        await asyncio.sleep(self.lag)
        for key in keys:
            await self.until(NOBODY, key)
        lease = await self.other.acquire_all(keys, timeout=0)
        assert lease is not None
        assert await lease.release() is ReleaseStatus.RELEASED
        for key in keys:
            await self.until(NOBODY, key)

    async def is_sane(self, locks: FastRedlock) -> None:
        """See that a client's next replies are those to its questions."""
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


@pytest.fixture
def world(servers: list[redis.Redis], urls: list[str]) -> World:
    return World(servers, urls)


@asynccontextmanager
async def connected(world: World, **options: Any) -> Any:
    """Open a client that is connected to all, and whose scripts are known."""
    async with FastRedlock(world.urls, **options) as locks, world.other:
        await locks.connect()
        await world.other.connect()
        yield locks


async def every_cut(
    way: How,
    begin: Callable[[], Awaitable[Work]],
    check: Callable[[Any], Awaitable[None]],
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


# --- acquire --------------------------------------------------------------------------


@pytest.mark.parametrize("way", QUICK_WAYS)
def test_acquire_when_cancelled_at_any_turn_then_leaves_no_key(
    kind: str, world: World, way: How
) -> None:
    async def main() -> None:
        async with connected(world) as locks:

            async def begin() -> Work:
                return lambda: locks.acquire(KEY, ttl=60)

            async def check(result: Any) -> None:
                if result is not CUT:
                    await released(result)
                await world.is_free(KEY)

            await every_cut(way, begin, check)
            await world.is_sane(locks)

    run_on(kind, main())


def test_acquire_when_cancelled_while_it_connects_then_leaves_no_key(
    kind: str, world: World
) -> None:
    async def main() -> None:
        async with world.other:
            fresh: list[FastRedlock] = []

            async def begin() -> Work:
                fresh.append(FastRedlock(world.urls))
                return lambda: fresh[-1].acquire(KEY, ttl=60)

            async def check(result: Any) -> None:
                if result is not CUT:
                    await released(result)
                await world.is_free(KEY)
                await fresh[-1].connect()
                await fresh.pop().close()

            await every_cut(by_cancel, begin, check, at_least=3)

    run_on(kind, main())


def test_acquire_when_others_hold_it_and_cancelled_then_theirs_stands(
    kind: str, world: World
) -> None:
    async def main() -> None:
        async with connected(world) as locks:
            theirs: list[bytes | None] = [b"theirs", b"theirs", b"theirs", None, None]

            async def begin() -> Work:
                return lambda: locks.acquire(KEY, ttl=60, timeout=0.02)

            async def check(result: Any) -> None:
                assert result is CUT or result is None
                await world.until(theirs)

            set_all(world.servers[:3], b"theirs")
            rare = map(after_turns, strides(step=7))
            await every_cut(by_cancel, begin, check, at_least=5, moments=rare)
            for server in world.servers:
                server.delete(KEY)
            await world.is_sane(locks)

    run_on(kind, main())


def test_acquire_when_too_few_answer_and_cancelled_then_it_is_told(
    kind: str, world: World
) -> None:
    dead = [f"redis://127.0.0.1:{port}" for port in (1, 2, 3)]

    async def main() -> None:
        async with FastRedlock([*world.urls[:2], *dead]) as locks:

            async def acquire() -> bool:
                with suppress(QuorumUnreachableError):
                    await locks.acquire(KEY, ttl=60, timeout=0.02)
                return True

            async def begin() -> Work:
                return acquire

            async def check(_: object) -> None:
                await world.until(NOBODY)

            rare = map(after_turns, strides(step=7))
            await every_cut(by_cancel, begin, check, at_least=3, moments=rare)

    run_on(kind, main())


@pytest.mark.parametrize("way", QUICK_WAYS)
def test_acquire_all_when_cancelled_at_any_turn_then_leaves_no_key(
    kind: str, world: World, way: How
) -> None:
    async def main() -> None:
        async with connected(world) as locks:

            async def begin() -> Work:
                return lambda: locks.acquire_all(ALL, ttl=60)

            async def check(result: Any) -> None:
                if result is not CUT:
                    await released(result)
                await world.is_free(*ALL)

            await every_cut(way, begin, check)
            await world.is_sane(locks)

    run_on(kind, main())


@pytest.mark.parametrize("count", [3, 300])
def test_each_when_cancelled_at_any_turn_then_leaves_no_key(
    kind: str, world: World, count: int
) -> None:
    keys = [f"r{i}" for i in range(count)]

    async def main() -> None:
        async with connected(world) as locks:

            async def pair() -> None:
                leases = await locks.acquire_each(keys, ttl=60)
                told = await locks.release_each(leases)
                assert set(told) == {ReleaseStatus.RELEASED}

            async def begin() -> Work:
                return pair

            async def check(_: object) -> None:
                await world.is_free(*keys[:: count // 3])

            await every_cut(by_cancel, begin, check)
            for key in keys:
                await world.until(NOBODY, key)
            await world.is_sane(locks)

    run_on(kind, main())


def test_acquire_when_cancelled_with_the_reply_read_then_what_was_won_is_undone(
    kind: str, world: World
) -> None:
    # The future is done and the task not yet told: cancel() cannot reach the future.
    async def main() -> None:
        async with connected(world) as locks:
            before = locks.stats()
            task = asyncio.ensure_future(locks.acquire(KEY, ttl=60))
            while locks.stats().won == before.won:  # noqa: ASYNC110
                await asyncio.sleep(0)
            task.cancel()
            if await outcome(task) is CUT:
                assert locks.stats().rolled_back == before.rolled_back + 1
            else:
                await released(task.result())
            await world.is_free(KEY)
            await world.is_sane(locks)

    run_on(kind, main())


def test_acquires_when_many_share_a_write_and_half_are_cancelled_then_half_hold(
    kind: str, world: World
) -> None:
    async def main() -> None:
        async with connected(world) as locks:
            for turns in range(6):
                tasks = [
                    asyncio.ensure_future(locks.acquire(f"r{i}", ttl=60))
                    for i in range(40)
                ]
                await after_turns(turns)()
                for task in tasks[::2]:
                    task.cancel()
                leases = [await outcome(task) for task in tasks]
                assert CUT not in leases[1::2]
                held = {f"r{i}": each for i, each in enumerate(leases) if each != CUT}
                for i in range(40):
                    lease = held.get(f"r{i}")
                    await world.until([lease and lease.token] * 5, f"r{i}")
                await asyncio.gather(*[released(lease) for lease in held.values()])
            await world.is_sane(locks)

    run_on(kind, main())


@pytest.mark.slow
def test_tasks_when_cancelled_at_random_for_a_second_then_no_key_is_left(
    kind: str, world: World
) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    draw = random.Random(seed)

    async def main() -> None:
        async with connected(world) as locks:

            async def use(key: str) -> None:
                while True:
                    with suppress(fastredlock.ResourceTakenError):
                        async with locks.lock(key, ttl=60, timeout=0.01) as lease:
                            await lease.extend(50)
                    await asyncio.sleep(0)

            ended = asyncio.get_running_loop().time() + 1
            tasks: list[asyncio.Task[None]] = []
            while asyncio.get_running_loop().time() < ended:
                while len(tasks) < 30:
                    tasks.append(asyncio.ensure_future(use(draw.choice(ALL))))
                await asyncio.sleep(draw.random() / 500)
                for _ in range(10):
                    tasks.pop(draw.randrange(len(tasks))).cancel()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await world.is_free(*ALL)
            await world.is_sane(locks)

    run_on(kind, main())


# --- the with block -------------------------------------------------------------------


@pytest.mark.parametrize("way", QUICK_WAYS)
def test_lock_when_cancelled_at_any_turn_then_leaves_no_key(
    kind: str, world: World, way: How
) -> None:
    async def main() -> None:
        async with connected(world) as locks:
            seen: list[str] = []

            async def block() -> None:
                async with locks.lock(KEY, ttl=60) as lease:
                    seen.append("body")
                    assert lease.is_valid
                    await after_turns(3)()
                    seen.append("leaving")
                seen.append("left")

            async def begin() -> Work:
                return block

            async def check(_: object) -> None:
                await world.is_free(KEY)

            await every_cut(way, begin, check)
            assert seen.count("body") >= seen.count("leaving") >= seen.count("left") > 0
            await world.is_sane(locks)

    run_on(kind, main())


def test_lock_when_cancelled_while_leaving_on_an_error_then_cancellation_comes_out(
    kind: str, world: World
) -> None:
    async def main() -> None:
        async with connected(world) as locks:

            async def block() -> bool:
                with suppress(SiblingError):
                    async with locks.lock(KEY, ttl=60):
                        raise SiblingError
                return True

            async def begin() -> Work:
                return block

            async def check(_: object) -> None:
                await world.is_free(KEY)

            await every_cut(by_cancel, begin, check)

    run_on(kind, main())


# --- release --------------------------------------------------------------------------


@pytest.mark.parametrize("way", QUICK_WAYS)
def test_release_when_cancelled_once_begun_then_still_releases(
    kind: str, world: World, way: How
) -> None:
    async def main() -> None:
        async with connected(world) as locks:
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
                lease = await locks.acquire(KEY, ttl=60)
                return release

            async def check(result: Any) -> None:
                assert lease is not None
                assert result in (CUT, ReleaseStatus.RELEASED)
                assert lease.is_valid is not has_begun
                if not has_begun:  # a task that is cancelled before it runs does not
                    await released(lease)
                await world.is_free(KEY)
                assert await lease.release() in (
                    ReleaseStatus.RELEASED if result is not CUT else ReleaseStatus.GONE,
                    ReleaseStatus.GONE,
                )

            await every_cut(way, begin, check)
            await world.is_sane(locks)

    run_on(kind, main())


def test_release_when_cancelled_again_and_again_then_still_releases(
    kind: str, world: World
) -> None:
    async def main() -> None:
        async with connected(world) as locks:
            for first in range(4):
                lease = await locks.acquire(KEY, ttl=60)
                assert lease is not None
                task = asyncio.ensure_future(lease.release())
                await after_turns(1 + first)()
                for _ in range(3):
                    task.cancel()
                    await asyncio.sleep(0)
                assert await outcome(task) in (CUT, ReleaseStatus.RELEASED)
                again = asyncio.ensure_future(lease.release())
                await asyncio.sleep(0)
                again.cancel()
                await outcome(again)
                await world.is_free(KEY)
            await world.is_sane(locks)

    run_on(kind, main())


# --- extend and the other calls -------------------------------------------------------


@pytest.mark.parametrize("way", QUICK_WAYS)
def test_extend_when_cancelled_at_any_turn_then_the_lease_counts_on_the_earlier_end(
    kind: str, world: World, way: How
) -> None:
    async def main() -> None:
        async with connected(world) as locks:
            lease: Lease | None = None

            async def begin() -> Work:
                nonlocal lease
                lease = await locks.acquire(KEY, ttl=20)
                assert lease is not None
                return lambda held=lease: held.extend(60)

            async def check(result: Any) -> None:
                assert lease is not None
                assert lease.remaining() > 50 if result is not CUT else 20
                assert min(each.pttl(KEY) for each in world.servers) > (
                    1000 * lease.remaining() if result is CUT else 0
                )
                assert await lease.extend(30) > 25  # the cancelled one is in no way
                await released(lease)
                await world.is_free(KEY)

            await every_cut(way, begin, check)
            await world.is_sane(locks)

    run_on(kind, main())


def test_extend_when_cancelled_and_the_key_is_lost_then_says_so_next(
    kind: str, world: World
) -> None:
    async def main() -> None:
        async with connected(world) as locks:
            lease = await locks.acquire(KEY, ttl=20)
            assert lease is not None
            task = asyncio.ensure_future(lease.extend())
            await asyncio.sleep(0)
            task.cancel()
            assert await outcome(task) is CUT
            for server in world.servers:
                server.delete(KEY)
            with pytest.raises(LeaseLostError):
                await lease.extend()

    run_on(kind, main())


def test_holders_when_cancelled_at_any_turn_then_the_next_reads_its_own_replies(
    kind: str, world: World
) -> None:
    async def main() -> None:
        async with connected(world) as locks:
            lease = await locks.acquire(KEY, ttl=60)
            assert lease is not None
            await world.until([lease.token] * 5)

            async def begin() -> Work:
                return lambda: locks.holders("nobodys")

            async def check(result: Any) -> None:
                votes = await locks.holders(KEY)
                assert [vote.vote for vote in votes] == [Vote.TAKEN] * 5

            await every_cut(by_cancel, begin, check)
            await released(lease)
            await world.is_sane(locks)

    run_on(kind, main())


@pytest.mark.parametrize("call", ["connect", "close"])
def test_connections_when_cancelled_at_any_turn_then_are_as_usable_or_all_closed(
    kind: str, world: World, call: str
) -> None:
    async def main() -> None:
        fresh: list[FastRedlock] = []

        async def begin() -> Work:
            fresh.append(FastRedlock(world.urls))
            if call == "close":
                await released(await fresh[-1].acquire(KEY, ttl=60))
            return getattr(fresh[-1], call)  # type: ignore[no-any-return]

        async def check(result: Any) -> None:
            locks = fresh.pop()
            if call == "close" and result is not CUT:
                with pytest.raises(fastredlock.FastRedlockError, match="closed"):
                    await locks.acquire(KEY, timeout=0)
            else:
                # One that was cancelled in its last wait has closed all the same.
                with suppress(fastredlock.FastRedlockError):
                    await released(await locks.acquire(KEY, ttl=60))
            await locks.close()
            await world.until(NOBODY)

        await every_cut(by_cancel, begin, check)

    run_on(kind, main())


def test_close_when_calls_are_under_way_then_each_is_told_and_no_key_is_left(
    kind: str, world: World
) -> None:
    async def main() -> None:
        for turns in (0, 1, 2, 5, 20):
            locks = FastRedlock(world.urls)
            tasks = [
                asyncio.ensure_future(locks.acquire(f"r{i}", ttl=60)) for i in range(5)
            ]
            await after_turns(turns)()
            await locks.close()
            for i, task in enumerate(tasks):
                await asyncio.wait([task])
                if task.exception() is None:
                    lease = task.result()
                    assert lease is not None
                    await world.until([lease.token] * 5, f"r{i}")
                    for server in world.servers:
                        server.delete(f"r{i}")
                else:
                    assert isinstance(task.exception(), fastredlock.FastRedlockError)
                    await world.until(NOBODY, f"r{i}")

    run_on(kind, main())


# --- behind slow proxies: each step on its own ----------------------------------------


@pytest.fixture
def slow(world: World) -> Iterator[list[Proxy]]:
    """Stand five proxies before the servers, which add 3 ms each way."""
    world.lag = 0.01
    with ExitStack() as opened:
        proxies = [opened.enter_context(Proxy(url)) for url in world.urls]
        for proxy in proxies:
            proxy.set(delay=0.003)
        world.urls = [proxy.url for proxy in proxies]
        yield proxies


def every_ms(step: float = 2.0) -> Iterator[Wait]:
    at = 0.0
    while True:
        yield after_seconds(at / 1000)
        at += step


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("call", ["acquire", "acquire_all", "each", "lock", "release"])
def test_call_when_cancelled_at_any_ms_of_slow_round_trips_then_leaves_no_key(
    kind: str, world: World, slow: list[Proxy], call: str, way: How
) -> None:
    async def main() -> None:
        async with connected(world) as locks:

            async def block() -> None:
                async with locks.lock(KEY, ttl=60):
                    await asyncio.sleep(0.003)

            async def each() -> None:
                await locks.release_each(await locks.acquire_each([KEY, "b"], ttl=60))

            async def begin() -> Work:
                if call == "acquire":
                    return lambda: locks.acquire(KEY, ttl=60)
                if call == "each":
                    return each
                if call == "acquire_all":
                    return lambda: locks.acquire_all(ALL, ttl=60)
                if call == "lock":
                    return block
                lease = await locks.acquire(KEY, ttl=60)
                assert lease is not None
                return lease.release

            async def check(result: Any) -> None:
                if isinstance(result, Lease):
                    await released(result)
                await world.is_free(KEY, *ALL)

            moments = every_ms()
            await every_cut(way, begin, check, at_least=2, moments=moments)
            await world.is_sane(locks)

    run_on(kind, main())


@pytest.mark.slow
def test_acquire_when_cancelled_in_any_ms_of_a_slow_handshake_then_leaves_no_key(
    kind: str, world: World, slow: list[Proxy]
) -> None:
    async def main() -> None:
        async with world.other:
            fresh: list[FastRedlock] = []

            async def begin() -> Work:
                fresh.append(FastRedlock(world.urls))
                return lambda: fresh[-1].acquire(KEY, ttl=60)

            async def check(result: Any) -> None:
                if result is not CUT:
                    await released(result)
                await world.is_free(KEY)
                await fresh.pop().close()

            moments = every_ms(4)
            await every_cut(by_cancel, begin, check, at_least=4, moments=moments)

    run_on(kind, main())


@pytest.mark.slow
@pytest.mark.parametrize("call", ["acquire", "release", "extend"])
def test_call_when_cancelled_while_replies_are_dropped_then_leaves_no_key(
    kind: str, world: World, slow: list[Proxy], call: str
) -> None:
    # The servers have executed; the client will never hear of it.
    async def main() -> None:
        async with world.other:
            await world.other.connect()
            for at in (0.0, 0.004, 0.01, 0.02):
                locks = FastRedlock(world.urls)
                await locks.connect()
                lease = None
                if call != "acquire":
                    lease = await locks.acquire(KEY, ttl=60)
                    assert lease is not None
                for proxy in slow:
                    proxy.set(drops_replies=True)
                work = (
                    locks.acquire(KEY, ttl=60)
                    if lease is None
                    else (lease.release() if call == "release" else lease.extend(90))
                )
                task = asyncio.ensure_future(work)
                await asyncio.sleep(at)
                await asyncio.sleep(0)
                task.cancel()
                assert await outcome(task) is CUT
                for proxy in slow:
                    proxy.set(drops_replies=False)
                    proxy.reset()
                if call == "extend":
                    assert lease is not None
                    assert lease.remaining() < 60
                    await released_in_the_end(lease)
                elif call == "release" and at == 0.0 and lease and lease.is_valid:
                    await released_in_the_end(lease)
                # Not before each has noticed that its connection is gone.
                while locks.stats().losses < 5 or not is_ready(locks):
                    await released(await locks.acquire("mine", timeout=5))
                await world.is_free(KEY)  # what was carried went with the connections
                await locks.close()

    run_on(kind, main())


def is_ready(locks: FastRedlock) -> bool:
    return {each.state.name for each in locks.health()} == {"READY"}


async def released_in_the_end(lease: Lease) -> None:
    """Release it over connections that have to be opened again."""
    async with asyncio.timeout(PATIENCE):
        while await lease.release() is ReleaseStatus.UNKNOWN:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
