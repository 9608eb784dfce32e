"""redis-py's names for its settings, and how they are read from one of its clients.

redis-py, and valkey-py, which was made of it and has the same names, are recognised by
their shape and never imported. A client's settings are copied; its sockets, pool and
callbacks are not.

A class of a user may put a prefix before keys, or connect elsewhere: then the locks of
redis-py that use it, and those of fastredlock, would not exclude each other. Where
something else than redis-py sends its commands, a copy of the client sends the SET of
this lock to a connection that records it, which needs no I/O. A client that changes the
key is refused, but by redis-py's Lock, which locks the key that was recorded.

A client on one connection may have selected another database, which is nowhere in its
settings: so this connection is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from types import CoroutineType, FunctionType, MethodType
from typing import Any, NoReturn

from .._steps import Steps
from ..errors import ConfigurationError

# The settings that describe a master, and so go into an Endpoint.
CARRIED = (
    *("host", "port", "unix_socket_path", "db", "username", "password"),
    "credential_provider",
    *("ssl", "ssl_cert_reqs", "ssl_check_hostname", "ssl_ca_certs", "ssl_ca_path"),
    *("ssl_ca_data", "ssl_certfile", "ssl_keyfile", "ssl_password", "ssl_min_version"),
    "ssl_server_name",  # not of redis-py
    # Of a service of Sentinel, and of what a failover loses.
    *("sentinels", "service_name", "sentinel_kwargs", "min_other_sentinels"),
    *("force_master_ip", "replicas", "failover_window", "lossless_failover"),
    "startup_nodes",  # of a cluster
)

# In a URL: of the sentinels, whose logins and TLS are not those of the servers.
OF_SENTINELS = tuple(
    f"sentinel_{name}"
    for name in CARRIED
    if name.startswith("ssl") or name in ("username", "password")
)

OF_SERVICES = {*OF_SENTINELS, "min_other_sentinels", "force_master_ip"}

# Accepted and ignored: they are about the work of redis-py, not about the master.
IGNORED = frozenset(
    (
        # Deadlines and back-off are fastredlock's own: round_timeout, Retry.
        *("socket_timeout", "socket_connect_timeout", "timeout"),
        *("retry", "retry_on_timeout", "retry_on_error", "health_check_interval"),
        # The sockets are its own as well: one per master, always with keepalive.
        *("socket_keepalive", "socket_keepalive_options", "socket_read_size"),
        *("max_connections", "single_connection_client"),
        "auto_close_connection_pool",
        # Resources and tokens are bytes, replies are parsed by fastredlock.
        *("encoding", "encoding_errors", "decode_responses", "legacy_responses"),
        "parser_class",
        # The handshake negotiates the protocol and names the connection.
        *("protocol", "client_name", "driver_info", "lib_name", "lib_version"),
        # Caches, events and notices of redis-py have no part in a lock.
        *("cache", "cache_config", "event_dispatcher", "maint_notifications_config"),
        "oss_cluster_maint_notifications_handler",
    )
)

_NO_TLS_OPTION = "leave it out, Python's defaults are used"
_NO_CODEC = "keys are sent as they are; put a prefix into key_prefix"
_NO_OCSP = "fastredlock makes no OCSP checks; leave it out to do without"

# Ignoring these would change which servers are trusted or how to log in, so they are
# refused; the value names a replacement.
REFUSED = {
    "connection_pool": "pass the redis-py client itself",
    "command_packer": _NO_CODEC,
    "encoder_class": _NO_CODEC,
    "redis_connect_func": "pass username, password and db, or credentials",
    "ssl_ciphers": _NO_TLS_OPTION,
    "ssl_include_verify_flags": _NO_TLS_OPTION,
    "ssl_exclude_verify_flags": _NO_TLS_OPTION,
    "ssl_validate_ocsp": _NO_OCSP,
    "ssl_validate_ocsp_stapled": _NO_OCSP,
    "ssl_ocsp_context": _NO_OCSP,
    "ssl_ocsp_expected_cert": _NO_OCSP,
}
REFUSED |= {  # valkey-py's names
    name.replace("redis_", "valkey_"): advice for name, advice in REFUSED.items()
}

_LIBRARIES = ("redis", "valkey")
_MODULES = tuple(
    f"{library}.{module}"
    for library in _LIBRARIES
    for module in ("connection", "asyncio.connection", "sentinel", "asyncio.sentinel")
)
_CLASSES = (
    *("Connection", "SSLConnection", "UnixDomainSocketConnection"),
    *("SentinelManagedConnection", "SentinelManagedSSLConnection"),
)
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
TRIAL = "fastredlock:trial"  # a key, where that of the lock is not known yet


def known_settings(settings: Mapping[Any, object]) -> dict[str, object]:
    """Keep the carried settings, drop the ignored ones, refuse all others."""
    refuse_encoding(settings)
    kept: dict[str, object] = {}
    for key, value in settings.items():
        if key in CARRIED or key in OF_SENTINELS:
            kept[key] = value
        elif key in REFUSED:
            if value is not None and value is not False:
                raise ConfigurationError(f"{key} cannot be copied: {REFUSED[key]}")
        elif key not in IGNORED:
            raise ConfigurationError(
                f"unknown setting {key!r}; allowed: {', '.join(CARRIED)} "
                "(redis-py's settings for its own sockets are ignored)"
            )
    return kept


def settings_of_client(client: Any) -> dict[str, object]:
    """Copy the settings of a redis-py client, under the names `redis.Redis` takes.

    Unknown names are dropped, because redis-py keeps objects of its own among its
    settings and adds more in every release. Unknown `ssl_*` names stay, to be refused,
    and so does what would be called and is not redis-py's own.
    """
    if hasattr(client, "nodes_manager"):
        return _cluster_of(client)
    pool = client.connection_pool
    settings = {
        name: value
        for name, value in _connection_kwargs(pool).items()
        if name in CARRIED
        or name in REFUSED
        or name.startswith("ssl_")
        or (name not in IGNORED and callable(value) and not _is_of_library(value))
    }
    if hasattr(pool, "service_name"):
        settings |= _service_of(pool)
    refuse_moved(client)
    settings["ssl"] = pool.connection_class.__name__.endswith("SSLConnection")
    if pool.connection_class.__name__ == "UnixDomainSocketConnection":
        settings["unix_socket_path"] = pool.connection_kwargs.get("path", "")
    return settings


def _cluster_of(client: Any) -> dict[str, object]:
    """Return the settings of a RedisCluster, blocking or awaitable."""
    manager = client.nodes_manager
    if not _is_of_redis_py(client.execute_command):
        _refuse(client, "has an execute_command of its own")
    if manager.address_remap:
        raise ConfigurationError(
            "address_remap is not copied: give a URL, redis+cluster://, and for TLS "
            "ssl_server_name, the name in the certificate (or ssl_check_hostname=false)"
        )
    kwargs = manager.connection_kwargs
    is_tls = "SSL" in getattr(kwargs.get("connection_class"), "__name__", "")
    settings = {
        name: value
        for name, value in kwargs.items()
        if name in CARRIED or name.startswith("ssl_")
    }
    nodes = [(each.host, each.port) for each in manager.startup_nodes.values()]
    for name in ("host", "port", "db"):  # of the first of them
        settings.pop(name, None)
    return settings | {"startup_nodes": nodes, "ssl": is_tls or kwargs.get("ssl")}


def pool_of(client: Any) -> Any:
    """Return what has a client's settings, of redis-py; or None."""
    return getattr(client, "connection_pool", getattr(client, "nodes_manager", None))


