"""aioredlock's Sentinel: it can be made, and an Aioredlock refuses it."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit


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
