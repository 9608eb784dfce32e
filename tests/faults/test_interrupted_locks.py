"""Replacements of other libraries' locks whose callers are interrupted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from fastredlock.compat.pottery import Redlock
from fastredlock.compat.redis import Lock
from tests.faults.test_callers import every_interrupt, soon
from tests.support.keys import KEY, NOBODY


def owned_by_redis_py(clients: list[redis.Redis]) -> tuple[Any, Callable[[], object]]:
    lock = Lock(clients, KEY, timeout=60)
    return lock, lock.owned


def locked_by_pottery(clients: list[redis.Redis]) -> tuple[Any, Callable[[], object]]:
    lock = Redlock(key=KEY, masters=clients, auto_release_time=60)
    return lock, lock.locked


@pytest.mark.slow
@pytest.mark.parametrize("enters", [False, True])
@pytest.mark.parametrize("make", [owned_by_redis_py, locked_by_pottery])
def test_acquire_of_a_replacement_when_interrupted_at_any_opcode_then_leaves_no_key(
    urls: list[str], servers: list[redis.Redis], make: Any, enters: bool
) -> None:
    """Seen: 73 of 1,394, between the grant and the note of it."""
    lock, is_held = make([redis.Redis.from_url(url) for url in urls])
    with lock:
        pass  # what is made once is made
    take = lock.__enter__ if enters else lock.acquire
    last = f"{type(lock).__name__}.{take.__name__}:"
    for where in every_interrupt(take, step=7):
        if where.startswith(last) and where.endswith("return"):
            break  # where no signal is looked at
        found = soon(servers, NOBODY, getattr(lock, "key", KEY))
        assert (where, found) == (where, NOBODY)
    assert is_held()
    lock.release()
