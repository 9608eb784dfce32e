"""The locks that python-redis-lock's Django cache backend adds to its client's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.core.cache.backends.base import DEFAULT_TIMEOUT

from . import Lock, reset_all


class LockingCache:
    """The methods that take locks, for a cache with a DefaultClient as CLIENT_CLASS."""

    client: Any
    get: Callable[..., Any]
    set: Callable[..., Any]

    @property
    def __client(self) -> Any:
        try:
            return self.client.get_client()
        except Exception as error:
            raise NotImplementedError(
                f"RedisCache doesn't have a raw client: {error}. "
                "Use 'redis_cache.client.DefaultClient' as the CLIENT_CLASS !"
            ) from error

    def lock(
        self,
        key: str,
        expire: float | None = None,
        id: str | bytes | None = None,
        auto_renewal: bool = False,
    ) -> Lock:
        """Return a lock, which is not acquired yet."""
        return Lock(self.__client, key, expire=expire, id=id, auto_renewal=auto_renewal)

    def locked_get_or_set(
        self,
        key: str,
        value_creator: Callable[[], Any],
        version: int | None = None,
        expire: float | None = None,
        id: str | bytes | None = None,
        lock_key: str | None = None,
        timeout: Any = DEFAULT_TIMEOUT,
    ) -> Any:
        """Return the value of a key; one caller at a time makes it where it is missing.

        Raises ValueError if `value_creator` returns None.
        """
        value = self.get(key, version=version)
        if value is not None:
            return value
        lock_key = f"get_or_set:{key}" if lock_key is None else lock_key
        with self.lock(lock_key, expire=expire, id=id):
            value = self.get(key, version=version)
            if value is not None:
                return value  # made while we waited
            value = value_creator()
            if value is None:
                raise ValueError("`value_creator` must return a value")
            self.set(key, value, timeout=timeout, version=version)
            return value

    def reset_all(self) -> None:
        """Delete all locks, also of other holders."""
        reset_all(self.__client)
