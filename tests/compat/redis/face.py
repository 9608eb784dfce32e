"""redis-py's Lock in four flavours behind one blocking face."""

from __future__ import annotations

from typing import Any

from tests.compat.face import LoopFace
from tests.support.keys import KEY

THEIRS, THEIRS_ASYNCIO = "redis.lock", "redis.asyncio.lock"
OURS, OURS_ASYNCIO = "fastredlock.compat.redis", "fastredlock.compat.redis.asyncio"


class Face(LoopFace):
    """One library's Lock, blocking or awaitable, on the first of the servers."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.default_client = self.client()

    def lock(self, name: Any = KEY, client: Any = None, **options: Any) -> Any:
        """Make a lock; `client` may be a list of them where it is ours."""
        return self.made(self.Lock, name, client, **options)

    def made(
        self, cls: Any, name: Any = KEY, client: Any = None, **options: Any
    ) -> Any:
        return self.usable(cls(client or self.default_client, name, **options))

    def value(self) -> Any:
        return self.server.get(KEY)
