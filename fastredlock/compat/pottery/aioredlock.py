"""pottery's awaitable Redlock."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from .._common.steps import run_awaited
from ._common import Common
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
        steps = self._acquire(blocking, timeout, raise_on_redis_errors, [])
        return await run_awaited(steps)

    async def locked(self, *, raise_on_redis_errors: bool | None = None) -> float:
        """Return how long it is still ours (s), or 0 where a majority has it no more.

        Waits until every master was asked.
        """
        return await run_awaited(self._left(raise_on_redis_errors))

    async def extend(self, *, raise_on_redis_errors: bool | None = None) -> None:
        """Make it ours for `auto_release_time` from now on, `num_extensions` times."""
        await run_awaited(self._extend(raise_on_redis_errors))

    async def release(self, *, raise_on_redis_errors: bool | None = None) -> None:
        """Release it, or raise ReleaseUnlockedLock where it was not ours any more."""
        await run_awaited(self._release(raise_on_redis_errors))

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
