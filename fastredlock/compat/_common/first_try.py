"""The first try of a FastRedlock: it waits for connections longer than others do.

One try waits for them no longer than for a round, which is too short for the very first
one with a ttl of some ms.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any
from weakref import WeakSet

from ... import QuorumUnreachableError
from .steps import Steps

_tried: WeakSet[Any] = WeakSet()  # every FastRedlock whose first try has failed


def noted(
    granted: list[Any], locks: Any, name: str | bytes, ttl: float, timeout: Any = 0
) -> Any:
    """Acquire; note the lease, which a caller that a signal interrupts gives back."""
    # No signal is looked at where a frame of Python returns to another.
    granted[:] = [locks.acquire(name, ttl=ttl, timeout=timeout)]
    return granted[0]


def try_once(
    granted: list[Any], locks: Any, name: str | bytes, ttl: float
) -> Steps[Any]:
    """Try once to take the lock, noted in `granted`; raises as `acquire` does."""
    attempt = partial(noted, granted, locks, name, ttl)
    try:
        return (yield attempt)
    except QuorumUnreachableError:
        if locks in _tried:
            raise
        _tried.add(locks)
    with suppress(QuorumUnreachableError):
        yield locks.connect
    return (yield attempt)
