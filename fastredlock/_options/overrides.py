"""What a redis-py client overrides, tried out: a copy of its settings leaves that out.

A class of a user may put a prefix before keys, or connect elsewhere: then the locks of
redis-py that are taken with it, and ours, would not exclude each other. Where something
else than redis-py sends its commands, a copy of the client sends the SET of this lock
to a connection that records it, which needs no I/O. What comes out as it went in
(classes that log, count or guard) is taken; the rest is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from inspect import iscoroutine
from types import FunctionType, MethodType
from typing import Any, NoReturn

from ..errors import ConfigurationError

# The methods through which a SET goes: of the client, and of its pool.
_SENDING = (
    *("set", "execute_command"),
    *("_execute_command", "_send_command_parse_response"),
)
_CONNECTING = (
    *("get_connection", "make_connection"),
    *("get_available_connection", "ensure_connection"),  # of an awaitable one
)
_PLACE = ("host", "port", "db", "path")
_TOKEN = "token"


def refuse_overrides(client: Any, key: object = "fastredlock:trial") -> None:
    """Raise ConfigurationError where a client would lock another key, or elsewhere."""
    pool = client.connection_pool
    if (
        getattr(client, "single_connection_client", False)
        or getattr(client, "connection", None) is not None
    ):
        _refuse(client, "has one connection, which may have selected another database")
    is_overridden = False
    for owner, names in ((client, _SENDING), (pool, _CONNECTING)):
        for name in names:
            method = getattr(owner, name, None)
            if method is None or _is_of_redis_py(method):
                continue
            kinds = [kind.__module__.partition(".")[0] for kind in type(owner).__mro__]
            if name in vars(owner) or "redis" not in kinds:
                _refuse(client, f"has a {name} that is not of its class")
            is_overridden = True
    if is_overridden:
        _try(client, pool, key)


def refuse_moved(client: Any) -> None:
    """Raise ConfigurationError where settings were changed after it had connected."""
    pool = client.connection_pool
    for name in ("_available_connections", "_in_use_connections", "_connections"):
        for connection in list(getattr(pool, name, ())):
            if _is_elsewhere(connection, pool.connection_kwargs):
                _refuse(client, "has connections from before its settings were changed")


def _is_of_redis_py(method: Any) -> bool:
    # Wrappers may forward every attribute, and functools.wraps copies __module__.
    function = method.__func__ if type(method) is MethodType else method
    if type(function) is not FunctionType:
        return False
    module: str = function.__globals__.get("__name__", "")
    return module.startswith("redis.")


def _is_elsewhere(connection: Any, settings: Mapping[str, Any]) -> bool:
    if settings.get("maintenance_notification_hash") is not None:
        return False  # the server moves: redis-py has changed the settings itself
    for name in _PLACE:
        now = getattr(connection, name, None)
        before = getattr(connection, f"orig_{name}_address", now)
        said = settings.get(name, now)
        if now is not None and str(said) not in (str(now), str(before)):
            return True
    return False


def _try(client: Any, pool: Any, key: object) -> None:
    settings = dict(pool.connection_kwargs)
    recorded: Any = type("Recorded", (_Recorded,), {"sent": []})
    tried, tried_pool = _copied(client), _copied(pool)
    tried.connection_pool = tried_pool
    tried_pool.connection_class = recorded
    try:
        tried_pool.reset()
        result = tried.set(key, _TOKEN, nx=True, px=1)
        if iscoroutine(result):  # which waits for nothing
            with suppress(StopIteration):
                while result.send(None) is None:
                    pass
            result.close()
    except Exception as error:
        if not recorded.sent:
            if type(error).__module__.partition(".")[0] not in ("builtins", "redis"):
                raise  # its own: it lets no lock of redis-py through either
            _refuse(client, f"raised a {type(error).__name__} when it was tried out")
    for command, _ in recorded.sent:
        if command[:3] != ("SET", key, _TOKEN):
            _refuse(client, f"sends {command[:2]} where ('SET', {key!r}) was called")
    if {place for _, place in recorded.sent} != {_place_in(settings)}:
        _refuse(client, "sends by itself, later, or not to where its settings say")


def _place_in(settings: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(settings.get(name) for name in (*_PLACE, "username"))


def _copied(thing: Any) -> Any:
    kind: Any = type(thing)
    copied = object.__new__(_without_end(kind))
    vars(copied).update(vars(thing))
    return copied


@cache
def _without_end(kind: type) -> Any:
    """Return a subclass whose objects end without closing what the original uses."""
    return type(kind.__name__, (kind,), {"__del__": lambda self: None})


class _Recorded:
    """A connection of redis-py that records its commands, and where it sends each.

    It is the reply to all of them as well: false, and None where it is awaited.
    """

    sent: list[tuple[tuple[Any, ...], tuple[Any, ...]]]

    def __init__(self, **settings: Any) -> None:
        vars(self).update(settings, retry=self)

    def send_command(self, *command: Any, **_: Any) -> Any:
        place = _place_in(vars(self))  # now: a pool may have changed it since it began
        self.sent.append((command, place))
        return self

    def call_with_retry(self, attempt: Callable[[], Any], *_: Any, **__: Any) -> Any:
        return attempt()

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: self

    def __bool__(self) -> bool:
        return False

    def __await__(self) -> Any:
        return iter(())


def _refuse(client: Any, what: str) -> NoReturn:
    raise ConfigurationError(
        f"{type(client).__qualname__} {what}: a copy of its settings would lock another"
        " key or elsewhere; pass a plain client or a URL, and a prefix in the resource "
        "or as key_prefix= of FastRedlock"
    )
