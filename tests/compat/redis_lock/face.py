"""The two modules, their keys, and a lock that is renewed often."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import redis

from tests.support.keys import KEY

PAIR = ("redis_lock", "fastredlock.compat.redis_lock")
LOCK, SIGNAL = f"lock:{KEY}", f"lock-signal:{KEY}"


class Hasty:
    """Renew every 0.1 s, as subclasses are documented to do it."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._lock_renewal_interval = 0.1


def hasty(module: ModuleType, client: redis.Redis, **options: Any) -> Any:
    cls: Any = type("HastyLock", (Hasty, module.Lock), {})
    return cls(client, KEY, expire=1, auto_renewal=True, **options)
