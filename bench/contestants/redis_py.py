"""redis-py's own `Lock`, on the first master alone: not a Redlock, one round trip."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from bench.contestants.base import TASKS, TTL, Contestant, Replacement, tasks, threads
from bench.contestants.lock_objects import AwaitedLockObjects, LockObjects, async_client


def _locks(
    library: Any, urls: Sequence[str], keys: Sequence[str]
) -> tuple[list[Any], list[Any]]:
    from redis import Redis

    client = Redis.from_url(urls[0])
    return [client], [
        client.lock(key, timeout=TTL, lock_class=library.Lock) for key in keys
    ]


def _awaited_locks(
    library: Any, urls: Sequence[str], keys: Sequence[str]
) -> tuple[list[Any], list[Any]]:
    client = async_client(urls[0])
    return [client], [
        client.lock(key, timeout=TTL, lock_class=library.Lock) for key in keys
    ]


_new_blocking = threads(partial(LockObjects, _locks))
_new_awaited = tasks(partial(AwaitedLockObjects, _awaited_locks))

ONE_CALLER = Contestant(
    "redis-py Lock (1 master)", _new_blocking, "redis.lock", libraries=("redis",)
)
MANY_TASKS = Contestant(
    "redis-py asyncio Lock (1 master)",
    _new_awaited,
    "redis.asyncio.lock",
    unit="task",
    sizes=TASKS,
    libraries=("redis",),
)
REPLACEMENTS = {
    "redis-py": Replacement(
        "redis-py Lock",
        "redis",
        _new_blocking,
        theirs="redis.lock",
        ours="fastredlock.compat.redis",
        wanted={1: 1.2},
        one_master=True,
    ),
    "redis-py-asyncio": Replacement(
        "redis-py asyncio Lock",
        "redis",
        _new_awaited,
        theirs="redis.asyncio.lock",
        ours="fastredlock.compat.redis.asyncio",
        wanted={1: 1.2},
        one_master=True,
    ),
}
