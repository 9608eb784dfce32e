"""redis-py's Lock on fastredlock: the same keys and values, on connections of its own.

    from fastredlock.compat.redis import Lock

    with client.lock("orders:42", timeout=5, lock_class=Lock):
        ...
    with Lock([client_a, client_b, client_c], "orders:42", timeout=5):
        ...  # held by a majority of independent masters

Hooks and attributes are redis-py's. For asyncio: `fastredlock.compat.redis.asyncio`.
"""

from __future__ import annotations

from functools import partial
from logging import Logger, getLogger
from typing import Any, Literal

from ... import FastRedlock, FastRedlockError
from ..._steps import run
from .._redis import patient_locks
from ._base import NOT_RAISED, BaseLock

__all__ = ["Lock"]

logger: Logger = getLogger("redis.lock")  # filters of the warning name it


class Lock(BaseLock[Literal[True]]):
    """Take a lock as redis-py's does; see its documentation for the options.

    `redis` is a client, or a list of clients of independent masters. Their settings are
    copied, never their sockets; raises ConfigurationError for one that cannot be. Times
    are seconds; a `timeout` of None or 0 leaves the key until it is released.
    """

    _new_locks = staticmethod(partial(patient_locks, FastRedlock))

    def __enter__(self) -> Lock:
        held = self.local.token
        try:
            if self.acquire():
                return self
        except BaseException:
            if self.local.token is not held:  # a signal came behind acquire()
                self._undo(self.local.token)
            raise
        raise self._error("Unable to acquire lock within the time specified")

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        try:
            self.release()
        except self._library.base as error:
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
        sleep, drawn = self.sleep if sleep is None else sleep, list[bytes]()
        try:
            return run(self._acquire(sleep, blocking, blocking_timeout, token, drawn))
        except (self._library.base, FastRedlockError):
            raise  # of a try that is rolled back
        except BaseException:
            if drawn:  # its lease may have been lost on the way here
                self._undo(drawn[-1])
            raise

    def _undo(self, token: bytes) -> None:
        (self._lease_of(token) or self._adopted(token)).release()
        if self.local.token == token:
            self.local.token = None

    def do_acquire(self, token: bytes) -> bool:
        return run(self._take(token))

    def locked(self) -> bool:
        """Return whether anybody holds the lock."""
        return run(self._locked())

    def owned(self) -> bool:
        """Return whether this lock holds it, as the masters see it."""
        return run(self._owned())

    def release(self) -> None:
        """Give the lock back; a release that is not confirmed may be tried again."""
        run(self._release())

    def do_release(self, expected_token: bytes) -> None:
        run(self._give_back(expected_token))

    def do_extend(self, additional_time: float, replace_ttl: bool) -> Literal[True]:
        return run(self._extend(additional_time, replace_ttl))

    def do_reacquire(self) -> Literal[True]:
        return run(self._reacquire())

    def _key(self) -> bytes:
        return self._library.key_of(self._clients[0], self._key_sent())
