"""redis-py clients as masters: settings are copied, what overrides them is refused."""

from __future__ import annotations

import functools
from collections.abc import Callable
from inspect import iscoroutine
from types import SimpleNamespace
from typing import Any

import pytest

from fastredlock._options.masters import Endpoint, TLSSettings, parse_masters
from fastredlock.errors import ConfigurationError

redis = pytest.importorskip("redis")
aioredis = pytest.importorskip("redis.asyncio")
sentinel = pytest.importorskip("redis.sentinel")

either = pytest.mark.parametrize("module", [redis, aioredis], ids=["sync", "asyncio"])


def refusal_of(client: object) -> str:
    with pytest.raises(ConfigurationError) as caught:
        parse_masters([client])
    return str(caught.value)


@either
@pytest.mark.parametrize(
    ("kwargs", "endpoint"),
    [
        ({}, Endpoint("localhost", 6379)),
        ({"host": b"h", "port": 1, "db": 2}, Endpoint("h", 1, db=2)),
        (
            {"host": "h", "username": "u", "password": b"p"},
            Endpoint("h", 6379, username="u", password="p"),
        ),
        ({"unix_socket_path": "/r"}, Endpoint("", 0, "/r")),
        ({"host": "h", "ssl": True}, Endpoint("h", 6379, tls=TLSSettings())),
        (
            {"host": "h", "ssl": True, "ssl_ca_certs": "/ca", "ssl_cert_reqs": "none"},
            Endpoint("h", 6379, tls=TLSSettings("none", False, "/ca")),
        ),
    ],
)
def test_client_is_copied_as_the_dict_of_its_arguments_would_be(
    module: Any, kwargs: dict[str, object], endpoint: Endpoint
) -> None:
    client = module.Redis(**kwargs)
    assert parse_masters([client]) == parse_masters([kwargs]) == (endpoint,)
    assert not client.connection_pool._available_connections


@either
@pytest.mark.parametrize(
    "url",
    [
        "redis://",
        "redis://u:p%40@h:1/2",
        "redis://u@[::1]/1?db=3",
        "redis://:%2B+@h?socket_timeout=1&client_name=a+b",
        "rediss://h?ssl_cert_reqs=optional&ssl_check_hostname=no&ssl_ca_certs=/a%2Bb+c",
        "unix://u:p@/r%20s?db=1",
        "unix:///r?password=a+b%2B",
    ],
)
def test_url_and_client_made_from_it_give_the_same_endpoint(
    module: Any, url: str
) -> None:
    assert parse_masters([module.from_url(url)]) == parse_masters([url])


def test_settings_of_a_tls_client_may_be_enums_of_ssl() -> None:
    import ssl

    client = redis.Redis(
        ssl=True,
        ssl_cert_reqs=ssl.CERT_OPTIONAL,
        ssl_min_version=ssl.TLSVersion.TLSv1_3,
    )
    (endpoint,) = parse_masters([client])
    assert endpoint.tls == TLSSettings("optional", min_version=772)
    assert type(endpoint.tls.min_version) is int


def test_client_with_a_blocking_pool_is_copied() -> None:
    pool = redis.BlockingConnectionPool(host="h", timeout=3)
    (endpoint,) = parse_masters([redis.Redis(connection_pool=pool)])
    assert endpoint == Endpoint("h", 6379)


def test_client_and_url_of_the_same_server_are_duplicates() -> None:
    with pytest.raises(ConfigurationError, match=r"masters\[0\].*masters\[1\].*same"):
        parse_masters(["redis://localhost", redis.Redis()])


@either
def test_one_client_in_place_of_an_iterable_is_refused_unused(module: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"got one Redis: wrap it in a list"):
        parse_masters(module.Redis(port=1))


def test_cluster_client_is_refused() -> None:
    client = aioredis.RedisCluster(host="h")
    assert "cluster client is not one master" in refusal_of(client)
    assert "pass the URLs of independent masters" in refusal_of(client)


@either
def test_sentinel_client_is_refused_with_the_name_of_its_service(module: Any) -> None:
    sentinels = module.sentinel.Sentinel([("h", 26379)])
    message = refusal_of(sentinels.master_for("orders"))
    assert "Sentinel service 'orders' has no fixed address" in message
    assert "must be a URL str" in refusal_of(sentinels)


@pytest.mark.parametrize(
    ("setting", "instead"),
    [
        ("redis_connect_func", "pass username, password and db, or credentials"),
        ("ssl_ciphers", "leave it out"),
        ("ssl_validate_ocsp", "fastredlock makes no OCSP checks"),
    ],
)
def test_setting_that_decides_on_trust_is_refused_with_what_to_do(
    setting: str, instead: str
) -> None:
    message = refusal_of(redis.Redis(ssl=True, **{setting: object()}))
    assert f"{setting} cannot be copied: {instead}" in message


