"""A real server whose wall clock is ours: see clock.c."""

from __future__ import annotations

import mmap
import os
import socket
import struct
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import hiredis
import pytest

from fastredlock.testing import LocalMasters

EPOCH_US = 1_700_000_000_000_000
SOURCE = Path(__file__).with_name("clock.c")
LONGEST_REPLY = 1 << 20


class Client:
    """One connection to a server, in RESP3."""

    def __init__(self, url: str) -> None:
        where = urlsplit(url)
        self._socket = socket.create_connection((where.hostname, where.port), 10)
        self._reader = hiredis.Reader(notEnoughData=self)
        self._pushes: list[list[Any]] = []
        self.ask((b"HELLO", b"3"))

    def ask(self, *commands: tuple[bytes, ...]) -> list[Any]:
        self._socket.sendall(b"".join(map(encoded, commands)))
        replies: list[Any] = []
        while len(replies) < len(commands):
            reply = self._next()
            is_push = isinstance(reply, hiredis.PushNotification)
            is_message = is_push and reply[0] == b"message"
            (self._pushes if is_message else replies).append(reply)
        return replies

    def pushes(self) -> list[list[Any]]:
        """Take the messages until now."""
        self.ask((b"PING",))
        pushes, self._pushes = self._pushes, []
        return pushes

    def _next(self) -> Any:
        while (reply := self._reader.gets()) is self:
            data = self._socket.recv(LONGEST_REPLY)
            if not data:
                raise ConnectionError("the server has closed its connection")
            self._reader.feed(data)
        return reply

    def close(self) -> None:
        self._socket.close()


class ClockedServer:
    """One server, whose time is `now_us`; `folder` is empty."""

    def __init__(self, program: str, folder: Path) -> None:
        library, clock = folder / "clock.so", folder / "clock"
        options = ("-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")
        command = ["gcc", *options, "-o", str(library), str(SOURCE), "-ldl"]
        subprocess.run(command, check=True)
        clock.write_bytes(bytes(mmap.PAGESIZE))
        with clock.open("r+b") as file:
            self._clock = mmap.mmap(file.fileno(), mmap.PAGESIZE)
        self.set_time(EPOCH_US)
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(os.environ, "LD_PRELOAD", str(library))
            patch.setitem(os.environ, "TEST_CLOCK", str(clock))
            self.masters = LocalMasters(1, server=program)
        (self.url,) = self.masters.urls

    def set_time(self, now_us: int) -> None:
        self.now_us = now_us
        self._clock[:8] = struct.pack("=q", now_us)

    def close(self) -> None:
        self.masters.close()
        self._clock.close()


def encoded(words: tuple[bytes, ...]) -> bytes:
    bulks = b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)
    return b"*%d\r\n" % len(words) + bulks
