"""Blocks that were entered and not left: an acquire in there would wait for itself.

The core notes for each key who entered a block by which lease (`DriverFields.entered`).
It is read where a first try was not won, or where an acquire is to join the block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._core import DEFAULT_RESOURCE, Permits
from .._options.keys import encode_resource
from .._reports.votes import Resource
from ..errors import LeaseLostError, ReentryError

if TYPE_CHECKING:
    from .driver import BaseDriver
    from .lease import BaseLease

    Key = bytes | tuple[bytes, ...] | Permits

NOT_IN_BLOCK = "this caller is in no block of it, or another one entered it since"


def entry_of(driver: BaseDriver, key: bytes) -> tuple[object, BaseLease | None]:
    """Return who entered a block of the key last, and by which lease, if it is there.

    The core notes keys as the masters know them, with the prefix.
    """
    caller, found = driver.entered.get(driver.settings.key_prefix + key, (None, None))
    return caller, None if found is None else found()


def entered_lease(driver: BaseDriver, key: Key) -> tuple[BaseLease | None, bool]:
    """Return the valid lease of a block over any of the keys, and if it is ours.

    Ours: entered by the thread, greenlet or task that calls. Such a one comes first:
    to wait for another's would be to wait for ours as well.
    """
    others: BaseLease | None = None
    if isinstance(key, Permits):
        return slots_entered(driver, key)
    for each in key if isinstance(key, tuple) else (key,):
        caller, lease = entry_of(driver, each)
        if lease is not None and lease.is_valid:
            if caller is not None and caller == driver.caller():
                return lease, True
            others = lease
    return others, False


def slots_entered(
    driver: BaseDriver, permits: Permits
) -> tuple[BaseLease | None, bool]:
    """Return a lease of a semaphore, where the caller has entered blocks of all slots.

    Of fewer it may have one more.
    """
    last: BaseLease | None = None
    for slot in range(permits.count if len(driver.entered) >= permits.count else 0):
        caller, last = entry_of(driver, b"%b%d" % (permits.name, slot))
        if last is None or not last.is_valid or caller != driver.caller():
            return None, False
    return last, last is not None


def current_lease(driver: BaseDriver, resource: str | bytes) -> Any:
    """Return the lease of the caller's block, lost or not; LeaseLostError: of none."""
    if resource is DEFAULT_RESOURCE:
        resource = driver.settings.resource
    key = encode_resource(resource)
    caller, lease = entry_of(driver, key)
    if lease is None or caller is None or caller != driver.caller():
        lease = current_slot(driver, key)
    if lease is None:
        raise LeaseLostError(resource, NOT_IN_BLOCK)
    return lease


def current_slot(driver: BaseDriver, key: bytes) -> BaseLease | None:
    """Return the lease of the slot whose block the caller has entered last, or None."""
    name, here = driver.settings.key_prefix + key, driver.caller()
    for entered, (caller, found) in reversed([*driver.entered.items()]):
        is_of_it = entered.rpartition(b"#")[0] == name
        if is_of_it and caller is not None and caller == here:
            lease: BaseLease | None = found()
            if lease is not None and lease._round.slot >= 0:
                return lease
    return None


def held_for(lease: BaseLease) -> float:
    """Return for how long a lease has been held (s)."""
    return (lease._driver.now_ns() - lease._round.closed_ns) / 1e9


def refuse_reentry(driver: BaseDriver, resource: Resource, key: Any) -> None:
    """Raise ReentryError where the caller holds the resource in a block of its own."""
    lease, is_ours = entered_lease(driver, key)
    if lease is not None and is_ours:
        permits = key.count if isinstance(key, Permits) else 0
        raise ReentryError(resource, held_for(lease), permits)


def holder_here(driver: BaseDriver, key: Key) -> str:
    """Return who in this process holds the resource, for a message; or ""."""
    lease, is_ours = entered_lease(driver, key)
    if lease is None:
        return ""
    who = "this caller itself" if is_ours else "another caller"
    return f"{who} in this process has held it for {held_for(lease):.3f} s"
