"""The awaitable FastRedlock and its loop: one at a time, and nothing left behind."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import redis
from awaited import LOOPS, run_on
from fake_server import FakeServer

from fastredlock import (
    FastRedlockError,
    QuorumUnreachableError,
    ReleaseStatus,
    Retry,
)
from fastredlock.asyncio import FastRedlock, Lease
from fastredlock.testing import LocalMasters

from .helpers import (
    KEY,
    NOBODY,
    Fork,
    open_files,
    pause,
    resume,
    set_all,
    settled_values,
    wait_until,
)

DEAD = [f"redis://127.0.0.1:{port}" for port in (1, 2, 3)]


async def taken(locks: FastRedlock, key: str = KEY, **options: float) -> Lease:
    """Take it; it is free."""
    lease = await locks.acquire(key, **options)
    assert lease is not None
    return lease


async def pair(locks: FastRedlock, key: str = KEY) -> None:
    """Take and release it."""
    lease = await taken(locks, key, timeout=2)
    assert await lease.release() is ReleaseStatus.RELEASED


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


# --- what it holds --------------------------------------------------------------------


def test_descriptors_when_closed_then_none_is_left(kind: str, urls: list[str]) -> None:
    async def main() -> None:
        before = open_files()
        async with FastRedlock(urls) as locks:
            await pair(locks)
            assert open_files() == before + 5 + 1
        assert open_files() == before

    run_on(kind, main())


def test_descriptors_when_dropped_while_the_loop_runs_then_none_is_left(
    kind: str, urls: list[str]
) -> None:
    async def main() -> None:
        before = open_files()
        locks = FastRedlock(urls)
        await pair(locks)
        del locks
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert open_files() == before

    run_on(kind, main())


def test_descriptors_when_dropped_by_another_thread_then_none_is_left(
    kind: str, urls: list[str]
) -> None:
    async def main() -> None:
        before = open_files()
        kept = [FastRedlock(urls)]
        await pair(kept[0])
        thread = threading.Thread(target=kept.clear)
        thread.start()
        thread.join()
        await asyncio.sleep(0.01)
        assert open_files() == before

    run_on(kind, main())


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


def test_descriptors_when_the_loop_changes_often_then_stay_as_few(
    kind: str, urls: list[str]
) -> None:
    locks = FastRedlock(urls)
    run_on(kind, pair(locks))
    before = open_files()
    for _ in range(5):
        run_on(kind, pair(locks))
    assert open_files() == before


def epolls() -> dict[int, list[tuple[str, str]]]:
    """List what each epoll of this process watches: fd, events (proc(5), fdinfo)."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}") == "anon_inode:[eventpoll]":
                text = Path(f"/proc/self/fdinfo/{name}").read_text()
                found[int(name)] = re.findall(r"tfd: *(\d+) events: *(\w+)", text)
    return found


def test_epoll_when_five_masters_are_connected_then_watches_each_for_input_only(
    kind: str, urls: list[str]
) -> None:
    async def main() -> None:
        before = epolls()
        locks = FastRedlock(urls)
        await locks.connect()
        await pair(locks)
        await asyncio.sleep(0.01)
        (watched,) = [each for fd, each in epolls().items() if fd not in before]
        assert len({fd for fd, _ in watched}) == len(watched) == 5
        assert {int(events, 16) & 0x7 for _, events in watched} == {0x1}  # EPOLLIN
        await locks.close()
        assert epolls().keys() == before.keys()

    run_on(kind, main())


def cpu_of(seconds: float) -> Coroutine[Any, Any, float]:
    async def spend() -> float:
        before = time.process_time()
        await asyncio.sleep(seconds)
        return time.process_time() - before

    return spend()


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["idle", "stopped", "paused", "full"])
def test_loop_when_nothing_is_asked_then_it_sleeps(
    kind: str, masters: LocalMasters, fault: str
) -> None:
    async def main() -> None:
        locks = FastRedlock(masters.urls, round_timeout=0.05)
        await locks.connect()
        await pair(locks)
        if fault == "stopped":
            for i in range(5):
                masters.stop(i)
        elif fault != "idle":
            pause(masters, 5)
            size = 100 if fault == "paused" else 10**6
            taken = [locks.acquire(str(i) * size) for i in range(10)]
            for error in await asyncio.gather(*taken, return_exceptions=True):
                assert isinstance(error, QuorumUnreachableError)
        assert await cpu_of(0.4) < 0.15
        resume(masters, 5) if fault in ("paused", "full") else None
        await locks.close()

    run_on(kind, main())


