"""Where the same tests run: in memory, and on real masters.

Of both, the calls that block and those that are awaited. Real time passes by sleeping,
so the times of the tests are short; in memory it passes by `advance` alone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fastredlock import FastRedlock
from fastredlock.testing import LocalMasters, MemoryLocks, MemoryMasters
from fastredlock.testing.asyncio import MemoryLocks as LoopMemoryLocks
from tests.support.awaited import Awaited, LoopThread, awaited_locks

STAGES = ["memory", "memory-asyncio", "real", "real-asyncio"]


class Stage:
    """One set of masters; `new` makes a client of them."""

    def __init__(
        self,
        masters: Any,
        advance: Callable[[float], object],
        new: Callable[..., Any],
    ) -> None:
        self.masters, self.advance = masters, advance
        self._new = new
        self._made: list[Any] = []

    def new(self, **options: Any) -> Any:
        """Make a client, which is closed at the end."""
        locks = self._new(**options)
        self._made.append(locks)
        return locks

    def close(self) -> None:
        for locks in self._made:
            locks.close()


@contextmanager
def stage_of(kind: str, real: LocalMasters) -> Iterator[Stage]:
    """Make one."""
    is_awaited = kind.endswith("asyncio")
    thread = LoopThread("asyncio") if is_awaited else None
    if kind.startswith("memory"):
        memory = MemoryMasters()
        stage = memory_stage(memory, thread)
    else:
        real.flush()
        stage = real_stage(real, thread)
    try:
        yield stage
    finally:
        stage.close()
        if thread is not None:
            thread.close()


def memory_stage(masters: MemoryMasters, thread: LoopThread | None) -> Stage:
    if thread is None:
        return Stage(
            masters, masters.advance, lambda **given: MemoryLocks(masters, **given)
        )
    clock = LoopMemoryLocks(masters)
    return Stage(
        masters,
        lambda seconds: thread.run(clock.advance(seconds)),
        lambda **given: Awaited(thread.run, LoopMemoryLocks(masters, **given)),
    )


def real_stage(masters: LocalMasters, thread: LoopThread | None) -> Stage:
    if thread is None:
        return Stage(
            masters, time.sleep, lambda **given: FastRedlock(masters.urls, **given)
        )
    return Stage(
        masters,
        lambda seconds: thread.run(asyncio.sleep(seconds)),
        lambda **given: awaited_locks(thread, masters.urls, **given),
    )
