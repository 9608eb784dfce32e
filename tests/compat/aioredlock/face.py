"""aioredlock, theirs or ours, on a loop that the tests drive."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, TypeVar

import pytest
import redis

from tests.support.keys import KEY
from tests.support.two_libraries import load

PAIR = ("aioredlock", "fastredlock.compat.aioredlock")
OURS = PAIR[1]
BRIEF = 0.2  # s; a lock that is over soon, on a loaded machine, too
T = TypeVar("T")

_fails = pytest.mark.xfail(strict=True, reason="their bug, which is not copied")
not_copied = pytest.mark.parametrize(
    "aioredlock", [pytest.param(PAIR[0], marks=_fails), OURS], indirect=True
)
ours_alone = pytest.mark.parametrize("aioredlock", [OURS], indirect=True)


class Face:
    """The module and a loop; names that it does not have are the module's."""

    def __init__(self, module: ModuleType, loop: asyncio.AbstractEventLoop) -> None:
        self.module = module
        self.loop = loop
        self._managers: list[Any] = []

    @classmethod
    @contextmanager
    def of(cls, name: str) -> Iterator[Face]:
        """Load a module; at the end, close all that it made."""
        module = load(name)
        face = cls(module, asyncio.new_event_loop())
        if name != OURS:
            face.loop.set_exception_handler(leave_unsaid)
        try:
            yield face
        finally:
            face.run(face.close())
            face.loop.close()

    def run(self, work: Awaitable[T]) -> T:
        """Wait for it."""
        return self.loop.run_until_complete(work)

    def manager(self, connections: list[Any], **options: Any) -> Any:
        """Make an Aioredlock, with one try unless told otherwise."""

        async def make() -> Any:
            return self.module.Aioredlock(connections, **{"retry_count": 1, **options})

        self._managers.append(self.run(make()))
        return self._managers[-1]

    def wait(self, seconds: float) -> None:
        """Let the tasks in the background go on for a while."""
        self.run(asyncio.sleep(seconds))

    async def close(self) -> None:
        """Destroy the managers, and wait for tasks that they left."""
        for manager in self._managers:
            await manager.destroy()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.module, name)


def leave_unsaid(*_: object) -> None:
    """Log nothing of the tasks that theirs forgets.

    They are garbage at any time, and their tracebacks are made with `ast.parse`, which
    in CPython 3.11 must not run inside of another one, as of pytest's reports.
    """


def values(servers: list[redis.Redis]) -> list[Any]:
    """Return what each server stores."""
    return [server.get(KEY) for server in servers]


def set_all(servers: list[redis.Redis], value: str, **options: Any) -> None:
    """Let somebody else hold it on these servers."""
    for server in servers:
        server.set(KEY, value, **options)
