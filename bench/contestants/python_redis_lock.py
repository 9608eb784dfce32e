"""python-redis-lock: one `redis_lock.Lock`, on the first master alone: no Redlock."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from bench.contestants.base import TTL, Replacement, threads
from bench.contestants.lock_objects import LockObjects


def _locks(
    library: Any, urls: Sequence[str], keys: Sequence[str]
) -> tuple[list[Any], list[Any]]:
    from redis import Redis

    client = Redis.from_url(urls[0])
    return [client], [library.Lock(client, key, expire=int(TTL)) for key in keys]


REPLACEMENTS = {
    "python-redis-lock": Replacement(
        "python-redis-lock",
        "python-redis-lock",
        threads(partial(LockObjects, _locks)),
        theirs="redis_lock",
        ours="fastredlock.compat.redis_lock",
        wanted={1: 1.5},
        one_master=True,
    )
}
