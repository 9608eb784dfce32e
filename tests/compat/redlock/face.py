"""The two modules, and the type of what makes clients for them."""

from __future__ import annotations

from collections.abc import Callable

import redis

PAIR = ("redlock", "fastredlock.compat.redlock")
TTL = 10_000  # ms

Impatient = Callable[[list[str]], list[redis.Redis]]  # fixture impatient
