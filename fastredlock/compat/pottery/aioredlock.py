"""pottery's awaitable Redlock."""

from __future__ import annotations

from collections.abc import Iterable
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from ... import (
    LeaseLostError,
    MasterVote,
    NotExtendedError,
    QuorumUnreachableError,
    ReleaseStatus,
    ValidityExhaustedError,
)
from .._common.first_try import try_once_awaited
from .._common.shared import token_source
from ._common import Common, new_uuid, seconds_of, tries
from .exceptions import PrimitiveError, QuorumNotAchieved

if TYPE_CHECKING:
    from ...asyncio import FastRedlock

Self = TypeVar("Self", bound="AIORedlock")


class AIORedlock(Common):
    """Take one lock on a majority of clients of redis.asyncio; see pottery for its use.

    Times are seconds. The settings of the clients in `masters` are copied, their
    sockets are not used.
    """

    __slots__ = ()

    _SAMPLE = "aioredlock"

    def __init__(
        self,
        *,
        key: str,
        masters: Iterable[object],
        raise_on_redis_errors: bool = False,
        auto_release_time: float = Common._AUTO_RELEASE_TIME,
        num_extensions: int = Common._NUM_EXTENSIONS,
        context_manager_blocking: bool = True,
        context_manager_timeout: float = -1,
    ) -> None:
        super().__init__(
            key=key,
            masters=masters,
            raise_on_redis_errors=raise_on_redis_errors,
            auto_release_time=auto_release_time,
            num_extensions=num_extensions,
            context_manager_blocking=context_manager_blocking,
            context_manager_timeout=context_manager_timeout,
        )

    def _connected(self) -> FastRedlock:
        from ...asyncio import FastRedlock  # here: pottery's other half needs no loop

        locks: FastRedlock = self._shared(FastRedlock)
        return locks

    async def acquire(
        self,
        *,
        blocking: bool = True,
        timeout: float = -1,
        raise_on_redis_errors: bool | None = None,
    ) -> bool:
        """Return whether it is ours; wait for `timeout` s (-1: no limit) if blocking.

        Raises QuorumIsImpossible, where errors are to be raised, as soon as a majority
        of the masters fails.
        """
        seconds = seconds_of(blocking, timeout)
        began, ttl = monotonic(), self.auto_release_time
        for tried, left in enumerate(tries(seconds)):
            token_source.set(new_uuid)
            try:
                lease = await (
                    self._locks.acquire(self.key, ttl=ttl, timeout=left)
                    if tried
                    else try_once_awaited(self._locks, self.key, ttl)
                )
            except (QuorumUnreachableError, ValidityExhaustedError) as error:
                self._failed(error, raise_on_redis_errors)
                continue
            if lease is not None:
                self._hold(lease)
                if tried:
                    self._log_waited(began, True)
                return True
        if blocking:
            self._log_waited(began, False)
        return False

    async def locked(self, *, raise_on_redis_errors: bool | None = None) -> float:
        """Return how long it is still ours (s), or 0 where a majority has it no more.

        Waits until every master was asked.
        """
        if self._lease is None or not self._lease.is_valid:
            return 0
        votes = await self._locks.holders(self.key)
        return self._remaining(votes, raise_on_redis_errors)

    async def extend(self, *, raise_on_redis_errors: bool | None = None) -> None:
        """Make it ours for `auto_release_time` from now on, `num_extensions` times."""
        self._check_extensions()
        if self._lease is None:
            raise self._not_extended((), raise_on_redis_errors)
        try:
            await self._lease.extend(self.auto_release_time)
        except (LeaseLostError, NotExtendedError) as error:
            raise self._not_extended(error.votes, raise_on_redis_errors) from error
        self._extension_num += 1

    async def release(self, *, raise_on_redis_errors: bool | None = None) -> None:
        """Release it, or raise ReleaseUnlockedLock where it was not ours any more."""
        status = ReleaseStatus.GONE
        if self._lease is not None:
            status = await self._lease.release()
        if status is ReleaseStatus.RELEASED:
            return
        votes: tuple[MasterVote, ...] = ()
        if status is ReleaseStatus.UNKNOWN:
            votes = await self._locks.holders(self.key)
        raise self._not_released(votes, raise_on_redis_errors)

    async def __aenter__(self: Self) -> Self:
        if await self.acquire(
            blocking=self.context_manager_blocking,
            timeout=self.context_manager_timeout,
        ):
            return self
        raise QuorumNotAchieved(self.key, self.masters)

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self.release()
        except PrimitiveError:
            if exc_value is None:
                raise
