"""A proxy that ends TLS in front of a server that has none."""

from __future__ import annotations

import select
import socket
import ssl
import threading
from contextlib import suppress


class Pipe:
    """Speak TLS on connections to `address`, and plain text with the target.

    Every connection has a thread of its own.
    """

    def __init__(self, target: tuple[str, int], tls: ssl.SSLContext) -> None:
        self._target, self._tls = target, tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._stop, self._stopped = socket.socketpair()
        self.address: tuple[str, int] = self._listener.getsockname()

    def _accept(self) -> None:
        while True:
            waiting = [self._listener, self._stopped]
            if self._stopped in select.select(waiting, [], [])[0]:
                return
            client = self._listener.accept()[0]
            thread = threading.Thread(target=self._serve, args=[client], daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, plain: socket.socket) -> None:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with (
            plain,
            suppress(OSError),
            socket.create_connection(self._target) as server,
            self._tls.wrap_socket(plain, server_side=True) as client,
        ):
            while self._pass_on(client, server):
                pass

    def _pass_on(self, client: ssl.SSLSocket, server: socket.socket) -> bool:
        """Pass on what has come; return False at the end of the conversation."""
        ready = select.select([client, server, self._stopped], [], [])[0]
        if self._stopped in ready:
            return False
        if client in ready:
            data = client.recv(65536)
            while client.pending():
                data += client.recv(65536)
            server.sendall(data)
            return bool(data)
        data = server.recv(65536)
        client.sendall(data)
        return bool(data)

    def __enter__(self) -> Pipe:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.close()
        for thread in self._threads:
            thread.join(10)
        self._listener.close()
        self._stopped.close()
