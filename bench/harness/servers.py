"""The real servers under the bench: private, on TCP loopback, without persistence."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from urllib.parse import urlsplit


@contextmanager
def local_masters(n: int, server: str | None = None) -> Iterator[list[str]]:
    """Start `n` servers; yield their URLs, `list[str]`; leave nothing behind."""
    from fastredlock.testing import LocalMasters

    with LocalMasters(n, server=server) as masters:
        yield list(masters.urls)


def port_of(url: str) -> int:
    """Return the TCP port of a master's URL."""
    port = urlsplit(url).port
    if port is None:
        raise ValueError(f"no port in {url!r}")
    return port


def server_version(url: str) -> str:
    """Ask a running master for its version, as in `Redis 7.0.15` or `Valkey 8.0.1`."""
    fields = _info(url, "server")
    if "valkey_version" in fields:
        return f"Valkey {fields['valkey_version']}"
    return f"Redis {fields['redis_version']}"


def hold(url: str, key: str) -> None:
    """Take a key on one master for an hour, as a lock of another client."""
    _ask(url, "SET", key, "held", "PX", "3600000")


def free(url: str, key: str) -> None:
    """Delete a key on one master, as another client that releases its lock."""
    _ask(url, "DEL", key)


def flush(url: str) -> None:
    """Delete all keys of one master."""
    _ask(url, "FLUSHALL")


def commands_done(url: str) -> int:
    """Return how many SETs and scripts a master was sent by clients so far."""
    fields = _info(url, "commandstats")
    return sum(
        int(fields[name].partition("calls=")[2].partition(",")[0])
        for name in ("cmdstat_set", "cmdstat_evalsha", "cmdstat_eval")
        if name in fields
    )


def cpu_used(urls: Sequence[str]) -> float:
    """Return the CPU time of all these masters so far (s)."""
    fields = [_info(url, "cpu") for url in urls]
    return sum(
        float(each["used_cpu_user"]) + float(each["used_cpu_sys"]) for each in fields
    )


def has_command(url: str, name: str) -> bool:
    """Ask a master whether it has a command of this name."""
    return _ask(url, "COMMAND", "LIST", "FILTERBY", "PATTERN", name) == b"*1\r\n"


def keys_left(url: str) -> int:
    """Return how many keys a master holds."""
    return int(_ask(url, "DBSIZE")[1:])


def _info(url: str, section: str) -> dict[str, str]:
    text = _ask(url, "INFO", section).decode()
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)


def _ask(url: str, *words: str) -> bytes:
    """Send one command on a connection of its own; return the reply's first part."""
    with socket.create_connection(("127.0.0.1", port_of(url)), timeout=5) as asking:
        asking.sendall(f"{' '.join(words)}\r\n".encode())
        with asking.makefile("rb") as answer:
            head = answer.readline()
            return answer.read(int(head[1:])) if head.startswith(b"$") else head
