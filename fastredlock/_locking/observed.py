"""The lease of a FastRedlock that has an observer: blocking."""

from __future__ import annotations

from .._core import guard_release
from ..errors import LeaseLostError
from . import blocking
from .observing import Observed, Observing, attach, before_release

TYPE_CHECKING = False  # typing's: its import would take a third of ours
if TYPE_CHECKING:
    from .driver import Driver
    from .lease import ReleaseStatus


class Lease(blocking.Lease):
    """Hold one grant, and tell of its extensions and its end."""

    __slots__ = ("_observed",)

    _observed: Observed

    def extend(self, ttl: float | None = None) -> float:
        """Extend as any lease, and tell of it."""
        try:
            left = super().extend(ttl)
        except LeaseLostError as error:
            self._observed.lost(self, error)
            raise
        self._observed.extended(left)
        return left

    @guard_release
    def release(self) -> ReleaseStatus:
        """Release as any lease, and tell of it."""
        left = before_release(self)
        status = super().release()
        if left is not None:
            self._observed.released(self, left)
        return status


def observe(locks: object, driver: Driver, observer: object) -> None:
    """Let an observer be told of what this FastRedlock does."""
    driver.observer = Observing(observer, Lease)
    attach(observer, locks)
