"""The lease, the acquires and the with block of the FastRedlock that is awaited."""

from __future__ import annotations

import inspect  # asyncio has imported it
from asyncio import CancelledError, Future, coroutines, get_running_loop
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial, wraps
from typing import Any, TypeVar

from .._core import (
    BlockExit,
    ExtendCall,
    enter,
    joining,
    lease_exit,
    lock_enter_awaited,
    lock_exits,
    release_in_c,
)
from .._options.functions import check_result, is_coroutine_function, name_of
from .._steps import run_awaited
from ..errors import ConfigurationError, LeaseLostError
from .lease import BaseLease, BaseLost, ReleaseStatus
from .lock import OUTAGE, BaseLock, Skipped, delay_in
from .loop_driver import LoopDriver
from .slots import Permit, permitted
from .validity import NEVER_KEPT_NS, Validity

Returning = TypeVar("Returning", bound=Callable[..., Coroutine[Any, Any, Any]])
Function = TypeVar("Function", bound=Callable[..., Coroutine[Any, Any, Any]])


def marked_coroutine(function: Returning) -> Returning:
    """Let asyncio and inspect (from Python 3.12 on) know a function of a coroutine.

    Frameworks await what such a function returns, and run others in threads.
    """
    mark = getattr(inspect, "markcoroutinefunction", None)
    if mark is not None:
        return mark(function)  # type: ignore[no-any-return]
    function._is_coroutine = coroutines._is_coroutine  # type: ignore[attr-defined]
    return function


class Lease(BaseLease):
    """Hold one grant of a resource until it is released or its validity is over.

    As `fastredlock.Lease`, for any task of its loop, and for `async with`.
    """

    __slots__ = ()

    _driver: LoopDriver

    @property
    def lost(self) -> Lost:
        """Whether it is lost, to be asked or awaited: as an `asyncio.Event`."""
        return Lost(self)

    @marked_coroutine
    def extend(self, ttl: float | None = None) -> Coroutine[Any, Any, float]:
        """Set the ttl (s, default: as before) anew and return the new validity (s).

        Waits for one round; as `fastredlock.Lease.extend` otherwise. If it is
        cancelled, the lease may have been extended or not: `remaining()` counts on the
        earlier end.
        """
        return ExtendCall(self, ttl)

    @marked_coroutine
    @release_in_c
    def release(self) -> Coroutine[Any, Any, ReleaseStatus]:
        """Delete our key on every master, and only ours; return how that ended.

        Waits for one round; as `fastredlock.Lease.release` otherwise. If it is
        cancelled, the release is sent all the same, and how it ended is UNKNOWN.
        """
        raise NotImplementedError  # its body is in src_cython/calls/lease.pyx

    __aenter__ = enter
    __aexit__ = lease_exit

    def _enter_kept(self) -> None:
        """Enter a body by a lease that may be kept: `enter` comes here."""
        validity: Validity = self._round.lease_state
        if validity.until_ns != NEVER_KEPT_NS:
            Lease._watch_body(self, validity)  # of a Term as well

    def _watch_body(self, validity: Validity) -> None:
        caller: Any = None if self._block is None else self._block.caller
        task = None if caller is None else caller()
        if task is None or validity.body is not None:
            return
        validity.body = body = Body(task, self.resource)
        if validity.is_lost:
            body.cancel()

    def _leave_body(self, error: BaseException | None) -> bool:
        """Leave a body; return whether a loss has cancelled it, and nobody else."""
        validity: Validity = self._round.lease_state
        body: Body | None = validity.body
        if body is None:
            return False
        validity.body = None
        return body.leave(error)


