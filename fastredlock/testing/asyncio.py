"""MemoryLocks, awaitable: the same names for asyncio and uvloop."""

from __future__ import annotations

import asyncio
from typing import Any

from .._core import DEFAULT_RESOURCE
from ..asyncio import FastRedlock
from ._loop_driver import MemoryLoopDriver
from ._masters import MemoryMasters, end_of
from .memory import masters_of, named, settings_of

__all__ = ["MemoryLocks", "advance"]

ITERATIONS = 5  # of the loop: a task that was woken comes to its next wait


class MemoryLocks(FastRedlock):
    """Be a `fastredlock.asyncio.FastRedlock` for tests; see the one that blocks.

    `advance` is awaited: tasks whose calls end meanwhile run between its steps.
    """

    __slots__ = ("masters",)

    def __init__(
        self,
        masters: MemoryMasters | None = None,
        resource: str | bytes = "fastredlock",
        *,
        auto_advance: bool = False,
        **options: Any,
    ) -> None:
        self.masters: MemoryMasters = masters_of(masters, auto_advance)
        settings = settings_of(self.masters, resource, options)
        self._driver = MemoryLoopDriver(settings, self.masters._world)
        if settings.observer is not None:
            self._observe(settings.observer)

    async def advance(self, seconds: float) -> None:
        """Let `seconds` pass: what is due meanwhile is done, each at its time."""
        await advance(self.masters, seconds)

    def lose(self, resource: str | bytes = DEFAULT_RESOURCE) -> None:
        """Delete a key on every master: `MemoryMasters.lose`."""
        self.masters.lose(named(self, resource))

    def steal(
        self, resource: str | bytes = DEFAULT_RESOURCE, *, ttl: float = 10.0
    ) -> bytes:
        """Let another client hold a resource: `MemoryMasters.steal`."""
        return self.masters.steal(named(self, resource), ttl=ttl)


async def advance(masters: MemoryMasters, seconds: float) -> None:
    """Let `seconds` pass; tasks whose calls end meanwhile run between the steps."""
    world = masters._world
    until_ns = end_of(world, seconds)
    while True:
        await let_tasks_run()
        if not world.advance_once(until_ns):
            break
    await let_tasks_run()


async def let_tasks_run() -> None:
    """Let all tasks that can run come to their next wait."""
    for _ in range(ITERATIONS):
        await asyncio.sleep(0)
