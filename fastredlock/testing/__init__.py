"""For the tests of programs that take locks: servers of their own, or none at all.

`LocalMasters` starts private Redis or Valkey servers; `MemoryLocks` is a FastRedlock
whose masters and clock are in memory (`fastredlock.testing.asyncio` has the awaitable
one). The plugin for pytest has the fixtures `redlock_masters` and `redlock`.
"""

from ._local import LocalMasters
from ._masters import MemoryMasters
from .memory import MemoryLocks

__all__ = ["LocalMasters", "MemoryLocks", "MemoryMasters"]
