"""MemoryLocks, awaitable: the same names for asyncio and uvloop."""

from __future__ import annotations

import asyncio

from ..asyncio import FastRedlock
from ._drivers import MemoryLoopDriver
from .memory import BaseMemoryLocks, MemoryMasters, end_of

__all__ = ["MemoryLocks", "advance"]

ITERATIONS = 5  # of the loop: a task that was woken comes to its next wait


class MemoryLocks(BaseMemoryLocks, FastRedlock):
    """Be a `fastredlock.asyncio.FastRedlock` for tests; see the one that blocks.

    `advance` is awaited: tasks whose calls end meanwhile run between its steps.
    """

    __slots__ = ("masters",)

    _in_memory = MemoryLoopDriver

    async def advance(self, seconds: float) -> None:
        """Let `seconds` pass: what is due meanwhile is done, each at its time."""
        await advance(self.masters, seconds)


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
