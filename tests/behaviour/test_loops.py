"""The awaitable FastRedlock and its loop: one at a time, and nothing left behind."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

import pytest
import redis

from fastredlock import FastRedlockError, ReleaseStatus
from fastredlock.asyncio import FastRedlock, Lease
from fastredlock.testing import LocalMasters
from tests.support.awaited import LOOPS, run_on
from tests.support.keys import KEY, NOBODY, set_all, settled_values
from tests.support.loop_calls import pair, taken
from tests.support.masters import pause, resume
from tests.support.proxy import Proxy


def in_thread(kind: str, work: Coroutine[Any, Any, object]) -> None:
    """Run a coroutine on a loop in another thread; raise what it raises."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            run_on(kind, work)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


# --- a loop that is run inside itself -------------------------------------------------


@pytest.mark.parametrize("is_known", [True, False], ids=["patched", "by hand"])
def test_loop_when_a_task_runs_it_again_then_locks_are_taken_without_an_error(
    urls: list[str], is_known: bool
) -> None:
    errors: list[dict[str, Any]] = []

    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        me: Any = asyncio.current_task()
        loop.set_exception_handler(lambda _, error: errors.append(error))
        if is_known:
            loop._nest_patched = True
        async with FastRedlock(urls[:1], ttl=5) as locks, locks.lock("outer"):
            others = [asyncio.ensure_future(pair(locks, f"i{i}")) for i in range(20)]
            asyncio.tasks._leave_task(loop, me)
            try:  # as nest_asyncio does
                while not all(other.done() for other in others):
                    loop._run_once()
            finally:
                asyncio.tasks._enter_task(loop, me)
            await asyncio.gather(*others)

    began = time.monotonic()
    asyncio.run(main())
    assert (errors, time.monotonic() - began < 1) == ([], True)


# --- a second loop --------------------------------------------------------------------


def test_second_loop_when_the_first_is_open_then_every_call_is_a_clear_error(
    kind: str, urls: list[str]
) -> None:
    async def first() -> None:
        locks = FastRedlock(urls)
        lease = await taken(locks)

        async def second() -> None:
            for call in (
                lambda: locks.acquire("other", timeout=0),
                lambda: locks.acquire_all(["other", "one"], timeout=0),
                lambda: locks.acquire_each(["other", "one"]),
                lambda: locks.release_each([lease]),
                lambda: locks.lock("other").__aenter__(),
                lambda: locks.holders(),
                lambda: locks.connect(),
                lambda: locks.close(),
                lambda: lease.extend(20),
                lambda: lease.release(),
            ):
                with pytest.raises(FastRedlockError, match="another event loop"):
                    await call()

        in_thread(kind, second())
        assert lease.remaining() > 9  # it was neither released nor cut short
        assert await lease.release() is ReleaseStatus.RELEASED
        await locks.close()

    run_on(kind, first())


@pytest.mark.slow
def test_second_loop_when_it_tries_all_the_time_then_the_first_is_not_disturbed(
    kind: str, urls: list[str]
) -> None:
    # Both at the sockets at once sent commands twice, and hung.
    async def first() -> None:
        locks = FastRedlock(urls)
        await locks.connect()
        is_over = threading.Event()

        async def second() -> None:
            while not is_over.is_set():
                with suppress(FastRedlockError):
                    await locks.acquire("other", timeout=0)
                await asyncio.sleep(0)

        thread = threading.Thread(target=run_on, args=(kind, second()))
        thread.start()
        for _ in range(10):
            await asyncio.gather(*[pair(locks, f"r{i}") for i in range(20)])
        is_over.set()
        thread.join()
        assert (locks.stats().won, locks.stats().losses) == (400, 0)
        await locks.close()

    run_on(kind, first())


@pytest.mark.parametrize("call", ["release", "release_each", "adopt"])
def test_release_when_cancelled_before_its_first_step_on_a_new_loop_then_still_releases(
    kind: str, urls: list[str], servers: list[redis.Redis], call: str
) -> None:
    locks = FastRedlock(urls)
    lease = run_on(kind, taken(locks, ttl=60))
    token = lease.token

    async def cancel() -> None:
        other = FastRedlock(urls)
        calls = {
            "release": lease.release,
            "release_each": lambda: locks.release_each([lease]),
            "adopt": lambda: other.adopt(KEY, token).release(),
        }
        task: asyncio.Future[Any] = asyncio.ensure_future(calls[call]())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        for _ in range(100):
            if not any(server.exists(KEY) for server in servers):
                break
            await asyncio.sleep(0.02)
        await other.close()

    run_on(kind, cancel())
    assert settled_values(servers, NOBODY) == NOBODY


