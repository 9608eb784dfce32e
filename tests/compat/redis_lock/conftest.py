"""python-redis-lock, then what replaces it; theirs fails what takes `better`."""

from __future__ import annotations

from tests.compat.face import faces
from tests.compat.redis_lock.face import PAIR, Face

face = faces(Face, *PAIR)
better = faces(Face, *PAIR, bug_of=PAIR[:1])
ours = faces(Face, PAIR[1])
