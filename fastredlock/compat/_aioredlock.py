"""aioredlock's Lock and errors, which `fastredlock.compat.aioredlock` has as well."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import Task

    from ..asyncio import Lease
    from .aioredlock import Aioredlock


class AioredlockError(Exception):
    """Catch every error of this module."""


class LockError(AioredlockError):
    """Report that a lock was not acquired, extended or released."""


class LockAcquiringError(LockError):
    """Report that others hold the lock, or that it is gone."""


class LockRuntimeError(LockError):
    """Report that fewer than a quorum of the masters could answer."""


@dataclass
class Lock:
    """Hold a lock, as in `async with await manager.lock(...)`; made by the manager."""

    lock_manager: Aioredlock
    resource: str
    id: str = field(repr=False)  # who knows it can release the lock
    lock_timeout: float | None = 10.0
    valid: bool = False

    _lease: Lease | None = field(default=None, init=False, repr=False, compare=False)
    _watch: Task[None] | None = field(
        default=None, init=False, repr=False, compare=False
    )

    async def __aenter__(self) -> Lock:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
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
