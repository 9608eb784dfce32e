"""pottery: one lock per caller, over one client per master.

One lock for the life of the process is cheaper than one per use.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from bench.contestants.base import (
    TASKS,
    THREADS,
    TTL,
    Contestant,
    Replacement,
    tasks,
    threads,
)
from bench.contestants.lock_objects import AwaitedLockObjects, LockObjects, async_client

_OURS = "fastredlock.compat.pottery"


def _locks(
    library: Any, urls: Sequence[str], keys: Sequence[str]
) -> tuple[list[Any], list[Any]]:
    from redis import Redis

    clients = [Redis.from_url(url) for url in urls]
    return clients, [
        library.Redlock(key=key, masters={*clients}, auto_release_time=TTL)
        for key in keys
    ]


def _awaited_locks(
    library: Any, urls: Sequence[str], keys: Sequence[str]
) -> tuple[list[Any], list[Any]]:
    clients = [async_client(url) for url in urls]
    return clients, [
        library.AIORedlock(key=key, masters={*clients}, auto_release_time=TTL)
        for key in keys
    ]


_new_blocking = threads(partial(LockObjects, _locks))
_new_awaited = tasks(partial(AwaitedLockObjects, _awaited_locks))

MANY_THREADS = Contestant(
    "pottery Redlock", _new_blocking, "pottery", "thread", THREADS, ("pottery",)
)
MANY_TASKS = Contestant(
    "pottery AIORedlock", _new_awaited, "pottery", "task", TASKS, ("pottery",)
)
REPLACEMENTS = {
    "pottery": Replacement(
        "pottery Redlock",
        "pottery",
        _new_blocking,
        theirs="pottery",
        ours=_OURS,
        wanted={1: 10.0},
    ),
    "pottery-asyncio": Replacement(
        "pottery AIORedlock",
        "pottery",
        _new_awaited,
        theirs="pottery",
        ours=_OURS,
        wanted={1: 3.0, 100: 30.0},
    ),
}
