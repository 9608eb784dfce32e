"""valkey-py's clients, wherever redis-py's are taken."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import valkey
import valkey.asyncio
from pydantic import RedisDsn, TypeAdapter
from valkey.exceptions import ConnectionError, LockError, LockNotOwnedError
from valkey.lock import Lock as TheirLock

from fastredlock import ConfigurationError, FastRedlock
from fastredlock._options.masters import Endpoint, parse_masters
from fastredlock.compat import pottery, redis_lock, redlock
from fastredlock.compat.redis import Lock
from fastredlock.compat.redis.asyncio import Lock as AsyncioLock
from fastredlock.testing import in_memory
from tests.compat.common.test_clients import LISTS
from tests.support.fixtures import Servers
from tests.support.keys import KEY


@pytest.fixture
def client(urls: list[str]) -> Iterator[Any]:
    with valkey.Valkey.from_url(urls[0]) as client:
        yield client


def test_lock_on_its_client_excludes_its_own_lock(client: Any) -> None:
    ours, theirs = (client.lock(KEY, 5, lock_class=each) for each in (Lock, TheirLock))
    for first, other in ((ours, theirs), (theirs, ours)):
        with first:
            assert not other.acquire(blocking=False)
            first.extend(5)


@pytest.mark.parametrize("module", [valkey, valkey.asyncio])
def test_client_with_a_callback_on_connect_is_refused(module: Any) -> None:
    client = module.Valkey(valkey_connect_func=print)
    with pytest.raises(ConfigurationError, match="valkey_connect_func cannot be cop"):
        FastRedlock([client])


def test_errors_of_a_lock_are_those_of_its_library(client: Any) -> None:
    lock = Lock(client, KEY, timeout=5)
    with pytest.raises(LockError, match="already unlocked"):
        lock.release()
    lock.acquire()
    client.delete(KEY)
    with pytest.raises(LockNotOwnedError):
        lock.release()
    client.set(KEY, "another's")
    with pytest.raises(LockError, match="Unable"), Lock(client, KEY, 5, blocking=False):
        pass
    lock = Lock(valkey.Valkey(port=1), KEY, 5)
    for call in (lock.acquire, lock.locked):
        with pytest.raises(ConnectionError):
            call()


async def in_a_loop(url: str) -> None:
    async with valkey.asyncio.Valkey.from_url(url) as client:
        async with client.lock(KEY, 5, lock_class=AsyncioLock) as lock:
            assert await lock.owned()
            assert not await client.lock(KEY, 5).acquire(blocking=False)
        with pytest.raises(LockError, match="already unlocked"):
            await lock.release()
        async with pottery.AIORedlock(key=KEY, masters=[client]) as held:
            assert await held.locked()


def test_awaitable_client_then_has_awaitable_locks(urls: list[str]) -> None:
    asyncio.run(in_a_loop(urls[0]))


@pytest.mark.parametrize("name", LISTS)
def test_client_is_taken_by_every_library(name: str, client: Any) -> None:
    assert LISTS[name]([client], KEY)
    assert len(client.keys(f"*{KEY}")) == 1


def test_waiter_of_redis_lock_is_woken_by_its_signal(client: Any) -> None:
    held, other = (redis_lock.Lock(client, KEY, expire=5) for _ in range(2))
    with held:
        assert not other.acquire(timeout=0.1)
    with other, pytest.raises(redis_lock.NotAcquired):
        held.release()
    with pytest.raises(ValueError, match="instance of StrictRedis"):
        redis_lock.Lock(object(), KEY)


def with_own_connection() -> Any:
    own = type("OwnConnection", (valkey.Connection,), {})
    return valkey.Valkey(connection_pool=valkey.ConnectionPool(connection_class=own))


class Prefixed(valkey.Valkey):
    def execute_command(self, *args: Any, **options: Any) -> Any:
        at = {"SET": 1, "EVALSHA": 3}.get(args[0])
        if at:
            args = (*args[:at], f"p:{args[at]}", *args[at + 1 :])
        return super().execute_command(*args, **options)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (with_own_connection, r"connection class .*OwnConnection is not"),
        (lambda: valkey.sentinel.Sentinel([("h", 1)]).slave_for("m"), "a replica"),
        (Prefixed, "key_prefix"),
    ],
)
def test_client_that_cannot_be_copied_is_refused(
    make: Callable[[], Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        FastRedlock([make()])


def test_client_with_a_prefix_and_one_on_one_connection_then_are_taken(
    urls: list[str], servers: Servers
) -> None:
    with Lock(Prefixed.from_url(urls[0]), KEY, 5):
        assert servers[0].keys() == [f"p:{KEY}".encode()]
    with valkey.Valkey.from_url(urls[0], single_connection_client=True) as client:
        assert Lock(client, KEY, 5).acquire()
        client.select(3)
        with pytest.raises(LockError, match="selected database 3"):
            Lock(client, KEY, 5).acquire()


def endpoint_of(client: Any) -> Endpoint:
    (endpoint,) = parse_masters([client])
    return endpoint


def test_service_of_sentinel_and_cluster_are_read_as_those_of_redis_py() -> None:
    options = {"db": 2, "password": "p"}
    services = [
        library.sentinel.Sentinel([("s1", 1), ("s2", 2)], **options).master_for("m")
        for library in (valkey, valkey.asyncio)
    ]
    for endpoint in map(endpoint_of, services):
        assert endpoint.name == "sentinel:s1:1/m/2"
        assert endpoint.password == "p"
        assert endpoint.sentinels is not None
        assert endpoint.sentinels.addresses == (("s1", 1), ("s2", 2))
    cluster = valkey.asyncio.ValkeyCluster(host="c1", port=7)
    assert endpoint_of(cluster).seeds == (("c1", 7),)


def test_lock_in_memory_then_connects_to_nothing() -> None:
    with in_memory(), Lock(valkey.Valkey(port=1), KEY, 5) as lock:
        assert lock.owned()


WITHOUT_REDIS_PY = """
import sys
sys.modules["redis"] = None
import valkey, fastredlock.compat.redis.asyncio
from fastredlock.compat.redis import Lock
from fastredlock.compat import redis_lock
client = valkey.Valkey.from_url(sys.argv[1])
with Lock(client, "a", 5), redis_lock.Lock(client, "b"):
    print(client.exists("a", "lock:b"))
