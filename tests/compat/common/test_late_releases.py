"""A release that arrives late deletes no lock that was taken since."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from fastredlock import ConfigurationError
from fastredlock.compat import redis as redis_py
from fastredlock.compat import redis_lock
from fastredlock.compat.redlock import Redlock
from tests.support.keys import KEY
from tests.support.proxy import Proxy
from tests.support.waiting import wait_until

LOCK = f"lock:{KEY}"


@pytest.fixture
def proxy(urls: list[str]) -> Iterator[Proxy]:
    """Stand before one server."""
    with Proxy(urls[0]) as proxy:
        yield proxy


@pytest.fixture
def client(proxy: Proxy) -> Iterator[redis.Redis]:
    """Wait for no reply for long, and try once."""
    with redis.Redis.from_url(
        proxy.url, socket_timeout=0.2, retry=Retry(NoBackoff(), 0)
    ) as client:
        yield client


def lose_release(proxy: Proxy, release: Any) -> None:
    """Release into a connection that nobody reads, and cut it then."""
    proxy.set(swallows=True)
    with suppress(redis.RedisError):
        release()
    proxy.until(lambda proxy: b"EVALSHA" in proxy.swallowed)
    proxy.reset()
    proxy.heal()


def arrive_late(proxy: Proxy, url: str) -> None:
    """Let the server execute what was swallowed."""
    place = urlsplit(url)
    assert place.port is not None
    with socket.create_connection((place.hostname, place.port)) as late:
        late.sendall(proxy.swallowed)
        late.recv(1)


def take(lock: Any) -> bool:
    """Acquire; again where the connection was found dead."""
    with suppress(redis.RedisError):
        return bool(lock.acquire(blocking=False))
    return False


def test_python_redis_lock_that_was_not_released_for_sure_draws_a_new_id(
    proxy: Proxy, client: redis.Redis, urls: list[str], servers: list[redis.Redis]
) -> None:
    lock = redis_lock.Lock(client, KEY, expire=60)
    assert lock.acquire()
    first = lock.id
    lose_release(proxy, lock.release)
    assert wait_until(lambda: take(lock))
    assert lock.id != first
    arrive_late(proxy, urls[0])
    assert servers[0].get(LOCK) == lock.id.encode()
    lock.release()
    assert servers[0].get(LOCK) is None


def test_python_redis_lock_whose_second_release_was_confirmed_draws_a_new_id(
    proxy: Proxy, client: redis.Redis, urls: list[str], servers: list[redis.Redis]
) -> None:
    lock = redis_lock.Lock(client, KEY, expire=60)
    assert lock.acquire()
    first = lock.id
    lose_release(proxy, lock.release)
    with suppress(redis.RedisError, redis_lock.NotAcquired):
        lock.release()
    assert wait_until(lambda: servers[0].get(LOCK) is None)
    assert wait_until(lambda: take(lock))
    assert lock.id != first
    arrive_late(proxy, urls[0])
    assert servers[0].get(LOCK) == lock.id.encode()


def test_python_redis_lock_that_was_released_keeps_its_id(client: redis.Redis) -> None:
    lock = redis_lock.Lock(client, KEY, expire=60)
    ids = set()
    for _ in range(3):
        with lock:
            ids.add(lock.id)
    assert ids == {lock.id}


def test_python_redis_lock_with_a_given_id_is_not_acquired_while_a_release_is_late(
    proxy: Proxy, client: redis.Redis, urls: list[str], servers: list[redis.Redis]
) -> None:
    lock = redis_lock.Lock(client, KEY, expire=60, id="worker-7")
    assert lock.acquire()
    lose_release(proxy, lock.release)
    assert wait_until(lambda: servers[0].get(LOCK) is None or take(lock) is None)
    with pytest.raises(redis.ConnectionError, match="or with another") as raised:
        lock.acquire(blocking=False)
    assert "worker-7" not in str(raised.value)
    arrive_late(proxy, urls[0])


def test_redis_lock_with_a_given_token_is_not_acquired_while_a_release_is_late(
    proxy: Proxy, client: redis.Redis, urls: list[str], servers: list[redis.Redis]
) -> None:
    lock = redis_py.Lock(client, KEY, timeout=60)
    assert lock.acquire(token="worker-7")
    lose_release(proxy, lock.release)
    assert wait_until(lambda: servers[0].get(KEY) is None or not lock.locked())
    with pytest.raises(redis.ConnectionError, match="or with another"):
        lock.acquire(token="worker-7", blocking=False)
    assert lock.acquire(blocking=False)
    arrive_late(proxy, urls[0])
    assert servers[0].get(KEY) == lock.local.token


def test_redlock_whose_keys_are_all_the_same_gets_none_while_an_unlock_is_late(
    proxy: Proxy, urls: list[str], servers: list[redis.Redis]
) -> None:
    class Constant(Redlock):
        def get_unique_id(self) -> bytes:
            return b"worker-7"

    manager = Constant([proxy.url], retry_count=1)
    lock = manager.lock(KEY, 60_000)
    assert lock
    lose_release(proxy, lambda: manager.unlock(lock))
    with suppress(ConfigurationError):
        assert not manager.lock(KEY, 60_000)
    assert wait_until(lambda: servers[0].get(KEY) is None)
    assert manager.lock(KEY, 60_000) is False
