"""The awaitable FastRedlock and its loop: one at a time, and nothing left behind.

Loops that change, stand still, fork or end; and its share in one: descriptors, watches,
time, writes, a warning of a blocking client in it.
"""

from __future__ import annotations

import asyncio
import gc
import time
from typing import Any

import pytest

from fastredlock import FastRedlock as BlockingFastRedlock
from fastredlock import FastRedlockError, QuorumUnreachableError, ReleaseStatus, Retry
from fastredlock._locking import attempt
from fastredlock._locking.loop_driver import LoopDriver
from fastredlock._reports import log
from fastredlock.asyncio import FastRedlock
from fastredlock.testing import LocalMasters
from tests.support.awaited import LOOPS, run_on
from tests.support.calls import granted
from tests.support.cancellation import after_turns, on_each_loop, with_locks
from tests.support.fixtures import Servers, linux_calls, portable_calls
from tests.support.keys import KEY, NOBODY, set_all, settled_values
from tests.support.loop_calls import epolls, pair, taken
from tests.support.masters import pause, resume, stop
from tests.support.processes import (
    Fork,
    beside_connections,
    open_files,
)
from tests.support.proxy import Proxy
from tests.support.threads import in_threads
from tests.support.waiting import turn, until

DEAD = [f"redis://127.0.0.1:{port}" for port in (1, 2, 3)]


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
        async with FastRedlock(urls, ttl=20) as locks:
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
                    lambda: lease.extend(2),
                    lambda: lease.release(),
                ):
                    with pytest.raises(FastRedlockError, match="another event loop"):
                        await call()

            in_threads([lambda: run_on(kind, second())])
            assert lease.remaining() > 9  # it was neither released nor cut short
            assert await lease.release() is ReleaseStatus.RELEASED

    run_on(kind, first())


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

    in_threads([lambda: run_on(then, go_on())])
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
@pytest.mark.parametrize("turns", [0, 1, 3, None], ids=["0", "1", "3", "won"])
def test_loop_when_closed_under_a_pending_acquire_then_leaves_no_key(
    kind: str, urls: list[str], servers: Servers, turns: int | None
) -> None:
    locks = FastRedlock(urls)
    loop = LOOPS[kind]()
    loop.set_exception_handler(lambda _, told: None)  # "Task was destroyed", so it was
    if turns is None:
        loop.run_until_complete(locks.connect())
    task = loop.create_task(locks.acquire(KEY, ttl=60))
    turn = 0
    while turn < turns if turns is not None else locks.stats().won < 1:
        loop.call_soon(loop.stop)
        loop.run_forever()  # for one turn
        turn += 1
    loop.close()
    lease = task.result() if task.done() else None

    async def go_on() -> None:
        await pair(locks, "other")
        nonlocal task
        del task
        gc.collect()  # what it may have taken is given back by now
        await pair(locks, "other")
        if lease is not None:  # this kind of loop tells it in the same turn
            assert await lease.release() is ReleaseStatus.RELEASED
        await locks.close()

    run_on(kind, go_on())
    assert settled_values(servers, NOBODY) == NOBODY


def test_release_when_closed_and_its_loop_ends_then_the_slowest_master_has_it(
    kind: str, urls: list[str], servers: Servers
) -> None:
    """Seen: the loop ended with the quorum's replies, inside the others' handshakes."""
    with Proxy(urls[4]) as proxy:
        locks = FastRedlock([*urls[:4], proxy.url])

        async def use() -> ReleaseStatus:
            await locks.connect()
            lease = await taken(locks, ttl=60)
            await locks.close()
            proxy.set(delay=0.02)
            return await lease.release()

        assert run_on(kind, use()) is ReleaseStatus.RELEASED
        assert settled_values(servers, NOBODY) == NOBODY
        assert not locks.stats().losses


# --- forks, and the end of the program ------------------------------------------------


