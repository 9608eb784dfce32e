"""The awaitable driver: it runs rounds on the event loop that uses it.

The core's driver watches the connections of one loop. It is made when a call first
needs it, and anew when that loop was closed or the process was forked. Each call takes
it by `here()` before anything else, and passes it on: a task that its loop left behind
is collected after another loop has taken the engine over.
"""

from __future__ import annotations

from asyncio import (
    AbstractEventLoop,
    CancelledError,
    Task,
    TimerHandle,
    current_task,
    get_running_loop,
    sleep,
)
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import Any, NoReturn

from .._core import AsyncioDriver, Batch, ClosedError, Engine, Round, StateError
from .._options.settings import Settings
from ..errors import FastRedlockError, InternalError
from .driver import CLOSE_WITHIN_NS, CLOSED, RECALLS, REPORT, BaseDriver
from .keeper import LoopKeeper
from .validity import Validity


class LoopDriver(BaseDriver):
    """Run rounds on one event loop, for any number of its tasks."""

    __slots__ = ()

    blocks = False
    current: AsyncioDriver | None

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.engine.idle.watch = watch_by_task

    def here(self) -> AsyncioDriver:
        """Return the core's driver on the running loop; make it at the first use."""
        current = self.current
        try:
            if current is not None and current.is_here():
                return current
            loop = get_running_loop()
        except RuntimeError:
            raise FastRedlockError(
                "the asyncio API used without a running loop: await it inside "
                "asyncio.run(), or use fastredlock.FastRedlock, which blocks"
            ) from None
        return self._take_over(current, loop)

    def caller(self) -> object:
        """Return a weak reference to the task that calls; None outside of tasks."""
        return self.here().caller()

    def _take_over(
        self, old: AsyncioDriver | None, loop: AbstractEventLoop
    ) -> AsyncioDriver:
        if old is not None and not old.is_over():
            raise FastRedlockError(
                "this FastRedlock belongs to another event loop, which is still open: "
                "make one for each loop"
            )
        try:
            current = AsyncioDriver(self.engine, loop)
        except OSError as error:
            raise FastRedlockError(f"cannot be watched by the loop: {error}") from error
        if old is not None:
            old.retire()
            self.engine.idle.watch = watch_by_task
        self.current = current
        return current

    def refuse(
        self, here: AsyncioDriver, work: Round | Batch, error: ClosedError | StateError
    ) -> NoReturn:
        """Raise the public error of a round or a batch that was not begun."""
        if isinstance(error, ClosedError):
            raise FastRedlockError(CLOSED) from error
        self.abandon(here, work)
        raise InternalError(f"{REPORT}: {error}") from error

    async def run(self, work: Round | Batch) -> None:  # type: ignore[override]
        """Run a round or a batch until it is closed; a lost one is rolled back.

        Raises FastRedlockError after close(). A cancellation rolls all back.
        """
        here = self.here()
        try:
            if await here.submit(work):
                self.log_warnings()
        except BaseException as error:
            self.abandon(here, work)
            if isinstance(error, ClosedError | StateError):
                self.refuse(here, work, error)
            raise

    def abandon(self, here: AsyncioDriver, work: Round | Batch) -> None:
        """Roll back a round or a batch whose caller has left; does not wait."""
        current = self.current
        if here is current and not runs_elsewhere(here):
            here.abandon(work)
        elif current is not None:
            # What was left behind is collected now, by any thread: a call that no task
            # drives, or one of a loop that was closed, the engine being another's.
            with suppress(RuntimeError):
                current.loop.call_soon_threadsafe(current.abandon, work)

    def keep(self, kept: Validity) -> Any:
        """Keep a lease from now on, or look at its times again; on the loop alone."""
        here, keeper = self.here(), self.keeper
        if keeper is None or keeper.here is not here:
            self.keeper = keeper = LoopKeeper(self, here)
        keeper.keep(kept)
        return keeper

    def call_later(
        self, loop: AbstractEventLoop, ns: int, callback: Callable[[], None]
    ) -> TimerHandle:
        return loop.call_later(ns / 1e9, callback)

    async def close(self) -> None:
        """Close all connections; waits for releases not yet confirmed.

        Again, for those of tasks that were ended by it.
        """
        current = self.current
        if self.engine.is_closed and (current is None or not current.is_here()):
            return
        here = self.here()
        try:  # what has to be sent is sent before the first wait
            here.refuse(CLOSE_WITHIN_NS)
            while not here.is_drained():  # noqa: ASYNC110
                await sleep(0.001)
        finally:
            here.shut()

    def __del__(self) -> None:
        # No lease and no call needs it any more. Any thread may come here, and only the
        # loop's own may change the descriptors that the loop watches. Without the
        # attribute where a signal came before the first line of __init__.
        current = getattr(self, "current", None)
        if current is None:
            return
        if current.is_over():
            current.retire()
            return
        with suppress(RuntimeError):  # the loop was closed in this moment
            current.loop.call_soon_threadsafe(current.leave)


def runs_elsewhere(here: AsyncioDriver) -> bool:
    """Return whether its loop runs in another thread, which alone may use it."""
    with suppress(RuntimeError):  # no loop runs here
        if here.is_here():
            return False
    return not here.is_over() and here.loop.is_running()


# --- recalls of idle keys -------------------------------------------------------------

SETTLED_WITHIN_MS = 250  # by masters that answer, at the end of a loop


def watch_by_task(engine: Engine, here: AsyncioDriver | None) -> Task[None] | None:
    """Start the task that reads recalls while a key is idle; None: the loop ends.

    It holds the engine alone. Its end releases the idle keys.
    """
    if here is None or getattr(here.loop, "_asyncgens_shutdown_called", False):
        return None
    calls = current_task(here.loop)
    if calls is None or calls.cancelling():  # else a task that nobody cancels any more
        return None
    task: Task[None] = Context().run(here.loop.create_task, _end_with_loop(here))
    task.set_name(RECALLS)
    task.add_done_callback(partial(_on_ended, here))
    with suppress(AttributeError):  # a loop that is closed as it is leaves it behind
        task._log_destroy_pending = False  # type: ignore[attr-defined]
    return task


def _on_ended(here: AsyncioDriver, task: Task[None]) -> None:
    """Release the idle keys, also where the task never took a step."""
    if task.cancelled():
        here.end_idle_keys()


async def _end_with_loop(here: AsyncioDriver) -> None:
    """Wait until no key is idle; cancelled, as at the end of a loop, release them."""
    try:
        with suppress(RuntimeError):  # a forked child, in a copy of the loop
            while left_ns := here.idle_left_ns():  # noqa: ASYNC110
                await sleep(left_ns / 1e9)
    except CancelledError:
        here.end_idle_keys()
        for _ in range(SETTLED_WITHIN_MS):
            if not here.awaits_replies():
                break
            await sleep(0.001)
        raise
