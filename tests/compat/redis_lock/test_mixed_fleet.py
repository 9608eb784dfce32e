"""Waiters of python-redis-lock's kin and of FastRedlock, for one lock."""

from __future__ import annotations

import threading

import pytest
import redis

from fastredlock import FastRedlock
from fastredlock.compat.redis_lock import Lock
from tests.compat.redis_lock.face import LOCK
from tests.support.keys import KEY
from tests.support.threads import later
from tests.support.waiting import SLACK, stopwatch, wait_until


@pytest.fixture
def locks(urls: list[str]) -> FastRedlock:
    return FastRedlock(urls[:1])


def test_waiter_when_a_fastredlock_releases_without_a_signal_then_is_next_soon(
    locks: FastRedlock, client: redis.Redis
) -> None:
    lease = locks.acquire(LOCK, ttl=60)
    assert lease is not None
    waiting = Lock(client, KEY, expire=5)
    with later(0.3, lease.release), stopwatch() as elapsed:
        assert waiting.acquire(timeout=5)
        assert elapsed() < 0.3 + 0.25 + SLACK  # not after the longest wait, 5 s
    waiting.release()
    locks.close()


@pytest.mark.slow
def test_release_when_a_fastredlock_waits_then_tells_it(
    locks: FastRedlock, client: redis.Redis
) -> None:
    for _ in range(3):
        holding = Lock(client, KEY, expire=60)
        assert holding.acquire()
        told = locks.stats().turns_told
        taken: list[object] = []
        thread = threading.Thread(
            target=lambda taken=taken: taken.append(locks.acquire(LOCK, timeout=5))
        )
        thread.start()
        assert wait_until(lambda: locks.holders(LOCK)[0].waiting)
        holding.release()
        thread.join()
        assert taken[0] is not None
        assert locks.stats().turns_told == told + 1
        taken[0].release()  # type: ignore[attr-defined]
    locks.close()
