"""The manager: takes, extends and releases locks."""

from __future__ import annotations

from asyncio import Task, ensure_future, gather, sleep
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from logging import Logger, getLogger
from math import inf
from random import uniform
from time import monotonic
from typing import Any, cast
from uuid import uuid4
from weakref import ref

from ... import (
    ConfigurationError,
    LeaseLostError,
    NotExtendedError,
    QuorumUnreachableError,
    ReleaseStatus,
    ResourceTakenError,
    TokenReusedError,
    ValidityExhaustedError,
    Vote,
)
from ..._options.masters import SameServerAllowed
from ..._reports.votes import hash_of, is_quorum
from ..._steps import run_awaited
from ...asyncio import FastRedlock, Lease
from .._common import (
    Refusing,
    answered,
    key_name,
    left_ms,
    new_locks,
    token_source,
    try_once,
)
from .errors import LockAcquiringError, LockError, LockRuntimeError, error_of
from .sentinel import master_of, without_password

__all__ = ["Aioredlock", "Lock"]

LOCALHOST: list[dict[str, Any]] = [{"host": "localhost", "port": 6379}]
SHORTEST = 0.003  # s; of less, drift leaves nothing


@dataclass
class Lock:
    """Hold a lock, as in `async with await manager.lock(...)`; made by the manager."""

    lock_manager: Aioredlock
    resource: str
    id: Any = field(repr=False)  # any process that has it can release the lock
    lock_timeout: float | None = 10.0
    valid: bool = False

    # No fields: its lease, the FastRedlock of that, and the lease that is kept.
    _lease = _locks = _renewed = cast(Any, None)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "valid" and self._renewed is not None:
            with suppress(LeaseLostError):
                self._renew(self._renewed)

    def _renew(self, lease: Lease) -> None:
        """Extend it in time for as long as it is valid, which users may change."""
        on_lost = partial(_on_lost, ref(self)) if self.valid else None
        lease.keep_alive(bool(self.valid), on_lost=on_lost)

    async def __aenter__(self) -> Lock:
        return self

    async def __aexit__(self, exc_type: Any, exc: Any, tb: Any) -> None:
        try:
            await self.lock_manager.unlock(self)
        except LockError:
            if exc is None:
                raise

    async def extend(self) -> None:
        """Make it ours for `lock_timeout` s from now on."""
        await self.lock_manager.extend(self)

    async def release(self) -> None:
        """Release it."""
        await self.lock_manager.unlock(self)

    async def is_locked(self) -> bool:
        """Return whether anybody holds the resource."""
        return await self.lock_manager.is_locked(self)


