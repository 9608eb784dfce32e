"""The connections of aioredlock, translated for FastRedlock, and its Sentinel."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ... import ConfigurationError

__all__ = ["Sentinel", "SentinelConfigError"]

# Options of aioredis for its own sockets, pools and parsers; no part of a lock.
IGNORED = ("encoding", "loop", "maxsize", "minsize", "parser")
CONNECT_TIMEOUTS = ("create_connection_timeout", "timeout")
HIDDEN = "*******"


class SentinelConfigError(Exception):
    """Report a Sentinel without an address, or without a master's name."""


class Sentinel:
    """Name a service behind Redis Sentinel; an Aioredlock refuses it."""

    def __init__(
        self,
        connection: Any,
        master: str | None = None,
        password: str | None = None,
        db: int | None = None,
        ssl_context: Any = None,
    ) -> None:
        if not isinstance(connection, dict | list | str | tuple):
            raise SentinelConfigError("Invalid Sentinel Configuration")
        named = None
        if isinstance(connection, dict):
            named = connection.get("master")
        elif isinstance(connection, str):
            named = parse_qs(urlsplit(connection).query).get("master", [None])[-1]
        self.master: str | None = master or named
        if self.master is None:
            raise SentinelConfigError(
                "Master name required for sentinel to be configured"
            )


def master_of(connection: Any) -> object:
    """Return one of aioredlock's connections as FastRedlock takes it.

    Raises ConfigurationError for one that has no address to copy.
    """
    if isinstance(connection, Sentinel):
        raise ConfigurationError(
            f"the Sentinel service {connection.master!r} has no fixed address to "
            "copy; pass the URLs of independent masters"
        )
    if isinstance(connection, str) and "://" not in connection:
        return {"unix_socket_path": connection}
    if isinstance(connection, Mapping):
        return _settings_of(connection)
    if hasattr(connection, "_pool_or_conn"):  # a client of aioredis 1
        return _settings_of_client(connection._pool_or_conn)
    return connection


def _settings_of(connection: Mapping[str, Any]) -> dict[str, object]:
    settings: dict[str, object] = {}
    for name, value in connection.items():
        if name in CONNECT_TIMEOUTS:
            settings["socket_connect_timeout"] = value
        elif name == "ssl" and not isinstance(value, bool | None):
            raise ConfigurationError(
                "ssl: an SSLContext cannot be copied; pass ssl=True and ssl_ca_certs, "
                "ssl_certfile and ssl_keyfile as for redis-py"
            )
        elif name not in IGNORED:
            settings[name] = value
    return settings


def _settings_of_client(pool: Any) -> dict[str, object]:
    address = pool.address
    place = (
        {"unix_socket_path": address}
        if isinstance(address, str)
        else {"host": address[0], "port": address[1]}
    )
    security = {"password": pool._password, "ssl": pool._ssl}
    return _settings_of({**place, "db": pool.db, **security})


def without_password(connection: Any) -> Any:
    """Return a connection as it may be shown."""
    if isinstance(connection, Mapping) and "password" in connection:
        return {**connection, "password": HIDDEN}
    if isinstance(connection, str):
        return re.sub(r"//.*@", f"//:{HIDDEN}@", connection)
    return connection
