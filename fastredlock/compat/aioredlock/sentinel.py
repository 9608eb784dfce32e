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
SENTINEL_PORT, DEFAULT_PORT = 26379, 6379  # as aioredlock has them: of a dict, of a URL


class SentinelConfigError(Exception):
    """Report a Sentinel without an address, or without a master's name."""


class Sentinel:
    """Name a service behind Redis Sentinel, by one sentinel or a list of them."""

    def __init__(
        self,
        connection: Any,
        master: str | None = None,
        password: str | None = None,
        db: int | None = None,
        ssl_context: Any = None,
    ) -> None:
        settings: dict[str, Any] = {}
        if isinstance(connection, dict):
            settings.update(connection)
            address = settings.pop("host"), settings.pop("port", SENTINEL_PORT)
            self.connection: list[Any] = [address]
        elif isinstance(connection, str) and connection.startswith("redis"):
            url = urlsplit(connection)
            self.connection = [(url.hostname, url.port or DEFAULT_PORT)]
            query = parse_qs(url.query)
            settings = {name: values[0] for name, values in query.items()}
            settings |= {"password": url.password, "db": url.path.strip("/") or 0}
            settings["ssl"] = url.scheme == "rediss"
        elif isinstance(connection, list | tuple):
            self.connection = (
                [connection] if isinstance(connection, tuple) else connection
            )
        else:
            raise SentinelConfigError("Invalid Sentinel Configuration")
        given = {"password": password, "db": db, "ssl": ssl_context}
        settings |= {name: value for name, value in given.items() if value is not None}
        named = settings.pop("master", None)
        self.master: str | None = master or named
        if self.master is None:
            raise SentinelConfigError(
                "Master name required for sentinel to be configured"
            )
        self.redis_kwargs = settings


def master_of(connection: Any) -> object:
    """Return one of aioredlock's connections as FastRedlock takes it.

    Raises ConfigurationError for one that has no address to copy.
    """
    if isinstance(connection, Sentinel):
        settings = _settings_of(connection.redis_kwargs)
        place = {"sentinels": connection.connection, "service_name": connection.master}
        return settings | place
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
