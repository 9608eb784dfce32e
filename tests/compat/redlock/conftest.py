"""redlock-py, then what replaces it."""

from __future__ import annotations

from tests.compat.redlock.face import PAIR
from tests.support.two_libraries import library

redlock = library(*PAIR)
