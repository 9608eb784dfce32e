"""The clients that locks are handed: settings are copied, sockets are not."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import redis
import redis.asyncio

from fastredlock.compat import aioredlock, pottery, redis_lock, redlock
from fastredlock.compat.redis import Lock
from fastredlock.compat.redis.asyncio import Lock as AsyncioLock
from fastredlock.testing import LocalMasters
from tests.support.fixtures import Servers
from tests.support.keys import KEY
from tests.support.two_libraries import forbid_sockets
from tests.support.waiting import wait_until

LISTS: dict[str, Callable[[list[Any], str], Any]] = {  # of clients and a key: take it
    "redlock": lambda clients, key: redlock.Redlock(clients).lock(key, 5000),
    "pottery": lambda clients, key: pottery.Redlock(key=key, masters=clients).acquire(),
    "redis": lambda clients, key: Lock(clients[0], key, 5).acquire(),
    "redis_lock": lambda clients, key: redis_lock.Lock(clients[0], key).acquire(),
}


def connections(server: redis.Redis) -> int:
    """Count the connections of a server, with the one that asks."""
    return len(server.client_list())


# --- sockets ------------------------------------------------------------------------


@pytest.mark.parametrize("name", LISTS)
def test_lock_for_every_use_opens_one_connection(
    name: str, urls: list[str], servers: Servers
) -> None:
    gc.collect()  # pools of other tests have circles
    before = connections(servers[0])
    pools = [redis.ConnectionPool.from_url(url) for url in urls]
    for i in range(10):
        clients = [redis.Redis(connection_pool=pool) for pool in pools]
        assert LISTS[name](clients, f"{KEY}:{i}")
    theirs = name == "redis_lock"  # it reads signals over the client
    assert connections(servers[0]) <= before + 1 + theirs
    del pools, clients
    gc.collect()
    assert wait_until(lambda: connections(servers[0]) <= before)


def test_manager_of_redlock_that_is_dropped_is_not_kept_by_its_last_lock(
    urls: list[str],
) -> None:
    manager = redlock.Redlock(urls)
    assert manager.lock(KEY, 5000)
    kept = weakref.ref(manager)
    del manager
    gc.collect()
    assert kept() is None


def test_sockets_of_clients_are_never_used(urls: list[str]) -> None:
    clients = [forbid_sockets(redis.Redis.from_url(url)) for url in urls]
    manager = redlock.Redlock(clients)
    manager.unlock(manager.lock(KEY, 5000))
    assert manager.lock_instance(clients[0], "alone", b"v", 5000)
    with pottery.Redlock(key=KEY, masters=clients) as held:
        assert held.locked()
        held.extend()
    with Lock(clients[0], KEY, timeout=5) as lock:
        assert lock.owned()
        assert lock.extend(5)


async def use_asyncio(urls: list[str]) -> None:
    clients = [forbid_sockets(redis.asyncio.Redis.from_url(url)) for url in urls]
    async with AsyncioLock(clients[0], KEY, timeout=5) as lock:
        assert await lock.owned()
        assert await lock.extend(5)
    manager = aioredlock.Aioredlock(clients)
    async with await manager.lock(KEY, 5) as held:
        await held.extend()
    await manager.destroy()
    async with pottery.AIORedlock(key=KEY, masters=clients) as mine:
        assert await mine.locked()


def test_sockets_of_awaitable_clients_are_never_used(urls: list[str]) -> None:
    asyncio.run(use_asyncio(urls))


# --- settings -----------------------------------------------------------------------


@pytest.mark.parametrize("options", [(), ("--requirepass", "s3cret")], ids=["", "pass"])
@pytest.mark.parametrize("unix", [False, True])
def test_settings_of_the_client_are_copied(
    unix: bool, options: tuple[str, ...]
) -> None:
    with LocalMasters(1, unix=unix, options=options) as masters:
        settings = {"password": options[1] if options else None, "db": 3}
        url, stored = masters.urls[0], {"decode_responses": True, **settings}
        with redis.Redis.from_url(url, **stored) as client:
            for name, take in LISTS.items():
                assert take([client], KEY)
                assert len(client.keys(f"*{KEY}")) == 1, name
                client.flushdb()


# --- clients that cannot be copied --------------------------------------------------


def cluster(kind: Any = redis.RedisCluster) -> Any:
    made = kind.__new__(kind)
    made.nodes_manager = None
    return made


def sentinel() -> Any:
    return redis.sentinel.Sentinel([("localhost", 1)]).master_for("orders")


def with_own_connection() -> Any:
    own = type("OwnConnection", (redis.Connection,), {})
    return redis.Redis(connection_pool=redis.ConnectionPool(connection_class=own))


REFUSED: list[tuple[Callable[[], Any], str]] = [
    (cluster, "a cluster client is not one master"),
    (sentinel, "the Sentinel service 'orders' has no fixed address"),
    (with_own_connection, r"connection class .*OwnConnection is not redis-py's own"),
    (lambda: redis.Redis(redis_connect_func=print), "redis_connect_func cannot be co"),
    (lambda: redis.Redis(ssl=True, ssl_ciphers="DEFAULT"), "ssl_ciphers cannot be co"),
    (
        lambda: redis.Redis(credential_provider=object()),  # type: ignore[arg-type]
        "credential_provider",
    ),
]
MAKERS: dict[str, tuple[Callable[[Any], Any], type[Exception]]] = {
    "redlock": (lambda client: redlock.Redlock([client]), Warning),
    "pottery": (lambda client: pottery.Redlock(key=KEY, masters=[client]), ValueError),
    "redis": (lambda client: Lock(client, KEY), ValueError),
    "redis-list": (lambda client: Lock([client], KEY), ValueError),
    "redis_lock": (
        lambda client: redis_lock.Lock(client, KEY, strict=False),
        ValueError,
    ),
}


@pytest.mark.parametrize(("make", "message"), REFUSED)
@pytest.mark.parametrize("name", MAKERS)
def test_client_that_cannot_be_copied_is_refused_when_the_lock_is_made(
    name: str, make: Callable[[], Any], message: str
) -> None:
    lock, error = MAKERS[name]
    with pytest.raises(error, match=message):
        lock(make())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: cluster(redis.asyncio.RedisCluster),
            "a cluster client is not one master",
        ),
        (
            lambda: redis.asyncio.Sentinel([("localhost", 1)]).master_for("m"),
            "the Sentinel service 'm' has no fixed address",
        ),
        (
            lambda: redis.asyncio.Redis(redis_connect_func=print),
            "redis_connect_func cannot be copied",
        ),
    ],
)
def test_awaitable_client_that_cannot_be_copied_is_refused_when_the_lock_is_made(
    make: Callable[[], Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        AsyncioLock(make(), KEY)
