"""Decorated functions that are skipped while others hold their lock: `skip=True`."""

from __future__ import annotations

from typing import Any, NoReturn

from .._reports.log import info
from ..errors import ConfigurationError
from .lock import Manner, Skipped

BLOCK = "skip=True: a with block cannot be skipped; decorate a function, or acquire()"


def skipping(timeout: float | None, reentrant: bool) -> Manner:
    """Return the manner; ConfigurationError where nothing would be skipped."""
    if timeout is None:
        raise ConfigurationError(
            "skip=True: needs a timeout (0: one try); without, each call waits"
        )
    if reentrant:
        raise ConfigurationError("skip=True beside reentrant=True: give one of them")
    return SKIPPING


class Skipping(Manner):
    """Refuse a with block; a decorated call is skipped where the lock is taken."""

    __slots__ = ()

    def begin(self, lock: object) -> NoReturn:
        """Raise ConfigurationError."""
        raise ConfigurationError(BLOCK)

    def of_call(self) -> Manner:
        """Return how one call enters it."""
        return SKIPPED_CALL


class SkippedCall(Manner):
    """Be entered by one call, which is skipped where the lock is taken."""

    __slots__ = ()

    def taken(self, lock: Any, acquire: Any) -> Exception:
        """Return what skips the call, and log it: Celery calls the task a success."""
        info("skipped: %s", lock._taken(acquire))
        return Skipped()


SKIPPING = Skipping()
SKIPPED_CALL = SkippedCall()
