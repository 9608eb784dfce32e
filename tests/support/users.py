"""A user of a server who may do little."""

from __future__ import annotations

import redis

from fastredlock.testing import LocalMasters


def allow(server: redis.Redis, masters: LocalMasters, rules: str) -> str:
    """Let user ann do this and nothing else from now on; return her URL."""
    server.execute_command("ACL SETUSER ann reset on >pw", *rules.split())
    return masters.urls[0].replace("//", "//ann:pw@")