class Aioredlock(Refusing):
    """Take locks on a majority of masters; see aioredlock for how it is used.

    `redis_connections`: dicts of aioredis's arguments, `(host, port)`, URLs, paths of
    unix sockets, or clients, whose settings are copied. Raises ValueError for one that
    cannot be, and for counts and times (s) that are not positive.
    """

    _NOT_RUN = frozenset({"_auto_extend", "_set_lock", "_watchdogs", "redis"})

    def __init__(
        self,
        redis_connections: Iterable[Any] = LOCALHOST,
        retry_count: int = 3,
        retry_delay_min: float = 0.1,
        retry_delay_max: float = 0.3,
        internal_lock_timeout: float = 10.0,
    ) -> None:
        self.redis_connections = redis_connections
        self.retry_count: int = int(retry_count)
        self.retry_delay_min: float = float(retry_delay_min)
        self.retry_delay_max: float = float(retry_delay_max)
        self.internal_lock_timeout: float = float(internal_lock_timeout)
        if self.retry_count < 1:
            raise ValueError("Retry count must be greater or equal 1.")
        if self.retry_delay_min <= 0 or self.retry_delay_max <= 0:
            raise ValueError("Retry delay must be greater than 0 seconds.")
        if self.internal_lock_timeout <= 0:
            raise ValueError("Internal lock_timeout must be greater than 0 seconds.")
        masters = SameServerAllowed(
            master_of(connection) for connection in redis_connections
        )
        self._masters = masters
        self._open: FastRedlock | None = new_locks(FastRedlock, masters)
        self._locks: dict[str, Lock] = {}  # by resource: the last one taken
        self._lost: set[Task[Any]] = set()  # releases of what a minority has left

    @property
    def _redlock(self) -> FastRedlock:
        if self._open is None:  # after destroy(): theirs connects again, too
            self._open = new_locks(FastRedlock, self._masters)
        return self._open

    @property
    def log(self) -> Logger:
        """The library's logger, as it was configured."""
        return getLogger("aioredlock.algorithm")

    async def lock(
        self,
        resource: str,
        lock_timeout: float | None = None,
        lock_identifier: Any = None,
    ) -> Lock:
        """Return a Lock for `lock_timeout` s, or one that is extended until released.

        LockError: such a time is shorter than an extension may take. With the
        identifier of one that is held, that is extended; a release with it that arrives
        late deletes this one. Raises LockAcquiringError if others hold it after all
        tries, LockRuntimeError if fewer than a quorum of the masters could answer the
        last one, or a release with this identifier is not confirmed.
        """
        ttl = self._ttl_of(lock_timeout)
        if lock_timeout is None and type(self).extend is not Aioredlock.extend:
            raise TypeError("extend() of a subclass is not what extends it in time")
        lease = await self._taken(resource, ttl, lock_identifier)
        id = lock_identifier or lease.token.decode()
        lock = Lock(self, resource, id, lock_timeout, valid=True)
        lock._lease, lock._locks = lease, self._redlock
        if lock_timeout is None:
            # It is extended in time until it is released, lost, or garbage.
            try:
                lock._renew(lease)
            except (ConfigurationError, LeaseLostError) as error:
                await lease.release()
                raise LockError("Lock timeout") from error
            lock._renewed = lease
        self._locks[resource] = lock
        return lock

    async def extend(self, lock: Lock, lock_timeout: float | None = None) -> None:
        """Make it ours for `lock_timeout` s (default: as before) from now on.

        Raises RuntimeError if it is not valid, LockAcquiringError if it was lost, which
        makes it so, LockRuntimeError if too few masters confirmed: it is still held
        until its time is over.
        """
        if not lock.valid:
            raise RuntimeError("Lock is not valid")
        ttl = self._ttl_of(lock_timeout, lock.lock_timeout)
        if ttl < 0:  # of a key without expiry, as get_lock makes it
            raise LockAcquiringError("Can not set lock")
        try:
            await self._lease_of(lock)._prolong(ttl)
        except (LeaseLostError, NotExtendedError) as error:
            if error.votes and not answered(error.votes):
                raise LockRuntimeError("Can not set lock") from error
            lock.valid = False
            await self._lease_of(lock).release()  # a minority may have it, and anew
            self._forget(lock)
            raise LockAcquiringError("Can not set lock") from error

    async def unlock(self, lock: Lock) -> None:
        """Release it; one that nobody holds any more is no error.

        Raises LockRuntimeError if fewer than a quorum of the masters confirmed that it
        is gone and one could not answer, LockAcquiringError if another has it there.
        """
        lock._renewed, lock.valid = None, False
        status = await self._lease_of(lock).release()
        if status is not ReleaseStatus.RELEASED:
            votes = await self._redlock.holders(key_name(lock.resource))
            if status is ReleaseStatus.UNKNOWN:
                cause = QuorumUnreachableError(lock.resource, votes, 1, 0.0)
                raise LockRuntimeError("Can not unset lock") from cause
            if not is_quorum(votes, lambda vote: vote.vote is Vote.GRANTED):
                raise error_of("Can not unset lock", lock.resource, votes)
        self._forget(lock)

    async def is_locked(self, resource_or_lock: str | Lock) -> bool:
        """Return whether a majority of the masters has the resource, for anybody."""
        if isinstance(resource_or_lock, Lock):
            resource_or_lock = resource_or_lock.resource
        elif not isinstance(resource_or_lock, str):
            raise TypeError(
                "Argument should be ether aioredlock.Lock instance or string, "
                f"{type(resource_or_lock)} is given."
            )
        votes = await self._redlock.holders(key_name(resource_or_lock))
        return is_quorum(votes, lambda vote: vote.token_hash is not None)

    async def get_active_locks(self) -> list[Lock]:
        """Return the locks of this manager that are still held."""
        return [
            lock
            for lock in list(self._locks.values())
            if lock.valid is True
            if self._lease_of(lock).is_valid and await lock.is_locked()
        ]

    async def get_lock(self, resource: str, lock_identifier: Any) -> Lock:
        """Return the Lock that somebody took with this identifier.

        Its `lock_timeout` is the time left (whole s). Raises LockAcquiringError if a
        majority does not have it, LockRuntimeError if one of the masters that would
        make it a majority could not answer.
        """
        votes = await self._redlock.holders(key_name(resource))
        token = _token_of(lock_identifier)
        found = left_ms(votes, token)
        if found is None:
            raise error_of("Can not get lock", resource, votes, hash_of(token))
        # As TTL returns it: rounded, and -1 without expiry.
        left = -1 if found == inf else int(found + 500) // 1000
        return Lock(self, resource, lock_identifier, left, valid=True)

    async def destroy(self) -> None:
        """Release all locks and close the connections."""
        for lock in list(self._locks.values()):
            if lock.valid:
                try:
                    await self.unlock(lock)
                except Exception:
                    self.log.exception('Can not unlock "%s"', lock.resource)
        self._locks.clear()
        await gather(*self._lost, return_exceptions=True)
        closing, self._open = self._open, None
        if closing is not None:
            await closing.close()

    async def _taken(self, resource: str, ttl: float, identifier: Any) -> Lease:
        name, minority = key_name(resource), None
        if identifier:
            lease = self._redlock.adopt(name, _token_of(identifier), ttl=ttl)
            try:
                await lease.extend(ttl)
                return lease
            except LeaseLostError:  # not ours, or nobody's: at most a minority's
                minority = lease
            except NotExtendedError:
                pass
        failure: LockError
        began = monotonic()
        for left in reversed(range(self.retry_count)):
            delay = uniform(self.retry_delay_min, self.retry_delay_max) if left else 0.0
            ends = monotonic() + delay  # it waits in turn meanwhile
            token_source.set(lambda: _token_of(identifier or uuid4()))
            try:
                taken_now: Lease | None = await run_awaited(
                    try_once([], self._redlock, name, ttl, delay)
                )
                if taken_now is not None:
                    return taken_now
                failure = LockAcquiringError("Can not set lock")
            except (QuorumUnreachableError, TokenReusedError) as error:
                failure = LockRuntimeError("Can not set lock")
                failure.__cause__ = error
            except ValidityExhaustedError as error:
                failure = LockError("Lock timeout")
                failure.__cause__ = error
            await sleep(max(0.0, ends - monotonic()))
        if isinstance(failure, LockAcquiringError):
            votes, took = await self._redlock.holders(name), monotonic() - began
            cause = ResourceTakenError(name, votes, self.retry_count, took)
            failure.__cause__ = cause
        if minority is not None:
            await minority.release()  # its keys were extended just now
        raise failure

    def _ttl_of(self, timeout: float | None, default: float | None = None) -> float:
        if timeout is not None and timeout <= 0:
            raise ValueError("Lock timeout must be greater than 0 seconds.")
        ttl = timeout or default or self.internal_lock_timeout
        if 0 < ttl < SHORTEST:
            raise LockError("Lock timeout")
        return ttl

    def _lease_of(self, lock: Lock) -> Lease:
        # Taken by another process or manager, before destroy(), or set to be another's.
        lease = lock._lease if lock._locks is self._redlock else None
        if lease is None or lease.token != _token_of(lock.id):
            lock._locks = self._redlock
            ttl = lock.lock_timeout or 0
            lock._lease = lease = self._redlock.adopt(
                key_name(lock.resource),
                _token_of(lock.id),
                ttl=ttl if ttl >= SHORTEST else self.internal_lock_timeout,
            )
        return lease

    def _forget(self, lock: Lock) -> None:
        if self._locks.get(lock.resource) is lock:
            del self._locks[lock.resource]

    def __repr__(self) -> str:
        connections = [without_password(one) for one in self.redis_connections]
        counts = ("retry_count", "retry_delay_min", "retry_delay_max")
        options = [
            f"{name}={getattr(self, name)!r}"
            for name in (*counts, "internal_lock_timeout")
        ]
        return f"Aioredlock(redis_connections={connections!r}, {', '.join(options)})"


def _on_lost(lost: ref[Lock], lease: Lease, error: LeaseLostError) -> None:
    lock = lost()  # not its own: it would be kept alive, and extended, in a cycle
    if lock is not None:
        lock._renewed = None
        lock.valid = False
        manager = lock.lock_manager
        manager.log.error('"%s" is lost: %s', lock.resource, error)
        release = ensure_future(lease.release())
        manager._lost.add(release)
        release.add_done_callback(manager._lost.discard)


def _token_of(identifier: Any) -> bytes:
    """Return the token stored for an identifier: numbers were taken, too."""
    return identifier if isinstance(identifier, bytes) else str(identifier).encode()
