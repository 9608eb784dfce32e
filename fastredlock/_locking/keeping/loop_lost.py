"""Waiting for the loss of an awaitable lease, and the task that a loss cancels."""

from __future__ import annotations

from asyncio import CancelledError, get_running_loop
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from .lost import BaseLost

if TYPE_CHECKING:
    from asyncio import Future


class Lost(BaseLost):
    """Show whether a lease is lost, as the reading half of an `asyncio.Event`."""

    __slots__ = ()

    _lease: Any  # of the face that it is imported by

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
    of nested blocks each takes back its own.

    The body of an async generator waits at its `yield` while its consumer, the same
    task, works. There the cancellation comes up in the consumer, and reaches the body
    as GeneratorExit where the consumer closes the generator (`contextlib.aclosing`).
    """

    __slots__ = ("_before", "_is_cancelled", "_is_over", "_resource", "_task")

    def __init__(self, task: Any, resource: object) -> None:
        self._task = task
        self._resource = resource
        self._before: int = task.cancelling()
        self._is_cancelled = False
        self._is_over = False

    def cancel(self) -> None:
        """Cancel the task: the lease is lost."""
        if not (self._is_over or self._is_cancelled):
            self._is_cancelled = True
            self._task.cancel(f"the lease of {self._resource!r} was lost")

    def leave(self, error: BaseException | None) -> bool:
        """Take our cancellation back; return whether `error` is that, and no other."""
        self._is_over = True
        if not self._is_cancelled:
            return False
        is_ours = self._task.uncancel() <= self._before
        return is_ours and isinstance(error, CancelledError | GeneratorExit)
