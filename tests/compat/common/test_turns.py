"""Replacements beside a FastRedlock: their waiters take turns with its callers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis

from fastredlock import FastRedlock
from fastredlock.compat.redis import Lock
from fastredlock.compat.redlock import Redlock
from tests.support.calls import granted
from tests.support.fixtures import Servers
from tests.support.keys import KEY
from tests.support.waiting import wait_until

LONG = 0.5  # s between two looks
MAKERS: dict[str, Callable[[str], Callable[[], Any]]] = {
    "redis": lambda url: (
        lambda: Lock(redis.Redis.from_url(url), KEY, 5, sleep=LONG).acquire()
    ),
    "redlock": lambda url: (
        lambda: Redlock([url], retry_count=2, retry_delay=LONG).lock(KEY, 5000)
    ),
}


@pytest.mark.parametrize("name", MAKERS)
def test_waiter_of_a_replacement_is_woken_by_a_fastredlock(
    name: str, urls: list[str], servers: Servers
) -> None:
    waited: list[float] = []

    def wait() -> None:
        assert MAKERS[name](urls[0])()
        waited.append(time.monotonic())

    with FastRedlock(urls[:1]) as locks:
        lease = granted(locks.acquire(KEY, ttl=60))
        thread = threading.Thread(target=wait)
        thread.start()
        assert wait_until(lambda: servers[0].keys(f"fastredlock:queue:{KEY}"))
        lease.release()
        released = time.monotonic()
        thread.join(10)
    assert waited[0] - released < LONG / 2


def test_token_of_the_try_that_was_granted_is_that_of_the_lock(
    urls: list[str], servers: Servers
) -> None:
    lock = Lock(redis.Redis.from_url(urls[0]), KEY, 5, sleep=0.4)
    servers[0].set(KEY, "another's", px=150)
    assert lock.acquire()
    assert servers[0].get(KEY) == lock.local.token
    lock.release()
    servers[0].set(KEY, "another's", px=150)
    assert lock.acquire(token="given")
    assert servers[0].get(KEY) == lock.local.token == b"given"
    lock.release()
    assert servers[0].keys(KEY) == []
