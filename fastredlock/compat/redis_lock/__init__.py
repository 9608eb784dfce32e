"""python-redis-lock 4.0.1 on fastredlock: one import, and the same lock.

    from fastredlock.compat.redis_lock import Lock

Same keys, values and signal lists, so that waiters of either library are woken by
releases of the other. The lock is taken, extended and released on connections of our
own; the client that is passed waits for signals, reads the owner's id, and deletes the
locks of others (`reset`, `reset_all`). For Django: `redis_lock.django_cache`.
"""

from ._errors import (
    AlreadyAcquired,
    AlreadyStarted,
    InvalidTimeout,
    NotAcquired,
    NotExpirable,
    TimeoutNotUsable,
    TimeoutTooLarge,
)
from ._lock import Lock
from ._loggers import (
    logger_for_acquire,
    logger_for_refresh_exit,
    logger_for_refresh_shutdown,
    logger_for_refresh_start,
    logger_for_refresh_thread,
    logger_for_release,
)
from ._signal import reset_all

__all__ = [
    "AlreadyAcquired",
    "AlreadyStarted",
    "InvalidTimeout",
    "Lock",
    "NotAcquired",
    "NotExpirable",
    "TimeoutNotUsable",
    "TimeoutTooLarge",
    "logger_for_acquire",
    "logger_for_refresh_exit",
    "logger_for_refresh_shutdown",
    "logger_for_refresh_start",
    "logger_for_refresh_thread",
    "logger_for_release",
    "reset_all",
]
