"""pottery 3.0.1's locks on fastredlock: change `from pottery import Redlock`, no more.

Same keys (`redlock:` and the given one), UUIDs for tokens, seconds, exceptions, log
lines. What differs is in docs/migration/pottery.md.
"""

from .aioredlock import AIORedlock
from .exceptions import (
    ExtendUnlockedLock,
    PrimitiveError,
    QuorumIsImpossible,
    QuorumNotAchieved,
    ReleaseUnlockedLock,
    TooManyExtensions,
)
from .redlock import Redlock, synchronize

__all__ = [
    "AIORedlock",
    "ExtendUnlockedLock",
    "PrimitiveError",
    "QuorumIsImpossible",
    "QuorumNotAchieved",
    "Redlock",
    "ReleaseUnlockedLock",
    "TooManyExtensions",
    "synchronize",
]
