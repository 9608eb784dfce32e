"""python-redis-lock and what replaces it, with a client of their one master."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from tests.compat import face
from tests.support.keys import KEY

PAIR = ("redis_lock", "fastredlock.compat.redis_lock")
LOCK, SIGNAL = f"lock:{KEY}", f"lock-signal:{KEY}"


class Hasty:
    """Renew every 0.1 s, as subclasses are documented to do it."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._lock_renewal_interval = 0.1


class Face(face.Face):
    key = LOCK

    @cached_property
    def default_client(self) -> Any:
        return self.client()

    def lock(self, **options: Any) -> Any:
        return self.Lock(self.default_client, KEY, **options)

    def hasty(self, expire: float = 1) -> Any:
        cls: Any = type("HastyLock", (Hasty, self.Lock), {})
        return cls(self.default_client, KEY, expire=expire, auto_renewal=True)

    def value(self) -> Any:
        return self.server.get(LOCK)
