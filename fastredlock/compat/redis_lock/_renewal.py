"""The renewal of a lock in the background: one thread for each that is held."""

from __future__ import annotations

import threading
import weakref
from typing import Any

from redis.exceptions import RedisError

from ._errors import NotAcquired
from ._loggers import logger_for_refresh_thread as log

HASTE = 10  # a renewal that failed is tried again after so small a part of the interval


def renew(
    name: str, lockref: weakref.ref[Any], interval: float, stop: threading.Event
) -> None:
    """Extend the lock every `interval` s until told to stop, or it is lost.

    Servers that cannot be reached are asked again soon, as long as the lock may stand.
    """
    pause = interval
    while not stop.wait(timeout=pause):
        lock = lockref()
        if lock is None:
            log.debug("Stopping loop because Lock(%r) was garbage collected.", name)
            break
        log.debug("Refreshing Lock(%r).", name)
        try:
            lock.extend(expire=lock._expire)
            pause = interval
        except NotAcquired:
            log.error("Lock(%r) was lost.", name)
            break
        except RedisError as error:
            log.warning("Refreshing Lock(%r): %s", name, error)
            pause = interval / HASTE
        del lock
    log.debug("Exiting renewal thread for Lock(%r).", name)
