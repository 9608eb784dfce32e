"""Replacements of other libraries' locks whose callers are interrupted."""

from __future__ import annotations

import pytest
import redis

from fastredlock.compat.redis import Lock
from tests.faults.test_callers import every_interrupt, soon
from tests.support.keys import KEY, NOBODY


@pytest.mark.slow
@pytest.mark.parametrize("enters", [False, True])
def test_acquire_of_a_redis_py_lock_when_interrupted_at_any_opcode_then_leaves_no_key(
    urls: list[str], servers: list[redis.Redis], enters: bool
) -> None:
    """Seen: 73 of 1,394, between the grant and the note of it."""
    lock = Lock([redis.Redis.from_url(url) for url in urls], KEY, timeout=60)
    take = lock.__enter__ if enters else lock.acquire
    last = f"Lock.{take.__name__}:"
    for where in every_interrupt(take, step=7):
        if where.startswith(last) and where.endswith("return"):
            break  # where no signal is looked at
        assert (where, soon(servers, NOBODY)) == (where, NOBODY)
    assert lock.owned()
    lock.release()
