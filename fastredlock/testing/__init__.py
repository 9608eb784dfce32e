"""For the tests of programs that take locks: servers of their own, or none at all.

`LocalMasters` starts private Redis or Valkey servers; `MemoryLocks` is a FastRedlock
whose masters and clock are in memory (`fastredlock.testing.asyncio` has the awaitable
one); `in_memory` makes such a one of every FastRedlock of the program. The plugin for
pytest has the fixtures `redlock_masters`, `redlock` and `redlock_memory`.
"""

from ._cluster import LocalCluster
from ._local import LocalMasters
from ._sentinels import LocalSentinels
from .memory import MemoryLocks, MemoryMasters, in_memory

__all__ = [
    "LocalCluster",
    "LocalMasters",
    "LocalSentinels",
    "MemoryLocks",
    "MemoryMasters",
    "in_memory",
]
