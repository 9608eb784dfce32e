"""redis.asyncio's Lock on fastredlock; see `fastredlock.compat.redis`.

from fastredlock.compat.redis.asyncio import Lock

async with client.lock("orders:42", timeout=5, lock_class=Lock):
    ...
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from logging import Logger, getLogger
from typing import Any, Literal

from ..._steps import run_awaited
from ...asyncio import FastRedlock
from .._redis import patient_locks
from ._base import NOT_RAISED, BaseLock

__all__ = ["Lock"]

logger: Logger = getLogger("redis.asyncio.lock")  # filters of the warning name it


class Lock(BaseLock[Awaitable[Literal[True]]]):
    """Take a lock as redis.asyncio's does, on clients as the blocking Lock's."""

    _new_locks = staticmethod(partial(patient_locks, FastRedlock))

    async def __aenter__(self) -> Lock:
        if await self.acquire():
            return self
        raise self._error("Unable to acquire lock within the time specified")

    async def __aexit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        try:
            await self.release()
        except self._library.base as error:
            if exc_value is None and self._is_to_raise(error):
                raise
            logger.warning(NOT_RAISED, error)

    async def acquire(
        self,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
    ) -> bool:
        """Return True once the lock is held, False if others held it all that time."""
        steps = self._acquire(self.sleep, blocking, blocking_timeout, token, [])
        return await run_awaited(steps)

    async def do_acquire(self, token: bytes) -> bool:
        return await run_awaited(self._take(token))

    async def locked(self) -> bool:
        """Return whether anybody holds the lock."""
        return await run_awaited(self._locked())

    async def owned(self) -> bool:
        """Return whether this lock holds it, as the masters see it."""
        return await run_awaited(self._owned())

    async def release(self) -> None:
        """Give the lock back; a release that is not confirmed may be tried again."""
        await run_awaited(self._release())

    async def do_release(self, expected_token: bytes) -> None:
        await run_awaited(self._give_back(expected_token))

    async def do_extend(
        self, additional_time: float, replace_ttl: bool
    ) -> Literal[True]:
        return await run_awaited(self._extend(additional_time, replace_ttl))

    async def do_reacquire(self) -> Literal[True]:
        return await run_awaited(self._reacquire())
