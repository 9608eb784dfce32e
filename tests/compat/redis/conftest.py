"""redis-py's Lock and what replaces it, blocking and awaitable."""

from __future__ import annotations

from tests.compat.face import faces
from tests.compat.redis.face import OURS, OURS_ASYNCIO, THEIRS, THEIRS_ASYNCIO, Face

ALL = (THEIRS, OURS, THEIRS_ASYNCIO, OURS_ASYNCIO)
face = faces(Face, *ALL)
better = faces(Face, *ALL, bug_of=(THEIRS, THEIRS_ASYNCIO))
blocking = faces(Face, THEIRS, OURS)
better_blocking = faces(Face, THEIRS, OURS, bug_of=(THEIRS,))
awaited = faces(Face, THEIRS_ASYNCIO, OURS_ASYNCIO)
better_awaited = faces(Face, THEIRS_ASYNCIO, OURS_ASYNCIO, bug_of=(THEIRS_ASYNCIO,))
ours = faces(Face, OURS, OURS_ASYNCIO)
ours_blocking = faces(Face, OURS)