def identity_of(client: Any) -> tuple[object, ...]:
    """Return what tells a client's settings from those before they were changed."""
    if hasattr(client, "nodes_manager"):
        return tuple(map(repr, _cluster_of(client).values()))
    pool = client.connection_pool
    names = ("path", *CARRIED)
    service = getattr(pool, "service_name", None)
    return pool.connection_class, service, *map(pool.connection_kwargs.get, names)


def _service_of(pool: Any) -> dict[str, object]:
    """Return the settings of `Sentinel.master_for()`'s pool, of its sentinels' own."""
    if not pool.is_master:
        raise ConfigurationError(
            f"a replica of the Sentinel service {pool.service_name!r} takes no locks: "
            "pass the client of master_for()"
        )
    manager = pool.sentinel_manager
    if not _is_of_redis_py(manager.discover_master):
        _refuse(manager, "has a discover_master that is not redis-py's")
    kwargs = [each.connection_pool.connection_kwargs for each in manager.sentinels]
    return {
        "connection_pool": None,  # redis-py's own
        # What sentinels answer is in their place; django-redis leaves them there.
        "host": None,
        "port": None,
        "sentinels": [(each["host"], each["port"]) for each in kwargs],
        "service_name": pool.service_name,
        "sentinel_kwargs": manager.sentinel_kwargs,
        "min_other_sentinels": manager.min_other_sentinels,
        "force_master_ip": getattr(manager, "_force_master_ip", None),
    }


def _connection_kwargs(pool: Any) -> Mapping[str, object]:
    kwargs = getattr(pool, "connection_kwargs", None)
    if not isinstance(kwargs, Mapping):
        raise ConfigurationError(
            "the client's connection_pool has no connection_kwargs to copy; "
            "pass a URL or a dict"
        )
    used = pool.connection_class
    if used.__module__ in _MODULES and used.__name__ in _CLASSES:
        return kwargs
    if used.__module__.startswith("fakeredis"):
        raise ConfigurationError(
            "fakeredis is no server, and a lock needs one: run the test in "
            "fastredlock.testing.in_memory() (with pytest the fixture redlock_memory), "
            "and give its locks a redis.Redis(), which connects to nothing there"
        )
    raise ConfigurationError(
        f"the connection class {used.__module__}.{used.__qualname__} is not redis-py's "
        "own, and what it does cannot be copied; pass a URL or a dict"
    )


