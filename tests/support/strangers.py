"""Servers that are no Redis. What they imitate needs no check: any text will do."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

HTTP_REFUSAL = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"


class Stranger:
    """Answer the first bytes of each connection with the next of `answers`.

    b"" closes without an answer, None stays mute; the last answer is repeated.
    """

    def __init__(self, *answers: bytes | None) -> None:
        self._answers = list(answers)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._stop, self._stopped = socket.socketpair()
        self._connections: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self.address: tuple[str, int] = self._listener.getsockname()
        self.answered = 0  # connections

    def _serve(self) -> None:
        while True:
            waiting = [self._listener, self._stopped, *self._connections]
            readable = select.select(waiting, [], [])[0]
            if self._stopped in readable:
                return
            for ready in readable:
                if ready is self._listener:
                    self._connections.append(ready.accept()[0])
                else:
                    self._answer(ready)

    def _answer(self, connection: socket.socket) -> None:
        with suppress(OSError):
            if connection.recv(65536):
                last = len(self._answers) - 1
                answer = self._answers[min(self.answered, last)]
                self.answered += 1
                if answer is None:
                    return
                connection.sendall(answer)
        self._connections.remove(connection)
        connection.close()

    def __enter__(self) -> Stranger:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.close()
        self._thread.join()
        for each in [self._listener, self._stopped, *self._connections]:
            each.close()


@contextmanager
def bare_listener() -> Iterator[socket.socket]:
    """Listen, and never accept: a connection makes the socket readable."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def has_visitor(listener: socket.socket) -> bool:
    """Tell whether somebody has connected."""
    return bool(select.select([listener], [], [], 0)[0])
