"""Waiting for the loss of an awaitable lease, and the task that a loss cancels."""

from __future__ import annotations

from asyncio import CancelledError, get_running_loop
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from .lost import BaseLost

if TYPE_CHECKING:
    from asyncio import Future

    from .awaitable import Lease


class Lost(BaseLost):
    """Tell whether a lease is lost, as the reading half of an `asyncio.Event`."""

    __slots__ = ()

    _lease: Lease

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is lost; return False where it was released, or time is up.

        `timeout` in s. Needs no keeper: it looks at the end of the validity itself.
        """
        until_ns, watch = self._until_ns(timeout), self._watch()
        driver, loop = self._lease._driver, get_running_loop()
        now_ns = driver.now_ns
        while not self._is_over():
            left_ns = self._left_ns(until_ns, now_ns())
            if left_ns > 0:
                waiter: Future[None] = loop.create_future()
                timer = driver.call_later(loop, left_ns, partial(wake, waiter))

                def on_end(waiter: Future[None] = waiter) -> None:
                    wake(waiter)

                watch.waiters.append(on_end)
                try:
                    await waiter
                finally:
                    timer.cancel()
                    with suppress(ValueError):  # it was woken
                        watch.waiters.remove(on_end)
            if until_ns is not None and now_ns() >= until_ns:
                break
        return self.is_set()


def wake(waiter: Future[None]) -> None:
    """Let the task go on that waits."""
    if not waiter.done():
        waiter.set_result(None)


class Body:
    """The body of an `async with`: its task is cancelled where the lease is lost.

    In the way of `asyncio.timeout`: a cancellation that others asked for stays one, and
    of nested blocks each takes back its own. Before Python 3.11 a task does not count
    its cancellations; there the messages tell them apart, and the last one counts.
    """

    __slots__ = ("_before", "_is_cancelled", "_is_over", "_message", "_task")

    def __init__(self, task: Any) -> None:
        self._task = task
        self._before: int = task.cancelling() if hasattr(task, "cancelling") else -1
        self._message = BodyMessage()
        self._is_cancelled = False
        self._is_over = False

    def cancel(self) -> None:
        """Cancel the task: the lease is lost."""
        if not (self._is_over or self._is_cancelled):
            self._is_cancelled = True
            self._task.cancel(self._message)

    def leave(self, error: BaseException | None) -> bool:
        """Take our cancellation back; return whether `error` is that, and no other."""
        self._is_over = True
        if not self._is_cancelled:
            return False
        if self._before >= 0:
            is_ours = self._task.uncancel() <= self._before
            return is_ours and isinstance(error, CancelledError)
        last = getattr(self._task, "_cancel_message", self._message)
        return (
            isinstance(error, CancelledError)
            and bool(error.args)
            and isinstance(error.args[0], BodyMessage)
            and last is self._message
        )


class BodyMessage:
    """The message of a cancellation by a lost lease."""

    def __repr__(self) -> str:
        return "a lease was lost"
