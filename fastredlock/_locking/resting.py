"""Who reads recalls while a key rests: a thread, or a task of the loop.

Each lives while a key rests in its FastRedlock, and holds the engine alone.
"""

from __future__ import annotations

from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING, Literal

from .._core import AsyncioDriver, Engine, blocking_watch, thread_begin
from .threads import named

if TYPE_CHECKING:
    from asyncio import Task


NAME = "fastredlock recalls"
SETTLED_WITHIN_MS = 250  # by masters that answer, at the end of a loop


def watch_by_thread(engine: Engine, _: None) -> Literal[True] | None:
    """Start the thread; None: it cannot be started."""
    error = thread_begin(named(partial(blocking_watch, engine), NAME))
    return True if error is None else None


def watch_by_task(engine: Engine, here: AsyncioDriver | None) -> Task[None] | None:
    """Start the task, whose end ends the rest; None: the loop ends already."""
    from asyncio import current_task

    if here is None or getattr(here.loop, "_asyncgens_shutdown_called", False):
        return None
    calls = current_task(here.loop)
    if calls is None or calls.cancelling():  # else a task that nobody cancels any more
        return None
    task: Task[None] = Context().run(here.loop.create_task, _end_with_loop(here))
    task.set_name(NAME)
    task.add_done_callback(partial(_on_ended, here))
    with suppress(AttributeError):  # a loop that is closed as it is leaves it behind
        task._log_destroy_pending = False  # type: ignore[attr-defined]
    return task


def _on_ended(here: AsyncioDriver, task: Task[None]) -> None:
    """Release what rests, also where the task was cancelled before its first step."""
    if task.cancelled():
        here.end_rests()


async def _end_with_loop(here: AsyncioDriver) -> None:
    """Wait until no key rests; cancelled, as at the end of a loop, release them."""
    from asyncio import CancelledError, sleep

    try:
        with suppress(RuntimeError):  # a forked child, in a copy of the loop
            while left_ns := here.rest_left_ns():  # noqa: ASYNC110
                await sleep(left_ns / 1e9)
    except CancelledError:
        here.end_rests()
        for _ in range(SETTLED_WITHIN_MS):
            if not here.awaits_replies():
                break
            await sleep(0.001)
        raise
