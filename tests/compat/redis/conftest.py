"""redis-py's Lock and what replaces it, and the one master of most tests."""

from __future__ import annotations

import pytest
import redis

from tests.support.redis_flavours import (
    OURS,
    OURS_ASYNCIO,
    THEIRS,
    THEIRS_ASYNCIO,
    flavours,
)

flavour = flavours(THEIRS, OURS, THEIRS_ASYNCIO, OURS_ASYNCIO)
better = flavours(
    *(THEIRS, OURS, THEIRS_ASYNCIO, OURS_ASYNCIO), bug_of=(THEIRS, THEIRS_ASYNCIO)
)


better_blocking = flavours(THEIRS, OURS, bug_of=(THEIRS,))


@pytest.fixture
def server(servers: list[redis.Redis]) -> redis.Redis:
    """Raw access to the one master of most tests."""
    return servers[0]
