"""The clients that locks are handed: settings are copied, sockets are not."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from collections.abc import Callable
from contextlib import closing
from contextvars import ContextVar
from typing import Any

import pytest
import redis
import redis.asyncio
import valkey
from kombu.transport.redis import PrefixedStrictRedis
from redis.cluster import NodesManager

from fastredlock import ConfigurationError, FastRedlock
from fastredlock.asyncio import FastRedlock as AsyncioFastRedlock
from fastredlock.compat import aioredlock, pottery, redis_lock, redlock
from fastredlock.compat._common import shared_locks
from fastredlock.compat.redis import Lock
from fastredlock.compat.redis.asyncio import Lock as AsyncioLock
from fastredlock.compat.redlock import Redlock
from fastredlock.testing import LocalMasters
from tests.compat.common.test_processes import PAIRS
from tests.support.fixtures import Servers
from tests.support.keys import KEY
from tests.support.library_process import KINDS
from tests.support.two_libraries import forbid_sockets, load
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


@pytest.mark.parametrize("name", ["redlock", "pottery"])
@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
@pytest.mark.parametrize("client", [redis.Redis, valkey.Valkey])
def test_client_that_encodes_the_key_otherwise_is_refused(
    client: Any, encoding: str, name: str
) -> None:
    """Seen: two holders, for valkey-py's own sends latin-1 and ours UTF-8."""
    clients = [
        forbid_sockets(client(port=port, encoding=encoding)) for port in (1, 2, 3)
    ]
    refused = pytest.raises((ConfigurationError, Warning), match="has an encoding= by")
    with refused:
        LISTS[name](clients, "k\xe4")
    with refused:
        FastRedlock(clients)  # whose keys are not known yet
    assert encoding == "utf-16" or shared_locks(FastRedlock, clients, "k")


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
    made.nodes_manager = manager = NodesManager.__new__(NodesManager)
    manager.address_remap = lambda place: place
    manager.connection_kwargs = {}
    return made


def replica() -> Any:
    return redis.sentinel.Sentinel([("localhost", 1)]).slave_for("orders")


