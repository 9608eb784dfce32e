"""The servers of `LocalMasters`, seen from outside: sockets, processes, folders."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis

from fastredlock.testing import LocalMasters
from fastredlock.testing._local import _EMBEDDED, _find_embedded, _find_program

_PING = b"PING\r\n"
_PONG = b"+PONG\r\n"


def connect(url: str) -> socket.socket:
    parts = urlsplit(url)
    if parts.scheme == "unix":
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(2.0)
        try:
            client.connect(parts.path)
        except OSError:
            client.close()
            raise
        return client
    return socket.create_connection(("127.0.0.1", parts.port or 0), timeout=2.0)


def ask(url: str, request: bytes = _PING) -> bytes:
    with connect(url) as client:
        client.sendall(request)
        return client.recv(4096)


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


def folder_of(masters: LocalMasters) -> Path:
    """Say where the servers live, as the first of them sees it in its own folder."""
    return Path(os.readlink(f"/proc/{masters.pid(0)}/cwd")).parent


def is_gone(pid: int) -> bool:
    """Count a zombie as gone: an orphan waits for whatever process 1 is."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state in "ZX"


# --- a user who may do little ---------------------------------------------------------


def allow(server: redis.Redis, masters: LocalMasters, rules: str) -> str:
    """Let user ann do this and nothing else from now on; return her URL."""
    server.execute_command("ACL SETUSER ann reset on >pw", *rules.split())
    return masters.urls[0].replace("//", "//ann:pw@")


# --- the programs of this machine: their errors differ --------------------------------


def _programs() -> list[object]:
    found = {
        "default": _find_program(None),
        **{package: _find_embedded(package, where) for package, where in _EMBEDDED},
        **{
            f"{name} in {folder}": shutil.which(name, path=folder)
            for folder in os.get_exec_path()
            for name in ("redis-server", "valkey-server")
        },
    }
    distinct = {
        os.path.realpath(path): name for name, path in reversed(found.items()) if path
    }
    return [pytest.param(found[name], id=name) for name in distinct.values()]


PROGRAMS = _programs()
