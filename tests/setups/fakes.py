"""A server that tells of itself what it is told to tell, and grants everything."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

import hiredis

from .wire import HELLO, bulk

REAL = {"run_id": "f" * 40, "role": "master", "uptime_in_seconds": "100000"}


class FakeServer:
    """Answer the handshake, TIME, SET (OK) and scripts (1); one thread for all."""

    def __init__(self, said: Mapping[str, str]) -> None:
        lines = [f"{name}:{value}" for name, value in {**REAL, **said}.items()]
        self._info = bulk("\r\n".join(lines).encode())
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        self.commands: list[bytes] = []  # their names

    def serve(self) -> None:
        """Serve one connection after the other, until the listener is shut down."""
        with suppress(OSError):
            while True:
                connection = self._listener.accept()[0]
                with connection:
                    self._converse(connection)

    def _converse(self, connection: socket.socket) -> None:
        reader = hiredis.Reader()
        with suppress(ConnectionError):
            while data := connection.recv(65536):
                reader.feed(data)
                answers = b""
                while command := reader.gets():
                    self.commands.append(command[0])
                    answers += self.answer(command[0])
                connection.sendall(answers)

    def answer(self, name: bytes) -> bytes:
        """Return the reply to the command of this name."""
        return {
            b"HELLO": HELLO,
            b"INFO": self._info,
            b"SCRIPT": bulk(b"0" * 40),
            b"TIME": b"*2\r\n" + bulk(b"1700000000") + bulk(b"0"),
            b"EVALSHA": b":1\r\n",
        }.get(name, b"+OK\r\n")

    def stop(self) -> None:
        """End `serve`: the client must have closed its connection."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@contextmanager
def fake_server(**said: str) -> Iterator[FakeServer]:
    """Run a FakeServer in a thread for the length of the block."""
    server = FakeServer(said)
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join(5)
