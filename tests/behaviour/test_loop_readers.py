"""Where the core has no epoll: the loop watches each connection, and none too long."""

from __future__ import annotations

import asyncio

from fastredlock import ReleaseStatus
from fastredlock.asyncio import FastRedlock
from fastredlock.testing import LocalMasters
from tests.support.fixtures import portable_calls
from tests.support.loop_calls import pair, taken
from tests.support.processes import open_files

pytestmark = portable_calls


def watched() -> dict[int, int]:
    """Say for which events asyncio's own loop watches each descriptor."""
    selector = asyncio.get_running_loop()._selector  # type: ignore[attr-defined]
    return {key.fd: key.events for key in selector.get_map().values()}


def test_loop_when_five_masters_are_connected_then_watches_each_for_input_only(
    urls: list[str],
) -> None:
    async def main() -> None:
        before = watched()
        locks = FastRedlock(urls)
        await locks.connect()
        await pair(locks)
        await asyncio.sleep(0.01)
        ours = watched().items() - before.items()
        assert [events for _, events in ours] == [1] * 5  # selectors.EVENT_READ
        await locks.close()
        assert watched() == before

    asyncio.run(main())


def test_loop_when_connections_are_lost_then_forgets_them_and_watches_the_next(
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
        assert (len(watched()), open_files()) == (len(before) + 5, files + 5)
        await locks.close()
        assert (watched(), open_files()) == (before, files)

    asyncio.run(main())


def test_loop_when_a_master_refuses_again_and_again_then_nothing_is_left(
    urls: list[str],
) -> None:
    async def main() -> None:
        before, files = watched(), open_files()
        masters = [*urls[:2], "redis://127.0.0.1:1"]
        locks = FastRedlock(masters)
        for _ in range(20):
            await pair(locks)
        await locks.close()
        assert (watched(), open_files()) == (before, files)

    asyncio.run(main())


def test_loop_when_another_one_takes_over_then_nothing_is_left_of_the_first(
    urls: list[str],
) -> None:
    locks = FastRedlock(urls)
    asyncio.run(pair(locks))
    files = open_files()
    for _ in range(5):
        asyncio.run(pair(locks))
    assert open_files() == files