def test_fork_when_the_loop_runs_then_the_child_leaves_the_parents_sockets_alone(
    kind: str, urls: list[str]
) -> None:
    async def main() -> None:
        locks = FastRedlock(urls)
        lease = await taken(locks)
        under_way = [asyncio.ensure_future(pair(locks, f"r{i}")) for i in range(3)]
        await turn()

        def in_child() -> bool:
            async def use() -> bool:
                await pair(locks, "childs")
                await locks.close()
                return lease.is_valid

            asyncio._set_running_loop(None)
            loop = LOOPS[kind]()
            return loop.run_until_complete(use())

        child = Fork(in_child)
        await asyncio.gather(*under_way)
        assert await asyncio.to_thread(child.result) is False
        assert await lease.extend(20) > 15
        await pair(locks, "other")
        assert await lease.release() is ReleaseStatus.RELEASED
        assert (locks.stats().connects, locks.stats().losses) == (5, 0)
        await locks.close()

    run_on(kind, main())


# --- what it holds --------------------------------------------------------------------


@pytest.mark.parametrize("end", ["close", "drop", "drop in another thread"])
@on_each_loop
async def test_descriptors_when_closed_or_dropped_while_the_loop_runs_then_none_is_left(
    urls: list[str], end: str
) -> None:
    before = open_files()
    kept = [FastRedlock(urls)]
    await pair(kept[0])
    await kept[0].connect()
    assert open_files() == before + 5 + beside_connections("asyncio")
    if end == "close":
        await kept[0].close()
    elif end == "drop":
        kept.clear()
    else:
        in_threads([kept.clear])
    await until(lambda: open_files() == before)


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_driver_when_interrupted_before_its_first_line_then_is_dropped_silently() -> (
    None
):
    # As a signal leaves one: made, and not yet initialised.
    LoopDriver.__new__(LoopDriver)
    gc.collect()


def test_descriptors_when_the_loop_is_closed_and_it_is_dropped_then_none_is_left(
    kind: str, urls: list[str]
) -> None:
    run_on(kind, pair(FastRedlock(urls)))  # whatever a first use of the loop keeps
    gc.disable()
    try:
        before = open_files()
        locks = FastRedlock(urls)
        loop = LOOPS[kind]()
        loop.run_until_complete(pair(locks))
        loop.close()
        del locks, loop
        assert open_files() == before
    finally:
        gc.enable()


@linux_calls
@on_each_loop
async def test_epoll_when_five_masters_are_connected_then_watches_each_for_input_only(
    urls: list[str],
) -> None:
    before = epolls()
    async with FastRedlock(urls) as locks:
        await locks.connect()
        await pair(locks)
        await after_turns(5)()  # the loop takes out what was written
        (watched,) = [each for fd, each in epolls().items() if fd not in before]
        assert len({fd for fd, _ in watched}) == len(watched) == 5
        assert {int(events, 16) & 0x7 for _, events in watched} == {0x1}  # EPOLLIN
    assert epolls().keys() == before.keys()


def watched() -> dict[int, int]:
    """Say for which events asyncio's own loop watches each descriptor."""
    selector = asyncio.get_running_loop()._selector  # type: ignore[attr-defined]
    return {key.fd: key.events for key in selector.get_map().values()}


@portable_calls
def test_loop_without_epoll_when_connections_come_and_go_then_watches_those_there_are(
    masters: LocalMasters,
) -> None:
    async def main() -> None:
        before, files = watched(), open_files()
        locks = FastRedlock(masters.urls)
        for _ in range(3):
            await locks.connect()
            for i in range(3):
                masters.stop(i)
                masters.start(i)
            lease = await taken(locks, timeout=5)
            assert await lease.release() is ReleaseStatus.RELEASED
        await locks.connect()
        await after_turns(5)()  # the loop takes out what was written
        ours = watched().items() - before.items()
        assert [events for _, events in ours] == [1] * 5  # selectors.EVENT_READ
        masters.stop(0)  # and refuses from now on
        for _ in range(20):
            await pair(locks)
        await locks.close()
        assert (watched(), open_files()) == (before, files)

    asyncio.run(main())


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["stopped", "full"])
@on_each_loop
async def test_loop_when_nothing_is_asked_then_it_sleeps(
    masters: LocalMasters, fault: str
) -> None:
    async with FastRedlock(masters.urls, round_timeout=0.05) as locks:
        await locks.connect()
        await pair(locks)
        if fault == "stopped":
            stop(masters, 5)
        else:
            pause(masters, 5)
            taken = [locks.acquire(str(i) * 10**6) for i in range(10)]
            for error in await asyncio.gather(*taken, return_exceptions=True):
                assert isinstance(error, QuorumUnreachableError)
        before = time.process_time()
        await asyncio.sleep(0.4)  # what it costs in this time is measured
        assert time.process_time() - before < 0.15
        resume(masters, 5) if fault == "full" else None


