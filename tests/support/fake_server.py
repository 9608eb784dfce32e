"""A server that says what a test tells it to, command by command.

By default it answers as an empty Redis 7 does to the commands of this package; its own
tests compare that with a real one, byte by byte.
"""

from __future__ import annotations

import hashlib
import select
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress

Words = list[bytes]
Answer = bytes | None | Callable[[Words], bytes | None]  # None: says nothing


def resp_bulk(data: bytes) -> bytes:
    """Encode one bulk string."""
    return b"$%d\r\n%b\r\n" % (len(data), data)


def _hello(words: Words) -> bytes:
    return b"%1\r\n" + resp_bulk(b"server") + resp_bulk(b"redis")


def _script(words: Words) -> bytes:
    return resp_bulk(hashlib.sha1(words[2]).hexdigest().encode())


DEFAULTS: dict[bytes, Answer] = {
    b"HELLO": _hello,
    b"SELECT": b"+OK\r\n",
    b"CLIENT": b"+OK\r\n",
    b"INFO": resp_bulk(b"redis_version:7.0.15\r\nrole:master\r\n"),
    b"COMMAND": b"*2\r\n*-1\r\n*-1\r\n",  # neither DELIFEQ nor DELEX
    b"SCRIPT": _script,
    b"SET": b"+OK\r\n",
    b"EVALSHA": b":1\r\n",
    b"EVAL": b":1\r\n",
    b"TIME": b"*2\r\n$10\r\n1700000000\r\n$6\r\n000000\r\n",
}


class FakeServer:
    """Answer commands from a table; a context manager.

    `answers` go before the defaults: by command name, bytes or a function of the
    command's words. b"" as an answer closes the connection; after None it
    reads on, and says nothing any more.
    """

    def __init__(self, answers: Mapping[bytes, Answer] | None = None) -> None:
        self.answers: dict[bytes, Answer] = {**DEFAULTS, **(answers or {})}
        self.commands: list[Words] = []
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._stop, self._stopped = socket.socketpair()
        self._unread: dict[socket.socket, bytes] = {}
        self._mute: set[socket.socket] = set()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    @property
    def url(self) -> str:
        """The address, as a master's URL."""
        return f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"

    def names(self) -> list[bytes]:
        """List the names of the commands received so far."""
        return [words[0] for words in self.commands]

    def _serve(self) -> None:
        while True:
            waiting = [self._listener, self._stopped, *self._unread]
            readable = select.select(waiting, [], [])[0]
            if self._stopped in readable:
                return
            for ready in readable:
                if ready is self._listener:
                    self.connections += 1
                    connection = self._listener.accept()[0]
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self._unread[connection] = b""
                else:
                    self._receive(ready)

    def _receive(self, connection: socket.socket) -> None:
        with suppress(OSError):
            data = connection.recv(65536)
            if data:
                self._unread[connection] += data
                while (words := self._next_command(connection)) is not None:
                    if not self._answer(connection, words):
                        return
                return
        del self._unread[connection]
        connection.close()

    def _answer(self, connection: socket.socket, words: Words) -> bool:
        if words[0] in (b"EVAL", b"EVALSHA") and words[2] == b"0":
            connection.sendall(b"*0\r\n")  # the handshake's probe: nothing is forbidden
            return True
        self.commands.append(words)
        answer = self.answers.get(words[0].upper(), b"-ERR unknown command\r\n")
        said = answer(words) if callable(answer) else answer
        if said is None:
            self._mute.add(connection)
        if connection in self._mute:
            return True
        if said:
            connection.sendall(said)
        else:
            del self._unread[connection]
            connection.close()
            return False
        return True

    def _next_command(self, connection: socket.socket) -> Words | None:
        unread = self._unread[connection]
        head, found, rest = unread.partition(b"\r\n")
        if not found:
            return None
        words: Words = []
        for _ in range(int(head[1:])):
            head, found, rest = rest.partition(b"\r\n")
            size = int(head[1:]) if found else 0
            if not found or len(rest) < size + 2:
                return None
            words.append(rest[:size])
            rest = rest[size + 2 :]
        self._unread[connection] = rest
        return words

    def __enter__(self) -> FakeServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.close()
        self._thread.join()
        for each in [self._listener, self._stopped, *self._unread]:
            each.close()