REFUSED: list[tuple[Callable[[], Any], str]] = [
    (cluster, "address_remap is not copied"),
    (replica, "a replica of the Sentinel service 'orders' takes no locks"),
    (lambda: redis.Redis(redis_connect_func=print), "redis_connect_func cannot be co"),
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
    (lock, error), client = MAKERS[name], make()
    for _ in range(2):  # what is known of a client is not taken for a copy
        with pytest.raises(error, match=message):
            lock(client)


# --- clients that locks share ---------------------------------------------------------


class Made:
    """Stand for a FastRedlock: keep the options, and of the masters only copies."""

    def __init__(self, masters: list[Any], **options: Any) -> None:
        self.options = options
        self.hosts = [each.get("host") for each in masters if isinstance(each, dict)]


def made(*masters: object) -> Made:
    return shared_locks(Made, masters, KEY)


@pytest.mark.parametrize(
    "make",
    [
        lambda: [redis.Redis(host="a"), redis.Redis(host="b")],
        lambda: [redis.asyncio.RedisCluster(host="a")],  # its manager: no weakref
    ],
)
def test_same_clients_share_one_as_long_as_one_of_them_lives(
    make: Callable[[], list[Any]],
) -> None:
    clients = make()
    locks = weakref.ref(made(*clients))
    gc.collect()
    assert locks() is made(*clients)
    assert made(clients[0], redis.Redis(host="c")) is not locks()
    clients.clear()
    gc.collect()
    assert locks() is None


def test_others_of_the_same_servers_have_their_own() -> None:
    first, second = redis.Redis(host="a"), redis.Redis(host="a")
    assert made(first) is not made(second)
    assert made({"host": "a"}) is not made({"host": "a"})
    assert shared_locks(Made, [first], drift_factor=0.1) is not made(first)


def test_masters_named_by_text_are_shared_while_used() -> None:
    locks = made("redis://a", "redis://b")
    assert made("redis://a", "redis://b") is locks
    forgotten = weakref.ref(locks)
    del locks
    gc.collect()
    assert forgotten() is None


@pytest.mark.parametrize(
    ("masters", "connect_timeout", "round_timeout"),
    [
        ([redis.Redis()], 1.0, None),
        ([redis.Redis(socket_timeout=None, socket_connect_timeout=None)], 1.0, None),
        ([redis.Redis(socket_timeout=0.1, socket_connect_timeout=0.2)], 0.2, 0.1),
        ([{"socket_timeout": 30}, {"socket_timeout": 0.2}], 1.0, 0.2),
        (["redis://h?socket_timeout=0.3", "redis://g"], 1.0, 0.3),
        (["redis://h", ("h", 6379)], 1.0, None),
    ],
)
def test_timeouts_that_are_shorter_than_ours_are_kept(
    masters: list[object], connect_timeout: float, round_timeout: float | None
) -> None:
    options = made(*masters).options
    assert options["connect_timeout"] == connect_timeout
    assert options["round_timeout"] == round_timeout


UNIX = redis.UnixDomainSocketConnection


@pytest.mark.parametrize(
    ("made_of", "changed", "kind"),
    [
        ({"host": "a"}, {"host": "b"}, redis.Connection),
        ({"unix_socket_path": "/a"}, {"path": "/b"}, UNIX),
        ({"unix_socket_path": "/a"}, {}, redis.Connection),
    ],
)
def test_settings_that_are_changed_before_it_connects_hold_for_the_next_lock(
    made_of: dict[str, Any], changed: dict[str, Any], kind: Any
) -> None:
    client = redis.Redis(**made_of)
    first = made(client)
    client.connection_pool.connection_kwargs.update(changed)
    client.connection_pool.connection_class = kind
    assert first is not made(client) is made(client)


def test_client_with_a_prefix_on_the_pool_of_another_is_refused() -> None:
    class Prefixed(redis.Redis):
        def execute_command(self, *args: Any, **options: Any) -> Any:
            return super().execute_command(args[0], f"p:{args[1]}", *args[2:])

    plain = redis.Redis()
    assert made(plain)
    with pytest.raises(ConfigurationError, match="key_prefix"):
        made(Prefixed(connection_pool=plain.connection_pool))


prefix = ContextVar("prefix", default="")


class Tenant(redis.Redis):
    def execute_command(self, *args: Any, **options: Any) -> Any:
        return super().execute_command(args[0], prefix.get() + args[1], *args[2:])


@pytest.mark.parametrize(
    ("make", "acquire"),
    [
        (lambda client: Lock([client], KEY, 5), lambda lock: lock.acquire()),
        (lambda client: redis_lock.Lock(client, KEY), lambda lock: lock.acquire()),
        (lambda client: redlock.Redlock([client]), lambda lock: lock.lock(KEY, 5000)),
        (
            lambda client: pottery.Redlock(key=KEY, masters={client}),
            lambda lock: lock.acquire(),
        ),
    ],
    ids=["redis", "redis_lock", "redlock", "pottery"],
)
def test_client_that_changes_after_the_lock_was_made_is_looked_at_again(
    make: Any, acquire: Any, urls: list[str]
) -> None:
    client = redis.Redis.from_url(urls[0])
    lock = make(client)
    client.connection_pool.connection_kwargs["db"] = 3
    assert acquire(lock)
    assert len(client.keys(f"*{KEY}")) == 1
    client.flushdb()
    lock = make(Tenant.from_url(urls[0]))
    mark = prefix.set("p:")
    try:
        if isinstance(lock, Lock):  # it locks what redis-py's would lock
            assert acquire(lock)
            assert redis.Redis.from_url(urls[0]).keys() == [f"p:{KEY}".encode()]
            return
        with pytest.raises(Exception, match=f"p:.*{KEY}.*key_prefix"):
            acquire(lock)
    finally:
        prefix.reset(mark)


# --- a client that puts a prefix before keys ------------------------------------------


def prefixed(url: str) -> Any:
    pool = redis.ConnectionPool.from_url(url)
    return PrefixedStrictRedis(connection_pool=pool, global_keyprefix="shop:")


@pytest.mark.parametrize("cls", [redis.lock.Lock, Lock])
def test_lock_of_kombus_client_with_a_prefix_excludes_redis_pys(
    cls: Any, urls: list[str], servers: Servers
) -> None:
    client = prefixed(urls[0])
    first, other = client.lock(KEY, 5, lock_class=cls), client.lock(KEY, 5)
    ours = client.lock(KEY, 5, lock_class=Lock)
    assert first.acquire()
    assert servers[0].keys() == [f"shop:{KEY}".encode()]
    assert not other.acquire(blocking=False)
    assert not ours.acquire(blocking=False)
    assert ours.locked()
    assert first.extend(5, replace_ttl=True)
    first.release()
    assert servers[0].keys() == []


def test_clients_that_lock_different_keys_are_refused(urls: list[str]) -> None:
    plain = redis.Redis.from_url(urls[0])
    other = prefixed(urls[1])
    with pytest.raises(ConfigurationError, match="different keys"):
        Lock([plain, other], KEY)


# --- a client on one connection -------------------------------------------------------

SELECTING: dict[str, Callable[[Any], Any]] = {  # of a client: a try to take KEY
    "redis": lambda client: Lock(client, KEY, 5).acquire(blocking=False),
    "redis-list": lambda client: Lock([client], KEY, 5).acquire(blocking=False),
    "redis_lock": lambda client: redis_lock.Lock(client, KEY).acquire(blocking=False),
    "redlock": lambda client: redlock.Redlock([client]).lock(KEY, 5000),
    "pottery": lambda client: pottery.Redlock(key=KEY, masters=[client]).acquire(),
    "core": lambda client: FastRedlock([client]).acquire(KEY, ttl=5, timeout=0),
}


@pytest.mark.parametrize("name", SELECTING)
def test_client_on_one_connection_is_refused_only_while_it_has_selected(
    name: str, urls: list[str]
) -> None:
    client: Any = single(urls[0])
    take = SELECTING[name]
    client.select(3)
    with pytest.raises(Exception, match="has selected database 3"):
        take(client)
    client.connection.disconnect()  # opened anew, it is in the database of its settings
    assert take(client)
    client.close()


def single(url: str, **options: Any) -> redis.Redis:
    return redis.Redis.from_url(url, single_connection_client=True, **options)


async def select_in_a_loop(url: str) -> None:
    client = redis.asyncio.Redis.from_url(url, single_connection_client=True)
    async with client, AsyncioLock(client, KEY, 5):
        with pytest.raises(ConfigurationError, match="one connection, which may have"):
            AsyncioFastRedlock([client])
        assert not await AsyncioLock(client, KEY, 5).acquire(blocking=False)
        await client.select(3)
        for make in (AsyncioLock, lambda *options: made_of_pottery(client)):
            with pytest.raises(ValueError, match="has selected database 3"):
                await make(client, KEY, 5).acquire()
        await client.select(0)


def made_of_pottery(client: Any) -> Any:
    return pottery.AIORedlock(key=KEY, masters=[client])


def test_awaitable_client_on_one_connection_is_refused_only_while_it_has_selected(
    urls: list[str],
) -> None:
    asyncio.run(select_in_a_loop(urls[0]))


# --- databases of one server ----------------------------------------------------------


MANY = ("aioredlock", "pottery", "pottery-asyncio", "redlock-py")


@pytest.fixture
def databases(masters: LocalMasters) -> list[str]:
    return [f"{masters.urls[0].removesuffix('/0')}/{db}" for db in range(1, 6)]


@pytest.mark.parametrize(
    ("kind", "module"), [(kind, name) for kind in MANY for name in PAIRS[kind]]
)
def test_library_locks_on_databases_of_one_server(
    kind: str, module: str, databases: list[str]
) -> None:
    made = KINDS[kind]
    with (
        closing(made(load(module), KEY, databases)) as lock,
        closing(made(load(module), KEY, databases)) as other,
    ):
        assert lock.take()
        assert not other.take()
        lock.release()
        assert other.take()
        other.release()


def test_databases_of_one_server_are_warned_of(
    databases: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    Redlock(databases)
    assert "fail together: use independent servers" in caplog.text
    renamed = [databases[0], databases[1].replace("127.0.0.1", "localhost")]
    assert Redlock(renamed, retry_count=1).lock(KEY, 5000)
    assert "is the same server as" in caplog.text


def test_one_database_under_two_names_has_one_vote(databases: list[str]) -> None:
    renamed = [databases[0], databases[0].replace("127.0.0.1", "localhost")]
    assert Redlock(renamed, retry_count=1).lock(KEY, 5000) is False


def test_databases_of_one_server_stay_refused_elsewhere(databases: list[str]) -> None:
    with pytest.raises(ConfigurationError, match="the same server"):
        FastRedlock(databases)
    with pytest.raises(ConfigurationError, match="the same server"):
        Lock(list(map(redis.Redis.from_url, databases)), KEY, timeout=5)
