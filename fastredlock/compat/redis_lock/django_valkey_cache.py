"""The Django cache backend of python-redis-lock on django-valkey, with our Lock.

In CACHES, replace django_valkey.cache.ValkeyCache:

    "BACKEND": "fastredlock.compat.redis_lock.django_valkey_cache.ValkeyCache"
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._cache import LockingCache

if TYPE_CHECKING:  # theirs has no types

    class PlainValkeyCache:
        def __init__(self, server: str, params: dict[str, Any]) -> None: ...
else:
    from django_valkey.cache import ValkeyCache as PlainValkeyCache

__all__ = ["ValkeyCache"]


class ValkeyCache(LockingCache, PlainValkeyCache):
    """django-valkey's cache, with locks; needs its DefaultClient as CLIENT_CLASS."""
