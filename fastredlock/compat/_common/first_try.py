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


def try_once(locks: Any, name: str | bytes, ttl: float) -> Steps[Any]:
    """Try once to take the lock; raises as `acquire` does."""
    attempt = partial(locks.acquire, name, ttl=ttl, timeout=0)
    try:
        return (yield attempt)
    except QuorumUnreachableError:
        if locks in _tried:
            raise
        _tried.add(locks)
    with suppress(QuorumUnreachableError):
        yield locks.connect
    return (yield attempt)
