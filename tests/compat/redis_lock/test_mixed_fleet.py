"""Waiters of python-redis-lock's kin and of FastRedlock, for one lock."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fastredlock import FastRedlock
from tests.compat.redis_lock.face import LOCK, Face
from tests.support.threads import in_threads, later
from tests.support.waiting import SLACK, stopwatch, wait_until


@pytest.fixture
def locks(make_locks: Callable[..., FastRedlock], urls: list[str]) -> FastRedlock:
    return make_locks(urls[:1])


def test_waiter_when_a_fastredlock_releases_without_a_signal_then_is_next_soon(
    locks: FastRedlock, ours: Face
) -> None:
    lease = locks.acquire(LOCK, ttl=60)
    assert lease is not None
    waiting = ours.lock(expire=5)
    with later(0.3, lease.release), stopwatch() as elapsed:
        assert waiting.acquire(timeout=5)
        assert elapsed() < 0.3 + 0.25 + SLACK  # not after the longest wait, 5 s
    waiting.release()


@pytest.mark.slow
def test_release_when_a_fastredlock_waits_then_notifies_it(
    locks: FastRedlock, ours: Face
) -> None:
    for _ in range(3):
        holding = ours.lock(expire=60)
        assert holding.acquire()
        before = locks.stats().turns_told

        def release(holding: object = holding) -> None:
            assert wait_until(lambda: locks.holders(LOCK)[0].waiting)
            holding.release()  # type: ignore[attr-defined]

        lease, _ = in_threads([lambda: locks.acquire(LOCK, timeout=5), release])
        assert lease is not None
        assert locks.stats().turns_told == before + 1
        lease.release()
