"""aioredlock, then what replaces it: all tests here run with `face`, or with `better`.

Theirs fails the tests with `better`: bugs that are not copied.
"""

from __future__ import annotations

from tests.compat.aioredlock.face import PAIR, Face
from tests.compat.face import faces

face = faces(Face, *PAIR)
better = faces(Face, *PAIR, bug_of=PAIR[:1])
ours = faces(Face, PAIR[1])
