"""The lease of a FastRedlock that has an observer: awaitable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import LeaseLostError
from . import awaitable
from .observing import Observed, Observing, attach, before_release

if TYPE_CHECKING:
    from .lease import ReleaseStatus
    from .loop_driver import LoopDriver


class Lease(awaitable.Lease):
    """Hold one grant, and tell of its extensions and its end."""

    __slots__ = ("_observed",)

    _observed: Observed

    async def extend(self, ttl: float | None = None) -> float:
        """Extend as any lease, and tell of it."""
        try:
            left = await super().extend(ttl)
        except LeaseLostError as error:
            self._observed.lost(self, error)
            raise
        self._observed.extended(left)
        return left

    async def release(self) -> ReleaseStatus:
        """Release as any lease, and tell of it."""
        left = before_release(self)
        status = await super().release()
        if left is not None:
            self._observed.released(self, left)
        return status


def observe(locks: object, driver: LoopDriver, observer: object) -> None:
    """Let an observer be told of what this FastRedlock does."""
    driver.observer = Observing(observer, Lease)
    attach(observer, locks)
