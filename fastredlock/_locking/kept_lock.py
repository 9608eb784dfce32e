"""The acquires and the with block of a lease that is kept: blocking."""

from __future__ import annotations

from .._options.keys import distinct, encode_resources
from .blocking import Acquisition, Lease, Lock
from .keep_alive import KeepAlive

TYPE_CHECKING = False  # typing's: its import would take a third of ours
if TYPE_CHECKING:
    from typing import Any

    from .driver import Driver


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

    of = KeptAcquisition

    def __init__(self, asked: KeepAlive, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._asked = asked

    def acquisition(self, driver: Driver, resource: Any) -> Acquisition:  # type: ignore[override]
        """Return the acquire of one entry."""
        return self.of(driver, resource, self._asked)

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
