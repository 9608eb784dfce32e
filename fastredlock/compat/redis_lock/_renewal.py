"""The renewal of a held lock, by the keeper of its FastRedlock; its lines in the log.

The library has a thread for each lock, and logs what that does. People
search for these lines, so they are those of the library.
"""

from __future__ import annotations

from functools import partial
from os import getpid
from typing import Any
from weakref import finalize

from ... import Lease, LeaseLostError
from ..._locking.keeping.kept import kept_of
from ._loggers import (
    logger_for_refresh_exit,
    logger_for_refresh_shutdown,
    logger_for_refresh_start,
)
from ._loggers import logger_for_refresh_thread as log


class Renewal:
    """Renew a lease from now on, until `end`, its loss, or the end of its lock."""

    def __init__(
        self, lock: Any, name: str, lease: Lease, interval: float | None
    ) -> None:
        logger_for_refresh_start.debug(
            "Starting renewal thread for Lock(%r). Refresh interval: %s seconds.",
            name,
            interval,
        )
        self._name = name
        self._lease = lease
        # Nothing here refers to the lock: it would be renewed for ever.
        watch = kept_of(lease).watched()
        watch.on_renewal = partial(log.debug, "Refreshing Lock(%r).", name)
        lease.keep_alive(on_lost=partial(on_lost, name))
        self._garbage = finalize(lock, on_garbage, name, getpid())
        self._garbage.atexit = False

    def end(self) -> None:
        """Renew it no more; the loss of a lock is in the log already."""
        self._garbage.detach()
        if self._lease.lost.is_set():
            return
        logger_for_refresh_shutdown.debug(
            "Signaling renewal thread for Lock(%r) to exit.", self._name
        )
        self._lease.keep_alive(False)
        log.debug("Exiting renewal thread for Lock(%r).", self._name)
        logger_for_refresh_exit.debug("Renewal thread for Lock(%r) exited.", self._name)


def on_lost(name: str, _: Lease, error: LeaseLostError) -> None:
    """Log that the lock is lost."""
    log.error("Lock(%r) was lost: %s.", name, error.reason)
    log.debug("Exiting renewal thread for Lock(%r).", name)


def on_garbage(name: str, pid: int) -> None:
    """Log that nobody refers to the lock any more; a forked child has never held it."""
    if pid == getpid():
        log.debug("Stopping loop because Lock(%r) was garbage collected.", name)
        log.debug("Exiting renewal thread for Lock(%r).", name)
