"""The share of the awaitable client in a loop: descriptors, watches, time, writes."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from fastredlock import QuorumUnreachableError
from fastredlock._locking.loop_driver import LoopDriver
from fastredlock.asyncio import FastRedlock
from fastredlock.testing import LocalMasters
from tests.support.awaited import LOOPS, run_on
from tests.support.fake_server import FakeServer
from tests.support.fixtures import linux_calls
from tests.support.keys import KEY
from tests.support.loop_calls import epolls, pair
from tests.support.masters import pause, resume
from tests.support.processes import beside_connections, open_files
from tests.support.waiting import wait_until

DEAD = [f"redis://127.0.0.1:{port}" for port in (1, 2, 3)]


# --- what it holds --------------------------------------------------------------------


def test_descriptors_when_closed_then_none_is_left(kind: str, urls: list[str]) -> None:
    async def main() -> None:
        before = open_files()
        async with FastRedlock(urls) as locks:
            await pair(locks)
            assert open_files() == before + 5 + beside_connections(kind)
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


def test_descriptors_when_the_loop_changes_often_then_stay_as_few(
    kind: str, urls: list[str]
) -> None:
    locks = FastRedlock(urls)
    run_on(kind, pair(locks))
    before = open_files()
    for _ in range(5):
        run_on(kind, pair(locks))
    assert open_files() == before


@linux_calls
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

    def _receive(self, connection: Any, data: bytes) -> bool:
        before = len(self.commands)
        stays = super()._receive(connection, data)
        self.chunks.append(len(self.commands) - before)
        return stays

    def sets(self) -> list[bytes]:
        """List the SETs of all chunks noted."""
        known = sum(self.chunks)
        return [name for name in self.names()[:known] if name == b"SET"]


@contextmanager
def chunk_servers() -> Iterator[list[ChunkServer]]:
    with ExitStack() as opened:
        servers = [ChunkServer() for _ in range(3)]
        for server in servers:
            opened.enter_context(server)
        yield servers


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
