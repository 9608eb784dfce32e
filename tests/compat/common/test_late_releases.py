"""A release that arrives late deletes no lock that was taken since."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
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
from fastredlock.compat.redlock import Lock, Redlock
from tests.support.fixtures import Servers
from tests.support.keys import KEY
from tests.support.proxy import Proxy
from tests.support.waiting import wait_until

LOCK = f"lock:{KEY}"


class Network:
    """A way to one server on which a release is lost, and arrives late."""

    def __init__(self, proxy: Proxy, url: str, server: redis.Redis) -> None:
        self.proxy, self._url, self.server = proxy, url, server
        retry = Retry(NoBackoff(), 0)  # wait for no reply for long, and try once
        self.client = redis.Redis.from_url(proxy.url, socket_timeout=0.2, retry=retry)

    def lose(self, release: Callable[[], Any]) -> None:
        """Release into a connection that nobody reads, and cut it then."""
        self.proxy.set(swallows=True)
        with suppress(redis.RedisError):
            release()
        self.proxy.until(lambda proxy: b"EVALSHA" in proxy.swallowed)
        self.proxy.reset()
        self.proxy.heal()

    def deliver(self) -> None:
        """Let the server execute what was lost."""
        place = urlsplit(self._url)
        assert place.port is not None
        with socket.create_connection((place.hostname, place.port)) as late:
            late.sendall(self.proxy.swallowed)
            late.recv(1)


@pytest.fixture
def network(urls: list[str], servers: Servers) -> Iterator[Network]:
    with Proxy(urls[0]) as proxy:
        network = Network(proxy, urls[0], servers[0])
        with network.client:
            yield network


def take(lock: Any, **options: Any) -> bool:
    """Acquire; again if the connection was dead, or the release is still on its way."""
    with suppress(redis.RedisError, redis_lock.AlreadyAcquired):
        return bool(lock.acquire(blocking=False, **options))
    return False


def refusal(lock: Any, **options: Any) -> str:
    """Try until it is refused as its last release may be late; it is never granted."""
    said = [""]

    def is_refused() -> bool:
        with suppress(redis_lock.AlreadyAcquired):
            try:
                assert not lock.acquire(blocking=False, **options)
            except redis.RedisError as error:  # or the connection was dead
                said.append(str(error))
        return "or with another" in said[-1]

    assert wait_until(is_refused)
    return said[-1]


@pytest.mark.parametrize("is_released_again", [False, True])
def test_python_redis_lock_that_was_not_released_for_sure_draws_a_new_id(
    network: Network, is_released_again: bool
) -> None:
    lock, server = redis_lock.Lock(network.client, KEY, expire=60), network.server
    assert wait_until(lambda: take(lock))
    first = lock.id
    network.lose(lock.release)
    if is_released_again:
        with suppress(redis.RedisError, redis_lock.NotAcquired):
            lock.release()
        assert wait_until(lambda: server.get(LOCK) is None)
    assert wait_until(lambda: take(lock))
    assert lock.id != first
    network.deliver()
    assert server.get(LOCK) == lock.id.encode()
    with suppress(redis.RedisError):  # of a reply that takes longer than 0.2 s
        lock.release()
    assert wait_until(lambda: server.get(LOCK) is None)


def test_python_redis_lock_with_a_given_id_is_not_acquired_while_a_release_is_late(
    network: Network,
) -> None:
    lock = redis_lock.Lock(network.client, KEY, expire=60, id="worker-7")
    assert wait_until(lambda: take(lock))
    network.lose(lock.release)
    assert "worker-7" not in refusal(lock)
    assert wait_until(lambda: network.server.get(LOCK) is None)
    assert refusal(lock)
    network.deliver()


def test_redis_lock_with_a_given_token_is_not_acquired_while_a_release_is_late(
    network: Network,
) -> None:
    lock, server = redis_py.Lock(network.client, KEY, timeout=60), network.server
    assert wait_until(lambda: take(lock, token="worker-7"))
    network.lose(lock.release)
    assert refusal(lock, token="worker-7")
    assert wait_until(lambda: take(lock))
    network.deliver()
    assert server.get(KEY) == lock.local.token != b"worker-7"


def test_redlock_whose_keys_are_all_the_same_gets_none_while_an_unlock_is_late(
    network: Network,
) -> None:
    constant = type("Constant", (Redlock,), {"get_unique_id": lambda _: b"worker-7"})
    manager = constant([network.proxy.url], retry_count=1)
    assert wait_until(lambda: manager.lock(KEY, 60_000))
    network.lose(lambda: manager.unlock(Lock(60_000, KEY, b"worker-7")))
    with suppress(ConfigurationError):
        assert not manager.lock(KEY, 60_000)
    assert wait_until(lambda: network.server.get(KEY) is None)
    assert manager.lock(KEY, 60_000) is False
