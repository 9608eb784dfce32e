"""The real servers under the bench: private, on TCP loopback, without persistence."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit


@contextmanager
def local_masters(n: int) -> Iterator[list[str]]:
    """Start `n` servers; yield their URLs, `list[str]`; leave nothing behind."""
    from fastredlock.testing import LocalMasters

    with LocalMasters(n) as masters:
        yield list(masters.urls)


def port_of(url: str) -> int:
    """Return the TCP port of a master's URL."""
    port = urlsplit(url).port
    if port is None:
        raise ValueError(f"no port in {url!r}")
    return port


def server_version(url: str) -> str:
    """Ask a running master what it is, as in `Redis 7.0.15` or `Valkey 8.0.1`."""
    with socket.create_connection(("127.0.0.1", port_of(url)), timeout=5) as asking:
        asking.sendall(b"INFO server\r\n")
        with asking.makefile("rb") as answer:
            size = int(answer.readline()[1:])
            text = answer.read(size).decode()
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    if "valkey_version" in fields:
        return f"Valkey {fields['valkey_version']}"
    return f"Redis {fields['redis_version']}"
