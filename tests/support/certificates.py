"""Certificates made on the spot, and servers that speak TLS with them."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Thread

import trustme

from fastredlock.testing import LocalMasters
from fastredlock.testing._local import _any_port

# Said by a server built without TLS: Redis before 7, and Redis and Valkey from then on.
_NO_TLS = ("Bad directive", "Failed finding TLS support")


class Certificates:
    """A CA, a server's certificate for 127.0.0.1, and a client's; as files."""

    def __init__(self, folder: Path) -> None:
        ca = trustme.CA()
        self.authority = folder / "ca.pem"
        ca.cert_pem.write_to_path(self.authority)
        self.server = self._issue(ca, folder / "server", "127.0.0.1")
        self.client = self._issue(ca, folder / "client", "client@example.org")

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
    chain, key = map(str, certificates.server)
    tls_options = (
        *("--tls-cert-file", chain, "--tls-key-file", key),
        *("--tls-ca-cert-file", str(certificates.authority)),
        *("--tls-auth-clients", "yes" if wants_client else "no"),
        *(() if version is None else ("--tls-protocols", version)),
    )
    with ExitStack() as opened:
        try:
            masters, port = started_with_tls(*tls_options, *options)
            opened.enter_context(masters)
        except RuntimeError as error:
            if not any(said in str(error) for said in _NO_TLS):
                raise
            masters = opened.enter_context(LocalMasters(1, options=options))
            context = certificates.server_context(wants_client, version)
            port = opened.enter_context(tls_pipe(masters.ports[0], context))
        yield masters, port


def started_with_tls(*options: str) -> tuple[LocalMasters, int]:
    """Start a server on a port for TLS that is free."""
    while True:
        port = _any_port()
        try:
            given = ("--tls-port", str(port), *options)
            return LocalMasters(1, options=given), port
        except RuntimeError as error:
            if f":{port}: bind: Address already in use" not in str(error):
                raise


@contextmanager
def tls_pipe(target: int, tls: ssl.SSLContext) -> Iterator[int]:
    """Speak TLS on a port, and plain text with the server on port `target`."""

    async def pass_on(source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(65536):
                to.write(data)
                await to.drain()
        to.close()

    async def serve(read: asyncio.StreamReader, write: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            plain = await asyncio.open_connection("127.0.0.1", target)
            await asyncio.gather(pass_on(read, plain[1]), pass_on(plain[0], write))
        write.close()

    async def end() -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # clients that refuse us
    begun = asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    server = loop.run_until_complete(begun)
    thread = Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        loop.run_until_complete(end())
        loop.close()