def test_client_with_a_connection_class_of_its_own_is_refused() -> None:
    class Tunnel(redis.Connection):  # type: ignore[name-defined]
        pass

    pool = redis.ConnectionPool(connection_class=Tunnel, password="hunter2")
    message = refusal_of(redis.Redis(connection_pool=pool))
    assert "Tunnel is not redis-py's own" in message
    assert "hunter2" not in message


def test_settings_of_a_later_redis_py_are_dropped_unless_they_concern_tls() -> None:
    client = redis.Redis(ssl=True)
    client.connection_pool.connection_kwargs["new_setting"] = 1
    assert parse_masters([client])
    client.connection_pool.connection_kwargs["ssl_new_setting"] = 1
    assert "unknown setting 'ssl_new_setting'" in refusal_of(client)


def test_object_with_a_pool_of_another_shape_is_refused() -> None:
    client = SimpleNamespace(connection_pool=SimpleNamespace())
    assert "no connection_kwargs to copy; pass a URL" in refusal_of(client)


Make = Callable[[Any], Any]  # a client, of one of the two modules


def prefixing(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return (args[0], f"p:{args[1]}", *args[2:])


def commands(change: Callable[[Any], Any]) -> Make:
    def make(module: Any) -> Any:
        class Commands(module.Redis):
            def execute_command(self, *args: Any, **options: Any) -> Any:
                return super().execute_command(*change(args), **options)

        return Commands(host="h")

    return make


def sets(change: Callable[[Any], Any]) -> Make:
    def make(module: Any) -> Any:
        class Sets(module.Redis):
            def set(self, name: str, *args: Any, **options: Any) -> Any:
                return super().set(change(("", name))[1], *args, **options)

        return Sets(host="h")

    return make


class Forwarding:
    """Wrap a function, and forward every attribute to it, as wrapt does."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __getattr__(self, name: str) -> Any:
        return getattr(self.function, name)

    def __get__(self, owner: Any, kind: Any) -> Any:
        return Forwarding(self.function.__get__(owner, kind))

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self.function(*prefixing(args), **options)


def forwarding(module: Any) -> Any:
    function = Forwarding(module.Redis.execute_command)
    return type("C", (module.Redis,), {"execute_command": function})(host="h")


def awaited(module: Any) -> Any:
    class Awaited(aioredis.Redis):  # type: ignore[name-defined]
        async def execute_command(self, *args: Any, **options: Any) -> Any:
            return await super().execute_command(*prefixing(args), **options)

    return Awaited()


def pools(name: str, **settings: Any) -> Make:
    """Make a client whose pool has a method of its own, and connects elsewhere."""

    def make(module: Any) -> Any:
        def method(self: Any, *args: Any, **options: Any) -> Any:
            self.connection_kwargs = {**self.connection_kwargs, **settings}
            return getattr(super(Pool, self), name)(*args, **options)

        Pool: Any = type("Pool", (module.ConnectionPool,), {name: method})  # noqa: N806
        return module.Redis(connection_pool=Pool(host="h"))

    return make


def moves(name: str, **place: Any) -> Make:
    """Make a client whose pool changes the place of a connection that it has made."""

    def make(module: Any) -> Any:
        def changed(connection: Any) -> Any:
            vars(connection).update(place)
            return connection

        async def awaited(connection: Any) -> Any:
            return changed(await connection)

        def method(self: Any, *args: Any, **options: Any) -> Any:
            connection = getattr(super(Pool, self), name)(*args, **options)
            return (awaited if iscoroutine(connection) else changed)(connection)

        Pool: Any = type("Pool", (module.ConnectionPool,), {name: method})  # noqa: N806
        return module.Redis(connection_pool=Pool(host="h", port=6379))

    return make


def by_itself(module: Any) -> Any:
    class Pool(module.ConnectionPool):
        def make_connection(self) -> Any:
            return module.Connection(host="other")

    return module.Redis(connection_pool=Pool(host="h"))


def guarded(args: tuple[Any, ...]) -> tuple[Any, ...]:
    if args[0] == "FLUSHALL":
        raise PermissionError
    return args


def patched(module: Any) -> Any:
    client = module.Redis(host="h")
    original = client.execute_command
    client.execute_command = lambda *args: original(*prefixing(args))
    return client


def wrapped(module: Any) -> Any:
    class Wrapper:
        def __init__(self, inner: Any) -> None:
            self.connection_pool = inner.connection_pool
            self.set = lambda name, *args: inner.set(f"p:{name}", *args)

    return Wrapper(module.Redis(host="h"))


def packing(module: Any) -> Any:
    return module.Redis(
        connection_pool=module.ConnectionPool(host="h", command_packer=object())
    )


def moved(module: Any) -> Any:
    client = module.Redis(host="h")
    pool = client.connection_pool
    pool._available_connections.append(pool.make_connection())
    pool.connection_kwargs["db"] = 3
    return client


def single(module: Any) -> Any:
    client = module.Redis(host="h")
    client.connection = object()
    return client


REFUSED: dict[str, Make] = {
    "execute_command with a prefix": commands(prefixing),
    "set with a prefix": sets(prefixing),
    "awaited execute_command with a prefix": awaited,
    "make_connection to another database": pools("make_connection", db=3),
    "get_connection to another host": pools("get_connection", host="other"),
    "make_connection that moves what it has made": moves("make_connection", port=1),
    "get_connection that moves what it gives": moves("get_connection", db=7),
    "make_connection by itself": by_itself,
    "wrapper that forwards its attributes": forwarding,
    "patched object": patched,
    "wrapper": wrapped,
    "command_packer": packing,
    "settings changed after a connection": moved,
    "single connection": single,
}
TAKEN: dict[str, Make] = {
    "execute_command that passes on": commands(lambda args: args),
    "execute_command that guards": commands(guarded),
    "set that passes on": sets(lambda args: args),
    "make_connection that passes on": pools("make_connection"),
    "get_connection that passes on": pools("get_connection"),
    "get_connection that moves nothing": moves("get_connection", port=6379),
    "class with nothing of its own": lambda module: type("C", (module.Redis,), {})(
        host="h"
    ),
}


@either
@pytest.mark.parametrize("make", REFUSED.values(), ids=REFUSED)
def test_client_that_would_lock_another_key_or_elsewhere_is_refused(
    module: Any, make: Make
) -> None:
    client = make(module)
    with pytest.raises(ConfigurationError, match="key_prefix"):
        parse_masters([client])
    client.connection = None


@either
@pytest.mark.parametrize("make", TAKEN.values(), ids=TAKEN)
def test_client_that_only_logs_or_guards_is_taken_and_connects_nowhere(
    module: Any, make: Make
) -> None:
    client = make(module)
    for _ in range(2):
        assert parse_masters([client]) == (Endpoint("h", 6379),)
    assert not client.connection_pool._available_connections


class ClosedError(Exception):
    """What a class of a user raises while it lets nothing through."""


@either
@pytest.mark.parametrize(
    ("raised", "seen"),
    [(ClosedError, ClosedError), (AttributeError, ConfigurationError)],
)
def test_error_of_a_class_when_it_is_tried_out_is_raised_as_it_is(
    module: Any, raised: type[Exception], seen: type[Exception]
) -> None:
    """Errors of Python and redis-py may be of the trial itself."""

    def closed(args: tuple[Any, ...]) -> tuple[Any, ...]:
        raise raised("back at 12")

    with pytest.raises(seen, match=r"^back at 12$|raised a AttributeError"):
        parse_masters([commands(closed)(module)])


@pytest.mark.parametrize("prefix", ["", "p:"])
def test_client_of_kombu_is_refused_with_a_prefix_alone(prefix: str) -> None:
    kombu = pytest.importorskip("kombu.transport.redis")
    client = kombu.PrefixedStrictRedis(host="h", global_keyprefix=prefix)
    if not prefix:
        assert parse_masters([client])
        return
    with pytest.raises(ConfigurationError, match="p:fastredlock:trial"):
        parse_masters([client])


def test_method_of_redis_py_itself_that_was_replaced_is_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = redis.Redis.execute_command

    @functools.wraps(original)
    def replaced(self: Any, *args: Any, **options: Any) -> Any:
        return original(self, *prefixing(args), **options)

    monkeypatch.setattr(redis.Redis, "execute_command", replaced)
    with pytest.raises(ConfigurationError, match="p:fastredlock:trial"):
        parse_masters([redis.Redis()])


def test_trial_ends_nothing_that_the_client_uses() -> None:
    ended = []

    class Ending(redis.Redis):  # type: ignore[name-defined]
        def execute_command(self, *args: Any, **options: Any) -> Any:
            return super().execute_command(*args, **options)

        def close(self) -> None:
            ended.append(self)

    client = Ending(host="h")
    assert parse_masters([client])
    assert ended == []
    client.auto_close_connection_pool = False


def test_fakeredis_is_refused_with_how_to_test() -> None:
    fakeredis = pytest.importorskip("fakeredis")
    with pytest.raises(ConfigurationError, match=r"in_memory\(\).*redlock_memory"):
        parse_masters([fakeredis.FakeRedis()])
