"""pottery 3.0.1's locks on fastredlock: change `from pottery import Redlock`, no more.

Same keys (`redlock:` and the given one), UUIDs for tokens, seconds, exceptions, log
lines. Other than the library, a second acquire on the same object does not make the
holder's token unknown, nothing is sent after the call has returned, an extension that
came too late is none, and an error of the body is never hidden by one of the release.
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
