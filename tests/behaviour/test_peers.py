"""Other clients of the same Redlock page: they exclude us, and we exclude them."""

from __future__ import annotations

import pytest
import redis
from redlock import Redlock

from fastredlock import FastRedlock, ReleaseStatus
from tests.support.fixtures import MakeLocks
from tests.support.keys import KEY, NOBODY, settled_values


@pytest.fixture
def redlock_py(servers: list[redis.Redis]) -> Redlock:
    return Redlock(servers, retry_count=1, retry_delay=0.001)


def test_redlock_py_when_we_hold_then_does_not_get_it(
    locks: FastRedlock, redlock_py: Redlock
) -> None:
    with locks.lock(KEY):
        assert redlock_py.lock(KEY, 5000) is False
    assert redlock_py.lock(KEY, 5000)


def test_we_when_redlock_py_holds_then_do_not_get_it(
    locks: FastRedlock, redlock_py: Redlock
) -> None:
    theirs = redlock_py.lock(KEY, 5000)
    assert locks.acquire(KEY, timeout=0) is None
    redlock_py.unlock(theirs)
    assert locks.acquire(KEY, timeout=0)


def test_adopt_when_redlock_py_took_it_then_releases_it(
    locks: FastRedlock, redlock_py: Redlock, servers: list[redis.Redis]
) -> None:
    theirs = redlock_py.lock(KEY, 5000)
    assert locks.adopt(KEY, theirs.key).release() is ReleaseStatus.RELEASED
    assert settled_values(servers, NOBODY) == NOBODY


def test_redis_py_lock_when_we_hold_its_master_then_does_not_get_it(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis]
) -> None:
    theirs = servers[0].lock(KEY, timeout=5, blocking=False)
    with make_locks(urls[:1]).lock(KEY):
        assert theirs.acquire() is False
    assert theirs.acquire() is True


def test_we_when_redis_py_lock_holds_the_master_then_do_not_get_it(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis]
) -> None:
    locks = make_locks(urls[:1])
    with servers[0].lock(KEY, timeout=5):
        assert locks.acquire(KEY, timeout=0) is None
    assert locks.acquire(KEY, timeout=0)
