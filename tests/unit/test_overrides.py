"""What redis-py clients override: a prefix and another address are refused, unused."""

from __future__ import annotations

import functools
from collections.abc import Callable
from inspect import iscoroutine
from typing import Any

import pytest

from fastredlock._options.masters import Endpoint, parse_masters
from fastredlock.errors import ConfigurationError

redis = pytest.importorskip("redis")
aioredis = pytest.importorskip("redis.asyncio")

Make = Callable[[Any], Any]  # a client, of one of the two modules
either = pytest.mark.parametrize("module", [redis, aioredis], ids=["sync", "asyncio"])


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
