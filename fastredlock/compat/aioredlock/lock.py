"""aioredlock's Lock; it is made by the manager."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ... import LeaseLostError
from .errors import LockError

if TYPE_CHECKING:
    from ...asyncio import Lease
    from .algorithm import Aioredlock


@dataclass
class Lock:
    """Hold a lock, as in `async with await manager.lock(...)`; made by the manager."""

    lock_manager: Aioredlock
    resource: str
    id: Any = field(repr=False)  # any process that has it can release the lock
    lock_timeout: float | None = 10.0
    valid: bool = False

    _lease: Lease | None = field(default=None, init=False, repr=False, compare=False)

    _locks: Any = field(default=None, init=False, repr=False, compare=False)  # of it
    _renewed: Lease | None = field(default=None, init=False, repr=False, compare=False)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "valid" and self._renewed is not None:
            from .algorithm import renew

            with suppress(LeaseLostError):
                renew(self, self._renewed)

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
