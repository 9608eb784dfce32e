"""aioredlock 0.7.3 on fastredlock: change `from aioredlock import Aioredlock`, no more.

Same keys, UUIDs or given identifiers for tokens, seconds, and locks without a timeout
that are extended until they are released. What differs is in
docs/migration/aioredlock.md.
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
