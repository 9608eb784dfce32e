"""redis-py's names for its settings, and how they are read from one of its clients.

redis-py is recognised by its shape and never imported: a caller that passes a client
has imported it already, and others do not pay for it. A client's settings are copied;
its sockets, pool and callbacks are not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ..errors import ConfigurationError


class CredentialProvider(Protocol):
    """A provider of redis-py."""

    def get_credentials(self) -> Any:
        """Return the password, or user name and password."""


class RedisClient(Protocol):
    """A client of redis-py, blocking or awaitable; its settings are copied."""

    @property
    def connection_pool(self) -> Any:
        """The pool, which has the settings."""


#: One of `masters`: a URL, (host, port), redis-py's keyword arguments, or its client.
Master = str | tuple[str, int] | Mapping[str, Any] | RedisClient

#: What `credentials` gives: the password, or the user name (or None) and the password.
Login = str | bytes | tuple[str | bytes] | tuple[str | bytes | None, str | bytes]
Credentials = Callable[[], Login] | CredentialProvider

# The settings that describe a master, and so go into an Endpoint.
CARRIED = (
    *("host", "port", "unix_socket_path", "db", "username", "password"),
    "credential_provider",
    *("ssl", "ssl_cert_reqs", "ssl_check_hostname", "ssl_ca_certs", "ssl_ca_path"),
    *("ssl_ca_data", "ssl_certfile", "ssl_keyfile", "ssl_password", "ssl_min_version"),
)

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

_MODULES = ("redis.connection", "redis.asyncio.connection")
_CLASSES = ("Connection", "SSLConnection", "UnixDomainSocketConnection")
_PASS_INSTEAD = "pass the URLs of independent masters"


def known_settings(settings: Mapping[Any, object]) -> dict[str, object]:
    """Keep the carried settings, drop the ignored ones, refuse all others."""
    kept: dict[str, object] = {}
    for key, value in settings.items():
        if key in CARRIED:
            kept[key] = value
        elif key in REFUSED:
            _refuse_unless_unset(key, value)
        elif key not in IGNORED:
            raise ConfigurationError(
                f"unknown setting {key!r}; allowed: {', '.join(CARRIED)} "
                "(redis-py's settings for its own sockets are ignored)"
            )
    return kept


def is_client(value: object) -> bool:
    """Return whether `value` has the shape of a redis-py client, cluster included."""
    return hasattr(value, "connection_pool") or hasattr(value, "nodes_manager")


def settings_of_client(client: Any) -> dict[str, object]:
    """Copy the settings of a redis-py client, under the names `redis.Redis` takes.

    Unknown names are dropped, because redis-py keeps objects of its own among its
    settings and adds more in every release; unknown `ssl_*` names stay, to be refused.
    """
    if hasattr(client, "nodes_manager"):
        raise ConfigurationError(
            "a cluster client is not one master, and the nodes of a cluster are not "
            f"independent; {_PASS_INSTEAD}"
        )
    pool = client.connection_pool
    if hasattr(pool, "service_name"):
        raise ConfigurationError(
            f"the Sentinel service {pool.service_name!r} has no fixed address to "
            f"copy; {_PASS_INSTEAD}"
        )
    settings = {
        name: value
        for name, value in _connection_kwargs(pool).items()
        if name in CARRIED or name in REFUSED or name.startswith("ssl_")
    }
    from .overrides import refuse_moved, refuse_overrides  # 1 ms URLs do not pay

    refuse_overrides(client)
    refuse_moved(client)
    settings["ssl"] = pool.connection_class.__name__ == "SSLConnection"
    if pool.connection_class.__name__ == "UnixDomainSocketConnection":
        settings["unix_socket_path"] = pool.connection_kwargs.get("path", "")
    return settings


def identity_of(client: Any, *name: object) -> tuple[object, ...]:
    """Return what tells a client's settings from those before they were changed.

    Raises ConfigurationError where its class would lock another key than this `name`.
    """
    from .overrides import refuse_overrides

    refuse_overrides(client, *name)  # of one pool may be clients of many classes
    pool = client.connection_pool
    names = ("path", *CARRIED)
    return pool.connection_class, *map(pool.connection_kwargs.get, names)


def _connection_kwargs(pool: Any) -> Mapping[str, object]:
    kwargs = getattr(pool, "connection_kwargs", None)
    if not isinstance(kwargs, Mapping):
        raise ConfigurationError(
            "the client's connection_pool has no connection_kwargs to copy; "
            "pass a URL or a dict"
        )
    kind = pool.connection_class
    if kind.__module__ in _MODULES and kind.__name__ in _CLASSES:
        return kwargs
    if kind.__module__.startswith("fakeredis"):
        raise ConfigurationError(
            "fakeredis is no server, and a lock needs one: run the test in "
            "fastredlock.testing.in_memory() (with pytest the fixture redlock_memory), "
            "and give its locks a redis.Redis(), which connects to nothing there"
        )
    raise ConfigurationError(
        f"the connection class {kind.__module__}.{kind.__qualname__} is not redis-py's "
        "own, and what it does cannot be copied; pass a URL or a dict"
    )


def _refuse_unless_unset(key: str, value: object) -> None:
    if value is not None and value is not False:
        raise ConfigurationError(f"{key} cannot be copied: {REFUSED[key]}")