"""


@pytest.mark.slow
def test_replacements_when_redis_py_is_missing_then_work(urls: list[str]) -> None:
    command = [sys.executable, "-c", WITHOUT_REDIS_PY, urls[0]]
    assert subprocess.check_output(command, timeout=30) == b"2\n"


# --- django-valkey --------------------------------------------------------------------


def test_cache_of_django_valkey_has_the_locks_of_python_redis_lock(
    urls: list[str], client: Any
) -> None:
    settings = {"LOCATION": urls[0], "OPTIONS": {}}
    module = "fastredlock.compat.redis_lock.django_valkey_cache"
    cache = made_cache(f"{module}.ValkeyCache", settings)
    with cache.lock("a", expire=5) as lock:
        assert client.get("lock:a") == lock.id.encode()
    assert cache.locked_get_or_set("key", lambda: 42, expire=5) == 42
    cache.reset_all()


def made_cache(backend: str, settings: dict[str, Any]) -> Any:
    from django.conf import settings as of_django
    from django.core.cache import CacheHandler

    if not of_django.configured:
        of_django.configure()
    return CacheHandler({"default": {"BACKEND": backend, **settings}})["default"]


# --- what is the URL of a master, and no str ------------------------------------------


class Url:
    def __str__(self) -> str:
        return "redis://localhost:7001/3"


DSN = TypeAdapter(RedisDsn).validate_python("redis://:s%2Fcret@localhost:7001/3")


@pytest.mark.parametrize("url", [DSN, Url()], ids=["pydantic", "str"])
def test_object_whose_text_is_a_url_is_a_master(url: Any) -> None:
    with FastRedlock([url]) as locks:
        assert "localhost:7001/3" in repr(locks)
    assert redlock.Redlock([url]).quorum == 1


def test_object_whose_text_is_no_url_is_refused_without_its_text() -> None:
    with pytest.raises(ConfigurationError, match="not bytes") as caught:
        FastRedlock([b"redis://:secret@localhost"])  # type: ignore[list-item]
    assert "secret" not in str(caught.value)
