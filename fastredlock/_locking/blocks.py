"""Blocks that were entered and not left: whose they are.

An acquire inside a block of the same resource and caller would wait for itself. A block
is the caller's own if this context (`contextvars`) is in it, and the same task,
greenlet or thread has entered it. A child task and `asyncio.to_thread` are other
callers; a thread of a pool that is given the next request has another context. A block
that was entered in another context is waited for in turn.

The entries are counted, as those of a threading.RLock. The core notes them
(src_cython/calls/fields.pyx).
"""

from __future__ import annotations

import os
from _tracemalloc import is_tracing
from collections.abc import Sequence
from typing import Any

from .._core import (
    DEFAULT_RESOURCE,
    DriverFields,
    LeaseFields,
    Permits,
    Round,
    Shared,
    registered,
)
from .._options.keys import encode_resource
from .._reports.log import warn_once
from .._reports.votes import Resource, holders_of
from ..errors import LeaseLostError, ReentryError

Key = bytes | tuple[bytes, ...] | Permits | Shared
OURS = os.path.dirname(os.path.dirname(__file__))
NOT_IN_BLOCK = (
    "this caller is in no block of it, or entered it in another context (contextvars): "
    "use the lease that entering it gave"
)
REFUSED = (
    "a FastRedlock that blocks is entered by several tasks of one event loop: those "
    "that would wait are refused, for the loop would stand still; await "
    "fastredlock.asyncio.FastRedlock, or call it by asyncio.to_thread()"
)


def keys_of(lease: LeaseFields) -> tuple[bytes, ...]:
    """Return the keys of a lease, with the prefix of their names."""
    return lease._round.keys or (lease._round.resource,)


def keys_in(driver: DriverFields, key: Key) -> list[bytes]:
    """List the keys of an acquire; of a semaphore, those of all of its slots."""
    prefix = driver.settings.key_prefix
    if isinstance(key, Shared):
        key = key.name
    if isinstance(key, Permits):
        return [b"%s%s%d" % (prefix, key.name, at) for at in range(key.count)]
    return [prefix + each for each in (key if isinstance(key, tuple) else (key,))]


def own_block(driver: DriverFields, key: Key) -> Any:
    """Return the lease of a block by which the caller would wait for itself, or None.

    Of a semaphore: if all of its slots are the caller's; of fewer it may have one more.
    """
    leases = [lease for lease in driver.entered_here() if lease.is_valid]
    if not leases:
        return None
    keys = {*keys_in(driver, key)}
    ours = [lease for lease in leases if not keys.isdisjoint(keys_of(lease))]
    if isinstance(key, Permits) and len({*map(keys_of, ours)}) < key.count:
        return None
    return ours[0] if ours else None


def block_of_others(driver: DriverFields, key: Key) -> Any:
    """Return the lease of the last block in this process over any of the keys."""
    if not driver.entered:
        return None
    found = [driver.entered.get(each) for each in keys_in(driver, key)]
    leases = [lease for ref in found if ref is not None and (lease := ref())]
    return next((lease for lease in leases if lease.is_valid), None)


def current_lease(driver: DriverFields, resource: str | bytes) -> Any:
    """Return the lease of the caller's block, lost or not; LeaseLostError: of none."""
    if resource is DEFAULT_RESOURCE:
        resource = driver.settings.resource
    key = driver.settings.key_prefix + encode_resource(resource)
    for lease in driver.entered_here():
        slot = lease._round.slot
        if key in keys_of(lease) or (
            slot >= 0 and keys_of(lease) == (b"%s#%d" % (key, slot),)
        ):
            return lease
    raise LeaseLostError(resource, NOT_IN_BLOCK)


def held_for(lease: LeaseFields) -> float:
    """Return for how long a lease has been held (s)."""
    held_ns: int = lease._driver.now_ns() - lease._round.closed_ns
    return held_ns / 1e9


def refusal(driver: DriverFields, resource: Resource, key: Any) -> ReentryError | None:
    """Return what an acquire raises where it would wait for its own thread, or None."""
    lease, is_of_task = own_block(driver, key), False
    if lease is None and driver.blocks and isinstance(here := driver.caller(), tuple):
        # A task, whose loop stands still meanwhile: does its thread hold it?
        lease = block_of_others(driver, key)
        by = None if lease is None else lease._block.caller
        is_of_task = (by[0] if isinstance(by, tuple) else by) == here[0]
        if not is_of_task:
            return None
        warn_once(REFUSED)
    if lease is None:
        return None
    permits = key.count if isinstance(key, Permits) else 0
    is_upgrade = lease._round.is_shared and not isinstance(key, Shared)
    return ReentryError(resource, held_for(lease), permits, is_of_task, is_upgrade)


def holder_here(driver: DriverFields, key: Key, looks: Sequence[Round] = ()) -> str:
    """Return who in this process holds the resource, for a message; or "".

    `looks`: at its keys, if the masters were asked. By them a lease is found that has
    no block, or is of another FastRedlock.
    """
    who, lease = "this caller itself", own_block(driver, key)
    if lease is None:
        who, lease = "another caller", block_of_others(driver, key)
    if lease is None and looks:
        keys = {look.resource for look in looks}
        seen = [each for look in looks for each in holders_of(driver.engine, look)]
        tokens = {vote.token_hash for vote in seen}
        for each in registered(LeaseFields):
            is_of_key = not keys.isdisjoint(keys_of(each)) and not each._is_parents()
            if is_of_key and each.token_hash in tokens:
                lease = each
    if lease is None:
        return ""
    if lease._block is None:
        who = "a lease without a block"
    how = f"has held it for {held_for(lease):.3f} s" if lease.attempts else "adopted it"
    return f"{who} in this process {how}{line_of(lease)}"


def line_of(lease: LeaseFields) -> str:
    """Return where a lease was taken, if tracemalloc is on (-X tracemalloc=9)."""
    if not is_tracing():
        return ""
    from tracemalloc import get_object_traceback  # 5 ms

    trace = get_object_traceback(lease) or ()
    lines = [str(each) for each in trace if not each.filename.startswith(OURS)]
    return f", taken at {lines[-1]}" if lines else ""
