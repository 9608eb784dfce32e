"""pottery's awaitable Redlock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from ..._steps import run_awaited
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

    @staticmethod
    def _maker() -> type[FastRedlock]:
        from ...asyncio import FastRedlock  # here: pottery's other half needs no loop

        return FastRedlock

    async def acquire(
        self,
        *,
        blocking: bool = True,
        timeout: float = -1,
        raise_on_redis_errors: bool | None = None,
    ) -> bool:
        """Return whether it is ours, as `Redlock.acquire` does."""
        steps = self._acquire(blocking, timeout, raise_on_redis_errors, [])
        return await run_awaited(steps)

    async def locked(self, *, raise_on_redis_errors: bool | None = None) -> float:
        """Return how long it is still ours (s), 0 where a majority has it no more."""
        return await run_awaited(self._left(raise_on_redis_errors))

    async def extend(self, *, raise_on_redis_errors: bool | None = None) -> None:
        """Make it ours for `auto_release_time` from now on, `num_extensions` times."""
        await run_awaited(self._extend(raise_on_redis_errors))

    async def release(self, *, raise_on_redis_errors: bool | None = None) -> None:
        """Release it, or raise ReleaseUnlockedLock where it was not ours any more."""
        await run_awaited(self._release(raise_on_redis_errors))

    async def __aenter__(self: Self) -> Self:
        if await self.acquire(
            blocking=self.context_manager_blocking, timeout=self.context_manager_timeout
        ):
            return self
        raise QuorumNotAchieved(self.key, self.masters)

    async def __aexit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        try:
            await self.release()
        except PrimitiveError:
            if exc_value is None:
                raise
