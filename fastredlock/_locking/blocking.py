"""The lease, the acquires and the with block of the FastRedlock that blocks."""

from __future__ import annotations

import time
from types import TracebackType

from .._core import enter, guard_exit, guard_release, leave, undo
from .._options.keys import encode_resources
from .acquisition import BaseAcquisition, BaseLock
from .lease import GONE, BaseLease, ReleaseStatus
from .validity import extensions_of

TYPE_CHECKING = False  # typing's: its import would take a third of ours
if TYPE_CHECKING:
    from typing import Any

    from .driver import Driver
    from .keep_alive import KeepAlive
    from .lost import Lost


class Lease(BaseLease):
    """Hold one grant of a resource until it is released or its validity is over.

    Any thread may use it, not only the one that took it. As a context manager it is
    released on leaving, with LeaseLostError if it was lost before, unless the body
    raised: then the body's error stands.
    """

    __slots__ = ()

    _driver: Driver

    @property
    def lost(self) -> Lost:
        """Whether it is lost, to be asked or waited for: as a `threading.Event`."""
        from .lost import Lost

        return Lost(self)

    def extend(self, ttl: float | None = None) -> float:
        """Set the ttl (s, default: as before) anew and return the new validity (s).

        Blocks for one round. Raises LeaseLostError if the lease is over (stop the
        work), NotExtendedError if too few masters confirmed and it still stands (its
        `remaining` says for how long). Never re-creates a lost key.
        """
        extension, under_way = object(), extensions_of(self).under_way
        try:
            round = self._begin_extend(ttl, extension)
            self._driver.run(round)
            return self._end_extend(round, extension)
        finally:
            under_way.pop(extension, None)

    @guard_release
    def release(self) -> ReleaseStatus:
        """Delete our key on every master, and only ours; return how that ended.

        Blocks for one round. A lease that is gone already is no error: GONE. UNKNOWN
        may be tried again, and is sent by itself to masters that reconnect. Interrupted
        at any point, it is sent all the same.
        """
        round = self._begin_release()
        if round is None:
            return GONE
        self._driver.run(round)
        return self._end_release(round)

    __enter__ = enter

    @guard_exit
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._status is not None:
            return  # the body released it
        was_valid = self.is_valid
        try:
            status = self.release()
        except Exception:
            if error is None:
                raise
            return  # the body's error stands
        if error is None:
            self._check_exit(was_valid, status)


class Acquisition(BaseAcquisition):
    """One blocking acquire; where an exception leaves `run`, call `undo`."""

    __slots__ = ()

    _driver: Driver

    undo = undo  # a function of C: no signal can come before its first line

    def run(self, ttl: float | None, timeout: float | None) -> Lease | None:
        """Drive the attempts: run each round, sleep each delay."""
        driver = self._driver
        for step in self.steps(ttl, timeout):
            if isinstance(step, float):
                time.sleep(step)  # gevent's or eventlet's, whenever it was patched
            else:
                self.round = step
                driver.run(step)
        if self.round is None or not self.round.is_won:
            return None
        return Lease(driver, self._resource, self.round)


class AcquisitionOfAll(Acquisition):
    """One blocking acquire of several resources, all or none."""

    __slots__ = ()

    encode = staticmethod(encode_resources)


class Lock(BaseLock):
    """Hold a resource for the length of a with block; made by `FastRedlock.lock`."""

    __slots__ = ()

    _driver: Driver
    _lease: Lease | None
    acquisition = Acquisition

    def __enter__(self) -> Lease:
        self._check_fresh()
        acquisition = self.acquisition(self._driver, self._resource)
        try:
            self._lease = acquisition.run(self._ttl, self._timeout)
            if self._lease is None:
                raise acquisition.taken_error()
            return self._lease
        except BaseException:
            acquisition.undo()
            raise

    __exit__ = leave


class KeptAcquisition(Acquisition):
    """One blocking acquire of a lease that is kept from then on."""

    __slots__ = ("_asked",)

    def __init__(self, driver: Driver, resource: Any, asked: KeepAlive) -> None:
        super().__init__(driver, resource)
        self._asked = asked

    def run(self, ttl: float | None, timeout: float | None) -> Lease | None:
        """Drive the attempts, and keep what they take."""
        self._asked.check(self._driver, ttl)
        lease = super().run(ttl, timeout)
        return None if lease is None else self._asked.begin(lease)


class KeptAcquisitionOfAll(KeptAcquisition):
    """The same of several resources, all or none."""

    __slots__ = ()

    encode = staticmethod(encode_resources)


class KeptLock(Lock):
    """Hold a resource, and keep the lease, for the length of a with block."""

    __slots__ = ("_asked",)

    def __init__(self, asked: KeepAlive, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._asked = asked

    def acquisition(self, driver: Driver, resource: Any) -> Acquisition:  # type: ignore[override]
        """Return the acquire of one entry."""
        return KeptAcquisition(driver, resource, self._asked)
