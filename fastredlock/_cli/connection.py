"""A plain connection to one master, for what no lock needs: SCAN, and the checks.

It blocks, speaks RESP2, and is opened, used and closed by one thread.
"""

from __future__ import annotations

import socket
from contextlib import ExitStack, suppress
from typing import Any

import hiredis

from .._core import Routes, refusal_text
from .._options.connection import context_of
from .._options.masters import Endpoint

# Errors behind which nothing is answered.
LAST = ("NOAUTH", "DENIED", "ERR max number of clients")
TIMEOUT = 2.0  # s; for a connection, and for each reply


class ServerError(Exception):
    """Report a server that could not be asked; the message is the reason."""


class Connection:
    """One connection, logged in; a reply that is an error is returned, not raised.

    Raises ServerError where there is none, or where it ends. Text is returned as bytes.
    """

    def __init__(self, endpoint: Endpoint, timeout: float = TIMEOUT) -> None:
        self.name = endpoint.name
        self._reader = hiredis.Reader()
        # Of a server that ends the connection before it answers.
        self._question = "" if endpoint.tls else ": does this port want rediss://?"
        try:
            self._socket = _connected(endpoint, timeout)
        except TimeoutError:
            raise ServerError(f"no connection within {timeout:g} s") from None
        except (OSError, ValueError) as error:
            text = getattr(error, "strerror", None) or str(error)
            raise ServerError(f"cannot connect: {text}") from None
        try:
            self._log_in(endpoint)
        except BaseException:
            self.close()
            raise

    def _log_in(self, endpoint: Endpoint) -> None:
        if endpoint.password is not None:
            try:
                user = (endpoint.username,) if endpoint.username else ()
                self.need("AUTH", *user, endpoint.password)
            except ServerError as error:  # a server before Redis 6 has no users
                if not user or "wrong number of arg" not in str(error):
                    raise
                self.need("AUTH", endpoint.password)
        if endpoint.db:
            self.need("SELECT", endpoint.db)

    def need(self, name: str, *words: object) -> Any:
        """Return the reply as well; ServerError where it is an error."""
        reply = self.ask(name, *words)
        if isinstance(reply, hiredis.ReplyError):
            raise ServerError(f"{name}: {refusal_text(reply)}")
        return reply

    def ask(self, *words: Any) -> Any:
        """Send one command; return its reply; raise ServerError where it is the last.

        A server that does not want us says why and closes, maybe before we ask.
        """
        try:
            with suppress(ConnectionError):
                self._socket.sendall(hiredis.pack_command(words))
            reply = self.read()
        except TimeoutError:
            text = f"no reply to {words[0]}: paused or overloaded?"
            raise ServerError(text) from None
        except OSError as error:
            text = f"{words[0]}: {error.strerror or error}{self._question}"
            raise ServerError(text) from None
        self._question = ""
        if isinstance(reply, hiredis.ReplyError) and str(reply).startswith(LAST):
            raise ServerError(refusal_text(reply))
        return reply

    def read(self) -> Any:
        received = b""
        try:
            while (reply := self._reader.gets()) is False:
                received = self._socket.recv(65536)
                if not received:
                    raise ConnectionResetError("the server closed the connection")
                self._reader.feed(received)
        except hiredis.ProtocolError:
            if received[:1] == b"\x15":  # an alert record: RFC 8446, section 5.1
                text = "speaks TLS: use rediss:// for this master"
                raise ServerError(text) from None
            raise ServerError("answers, but not as a Redis server") from None
        return reply

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def shards_of(endpoint: Endpoint) -> list[tuple[Endpoint, str]]:
    """Return each primary of a cluster, and the braces of keys that it has.

    Any other master is one without braces. ServerError: no node has a map.
    """
    if not endpoint.seeds:
        return [(endpoint, "")]
    routes, fault = Routes(()), None
    for host, port in endpoint.seeds:
        try:
            with Connection(endpoint._replace(host=host, port=port)) as connection:
                reply = connection.ask("CLUSTER", "SLOTS")
                fault = routes.take_map(reply, host.encode())
        except ServerError as error:
            fault = str(error)
        if fault is None:
            break
    else:
        raise ServerError(f"no map of the cluster: {fault}")
    return [
        (
            endpoint._replace(host=address[0].decode(), port=address[1]),
            routes.tag_of(address).decode(),
        )
        for address in routes.addresses
    ]


def _connected(endpoint: Endpoint, timeout: float) -> socket.socket:
    with ExitStack() as stack:
        if endpoint.path:
            local = stack.enter_context(socket.socket(socket.AF_UNIX))
            local.settimeout(timeout)
            local.connect(endpoint.path)
            stack.pop_all()
            return local
        address: Any = (endpoint.host, endpoint.port)
        if endpoint.sentinels is not None:
            address = endpoint.sentinels.find_primary()
            if isinstance(address, str):
                raise ServerError(address)
        plain = stack.enter_context(socket.create_connection(address, timeout))
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        context = context_of(endpoint)
        try:
            if context is not None:
                name = address[0].removesuffix(".")  # as the client: RFC 6066, 3
                plain = context.wrap_socket(plain, server_hostname=name)
        except TimeoutError:
            text = "no answer to TLS yet: does the server speak it on this port?"
            raise ServerError(text) from None
        stack.pop_all()
        return plain
