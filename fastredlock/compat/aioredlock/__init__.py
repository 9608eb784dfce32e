"""aioredlock 0.7.3 on fastredlock: change `from aioredlock import Aioredlock`, no more.

Same keys, UUIDs or given identifiers for tokens, seconds, and locks without a timeout
that are extended until they are released. Other than the library, extending never
revives a lock that was lost and never deletes one that is still held, a lost lock is
logged and no longer `valid`, a failed try leaves nothing behind, and a node that does
not answer delays nothing.
"""

from .algorithm import Aioredlock, Lock
from .errors import LockAcquiringError, LockError, LockRuntimeError
from .sentinel import Sentinel

__all__ = [
    "Aioredlock",
    "Lock",
    "LockAcquiringError",
    "LockError",
    "LockRuntimeError",
    "Sentinel",
]
