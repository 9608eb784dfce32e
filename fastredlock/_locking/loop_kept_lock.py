"""The acquires and the `async with` of a lease that is kept: awaitable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._options.keys import distinct, encode_resources
from .awaitable import Acquisition, Lease, Lock
from .keep_alive import KeepAlive

if TYPE_CHECKING:
    from .loop_driver import LoopDriver


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

    of = KeptAcquisition

    def __init__(self, asked: KeepAlive, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._asked = asked

    def acquisition(self, driver: LoopDriver, resource: Any) -> Acquisition:  # type: ignore[override]
        """Return the acquire of one entry."""
        return self.of(driver, resource, self._asked)

    async def __aenter__(self) -> Lease:
        lease = await super().__aenter__()
        lease._enter_kept()
        return lease

    def _of_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> KeptLock:
        if not callable(self._resource):
            return self
        resource = self._named(self._resource(*args, **kwargs))
        given = self._driver, resource, self._ttl, self._timeout
        return type(self)(self._asked, *given)


class KeptLockOfAll(KeptLock):
    """The same of several resources, all or none."""

    __slots__ = ()

    of = KeptAcquisitionOfAll
    _named = staticmethod(distinct)
