"""Blocks that were entered and not left: an acquire in there would wait for itself.

The core notes for each key who entered a block by which lease, and in which frame
(`DriverFields.entered`). It is read where a first try was not won, or where an acquire
is to join the block. A copied context would prove nothing: child tasks have it too.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any, NamedTuple

from .._core import (
    DEFAULT_RESOURCE,
    DriverFields,
    LeaseFields,
    Permits,
    running_loop,
)
from .._options.keys import MOST_PERMITS, encode_resource
from .._reports.log import warn_once
from .._reports.votes import Resource, printable
from ..errors import LeaseLostError, ReentryError

Key = bytes | tuple[bytes, ...] | Permits

NOT_IN_BLOCK = (
    "this caller is in no block of it, or another one entered it since, or it was not "
    "entered by a with statement here: use the lease that entering it gave"
)
REFUSED = (
    "a FastRedlock that blocks is entered by several tasks of one event loop: those "
    "that would wait are refused, for the loop would stand still; await "
    "fastredlock.asyncio.FastRedlock, or call it by asyncio.to_thread()"
)
OPEN = (
    "%s: waits without a timeout, while a block of it is open that the same thread has "
    "entered, not by a with statement that is still running (a generator, an "
    "ExitStack): where that is this caller's own, the wait has no end; give a timeout"
)


# Who entered a block. THREADS: the thread that calls, and nobody knows for whom, for it
# may be suspended. TASKS: another task of the loop that runs here.
OTHERS, THREADS, TASKS, OURS = range(4)
CO_COROUTINE = 0x80


class Entered(NamedTuple):
    """A block of a valid lease that was not left."""

    whose: int
    lease: Any
    frame: FrameType | None


def block_of(driver: DriverFields, key: bytes) -> Entered | None:
    """Return the block that was entered last by this key of the masters, if any."""
    caller, found, frame = driver.entered.get(key, (None, None, None))
    lease = None if found is None else found()
    if lease is None:
        return None
    return Entered(whose_of(driver, caller, frame), lease, frame)


def whose_of(driver: DriverFields, caller: Any, frame: FrameType | None) -> int:
    """Return who entered a block.

    It is ours only where that is sure: by the same task, or by a frame that is on this
    stack. A thread of a pool may have entered it for a request that waits elsewhere.
    """
    here: Any = driver.caller()
    if caller is None or here is None:
        return OTHERS
    is_task = isinstance(here, tuple)
    if caller == here and (is_task or not driver.blocks or is_on_stack(frame)):
        return OURS
    if not driver.blocks or thread_of(caller) != thread_of(here):
        return OTHERS
    is_coroutine = frame is not None and frame.f_code.co_flags & CO_COROUTINE
    if is_coroutine or running_loop() is not None:
        return TASKS
    return THREADS


def thread_of(caller: Any) -> object:
    """Return the thread of a task, or the caller itself."""
    return caller[0] if isinstance(caller, tuple) else caller


def is_on_stack(frame: FrameType | None) -> bool:
    """Return whether a frame has called this, however indirectly."""
    at: FrameType | None = None if frame is None else sys._getframe()
    while at is not None and at is not frame:
        at = at.f_back
    return at is not None


def entered_block(driver: DriverFields, key: Key) -> Entered | None:
    """Return the block over any of the keys that concerns the caller most.

    Ours come first: to wait for another's would be to wait for ours as well. Those of a
    semaphore are ours where the caller has entered all of its slots; of fewer it may
    have one more.
    """
    prefix = driver.settings.key_prefix
    if isinstance(key, Permits):
        keys = slots_entered(driver, prefix + key.name, key.count)
    else:
        keys = [prefix + one for one in (key if isinstance(key, tuple) else (key,))]
    found = [block_of(driver, one) for one in keys]
    blocks = [block for block in found if block is not None and block.lease.is_valid]
    if isinstance(key, Permits):
        ours = [block for block in blocks if block.whose is OURS]
        if len(ours) == key.count:
            return ours[-1]
        blocks = [block for block in blocks if block.whose in (THREADS, TASKS)]
    return max(blocks, key=lambda block: block.whose, default=None)


def slots_entered(driver: DriverFields, name: bytes, count: int) -> list[bytes]:
    """List the keys of slots of which a block was entered."""
    return [
        key
        for key in [*driver.entered]
        if key.startswith(name)
        and key[len(name) :].isdigit()
        and int(key[len(name) :]) < count
    ]


def current_lease(driver: DriverFields, resource: str | bytes) -> Any:
    """Return the lease of the caller's block, lost or not; LeaseLostError: of none."""
    if resource is DEFAULT_RESOURCE:
        resource = driver.settings.resource
    key = driver.settings.key_prefix + encode_resource(resource)
    block = block_of(driver, key)
    if block is not None and block.whose is OURS:
        return block.lease
    for slot in reversed(slots_entered(driver, key + b"#", MOST_PERMITS)):
        block = block_of(driver, slot)
        is_ours = block is not None and block.whose is OURS
        if block is not None and is_ours and block.lease._round.slot >= 0:
            return block.lease
    raise LeaseLostError(resource, NOT_IN_BLOCK)


def held_for(lease: LeaseFields) -> float:
    """Return for how long a lease has been held (s)."""
    held_ns: int = lease._driver.now_ns() - lease._round.closed_ns
    return held_ns / 1e9


def refusal(
    driver: DriverFields, resource: Resource, key: Any, has_limit: bool
) -> ReentryError | None:
    """Return what an acquire raises where it would wait for its own thread, or None."""
    block = entered_block(driver, key)
    if block is None or block.whose is OTHERS:
        return None
    if block.whose is THREADS:
        if not has_limit:
            warn_once(OPEN, printable(resource))
        return None
    is_task = block.whose is TASKS
    if is_task:
        warn_once(REFUSED)
    permits = key.count if isinstance(key, Permits) else 0
    return ReentryError(resource, held_for(block.lease), permits, is_task)


def holder_here(driver: DriverFields, key: Key) -> str:
    """Return who in this process holds the resource, for a message; or ""."""
    block = entered_block(driver, key)
    if block is None:
        return ""
    held = f"in this process has held it for {held_for(block.lease):.3f} s"
    if block.whose is OURS:
        return f"this caller itself {held}"
    if block.whose is OTHERS:
        return f"another caller {held}"
    by = "" if block.frame is None else f" in {block.frame.f_code.co_qualname}()"
    return f"another caller {held}: a block that this thread entered{by} is still open"
