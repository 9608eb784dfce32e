"""Each fault of the proxy, and each answer of the fake server, against a real one."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest

from fastredlock._options import scripts
from fastredlock.testing import LocalMasters
from tests.support.fake_server import FakeServer
from tests.support.fixtures import Servers
from tests.support.proxy import PATIENCE, Proxy


@pytest.fixture
def proxy(shared_masters: LocalMasters, servers: Servers) -> Iterator[Proxy]:
    with Proxy(shared_masters.urls[0]) as proxy:
        yield proxy


@contextmanager
def connected(url: str) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", urlsplit(url).port or 0)) as opened:
        opened.settimeout(PATIENCE)
        yield opened


def is_mute(connection: socket.socket) -> bool:
    return not select.select([connection], [], [], 0)[0]


@pytest.fixture
def client(proxy: Proxy) -> Iterator[socket.socket]:
    """Connect through the proxy; one PING has been answered."""
    with connected(proxy.url) as opened:
        opened.sendall(b"PING\r\n")
        assert opened.recv(64) == b"+PONG\r\n"
        yield opened


# A fault; what the server sends then; the key it has; what comes once it is healed.
LOSSES = [
    ("holds_down", b"+OK\r\n", b"1", b"+OK\r\n"),
    ("holds_up", b"", None, b"+OK\r\n"),
    ("drops_replies", b"+OK\r\n", b"1", b""),  # TCP has no gaps
    ("swallows", b"", None, b""),
]


@pytest.mark.parametrize(("fault", "sent", "value", "comes"), LOSSES)
def test_bytes_when_held_or_lost_then_the_server_has_executed_or_not(
    proxy: Proxy, client: socket.socket, servers: Servers, fault: str,
    sent: bytes, value: bytes | None, comes: bytes,
) -> None:  # fmt: skip
    proxy.set(**{fault: True})
    client.sendall(b"SET key 1\r\n")
    if fault == "swallows":
        proxy.until(lambda it: it.swallowed == b"SET key 1\r\n")
    proxy.until(lambda it: it.came_down == b"+PONG\r\n" + sent)
    assert servers[0].get("key") == value
    assert is_mute(client)
    proxy.heal()
    if comes:
        assert client.recv(64) == comes
    else:
        client.sendall(b"PING\r\n")
        after = sent + b"+PONG\r\n" if fault == "drops_replies" else sent
        proxy.until(lambda it: it.came_down == b"+PONG\r\n" + after)
        assert is_mute(client)


COMMANDS = {
    "set": (b"SET", b"k", b"v", b"NX", b"PX", b"1000"),
    "release": (b"EVALSHA", scripts.RELEASE_SHA1, b"1", b"k", b"v"),
    "load": (b"SCRIPT", b"LOAD", scripts.RELEASE),
    "name": (b"CLIENT", b"SETNAME", b"x"),
    "select": (b"SELECT", b"0"),
    "hello": (b"HELLO", b"3"),
    "info": (b"INFO",),
    "time": (b"TIME",),
}


def reply_to(url: str, name: str) -> bytes:
    words = COMMANDS[name]
    with connected(url) as client:
        said = b"*%d\r\n" % len(words)
        client.sendall(said + b"".join(b"$%d\r\n%b\r\n" % (len(w), w) for w in words))
        return client.recv(65536)


def test_fake_server_when_asked_then_answers_as_a_real_one(
    shared_masters: LocalMasters, servers: Servers, make_fake: Callable[..., FakeServer]
) -> None:
    fake, real = make_fake(), shared_masters.urls[0]
    for name in ("select", "name", "load", "set", "release"):
        assert (name, reply_to(fake.url, name)) == (name, reply_to(real, name))
    for name in ("hello", "info", "time"):  # of the same kind, with other values
        assert (name, reply_to(fake.url, name)[:1]) == (name, reply_to(real, name)[:1])