@on_each_loop
async def test_loop_when_every_try_fails_at_once_then_other_tasks_run() -> None:
    # A future that is done is awaited without a turn of the loop.
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await turn()
            turns += 1

    async with FastRedlock(DEAD) as locks:
        task = asyncio.create_task(count())
        for _ in range(100):
            with pytest.raises(QuorumUnreachableError):
                await locks.acquire(KEY, timeout=0)
        assert turns >= 100
        task.cancel()
        await asyncio.wait([task])


def reads_of(servers: Servers) -> list[int]:
    """Return how often each server has read from a client."""
    return [server.info("stats")["total_reads_processed"] for server in servers]


@on_each_loop
async def test_tasks_when_many_ask_in_one_turn_then_share_one_write_per_master(
    urls: list[str], servers: Servers
) -> None:
    async with FastRedlock(urls) as locks:
        await locks.connect()
        before = reads_of(servers)
        acquires = [locks.acquire(f"r{i}", ttl=60) for i in range(50)]
        leases = await asyncio.gather(*acquires)
        await asyncio.gather(*[lease.release() for lease in leases if lease])
        await locks.holders("another")  # behind all of them, at the slowest one
        reads = zip(before, reads_of(servers), strict=True)
        assert max(now - then for then, now in reads) < 20  # of 100 commands


# --- a blocking client in it ----------------------------------------------------------


@pytest.fixture
def first_of_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "logged", set())


@pytest.mark.usefixtures("first_of_its_process")
@pytest.mark.parametrize("retry", [Retry(), Retry(delay=0.01)], ids=["turn", "delay"])
@on_each_loop
async def test_blocking_wait_when_in_a_running_loop_then_is_warned_of_once(
    urls: list[str], caplog: pytest.LogCaptureFixture, retry: Retry
) -> None:
    with BlockingFastRedlock(urls, retry=retry) as locks:
        lease = granted(locks.acquire(KEY))
        for _ in range(3):
            assert locks.acquire(KEY, timeout=0.02) is None
        lease.release()
    assert caplog.messages == [attempt.BLOCKED_LOOP]


@pytest.mark.usefixtures("first_of_its_process")
def test_blocking_wait_when_in_a_running_loop_then_is_warned_of_before_it(
    urls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(text: str, *values: object) -> None:
        raise TimeoutError

    async def main() -> None:
        with BlockingFastRedlock(urls) as locks:
            lease = granted(locks.acquire(KEY))
            monkeypatch.setattr(attempt, "warn_once", end)
            with pytest.raises(TimeoutError):  # and not after 60 s
                locks.acquire(KEY, timeout=60)
            lease.release()

    asyncio.run(main())


@pytest.mark.usefixtures("first_of_its_process")
@with_locks()
async def test_call_when_it_does_not_block_the_loop_then_is_not_warned_of(
    locks: FastRedlock, urls: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    with BlockingFastRedlock(urls) as blocking, blocking.lock(KEY):
        granted(blocking.acquire("other", timeout=5)).release()
        assert blocking.acquire(KEY, timeout=0) is None
        assert await locks.acquire(KEY, timeout=0.02) is None
        assert await asyncio.to_thread(blocking.acquire, KEY, timeout=0.02) is None
    assert caplog.messages == []
