"""When connections are shared, and which timeouts of a client count."""

from __future__ import annotations

import gc
import weakref
from contextvars import ContextVar
from typing import Any

import pytest
import redis

from fastredlock import ConfigurationError
from fastredlock.compat import pottery, redis_lock, redlock
from fastredlock.compat._common import shared_locks
from fastredlock.compat.redis import Lock
from tests.support.keys import KEY


class Made:
    """Stand for a FastRedlock: keep the options, and of the masters only copies."""

    def __init__(self, masters: list[Any], **options: Any) -> None:
        self.options = options
        self.hosts = [
            client.connection_pool.connection_kwargs.get("host")
            for client in masters
            if isinstance(client, redis.Redis)
        ]


def made(*masters: object) -> Made:
    return shared_locks(Made, masters)


def test_same_clients_share_one_as_long_as_one_of_them_lives() -> None:
    first, second = redis.Redis(host="a"), redis.Redis(host="b")
    locks = weakref.ref(made(first, second))
    gc.collect()
    assert locks() is made(first, second)
    assert made(first) is not locks()
    del first, second
    gc.collect()
    assert locks() is None


def test_other_clients_of_the_same_servers_have_their_own() -> None:
    first, second = redis.Redis(host="a"), redis.Redis(host="a")
    assert made(first) is not made(second)


def test_client_where_another_was_in_memory_is_not_taken_for_it() -> None:
    for host in ("a", "b", "c", "d"):
        assert made(redis.Redis(host=host)).hosts == [host]


def test_masters_named_by_text_are_shared_while_used() -> None:
    locks = made("redis://a", "redis://b")
    assert made("redis://a", "redis://b") is locks
    forgotten = weakref.ref(locks)
    del locks
    gc.collect()
    assert forgotten() is None


def test_dicts_are_never_shared() -> None:
    assert made({"host": "a"}) is not made({"host": "a"})


def test_other_drift_is_another_one() -> None:
    client = redis.Redis()
    assert shared_locks(Made, [client], drift_factor=0.1) is not made(client)


def test_client_that_cannot_be_copied_is_refused_every_time() -> None:
    from fastredlock import FastRedlock

    client = redis.Redis(credential_provider=object())  # type: ignore[arg-type]
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="credential_provider"):
            shared_locks(FastRedlock, [client])


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
        (lambda client: Lock(client, KEY, 5), lambda lock: lock.acquire()),
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
        with pytest.raises(Exception, match=f"p:.*{KEY}.*key_prefix"):
            acquire(lock)
    finally:
        prefix.reset(mark)


def test_prefix_for_some_keys_is_found_by_the_name_of_the_lock() -> None:
    class Some(redis.Redis):
        def execute_command(self, *args: Any, **options: Any) -> Any:
            key = f"p:{args[1]}" if args[1].startswith("orders:") else args[1]
            return super().execute_command(args[0], key, *args[2:])

    client = Some()
    assert shared_locks(Made, [client], "invoices:42")
    with pytest.raises(ConfigurationError, match="p:orders:42"):
        shared_locks(Made, [client], "orders:42")
