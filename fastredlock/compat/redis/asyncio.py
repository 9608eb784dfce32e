"""redis.asyncio's Lock on fastredlock; see `fastredlock.compat.redis`.

from fastredlock.compat.redis.asyncio import Lock

async with client.lock("orders:42", timeout=5, lock_class=Lock):
    ...
"""

from __future__ import annotations

from asyncio import sleep
from collections.abc import Awaitable, Sequence
from logging import Logger, getLogger
from time import monotonic
from types import TracebackType
from typing import Any, Literal

from redis.exceptions import LockNotOwnedError, RedisError

from ... import (
    ConfigurationError,
    LeaseLostError,
    MasterVote,
    NotExtendedError,
    QuorumUnreachableError,
    ReleaseStatus,
    TokenReusedError,
    ValidityExhaustedError,
)
from ...asyncio import FastRedlock
from .._common.redis_errors import (
    not_settled,
    out_of_time,
    redis_error,
    unanswered,
    unconfirmed,
)
from .._common.redis_py import (
    PAUSES,
    answered,
    draw_token,
    encoded,
    is_held,
    patient_options,
    unanswered_releases,
)
from .._common.shared import shared_locks, token_source
from ._base import NOT_RAISED, BaseLock

__all__ = ["Lock"]

logger: Logger = getLogger("redis.asyncio.lock")  # filters of the warning name it

RELEASED, GONE = ReleaseStatus.RELEASED, ReleaseStatus.GONE


class Lock(BaseLock):
    """Take a lock as redis.asyncio's does; see its documentation for the options.

    `redis` is a client, or a list of clients of independent masters. Their settings are
    copied, never their sockets; raises ConfigurationError for one that cannot be. Times
    are seconds; a `timeout` of None or 0 leaves the key until it is released.
    """

    def _connect(self) -> None:
        self._locks = shared_locks(new_locks, self._clients)

    async def __aenter__(self) -> Lock:
        if await self.acquire():
            return self
        raise self._error("Unable to acquire lock within the time specified")

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self.release()
        except RedisError as error:
            if exc_value is None and self._is_to_raise(error):
                raise
            logger.warning(NOT_RAISED, error)

    async def acquire(
        self,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
    ) -> bool:
        """Return True once the lock is held, False if others held it all that time.

        Without `token`, every try has one of its own.
        """
        blocking = self.blocking if blocking is None else blocking
        given = None if token is None else encoded(self._clients[0], token)
        deadline = self._deadline(blocking_timeout)
        while True:
            if await self._try(given):
                return True
            if not blocking:
                return False
            if deadline is not None and monotonic() + self.sleep > deadline:
                return False
            await sleep(self.sleep)

    async def _try(self, given: bytes | None) -> bool:
        """Try once; again where too few masters could answer, as redis-py does."""
        for pause in PAUSES:
            if pause:
                await sleep(pause)
            token = draw_token() if given is None else given
            try:
                if not await self.do_acquire(token):
                    return False
            except RedisError as error:
                if not isinstance(error.__cause__, QuorumUnreachableError):
                    raise
                failure = error
            else:
                self.local.token = token
                return True
        raise failure

    async def do_acquire(self, token: bytes) -> bool:
        mark = token_source.set(lambda: token)
        try:
            lease = await self._locks.acquire(self._key(), ttl=self._ttl(), timeout=0)
        except TokenReusedError as error:
            raise not_settled(error) from error
        except ConfigurationError as error:
            raise self._refused(error) from error
        except QuorumUnreachableError as error:
            raise redis_error(error) from error
        except ValidityExhaustedError as error:
            raise out_of_time(error) from error
        finally:
            token_source.reset(mark)
        if lease is None:
            return False
        self._keep(lease)
        return True

    async def locked(self) -> bool:
        """Tell whether anybody holds the lock."""
        return is_held(await self._ask())

    async def owned(self) -> bool:
        """Tell whether this lock holds it, as the masters see it."""
        return self._is_ours(await self._ask())

    async def release(self) -> None:
        """Give the lock back; a release that is not confirmed may be tried again."""
        token = self._token()
        if token is None:
            raise self._error(
                "Cannot release a lock that's not owned or is already unlocked."
            )
        try:
            await self.do_release(token)
        except LockNotOwnedError:
            self._forget()
            raise
        self._forget()

    async def do_release(self, expected_token: bytes) -> None:
        if self._is_set("release"):
            if not await self._run("release", expected_token):
                raise self._not_owned("release")
            return
        lease = self._lease_of(expected_token) or self._adopted(expected_token)
        was_valid = lease.is_valid
        for pause in PAUSES:
            if pause:
                await sleep(pause)
            status = await lease.release()
            if status is RELEASED:
                return
            if status is GONE:
                if lease in unanswered_releases:
                    return
                raise self._not_owned("release")
            if was_valid:
                unanswered_releases.add(lease)
        raise unconfirmed(lease.resource)

    def extend(
        self, additional_time: float, replace_ttl: bool = False
    ) -> Awaitable[Literal[True]]:
        """Add to the time left, or replace it (s)."""
        self._check_can("extend")
        return self.do_extend(additional_time, replace_ttl)

    async def do_extend(
        self, additional_time: float, replace_ttl: bool
    ) -> Literal[True]:
        ttl_ms = int(additional_time * 1000)
        if self._is_set("extend"):
            args = (self._token_or("extend"), ttl_ms, "1" if replace_ttl else "0")
            return self._ran("extend", await self._run("extend", *args))
        if not replace_ttl:
            ttl_ms = self._sum_ms(await self._ask(), ttl_ms)
        return await self._prolong("extend", ttl_ms)

    def reacquire(self) -> Awaitable[Literal[True]]:
        """Set the time left back to `timeout`."""
        self._check_can("reacquire")
        return self.do_reacquire()

    async def do_reacquire(self) -> Literal[True]:
        ttl_ms = round(self._ttl() * 1000)
        if self._is_set("reacquire"):
            args = (self._token_or("reacquire"), ttl_ms)
            return self._ran("reacquire", await self._run("reacquire", *args))
        return await self._prolong("reacquire", ttl_ms)

    async def _prolong(self, what: str, ttl_ms: int) -> Literal[True]:
        token = self._token_or(what)
        lease = self._lease_of(token)
        if lease is None or not lease.is_valid:
            lease = self._adopted(token)  # the masters' votes count
        for pause in PAUSES:
            if pause:
                await sleep(pause)
            try:
                await lease.extend(ttl_ms / 1000)
            except ConfigurationError as error:
                raise self._refused(error) from error
            except (LeaseLostError, NotExtendedError) as error:
                failure = error
            else:
                self._keep(lease)
                return True
            if answered(failure.votes) or not failure.votes:
                raise self._not_owned(what) from failure
        raise redis_error(failure) from failure

    def _key(self) -> bytes:
        return encoded(self._clients[0], self.name)

    async def _ask(self) -> tuple[MasterVote, ...]:
        for pause in PAUSES:
            if pause:
                await sleep(pause)
            votes: tuple[MasterVote, ...] = await self._locks.holders(self._key())
            if answered(votes):
                return votes
        raise unanswered(self._key(), votes)

    def _adopted(self, token: bytes) -> Any:
        return self._locks.adopt(self._key(), token)


def new_locks(clients: Sequence[Any], **options: Any) -> FastRedlock:
    """Make the FastRedlock of a client, or of a list of them."""
    return FastRedlock(clients, **patient_options(clients, options))