@pytest.mark.parametrize("then", LOOPS)
def test_next_loop_when_the_first_is_closed_then_gets_connections_of_its_own(
    kind: str, then: str, urls: list[str]
) -> None:
    locks = FastRedlock(urls)
    lease = run_on(kind, taken(locks, ttl=20))

    async def go_on() -> None:
        assert await lease.extend(30) > 20
        assert await locks.acquire(KEY, timeout=0) is None
        assert await lease.release() is ReleaseStatus.RELEASED
        await pair(locks)
        await locks.connect()  # one may be late
        await locks.close()

    in_thread(then, go_on())
    assert locks.stats().connects == 10


def test_next_loop_when_releases_were_under_way_then_sends_them_again(
    kind: str, masters: LocalMasters, raw: Any
) -> None:
    locks = FastRedlock(masters.urls, round_timeout=0.05)
    lease = run_on(kind, taken(locks, ttl=60))

    async def release() -> ReleaseStatus:
        pause(masters, 3)
        return await lease.release()

    assert run_on(kind, release()) is ReleaseStatus.UNKNOWN
    resume(masters, 3)
    servers = [raw(url) for url in masters.urls]
    set_all(servers, lease.token)  # as if it had not arrived

    async def go_on() -> None:
        await pair(locks, "other")
        await locks.close()

    run_on(kind, go_on())
    assert settled_values(servers[:3], NOBODY[:3]) == NOBODY[:3]


# --- closed under way -----------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:coroutine:RuntimeWarning")
@pytest.mark.parametrize("turns", [0, 1, 3])
def test_loop_when_closed_under_a_pending_acquire_then_leaves_no_key(
    kind: str, urls: list[str], servers: list[redis.Redis], turns: int
) -> None:
    locks = FastRedlock(urls)
    loop = LOOPS[kind]()
    loop.set_exception_handler(lambda _, told: None)  # "Task was destroyed", so it was

    async def begin() -> asyncio.Task[Lease | None]:
        task = asyncio.ensure_future(locks.acquire(KEY, ttl=60))
        for _ in range(turns):
            await asyncio.sleep(0)
        return task

    task = loop.run_until_complete(begin())
    loop.close()
    lease = task.result() if task.done() else None

    async def go_on() -> None:
        await pair(locks, "other")
        nonlocal task
        del task
        gc.collect()  # what it may have taken is given back by now
        await pair(locks, "other")
        if lease is not None:
            await lease.release()
        await locks.close()

    run_on(kind, go_on())
    assert settled_values(servers, NOBODY) == NOBODY


def test_loop_when_closed_before_a_winner_was_told_then_leaves_no_key(
    kind: str, urls: list[str], servers: list[redis.Redis]
) -> None:
    locks = FastRedlock(urls)
    loop = LOOPS[kind]()
    loop.set_exception_handler(lambda _, told: None)

    loop.run_until_complete(locks.connect())
    task = loop.create_task(locks.acquire(KEY, ttl=60))
    while locks.stats().won < 1:
        loop.call_soon(loop.stop)
        loop.run_forever()  # for one turn
    loop.close()
    lease = task.result() if task.done() else None
    del task

    async def go_on() -> None:
        gc.collect()
        await pair(locks, "other")
        if lease is not None:  # this kind of loop tells it in the same turn
            assert await lease.release() is ReleaseStatus.RELEASED
        await locks.close()

    run_on(kind, go_on())
    assert settled_values(servers, NOBODY) == NOBODY


def test_close_when_a_connection_is_on_its_way_then_its_release_arrives(
    kind: str, urls: list[str], servers: list[redis.Redis]
) -> None:
    with Proxy(urls[4]) as proxy:
        locks = FastRedlock([*urls[:4], proxy.url])

        async def take() -> Lease:
            await locks.connect()
            return await taken(locks)

        async def give_back() -> None:  # over new connections, of which one is slow
            await pair(locks, "other")
            assert await lease.release() is ReleaseStatus.RELEASED
            await locks.close()

        lease = run_on(kind, take())
        proxy.set(delay=0.02)
        run_on(kind, give_back())
        assert settled_values(servers, NOBODY) == NOBODY
