"""Locks that their holder may enter again: `lock(..., reentrant=True)`."""

from __future__ import annotations

from .._core import DEFAULT_RESOURCE, Terms, lock_enter
from . import awaitable, blocking
from .entered import entered_lease

TYPE_CHECKING = False  # typing's: its import would take a third of ours
if TYPE_CHECKING:
    from typing import Any

    from .lock import BaseLock


class Inner:
    """The entry of a block inside another one of its caller: left without a release.

    Each entry has its own: an entry is taken off by what it holds.
    """

    __slots__ = ()

    _round = None  # it has no round of its own

    def __exit__(self, *_: object) -> None:
        pass

    async def __aexit__(self, *_: object) -> None:
        pass


def joined(lock: BaseLock) -> Any:
    """Return the lease by which the caller is in a block of this resource, or None."""
    driver, resource = lock._driver, lock._resource
    if resource is DEFAULT_RESOURCE:
        resource = driver.settings.resource
    lease, is_ours = entered_lease(driver, lock._encode(resource))
    if lease is None or not is_ours:
        return None
    made = lease._round.lease_state
    if lock._keep is not None and (made is None or made.kept is None):
        lock._keep.begin(lease)
    return lease


def asks_for_more(lock: BaseLock, lease: Any) -> bool:
    """Return whether an inner entry asks for more than the validity that is left."""
    ttl = lock._ttl
    if isinstance(ttl, Terms):
        ttl = ttl.ttl_ms / 1000
    return ttl is not None and ttl > lease.remaining()


class ReentrantLock(blocking.Lock):
    """As `Lock`; its holder may enter it again: the outermost block takes, releases.

    A block inside another of the same thread or greenlet joins it, and has its lease.
    Where it asks for more ttl than is left, the lease is extended; NotExtendedError and
    LeaseLostError of that are raised before its body.
    """

    __slots__ = ()

    def __enter__(self) -> blocking.Lease:
        lease: blocking.Lease | None = joined(self)
        if lease is None:
            return super().__enter__()
        if asks_for_more(self, lease):
            lease.extend(self._ttl)
        lock_enter(self, Inner())
        return lease


class AwaitableReentrantLock(awaitable.Lock):
    """As the awaitable `Lock`; a block inside another of the same task joins it."""

    __slots__ = ()

    async def __aenter__(self) -> awaitable.Lease:
        lease: awaitable.Lease | None = joined(self)
        if lease is None:
            return await super().__aenter__()
        if asks_for_more(self, lease):
            await lease.extend(self._ttl)
        self._entries = (self._driver.caller(), Inner(), self._entries)
        return lease
