"""redlock-py 1.0.8 on fastredlock: `from fastredlock.compat.redlock import Redlock`.

Same keys, same 22 letters and digits for a token, times in ms, `False` for a lock that
others hold. What differs is in docs/migration/redlock-py.md.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from logging import getLogger
from os import urandom
from string import ascii_letters, digits
from typing import Any, Literal, NamedTuple

from .. import (
    FastRedlock,
    QuorumUnreachableError,
    ReleaseStatus,
    TokenReusedError,
    ValidityExhaustedError,
)
from .._core import Electorate
from .._options.masters import SameServerAllowed
from .._options.redis_py import TRIAL
from .._steps import run
from ._common import (
    Refusing,
    key_name,
    look_at,
    shared_locks,
    token_source,
    try_once,
)

__all__ = ["CannotObtainLock", "Lock", "MultipleRedlockException", "Redlock"]

UNKNOWN = ReleaseStatus.UNKNOWN
_FAILURES = QuorumUnreachableError, TokenReusedError, ValidityExhaustedError
_log = getLogger("fastredlock")
DEFAULT_TTL = 10  # s; adopt() assumes it of a lock of which nothing is known

KEY_LENGTH = 22
_CHARACTERS = (ascii_letters + digits).encode()
# A random byte is one of 62 characters; the last 8 of 256 are left out, to be fair.
_OF_BYTE = bytes(_CHARACTERS[byte % 62] for byte in range(256))
_UNFAIR = bytes(range(4 * 62, 256))


class Lock(NamedTuple):
    """Hold what was locked, as redlock-py does."""

    validity: float  # ms
    resource: str | bytes  # as given
    key: bytes


class CannotObtainLock(Exception):  # noqa: N818 - its name
    """Report that there are too few servers to form a quorum."""


class MultipleRedlockException(Exception):  # noqa: N818 - its name
    """Hold the errors of several servers, in `errors`; never raised here.

    The library raises it, and leaves the keys behind, where a quorum granted and
    another server failed: that is a lock.
    """

    def __init__(self, errors: Iterable[Exception], *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.errors = errors

    def __str__(self) -> str:
        return " :: ".join([str(error) for error in self.errors])

    def __repr__(self) -> str:
        return self.__str__()


class Redlock(Refusing):
    """Take locks on a majority of servers; see redlock-py for how it is used.

    `connection_list`: redis-py URLs, dicts of its arguments, or clients: their settings
    are copied; raises Warning for one that cannot be. `retry_count` tries in all,
    `retry_delay` s between them.
    """

    _NOT_RUN = frozenset({"lock_instance", "unlock_instance", "unlock_script"})
    _READ_ONCE = frozenset({"clock_drift_factor"})

    default_retry_count = 3
    default_retry_delay: float = 0.2
    clock_drift_factor: float = 0.01
    unlock_script = """
    if redis.call("get",KEYS[1]) == ARGV[1] then
        return redis.call("del",KEYS[1])
    else
        return 0
    end"""

    def __init__(
        self,
        connection_list: Iterable[object],
        retry_count: int | None = None,
        retry_delay: float | None = None,
    ) -> None:
        self._given = list(connection_list)
        self._clients: tuple[Any, ...] | None = None
        if not self._given:
            raise CannotObtainLock("Failed to connect to the majority of redis servers")
        self.retry_count: int = retry_count or self.default_retry_count
        self.retry_delay: float = retry_delay or self.default_retry_delay
        self.clock_drift_factor = type(self).clock_drift_factor  # read here, and once
        self._locks = self._connected()

    @property
    def quorum(self) -> int:
        """How many servers must grant."""
        return Electorate(len(self._given)).quorum

    @property
    def servers(self) -> tuple[Any, ...]:
        """The servers as clients of redis-py, which has to be installed for them.

        For commands of the caller; locks are taken on connections of their own.
        """
        if self._clients is None:
            from redis import Redis

            self._clients = tuple(
                Redis.from_url(each)
                if isinstance(each, str)
                else Redis(**each)
                if isinstance(each, dict)
                else each
                for each in self._given
            )
        return self._clients

    def lock(self, resource: Any, ttl: int) -> Lock | Literal[False]:
        """Return a Lock for `ttl` ms, or False if there is none after all tries."""
        _check_ttl(ttl)
        if ttl - ttl * self.clock_drift_factor <= 2:
            return False  # drift takes off all of it
        for left in reversed(range(self.retry_count)):
            delay = self.retry_delay if left else 0.0  # it waits in turn meanwhile
            ends = time.monotonic() + delay
            if lock := self._try(resource, ttl, delay):
                return lock
            time.sleep(max(0.0, ends - time.monotonic()))
        return False

    def unlock(self, lock: Any) -> None:
        """Release the lock of this `resource` and `key`; a lost one is no error."""
        # How long a server that is away now is sent the release when it comes back.
        longest = 2 * (getattr(lock, "validity", 0) or 0) / 1000
        ttl = longest if longest > DEFAULT_TTL else None
        lease = self._locks.adopt(key_name(lock.resource), lock.key, ttl=ttl)
        if lease.release() is UNKNOWN:
            _log.warning("%r: fewer than a quorum confirmed the unlock", lock.resource)

    def lock_instance(
        self, server: Any, resource: Any, val: bytes | str, ttl: int
    ) -> Literal[True] | None:
        """Take the lock on one server alone, over a connection made for this call."""
        _check_ttl(ttl)
        with FastRedlock([server], new_token=lambda: val) as alone:
            lease = alone.acquire(key_name(resource), ttl=ttl / 1000, timeout=0)
        return None if lease is None else True

    def unlock_instance(self, server: Any, resource: Any, val: bytes | str) -> None:
        """Release the lock on one server alone, over a connection made for this call.

        Logs an error, and raises nothing.
        """
        with FastRedlock([server]) as alone:
            if alone.adopt(key_name(resource), val).release() is UNKNOWN:
                _log.warning("%r: the unlock was not confirmed by %r", resource, alone)

    def get_unique_id(self) -> bytes:
        """Draw the key of a lock, 22 letters and digits; called once per try."""
        key = b""
        while len(key) < KEY_LENGTH:
            key = urandom(4 * KEY_LENGTH).translate(_OF_BYTE, _UNFAIR)[:KEY_LENGTH]
        return key

    def _connected(self, resource: object = TRIAL) -> FastRedlock:
        drift, masters = self.clock_drift_factor, SameServerAllowed(self._given)
        try:
            run(look_at(masters))
            return shared_locks(FastRedlock, masters, resource, drift_factor=drift)
        except ValueError as error:
            raise Warning(str(error)) from error

    def _try(self, resource: Any, ttl: int, waits: float = 0) -> Lock | None:
        if not any(isinstance(each, dict) for each in self._given):  # never shared
            self._locks = self._connected(resource)
        mark = token_source.set(self.get_unique_id)
        granted, name = list[Any](), key_name(resource)
        try:
            try:
                lease = run(try_once(granted, self._locks, name, ttl / 1000, waits))
            finally:
                token_source.reset(mark)  # it refers to this manager
            validity = int(lease.remaining() * 1000) if lease else 0
            if validity > 0:
                return Lock(validity, resource, lease.token)
            if lease:
                lease.release()
        except _FAILURES as error:
            _log.warning("%s", error)
        except BaseException:
            for lease in filter(None, granted):  # nobody would release it
                lease.release()
            raise
        return None


def _check_ttl(ttl: object) -> None:
    if not isinstance(ttl, int):
        raise ValueError(f"ttl {ttl} is not an integer")
