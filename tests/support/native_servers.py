"""Servers that compare and delete in one command, and one that is made to.

No Redis from 8.4 on is at hand everywhere: `RedisWithDelex` answers its commands by the
scripts that they stand for, run by a real server behind it. Where a real one is on
PATH, the tests run on it as well, and so judge the other.
"""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import hiredis

from fastredlock._options import scripts
from fastredlock.testing import LocalMasters
from tests.support.fake_server import FakeServer, Words
from tests.support.server_binaries import PROGRAMS

KINDS = ("script", "DELIFEQ", "DELEX", "DELEX made")


class RedisWithDelex:
    """Stand before a real server, and have `DELEX` and `SET ... IFEQ` as Redis 8.4."""

    def __init__(self, url: str) -> None:
        at = urlsplit(url)
        self._server = socket.create_connection((at.hostname, at.port or 6379))
        self._server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.refuses: dict[bytes, bytes] = {}  # by name, an error reply

    def answer(self, words: Words) -> bytes:
        """Return what it says to a command."""
        name = words[0].upper()
        if name in self.refuses:
            return self.refuses[name]
        if name == b"HELLO":
            return b"%1\r\n$6\r\nserver\r\n$5\r\nredis\r\n"
        if name == b"COMMAND":
            return b"*2\r\n*-1\r\n*1\r\n$5\r\ndelex\r\n"
        if name == b"DELEX":
            _, key, _, token = words
            return self._ask([b"EVAL", scripts.RELEASE, b"1", key, token])
        if name == b"SET" and words[3] == b"IFEQ":
            _, key, _, _, token, _, ttl = words
            said = self._ask([b"EVAL", scripts.EXTEND, b"1", key, token, ttl])
            return {
                b":1\r\n": b"+OK\r\n",
                b":0\r\n": b"_\r\n",
                b":2\r\n": b"_\r\n",
            }.get(said, said)
        return self._ask(words)

    def _ask(self, words: Words) -> bytes:
        parts = [b"$%d\r\n%b\r\n" % (len(word), word) for word in words]
        self._server.sendall(b"*%d\r\n" % len(words) + b"".join(parts))
        reader, said = hiredis.Reader(notEnoughData=self), b""
        while reader.gets() is self:
            data = self._server.recv(65536)
            if not data:
                raise ConnectionError("the server has closed its connection")
            said += data
            reader = hiredis.Reader(notEnoughData=self)
            reader.feed(said)
        return said

    def close(self) -> None:
        self._server.close()


def program_with(command: str) -> str | None:
    """Return a server program on this machine that has this command, or None."""
    for each in PROGRAMS:
        (program,) = each.values  # type: ignore[attr-defined]  # a ParameterSet
        asked = subprocess.run(
            [program, "--version"], capture_output=True, text=True, check=True
        )
        words = dict(w.split("=", 1) for w in asked.stdout.split() if "=" in w)
        version = tuple(int(part) for part in words["v"].split(".")[:2])
        is_valkey = asked.stdout.startswith("Valkey")
        least = (9, 0) if is_valkey else (8, 4)
        name = "DELIFEQ" if is_valkey else "DELEX"
        if (version >= least and name == command) or (
            command == "script" and version < least
        ):
            return str(program)
    return None


@contextmanager
def native_server(kind: str) -> Iterator[tuple[str, str, RedisWithDelex | None]]:
    """Run one; give the URL for clients, that of the real server, and what is made."""
    program = program_with("script" if kind == "DELEX made" else kind)
    if program is None:
        yield "", "", None
        return
    with LocalMasters(1, server=program) as masters:
        (url,) = masters.urls
        if kind != "DELEX made":
            yield url, url, None
            return
        made = RedisWithDelex(url)
        names = b"SET EVAL EVALSHA SCRIPT CLIENT INFO TIME HELLO COMMAND DELEX"
        answers = dict.fromkeys(names.split(), made.answer)
        with FakeServer({**answers, b"SUBSCRIBE": b"-NOPERM no\r\n"}) as fake:
            yield fake.url, url, made
        made.close()
