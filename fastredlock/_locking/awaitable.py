"""The lease, the acquires and the with block of the FastRedlock that is awaited."""

from __future__ import annotations

import inspect  # asyncio has imported it
from asyncio import coroutines
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING

from .._core import (
    AcquireCall,
    ReleaseCall,
    enter_lease,
    guard_async_exit,
    leave_async,
    leave_lease,
    observe_acquires,
)
from .._options.keys import distinct, encode_resources
from ..errors import LeaseLostError
from .acquisition import BaseAcquisition, BaseLock
from .decorated import check_decorated
from .kept import NEVER_KEPT_NS
from .lease import BaseLease, ReleaseStatus
from .validity import extensions_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from typing import Any, TypeVar

    from .._core import AsyncioDriver, Round
    from .kept import Kept
    from .loop_driver import LoopDriver
    from .loop_lost import Lost

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

    Any task of its loop may use it, not only the one that took it. In `async with` it
    is released on leaving, with LeaseLostError if it was lost before, unless the body
    raised: then the body's error stands.
    """

    __slots__ = ()

    _driver: LoopDriver

    @property
    def lost(self) -> Lost:
        """Whether it is lost, to be asked or awaited: as an `asyncio.Event`."""
        from .loop_lost import Lost

        return Lost(self)

    async def extend(self, ttl: float | None = None) -> float:
        """Set the ttl (s, default: as before) anew and return the new validity (s).

        Waits for one round. Raises LeaseLostError if the lease is over (stop the work),
        NotExtendedError if too few masters confirmed and it still stands (its
        `remaining` says for how long). Never re-creates a lost key. Cancelled, it may
        have been extended or not: `remaining()` counts on the earlier end.
        """
        here = self._driver.here()
        extension, under_way = object(), extensions_of(self).under_way
        observer = self._driver.observer
        try:
            round = self._begin_extend(ttl, extension)
            await self._driver.run(here, round)
            left = self._end_extend(round, extension)
        except LeaseLostError as error:
            if observer is not None:
                observer.on_lost(self, error)
            raise
        finally:
            under_way.pop(extension, None)
        if observer is not None:
            observer.on_extended(self, left)
        return left

    @marked_coroutine
    def release(self) -> Coroutine[Any, Any, ReleaseStatus]:
        """Delete our key on every master, and only ours; return how that ended.

        Waits for one round. A lease that is gone already is no error: GONE. UNKNOWN may
        be tried again, and is sent by itself to masters that reconnect. Cancelled, it
        is sent all the same; how it ended is then UNKNOWN.
        """
        return ReleaseCall(self)

    __aenter__ = enter_lease
    __aexit__ = leave_lease

    @guard_async_exit
    async def _leave(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Leave a body by a lease that was extended or kept: `__aexit__` comes here."""
        if self._status is not None:
            return  # the body released it
        was_valid = self.is_valid
        try:
            status = await self.release()
        except Exception:
            if error is None:
                raise
            return  # the body's error stands
        if error is None:
            self._check_exit(was_valid, status)

    def _enter_kept(self) -> None:
        """Enter a body by a lease that may be kept: `enter_lease` comes here."""
        kept = self._round.lease_state.kept
        if kept is not None and kept.until_ns != NEVER_KEPT_NS:
            self._watch_body(kept)

    def _watch_body(self, kept: Kept) -> None:
        entered_by = self._round.entered_by
        task = None if entered_by is None else entered_by()
        if task is None or kept.watched().body is not None:
            return
        from .loop_lost import Body

        kept.watched().body = body = Body(task, self.resource)
        if kept.is_lost:
            body.cancel()

    async def _leave_kept(
        self,
        leave: Callable[..., Awaitable[None]],
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Leave a body that a loss may have cancelled: the core's guard comes here."""
        kept = self._round.lease_state.kept
        watch = None if kept is None else kept.watch
        body = None if watch is None else watch.body
        if watch is None or body is None:
            await leave(self, kind, error, traceback)
            return
        watch.body = None
        is_ours = body.leave(error)
        await leave(self, kind, error, traceback)
        if is_ours and watch.error is not None:
            raise LeaseLostError(*watch.error.args) from error


class Acquisition(BaseAcquisition):
    """One awaitable acquire."""

    __slots__ = ()

    _driver: LoopDriver
    new_lease = Lease

    def run(
        self, ttl: float | None, timeout: float | None
    ) -> Coroutine[Any, Any, Lease | None]:
        """Return a coroutine that makes the first try, in C, and then goes on."""
        return AcquireCall(self, ttl, timeout)

    async def go_on(
        self,
        here: AsyncioDriver,
        ttl: float | None,
        timeout: float | None,
        first: Round | None,
    ) -> Lease | None:
        """Drive the attempts after the first: run each round, sleep each delay.

        Undoes what fails. `first`: its round, which was not won; None: none was made.
        """
        driver = self._driver
        try:
            for step in self.steps(ttl, timeout, first):
                if isinstance(step, float):
                    self.round = None
                    await here.sleep(step)
                else:
                    self.round = step
                    if await driver.submit(here, step) > driver.warned:
                        driver.log_warnings()
            if self.round is None:
                return None
            is_won = self.round.is_won
            lease = Lease(driver, self._resource, self.round) if is_won else None
            observe_acquires(driver, [self._resource], [self.round])
            return lease
        except BaseException as error:
            if self.round is not None:
                driver.abandon(here, self.round)
            if driver.observer is not None:
                driver.observer.on_failed(error)
            raise


class AcquisitionOfAll(Acquisition):
    """One awaitable acquire of several resources, all or none."""

    __slots__ = ()

    encode = staticmethod(encode_resources)


class Lock(BaseLock):
    """Hold a resource for the length of an `async with`; made by `FastRedlock.lock`.

    It may be entered any number of times, also by several tasks at once: each entry has
    a lease of its own, and they exclude each other like any two callers. So an
    `async with` inside another of the same resource waits for it: there is no
    reentrancy. A block is left where it was entered, by the same task; by another one
    only where no other entry is outstanding.

    As a decorator it is held for the length of each call.
    """

    __slots__ = ()

    _driver: LoopDriver
    acquisition = Acquisition

    async def __aenter__(self) -> Lease:
        caller = self._driver.here().caller()
        acquisition = self.acquisition(self._driver, self._resource)
        lease = await acquisition.run(self._ttl, self._timeout)
        if lease is None:
            raise acquisition.taken_error()
        # No call from here on: a signal handler could run after it, and raise.
        self._entries = (caller, lease, self._entries)
        return lease

    __aexit__ = leave_async

    def __call__(self, function: Function) -> Function:
        """Return the coroutine function with the lock held for each of its calls.

        Raises ConfigurationError where the body would run without it: for asynchronous
        generators and plain functions, and for what is no function.
        """
        check_decorated(function, self._resource, is_awaited=True)

        @wraps(function)
        async def holding(*args: Any, **kwargs: Any) -> Any:
            async with self._of_call(args, kwargs):
                return await function(*args, **kwargs)

        return holding  # type: ignore[return-value]


class LockOfAll(Lock):
    """Hold several resources, all or none; made by `FastRedlock.lock_all`."""

    __slots__ = ()

    acquisition = AcquisitionOfAll
    _named = staticmethod(distinct)  # of a function's resources; the others are so
