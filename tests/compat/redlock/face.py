"""The two modules, and clients and values of their masters."""

from __future__ import annotations

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

PAIR = ("redlock", "fastredlock.compat.redlock")
TTL = 10_000  # ms


def impatient(urls: list[str]) -> list[redis.Redis]:
    """Return clients that do not try again for seconds, as theirs would."""
    return [redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0)) for url in urls]
