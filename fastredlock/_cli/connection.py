"""A client of redis-py for one master, for what no lock needs: SCAN, and settings."""

from __future__ import annotations

from typing import Any

from .._core import Routes
from .._options.connection import context_of, prepared
from .._options.masters import Endpoint
from . import CommandError, Status

# What the restart guard keeps (src_cython/protocol/handshake.pyx).
MARKERS = "fastredlock:voter", "fastredlock:lineage", "fastredlock:lineage:replid"
QUARANTINE = "fastredlock:quarantine"
TIMEOUT = 2.0  # s; for a connection, and for each reply
NEEDED = "this needs redis-py: pip install 'fastredlock[cli]'"


class ServerError(Exception):
    """Report a server that did not answer, or refused; the message is the reason."""


class Server:
    """One master, which is connected when it is first asked; it blocks."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._client: Any = None

    def ask(self, *words: Any) -> Any:
        """Return the reply, undecoded; blocks 2 s at most; ServerError for an error."""
        from redis import RedisError

        if self._client is None:
            self._client = _client_of(self._endpoint)
        try:
            return self._client.execute_command(*words)
        except RedisError as error:
            raise ServerError(f"{words[0]}: {error}") from None

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _client_of(endpoint: Endpoint) -> Any:
    from redis import Connection, Redis  # here: who has no such command needs none
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    found = prepared(endpoint)
    if isinstance(found, str):
        raise ServerError(found)
    user, password, context, address = found
    host, port = endpoint.host, endpoint.port
    if address is not None:
        host, port = address[0].decode(), address[1]
    login = [word if word is None else word.decode() for word in (user, password)]
    client = Redis(
        host=host, port=port, unix_socket_path=endpoint.path or None, db=endpoint.db,
        username=login[0], password=login[1], protocol=2, retry=Retry(NoBackoff(), 0),
        socket_timeout=TIMEOUT, socket_connect_timeout=TIMEOUT,
    )  # fmt: skip
    client.response_callbacks.clear()
    if endpoint.tls is not None:
        context = context or context_of(endpoint)
        name = endpoint.tls.server_name or host.removesuffix(".")  # RFC 6066, section 3

        class Encrypted(Connection):
            def _connect(self) -> Any:
                plain = super()._connect()  # type: ignore[no-untyped-call]
                return context.wrap_socket(plain, server_hostname=name)

        client.connection_pool.connection_class = Encrypted
    return client


def need_redis_py() -> None:
    """Raise CommandError where it is missing."""
    try:
        import redis  # noqa: F401
    except ImportError:
        raise CommandError(NEEDED, Status.SYSTEM) from None


def shards_of(endpoint: Endpoint) -> list[tuple[Endpoint, str]]:
    """Return each primary of a cluster, and the braces of keys that it has.

    Any other master is one without braces. ServerError: no node has a map.
    """
    if not endpoint.seeds:
        return [(endpoint, "")]
    routes, fault = Routes(()), None
    for host, port in endpoint.seeds:
        try:
            with Server(endpoint._replace(host=host, port=port)) as server:
                reply = server.ask("CLUSTER", "SLOTS")
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
