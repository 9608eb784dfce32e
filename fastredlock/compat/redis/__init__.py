"""redis-py's Lock on fastredlock: the same keys and values, on connections of its own.

    from fastredlock.compat.redis import Lock

    with client.lock("orders:42", timeout=5, lock_class=Lock):
        ...
    with Lock([client_a, client_b, client_c], "orders:42", timeout=5):
        ...  # held by a majority of independent masters

Hooks and attributes are redis-py's. For asyncio: `fastredlock.compat.redis.asyncio`.
"""

from __future__ import annotations

import time
from logging import Logger, getLogger
from types import TracebackType
from typing import Literal

from redis.exceptions import LockNotOwnedError, RedisError

from ... import ConfigurationError, Lease, QuorumUnreachableError
from .._common.calls import ask, give_back, prolong, take
from .._common.redis_py import PAUSES, draw_token, encoded, is_held, new_locks
from .._common.shared import shared_locks
from ._base import NOT_RAISED, BaseLock

__all__ = ["Lock"]

logger: Logger = getLogger("redis.lock")  # filters of the warning name it


class Lock(BaseLock):
    """Take a lock as redis-py's does; see its documentation for the options.

    `redis` is a client, or a list of clients of independent masters. Their settings are
    copied, never their sockets; raises ConfigurationError for one that cannot be. Times
    are seconds; a `timeout` of None or 0 leaves the key until it is released.
    """

    def _connect(self) -> None:
        self._locks = shared_locks(new_locks, self._clients)

    def __enter__(self) -> Lock:
        if self.acquire():
            return self
        raise self._error("Unable to acquire lock within the time specified")

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.release()
        except RedisError as error:
            if exc_value is None and self._is_to_raise(error):
                raise
            logger.warning(NOT_RAISED, error)

    def acquire(
        self,
        sleep: float | None = None,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
    ) -> bool:
        """Return True once the lock is held, False if others held it all that time.

        Without `token`, every try has one of its own.
        """
        sleep = self.sleep if sleep is None else sleep
        blocking = self.blocking if blocking is None else blocking
        given = None if token is None else encoded(self._clients[0], token)
        deadline = self._deadline(blocking_timeout)
        while True:
            if self._try(given):
                return True
            if not blocking:
                return False
            if deadline is not None and time.monotonic() + sleep > deadline:
                return False
            time.sleep(sleep)

    def _try(self, given: bytes | None) -> bool:
        """Try once; again where too few masters could answer, as redis-py does."""
        for pause in PAUSES:
            if pause:
                time.sleep(pause)
            token = draw_token() if given is None else given
            try:
                if not self.do_acquire(token):
                    return False
            except RedisError as error:
                if not isinstance(error.__cause__, QuorumUnreachableError):
                    raise
                failure = error
            else:
                self.local.token = token
                return True
        raise failure

    def do_acquire(self, token: bytes) -> bool:
        try:
            lease = take(self._locks, self._key(), token, self._ttl())
        except ConfigurationError as error:
            raise self._refused(error) from error
        if lease is None:
            return False
        self._keep(lease)
        return True

    def locked(self) -> bool:
        """Tell whether anybody holds the lock."""
        return is_held(ask(self._locks, self._key()))

    def owned(self) -> bool:
        """Tell whether this lock holds it, as the masters see it."""
        return self._is_ours(ask(self._locks, self._key()))

    def release(self) -> None:
        """Give the lock back; a release that is not confirmed may be tried again."""
        token = self._token()
        if token is None:
            raise self._error(
                "Cannot release a lock that's not owned or is already unlocked."
            )
        try:
            self.do_release(token)
        except LockNotOwnedError:
            self._forget()
            raise
        self._forget()

    def do_release(self, expected_token: bytes) -> None:
        if self._is_set("release"):
            if not self._run("release", expected_token):
                raise self._not_owned("release")
            return
        lease = self._lease_of(expected_token) or self._adopted(expected_token)
        if not give_back(lease):
            raise self._not_owned("release")

    def extend(
        self, additional_time: float, replace_ttl: bool = False
    ) -> Literal[True]:
        """Add to the time left, or replace it (s)."""
        self._check_can("extend")
        return self.do_extend(additional_time, replace_ttl)

    def do_extend(self, additional_time: float, replace_ttl: bool) -> Literal[True]:
        ttl_ms = int(additional_time * 1000)
        if self._is_set("extend"):
            args = (self._token_or("extend"), ttl_ms, "1" if replace_ttl else "0")
            return self._ran("extend", self._run("extend", *args))
        if not replace_ttl:
            ttl_ms = self._sum_ms(ask(self._locks, self._key()), ttl_ms)
        return self._prolong("extend", ttl_ms)

    def reacquire(self) -> Literal[True]:
        """Set the time left back to `timeout`."""
        self._check_can("reacquire")
        return self.do_reacquire()

    def do_reacquire(self) -> Literal[True]:
        ttl_ms = round(self._ttl() * 1000)
        if self._is_set("reacquire"):
            args = (self._token_or("reacquire"), ttl_ms)
            return self._ran("reacquire", self._run("reacquire", *args))
        return self._prolong("reacquire", ttl_ms)

    def _prolong(self, what: str, ttl_ms: int) -> Literal[True]:
        token = self._token_or(what)
        lease = self._lease_of(token)
        if lease is None or not lease.is_valid:
            lease = self._adopted(token)  # the masters' votes count
        try:
            if not prolong(lease, ttl_ms / 1000):
                raise self._not_owned(what)
        except ConfigurationError as error:
            raise self._refused(error) from error
        self._keep(lease)
        return True

    def _adopted(self, token: bytes) -> Lease:
        return self._locks.adopt(self._key(), token)
