"""Locks that their holder may enter again: `lock(..., reentrant=True)`.

The outermost block takes and releases. A block inside another of the same thread,
greenlet or task joins it, and has its lease. Where it asks for more ttl than is left,
the lease is extended; NotExtendedError and LeaseLostError of that are raised before its
body.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from .._core import DEFAULT_RESOURCE, Terms
from .entered import OURS, entered_block
from .lock import BaseLock, Manner


class Reentrant(Manner):
    """Join the block of the same resource that the caller is in, if there is one."""

    __slots__ = ()

    def begin(self, lock: BaseLock) -> Any:
        """Return the call that takes the lock, or joins the block."""
        lease, ttl = joined(lock), lock._ttl
        if lease is None:
            return super().begin(lock)
        if ttl is not None:
            lock._driver.settings.terms(ttl)  # or an error
        return Join(lease, ttl)


REENTRANT = Reentrant()


class Join:
    """Enter a block inside another one of its caller; left, it releases nothing.

    It is the call and the entry: each one its own, for an entry is taken off by what it
    holds.
    """

    __slots__ = ("_lease", "_ttl")

    def __init__(self, lease: Any, ttl: Any) -> None:
        self._lease, self._ttl = lease, ttl

    def run(self) -> Join:
        """Extend the lease where that is asked for; block for one round then."""
        if asks_for_more(self._lease, self._ttl):
            self._lease.extend(self._ttl)
        return self

    def __await__(self) -> Generator[Any, None, Join]:
        if asks_for_more(self._lease, self._ttl):
            yield from self._lease.extend(self._ttl).__await__()
        return self


def joined(lock: BaseLock) -> Any:
    """Return the lease by which the caller is in a block of this resource, or None."""
    driver, resource = lock._driver, lock._resource
    if resource is DEFAULT_RESOURCE:
        resource = driver.settings.resource
    block = entered_block(driver, lock._encode(resource))
    if block is None or block.whose is not OURS:
        return None
    lease = block.lease
    made = lease._round.lease_state
    if lock._keep is not None and (made is None or made.kept is None):
        lock._keep.begin(lease)
    return lease


def asks_for_more(lease: Any, ttl: Any) -> bool:
    """Return whether an inner entry asks for more than the validity that is left."""
    if isinstance(ttl, Terms):
        ttl = ttl.ttl_ms / 1000
    return ttl is not None and ttl > lease.remaining()
