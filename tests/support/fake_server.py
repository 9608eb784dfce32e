"""Servers that say what a test tells them to.

By default a FakeServer answers as an empty Redis 7 does to the commands of this
package; its own tests compare that with a real one, byte by byte.
"""

from __future__ import annotations

import hashlib
import select
import socket
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Self

HTTP_REFUSAL = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"
Words = list[bytes]
Answer = bytes | None | Callable[[Words], bytes | None]  # None: says nothing


def resp_bulk(data: bytes) -> bytes:
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


class Listening:
    """A server in a thread; a context manager. `_receive` is for its kinds."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._stop, self._stopped = socket.socketpair()
        self._connections: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self.address: tuple[str, int] = self._listener.getsockname()
        self.connections = 0

    def _serve(self) -> None:
        while True:
            waiting = [self._listener, self._stopped, *self._connections]
            readable = select.select(waiting, [], [])[0]
            if self._stopped in readable:
                return
            for ready in readable:
                if ready is self._listener:
                    self.connections += 1
                    connection = ready.accept()[0]
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self._connections.append(connection)
                else:
                    self._read(ready)

    def _read(self, connection: socket.socket) -> None:
        with suppress(OSError):
            data = connection.recv(65536)
            if data and self._receive(connection, data):
                return
        self._connections.remove(connection)
        connection.close()

    def _receive(self, connection: socket.socket, data: bytes) -> bool:
        """Take what has come; return whether the connection stays open."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.close()
        self._thread.join()
        for each in [self._listener, self._stopped, *self._connections]:
            each.close()


class Stranger(Listening):
    """No Redis: answer the first bytes of each connection with the next of `answers`.

    b"" closes without an answer, None stays mute; the last answer is repeated. What it
    imitates needs no check: any text will do.
    """

    def __init__(self, *answers: bytes | None) -> None:
        super().__init__()
        self._answers = list(answers)
        self.answered = 0  # connections

    def _receive(self, connection: socket.socket, data: bytes) -> bool:
        answer = self._answers[min(self.answered, len(self._answers) - 1)]
        self.answered += 1
        if answer is not None:
            connection.sendall(answer)
        return answer is None


class FakeServer(Listening):
    """Answer commands from a table.

    `answers` go before the defaults: by command name, bytes or a function of the
    command's words. b"" as an answer closes the connection; after None it
    reads on, and says nothing any more.
    """

    def __init__(self, answers: Mapping[bytes, Answer] | None = None) -> None:
        super().__init__()
        self.answers: dict[bytes, Answer] = {**DEFAULTS, **(answers or {})}
        self.commands: list[Words] = []
        self._unread: defaultdict[socket.socket, bytes] = defaultdict(bytes)
        self._mute: set[socket.socket] = set()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.address[1]}/0"

    def names(self) -> list[bytes]:
        return [words[0] for words in self.commands]

    def _receive(self, connection: socket.socket, data: bytes) -> bool:
        self._unread[connection] += data
        while (words := self._next_command(connection)) is not None:
            if not self._answer(connection, words):
                return False
        return True

    def _answer(self, connection: socket.socket, words: Words) -> bool:
        if words[0] in (b"EVAL", b"EVALSHA") and words[2] == b"0":
            connection.sendall(b"*0\r\n")  # the handshake's probe: nothing is forbidden
            return True
        self.commands.append(words)
        answer = self.answers.get(words[0].upper(), b"-ERR unknown command\r\n")
        said = answer(words) if callable(answer) else answer
        if said is None:
            self._mute.add(connection)
        if said and connection not in self._mute:
            connection.sendall(said)
        return said != b"" or connection in self._mute

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