class Lock(BaseLock):
    """Hold a resource for the length of an `async with`; made by `FastRedlock.lock`.

    As `fastredlock.Lock`, for tasks instead of threads.
    """

    __slots__ = ()

    _driver: LoopDriver
    _lease = Lease

    __aenter__ = lock_enter_awaited
    __aexit__ = lock_exits

    async def _enter(self, at_exit: BlockExit | None) -> Lease:
        joined = self._joined()
        if joined is not None:
            lease, ttl = joined
            if ttl is not None:
                await lease._prolong(ttl)
            return await joining(lease, self, at_exit)  # type: ignore[no-any-return]
        acquire = self._acquire(at_exit)
        lease = await acquire
        # No call from here on: a signal handler could run after it, and raise.
        if lease is None:
            raise await run_awaited(self._refusing(acquire))
        return lease  # type: ignore[no-any-return]

    def __call__(self, function: Function) -> Function:
        """Return the coroutine function with the lock held for each of its calls.

        Raises ConfigurationError where the body would run without it: for asynchronous
        generators and plain functions, and for what is no function.
        """
        if not is_coroutine_function(function, self._resource):
            raise ConfigurationError(
                f"{name_of(function)} is no coroutine function: use "
                "fastredlock.FastRedlock, or make it one (async def)"
            )

        @wraps(function)
        async def holding(*args: Any, **kwargs: Any) -> Any:
            try:
                async with self._of_call(args, kwargs):
                    result = await function(*args, **kwargs)
                    check_result(function, result, is_awaited=True)
                    return result
            except Skipped:
                return None

        return holding  # type: ignore[return-value]


class AwaitableRate(Lock):
    """As `Rate`, awaited."""

    __slots__ = ()

    async def __aenter__(self) -> Permit:
        acquire = permitted(self)
        lease: BaseLease | None = await acquire
        if lease is None:
            raise self._taken(acquire)
        return Permit(lease)

    async def __aexit__(self, *_: object) -> None:
        pass


class Term(Lease):
    """The lease of a term; a loss does not cancel the task: it would leave the loop."""

    __slots__ = ()

    def _watch_body(self, validity: Validity) -> None:
        pass


class Candidate(Lock):
    """Hold a lock for a term."""

    __slots__ = ()

    _lease = Term


class Campaign:
    """Lead again and again: `async for` gets a lease for each term; see `lead`.

    A term ends when the next one begins, and with the loop, however that is left: the
    release is sent at once, and not waited for. `aclose()` waits for it.
    """

    __slots__ = ("_leads", "_lock")

    def __init__(self, lock: Candidate) -> None:
        self._lock = lock
        self._leads = False

    def __aiter__(self) -> Campaign:
        return self

    async def __anext__(self) -> Lease:
        await self.aclose()
        outage = 0
        while True:
            try:
                lease: Lease = await self._lock.__aenter__()
                self._leads = True
                return lease
            except OUTAGE as error:
                outage += 1
                delay = delay_in(outage, self._lock, error)
            await self._lock._driver.here().sleep(delay)

    async def aclose(self) -> None:
        """End the term, if there is one; waits until its lease is released."""
        if self._leads:
            self._leads = False
            with suppress(LeaseLostError):
                await self._lock.__aexit__(None, None, None)

    def __del__(self) -> None:
        # The loop was left. The first step of an exit sends the release.
        if getattr(self, "_leads", False):
            leaving = self._lock.__aexit__(None, None, None)
            with suppress(Exception):  # StopIteration: it was released; no loop runs
                leaving.send(None)
            leaving.close()


# --- its loss -------------------------------------------------------------------------


class Lost(BaseLost):
    """Show whether a lease is lost, as the reading half of an `asyncio.Event`."""

    __slots__ = ()

    _lease: Lease

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is lost; return False if it was released, or time is up.

        `timeout` in s. Needs no keeper: it looks at the end of the validity itself.
        """
        waiters, loop = self._waiters(), get_running_loop()
        for left_ns in self._waits(timeout):
            waiter: Future[None] = loop.create_future()
            on_end = partial(wake, waiter)
            timer = self._lease._driver.call_later(loop, left_ns, on_end)
            waiters.append(on_end)
            try:
                await waiter
            finally:
                timer.cancel()
                with suppress(ValueError):  # it was woken
                    waiters.remove(on_end)
        return self.is_set()


def wake(waiter: Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class Body:
    """Cancel the task of an `async with` if the lease is lost.

    As `asyncio.timeout` does: a cancellation that others asked for stays one, and of
    nested blocks each takes back its own. The body of an async generator waits at its
    `yield` while its consumer, the same task, works. Then the consumer gets the
    cancellation, and the body gets GeneratorExit when the consumer closes it
    (`contextlib.aclosing`).
    """

    __slots__ = ("_before", "_is_cancelled", "_is_over", "_resource", "_task")

    def __init__(self, task: Any, resource: object) -> None:
        self._task = task
        self._resource = resource
        self._before: int = task.cancelling()
        self._is_cancelled = False
        self._is_over = False

    def cancel(self) -> None:
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
