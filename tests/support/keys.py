"""The keys of the masters, read and written past the package."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from tests.support.waiting import settled

if (
    TYPE_CHECKING
):  # programs that a test starts need KEY, and not what takes long to load
    import redis

Key = str | bytes
KEY = "orders:42"
NOBODY: list[bytes | None] = [None] * 5  # the values of a key that no master has


def values(servers: Sequence[redis.Redis], key: Key = KEY) -> list[bytes | None]:
    return [cast("bytes | None", server.get(key)) for server in servers]


def settled_values(
    servers: Sequence[redis.Redis], wanted: Sequence[bytes | None], key: Key = KEY
) -> list[bytes | None]:
    """Wait for what was sent to the slowest masters as well; return all values."""
    return settled(lambda: values(servers, key), list(wanted))


def sizes(servers: Sequence[redis.Redis]) -> list[int]:
    return [server.dbsize() for server in servers]


def is_empty(servers: Sequence[redis.Redis]) -> bool:
    """Whether no key is left anywhere, within a patience shorter than the ttl."""
    return settled(lambda: sizes(servers), [0] * len(servers)) == [0] * len(servers)


def set_all(servers: Sequence[redis.Redis], value: Key, key: Key = KEY) -> None:
    """Let somebody else hold the key on these servers, without expiry."""
    for server in servers:
        server.set(key, value)


def delete(servers: Sequence[redis.Redis], key: Key = KEY) -> None:
    for server in servers:
        server.delete(key)


def flush(servers: Sequence[redis.Redis]) -> None:
    for server in servers:
        server.flushall()


def flush_scripts(servers: Sequence[redis.Redis]) -> None:
    for server in servers:
        server.script_flush()


def cut_all(servers: Sequence[redis.Redis]) -> None:
    """Have these servers end all connections but the asking one."""
    for server in servers:
        server.client_kill_filter(_type="normal", skipme=True)
