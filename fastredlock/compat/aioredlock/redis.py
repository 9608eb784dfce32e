"""The names of aioredlock.redis that are ours: its errors and its Sentinel.

Its connections, `Instance` and `Redis`, are not there: FastRedlock has its own.
"""

from .errors import LockAcquiringError, LockError, LockRuntimeError
from .sentinel import Sentinel

__all__ = ["LockAcquiringError", "LockError", "LockRuntimeError", "Sentinel"]
