"""The lease, the acquires and the with block of the FastRedlock that is awaited."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from .._core import enter_async, guard_async_exit, leave_async
from .._options.keys import encode_resources
from ..errors import LeaseLostError
from .acquisition import BaseAcquisition, BaseLock
from .kept import NEVER_KEPT_NS
from .lease import GONE, UNKNOWN, BaseLease, ReleaseStatus
from .validity import extensions_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any

    from .keep_alive import KeepAlive
    from .loop_driver import LoopDriver
    from .loop_lost import Lost


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
        try:
            round = self._begin_extend(ttl, extension)
            await self._driver.run(here, round)
            return self._end_extend(round, extension)
        finally:
            under_way.pop(extension, None)

    async def release(self) -> ReleaseStatus:
        """Delete our key on every master, and only ours; return how that ended.

        Waits for one round. A lease that is gone already is no error: GONE. UNKNOWN may
        be tried again, and is sent by itself to masters that reconnect. Cancelled, it
        is sent all the same; how it ended is then UNKNOWN.
        """
        driver = self._driver
        here = driver.here()
        round = None
        try:
            round = self._begin_release()
            if round is None:
                return GONE
            if await driver.submit(here, round) > driver.warned:
                driver.log_warnings()
        except BaseException:
            if self._status is UNKNOWN:  # begun; else it is still held
                driver.abandon(here, round or self._new_release())
            raise
        return self._end_release(round)

    __aenter__ = enter_async

    @guard_async_exit
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
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
        """Let a loss cancel the task that runs the body from here on."""
        from .loop_lost import Body

        kept = self._round.lease_state.kept
        if kept is not None and kept.until_ns != NEVER_KEPT_NS:
            kept.watched().body = body = Body()
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

    async def run(self, ttl: float | None, timeout: float | None) -> Lease | None:
        """Drive the attempts: run each round, sleep each delay; undo what fails."""
        driver = self._driver
        here = driver.here()
        try:
            for step in self.steps(ttl, timeout):
                if isinstance(step, float):
                    self.round = None
                    await here.sleep(step)
                else:
                    self.round = step
                    if await driver.submit(here, step) > driver.warned:
                        driver.log_warnings()
            if self.round is None or not self.round.is_won:
                return None
            return Lease(driver, self._resource, self.round)
        except BaseException:
            if self.round is not None:
                driver.abandon(here, self.round)
            raise


class AcquisitionOfAll(Acquisition):
    """One awaitable acquire of several resources, all or none."""

    __slots__ = ()

    encode = staticmethod(encode_resources)


class Lock(BaseLock):
    """Hold a resource for the length of an `async with`; made by `FastRedlock.lock`."""

    __slots__ = ()

    _driver: LoopDriver
    _lease: Lease | None
    acquisition = Acquisition

    async def __aenter__(self) -> Lease:
        self._check_fresh()
        acquisition = self.acquisition(self._driver, self._resource)
        self._lease = await acquisition.run(self._ttl, self._timeout)
        if self._lease is None:
            raise acquisition.taken_error()
        return self._lease

    __aexit__ = leave_async


class KeptAcquisition(Acquisition):
    """One awaitable acquire of a lease that is kept from then on."""

    __slots__ = ("_asked",)

    def __init__(self, driver: LoopDriver, resource: Any, asked: KeepAlive) -> None:
        super().__init__(driver, resource)
        self._asked = asked

    async def run(self, ttl: float | None, timeout: float | None) -> Lease | None:
        """Drive the attempts, and keep what they take; undo what fails."""
        driver = self._driver
        here = driver.here()
        self._asked.check(driver, ttl)
        lease = await super().run(ttl, timeout)
        if lease is None or self.round is None:
            return None
        try:
            return self._asked.begin(lease)
        except BaseException:
            driver.abandon(here, self.round)
            raise


class KeptAcquisitionOfAll(KeptAcquisition):
    """The same of several resources, all or none."""

    __slots__ = ()

    encode = staticmethod(encode_resources)


class KeptLock(Lock):
    """Hold a resource, and keep the lease, for the length of an `async with`.

    Where the lease is lost, the task that runs the body is cancelled, and
    LeaseLostError leaves the block.
    """

    __slots__ = ("_asked",)

    def __init__(self, asked: KeepAlive, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._asked = asked

    def acquisition(self, driver: LoopDriver, resource: Any) -> Acquisition:  # type: ignore[override]
        """Return the acquire of one entry."""
        return KeptAcquisition(driver, resource, self._asked)

    async def __aenter__(self) -> Lease:
        lease = await super().__aenter__()
        lease._enter_kept()
        return lease
