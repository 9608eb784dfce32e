"""Certificates made on the spot, and servers that speak TLS with them."""

from __future__ import annotations

import select
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import trustme

from fastredlock.testing import LocalMasters
from fastredlock.testing._local import _any_port

# Said by a server built without TLS: Redis before 7, and Redis and Valkey from then on.
_NO_TLS = ("Bad directive", "Failed finding TLS support")


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


class Certificates:
    """A CA, a server's certificate for 127.0.0.1, and a client's; as files."""

    def __init__(self, folder: Path) -> None:
        ca = trustme.CA()
        self.authority = folder / "ca.pem"
        ca.cert_pem.write_to_path(self.authority)
        self.server = self._issue(ca, folder / "server", "127.0.0.1")
        self.client = self._issue(ca, folder / "client", "client@example.org")

    def options_of_server(self) -> tuple[str, ...]:
        """Return the options of a server that has its certificate."""
        chain, key = map(str, self.server)
        files = ("--tls-cert-file", chain, "--tls-key-file", key)
        return (*files, "--tls-ca-cert-file", str(self.authority))

    def _issue(self, ca: trustme.CA, stem: Path, name: str) -> tuple[Path, Path]:
        issued = ca.issue_cert(name)
        chain, key = stem.with_suffix(".crt"), stem.with_suffix(".key")
        issued.cert_chain_pems[0].write_to_path(chain)
        issued.private_key_pem.write_to_path(key)
        return chain, key

    def server_context(
        self, wants_client: bool, version: str | None = None
    ) -> ssl.SSLContext:
        """Return what a TLS-ending proxy needs, where the server has no TLS."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.server)
        if version is not None:
            only = ssl.TLSVersion[version.replace(".", "_")]
            context.minimum_version = context.maximum_version = only
        if wants_client:
            context.load_verify_locations(self.authority)
            context.verify_mode = ssl.CERT_REQUIRED
        return context


def lacks_tls(error: RuntimeError) -> bool:
    """Return whether a server did not start because it is built without TLS."""
    return any(said in str(error) for said in _NO_TLS)


@contextmanager
def tls_master(
    certificates: Certificates,
    *options: str,
    wants_client: bool = False,
    version: str | None = None,
) -> Iterator[tuple[LocalMasters, int]]:
    """Run one real server; yield it and the port on which it speaks TLS.

    A server built without TLS gets a proxy in front that speaks it.
    """
    tls_options = (
        *certificates.options_of_server(),
        *("--tls-auth-clients", "yes" if wants_client else "no"),
        *(() if version is None else ("--tls-protocols", version)),
    )
    with ExitStack() as opened:
        try:
            masters, port = started_with_tls(*tls_options, *options)
            opened.enter_context(masters)
        except RuntimeError as error:
            if not lacks_tls(error):
                raise
            masters = opened.enter_context(LocalMasters(1, options=options))
            context = certificates.server_context(wants_client, version)
            target = ("127.0.0.1", masters.ports[0])
            port = opened.enter_context(Pipe(target, tls=context)).address[1]
        yield masters, port


def started_with_tls(*options: str) -> tuple[LocalMasters, int]:
    while True:
        port = _any_port()
        try:
            given = ("--tls-port", str(port), *options)
            return LocalMasters(1, options=given), port
        except RuntimeError as error:
            if f":{port}: bind: Address already in use" not in str(error):
                raise
