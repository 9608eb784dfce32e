"""A small proxy: in front of a server, byte for byte, in pieces, or ending TLS."""

from __future__ import annotations

import select
import socket
import ssl
import threading
from contextlib import suppress


class Pipe:
    """Pass bytes between whoever connects to `address` and the target.

    `piece`: the most bytes in one send to the client (None: as they come).
    `tls`: a server context, to speak TLS with the client and plain text with the
    target. Every connection has a thread of its own.
    """

    def __init__(
        self,
        target: tuple[str, int],
        piece: int | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._target, self._piece, self._tls = target, piece, tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._stop, self._stopped = socket.socketpair()
        self.address: tuple[str, int] = self._listener.getsockname()
        self.bytes_to_client = 0

    def _accept(self) -> None:
        while True:
            waiting = [self._listener, self._stopped]
            if self._stopped in select.select(waiting, [], [])[0]:
                return
            client = self._listener.accept()[0]
            thread = threading.Thread(target=self._serve, args=[client], daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with suppress(OSError), socket.create_connection(self._target) as server:
            if self._tls is not None:
                client = self._tls.wrap_socket(client, server_side=True)
            while self._pass_on(client, server):
                pass
        client.close()

    def _pass_on(self, client: socket.socket, server: socket.socket) -> bool:
        """Pass on what has come; return False at the end of the conversation."""
        ready = select.select([client, server, self._stopped], [], [])[0]
        if self._stopped in ready:
            return False
        if client in ready:
            data = client.recv(65536)
            while isinstance(client, ssl.SSLSocket) and client.pending():
                data += client.recv(65536)
            server.sendall(data)
            return bool(data)
        data = server.recv(65536)
        self.bytes_to_client += len(data)
        step = self._piece or max(1, len(data))
        for start in range(0, len(data), step):
            client.sendall(data[start : start + step])
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
