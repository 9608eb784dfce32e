"""The Django cache backend of python-redis-lock on django-redis, with our Lock.

In CACHES, replace redis_lock.django_cache.RedisCache:

    "BACKEND": "fastredlock.compat.redis_lock.django_cache.RedisCache"
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._cache import LockingCache

if TYPE_CHECKING:  # theirs has no types

    class PlainRedisCache:
        def __init__(self, server: str, params: dict[str, Any]) -> None: ...
else:
    from django_redis.cache import RedisCache as PlainRedisCache

__all__ = ["RedisCache"]


class RedisCache(LockingCache, PlainRedisCache):
    """django-redis's cache, with locks; needs its DefaultClient as CLIENT_CLASS."""