# ---- what a class of a user overrides


def refuse_overrides(client: Any, key: object = TRIAL) -> None:
    """Raise ConfigurationError where a client would lock another key, or elsewhere."""
    sent = key_sent(client, key)
    if sent != key:
        _refuse(client, f"sends ('SET', {sent!r}) where ('SET', {key!r}) was called")


def refuse_encoding(client: Any, key: object = "\xe9") -> None:
    """Raise ConfigurationError if a client would encode a key otherwise: not as UTF-8.

    So would one of these settings. One that it could not encode is no key of its own.
    """
    if not isinstance(key, str):
        return
    is_client = not isinstance(client, Mapping)
    settings = (
        getattr(pool_of(client), "connection_kwargs", {}) if is_client else client
    )
    encoding = settings.get("encoding") or "utf-8"
    errors = settings.get("encoding_errors") or "strict"
    sent = None
    try:
        sent = key.encode(encoding, errors)
    except UnicodeError:
        return
    except (LookupError, TypeError):
        pass  # there is no such encoding
    if sent != key.encode():
        _refuse(client, f"has an encoding= by which {key!r} is {sent!r}")


def key_sent(client: Any, key: Any) -> Any:
    """Return the key that a client's SET of this key has.

    Raises ConfigurationError where that is not known, or would go elsewhere.
    """
    pool = getattr(client, "connection_pool", None)
    is_overridden = False
    for owner, names in ((client, _SENDING), (pool, _CONNECTING)) if pool else ():
        for name in names:
            method = getattr(owner, name, None)
            if method is None or _is_of_redis_py(method):
                continue
            bases = {base.__module__.partition(".")[0] for base in type(owner).__mro__}
            if name in vars(owner) or bases.isdisjoint(_LIBRARIES):
                _refuse(client, f"has a {name} that is not of its class")
            is_overridden = True
    return _try(client, pool, key) if is_overridden else key


def selected(client: Any) -> Steps[None]:
    """Raise ConfigurationError if a client's one connection has another database."""
    if getattr(client, "connection", None) is None:
        return
    try:
        info = yield client.client_info
    except Exception as error:
        names = {base.__name__ for base in type(error).__mro__}
        if names.isdisjoint(("ConnectionError", "TimeoutError")):
            _refuse(client, f"has one connection that cannot be asked: {error}")
        return
    if isinstance(info, CoroutineType):  # nobody is here to await it
        info.close()
        _refuse(client, "has one connection, which may have selected another database")
    if int(info["db"]) != int(client.connection_pool.connection_kwargs.get("db") or 0):
        _refuse(client, f"has selected database {info['db']}")


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
    return module.partition(".")[0] in _LIBRARIES


def _is_of_library(value: Any) -> bool:
    return str(value.__module__).partition(".")[0] in _LIBRARIES


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


def _try(client: Any, pool: Any, key: object) -> Any:
    settings = dict(pool.connection_kwargs)
    recorded: Any = type("Recorded", (_Recorded,), {"sent": []})
    tried, tried_pool = _copied(client), _copied(pool)
    tried.connection_pool = tried_pool
    tried_pool.connection_class = recorded
    try:
        tried_pool.reset()
        result = tried.set(key, _TOKEN, nx=True, px=1)
        if isinstance(result, CoroutineType):  # which waits for nothing
            with suppress(StopIteration):
                while result.send(None) is None:
                    pass
            result.close()
    except Exception as error:
        if not recorded.sent:
            known = "builtins", *_LIBRARIES
            if type(error).__module__.partition(".")[0] not in known:
                raise  # its own: it lets no lock of redis-py through either
            _refuse(client, f"raised a {type(error).__name__} when it was tried out")
    sent = next((what[1] for what, _ in recorded.sent if what[:1] == ("SET",)), key)
    for command, _ in recorded.sent:
        if command[:3] != ("SET", sent, _TOKEN):
            _refuse(client, f"sends {command[:2]} where ('SET', {key!r}) was called")
    if {place for _, place in recorded.sent} != {_place_in(settings)}:
        _refuse(client, "sends by itself, later, or not to where its settings say")
    return sent


def _place_in(settings: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(settings.get(name) for name in (*_PLACE, "username"))


def _copied(thing: Any) -> Any:
    copied_type: Any = type(thing)
    copied = object.__new__(_without_end(copied_type))
    vars(copied).update(vars(thing))
    return copied


@cache
def _without_end(copied_type: type) -> Any:
    """Return a subclass whose objects end without closing what the original uses."""
    return type(copied_type.__name__, (copied_type,), {"__del__": lambda self: None})


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

    def _get_from_local_cache(self, *_: Any) -> None:
        """Return nothing, as valkey-py's does without its cache."""

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