def test_loop_when_every_try_fails_at_once_then_other_tasks_run(kind: str) -> None:
    # A future that is done is awaited without a turn of the loop.
    async def main() -> None:
        locks = FastRedlock(DEAD)
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        task = asyncio.create_task(count())
        for _ in range(100):
            with pytest.raises(QuorumUnreachableError):
                await locks.acquire(KEY, timeout=0)
        assert turns >= 100
        task.cancel()
        await asyncio.wait([task])
        await locks.close()

    run_on(kind, main())


# --- one write ------------------------------------------------------------------------


class ChunkServer(FakeServer):
    """Note what each receive brought, too: how many commands."""

    def __init__(self) -> None:
        super().__init__()
        self.chunks: list[int] = []

    def _receive(self, connection: Any) -> None:
        before = len(self.commands)
        super()._receive(connection)
        self.chunks.append(len(self.commands) - before)

    def sets(self) -> list[bytes]:
        """List the SETs of all chunks noted."""
        known = sum(self.chunks)
        return [name for name in self.names()[:known] if name == b"SET"]


@contextmanager
def chunk_servers() -> Iterator[list[ChunkServer]]:
    with ChunkServer() as one, ChunkServer() as two, ChunkServer() as three:
        yield [one, two, three]


def test_tasks_when_many_ask_in_one_turn_then_share_one_write_per_master(
    kind: str,
) -> None:
    async def main() -> None:
        with chunk_servers() as servers:
            locks = FastRedlock([server.url for server in servers])
            await locks.connect()
            leases = await asyncio.gather(
                *[locks.acquire(f"r{i}", ttl=60) for i in range(50)]
            )
            for server in servers:
                assert wait_until(lambda server=server: len(server.sets()) == 50)
                server.chunks.clear()
            await asyncio.gather(*[lease.release() for lease in leases if lease])
            for server in servers:
                assert wait_until(lambda server=server: sum(server.chunks) >= 50)
                assert server.chunks == [50]
            await locks.close()

    run_on(kind, main())


# --- pauses, forks, the end -----------------------------------------------------------


# uvloop's timers go off up to half a millisecond early: an acquire that trusted them
# would try many times just before the end of its timeout.
@pytest.mark.parametrize("kind", LOOPS)
def test_acquire_when_its_timeout_ends_then_tries_at_its_end_and_not_before(
    kind: str, urls: list[str], servers: list[redis.Redis]
) -> None:
    set_all(servers, b"another")

    async def wait(locks: FastRedlock, timeout: float) -> int:
        before = locks.stats().rounds
        began = time.monotonic()
        assert await locks.acquire(KEY, timeout=timeout) is None
        assert time.monotonic() - began >= timeout
        return locks.stats().rounds - before

    async def main() -> list[int]:
        async with FastRedlock(urls, retry=Retry(delay=0.01, jitter=0)) as locks:
            await locks.connect()
            return [await wait(locks, 0.02 + i / 8000) for i in range(24)]

    assert set(run_on(kind, main())) <= {3, 4}  # at 0, 10 (and 20) ms, and at the end


@pytest.mark.parametrize("kind", LOOPS)
def test_delay_when_cancelled_then_leaves_no_timer(kind: str, urls: list[str]) -> None:
    async def main() -> None:
        async with FastRedlock(urls) as locks:
            driver = locks._loop_driver()
            delay = driver.sleep(3600)
            task = asyncio.ensure_future(asyncio.wait_for(wait(delay), 10))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not [each for each in gc.get_referrers(delay) if is_timer(each)]

    async def wait(delay: Any) -> None:
        await delay

    def is_timer(thing: object) -> bool:
        return isinstance(thing, asyncio.TimerHandle) and not thing.cancelled()

    run_on(kind, main())


@pytest.mark.slow
def test_loop_when_it_stood_still_then_replies_that_came_meanwhile_count(
    kind: str, urls: list[str]
) -> None:
    async def main() -> None:
        locks = FastRedlock(urls, round_timeout=0.05)
        await locks.connect()
        task = asyncio.ensure_future(locks.acquire(KEY, ttl=10, timeout=0))
        for _ in range(2):  # it asks, and at the end of the turn that is sent
            await asyncio.sleep(0)
        time.sleep(1.2)  # noqa: ASYNC251 - longer than any deadline
        lease = await task
        assert lease is not None
        assert 7 < lease.remaining() < 10 - 1.2
        assert await lease.release() is ReleaseStatus.RELEASED
        assert locks.stats().losses == 0
        await locks.close()

    run_on(kind, main())


@pytest.mark.slow
def test_loop_when_it_stood_still_past_the_ttl_then_nothing_is_granted(
    kind: str, urls: list[str], servers: list[redis.Redis]
) -> None:
    async def main() -> None:
        locks = FastRedlock(urls)
        await locks.connect()
        task = asyncio.ensure_future(locks.acquire(KEY, ttl=0.3, timeout=0))
        for _ in range(2):  # it asks, and at the end of the turn that is sent
            await asyncio.sleep(0)
        time.sleep(0.4)  # noqa: ASYNC251
        with pytest.raises(FastRedlockError, match="validity"):
            await task
        await pair(locks)
        await locks.close()

    run_on(kind, main())


@pytest.mark.slow
def test_loop_when_connections_are_cut_while_it_is_not_run_then_the_first_try_succeeds(
    kind: str, masters: LocalMasters
) -> None:
    locks = FastRedlock(masters.urls)
    loop = LOOPS[kind]()
    loop.run_until_complete(pair(locks))
    time.sleep(1.1)  # for longer than the engine trusts a connection
    for i in range(5):
        masters.stop(i)
        masters.start(i)

    async def go_on() -> None:
        lease = await taken(locks, timeout=0)
        assert await lease.release() is ReleaseStatus.RELEASED
        await locks.close()

    loop.run_until_complete(go_on())
    loop.close()


def test_fork_when_the_loop_runs_then_the_child_leaves_the_parents_sockets_alone(
    kind: str, urls: list[str]
) -> None:
    async def main() -> None:
        locks = FastRedlock(urls)
        lease = await taken(locks)
        under_way = [asyncio.ensure_future(pair(locks, f"r{i}")) for i in range(3)]
        await asyncio.sleep(0)

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


def test_fork_when_the_child_only_exits_then_the_parent_reconnects_as_ever(
    kind: str, masters: LocalMasters
) -> None:
    async def main() -> None:
        before = epolls()
        locks = FastRedlock(masters.urls)
        await pair(locks)
        is_over, tell = os.pipe()
        child = Fork(lambda: os.read(is_over, 1).decode())  # has the old sockets open
        for i in range(3):
            masters.stop(i)
            masters.start(i)
        lease = await taken(locks, timeout=5)
        assert await lease.release() is ReleaseStatus.RELEASED
        await locks.connect()
        (watched,) = [each for fd, each in epolls().items() if fd not in before]
        assert len(watched) == 5
        os.write(tell, b"!")
        assert child.result() == "!"
        for fd in (is_over, tell):
            os.close(fd)
        await locks.close()

    run_on(kind, main())


PROGRAM = """
import asyncio, sys
from awaited import LOOPS
from fastredlock.asyncio import FastRedlock

async def main():
    global lease
    lease = await locks.acquire("left")
    tasks.append(asyncio.ensure_future(locks.acquire("left", timeout=60)))
    await asyncio.sleep(0.01)

tasks = []
locks = FastRedlock(sys.argv[3:])
loop = LOOPS[sys.argv[1]]()
loop.run_until_complete(main())
tasks[0].cancel()
loop.run_until_complete(asyncio.wait(tasks))
if sys.argv[2] == "closed":
    loop.close()
"""


SILENT = ("-X", "dev", "-W", "ignore::ResourceWarning")  # of the loop, unclosed


@pytest.mark.slow
@pytest.mark.parametrize("how", ["open", "closed"])
def test_exit_when_a_lease_is_held_then_is_silent(
    kind: str, urls: list[str], how: str
) -> None:
    done = subprocess.run(
        [sys.executable, *SILENT, "-c", PROGRAM, kind, how, *urls],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_memory_when_there_are_many_pairs_then_stays_flat(
    kind: str, urls: list[str]
) -> None:
    async def main() -> None:
        locks = FastRedlock(urls)

        async def many(number: int) -> None:
            for _ in range(20):
                await pair(locks, f"r{number}")

        used = []
        for _ in range(3):
            await asyncio.gather(*[many(i) for i in range(100)])
            assert locks._driver is not None
            while locks._driver.awaits_replies():  # noqa: ASYNC110
                await asyncio.sleep(0.001)  # the slowest masters hold rounds
            gc.collect()
            used.append(sys.getallocatedblocks())
        assert min(used[1:]) - used[0] < 1500  # 2000 pairs
        await locks.close()

    run_on(kind, main())
