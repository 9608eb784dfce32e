"""Five masters behind five proxies, and what the fault tests read on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from fastredlock import FastRedlock, QuorumUnreachableError
from fastredlock.testing import LocalMasters
from tests.support.certificates import Certificates, tls_master
from tests.support.fake_server import FakeServer
from tests.support.fixtures import MakeLocks, Servers
from tests.support.proxy import Proxy
from tests.support.waiting import wait_until


@pytest.fixture
def proxies(shared_masters: LocalMasters, servers: Servers) -> Iterator[list[Proxy]]:
    """Stand a proxy before each of the five shared masters, emptied before.

    Their addresses are in the order of the masters' own: so the gates are the same.
    """
    with ExitStack() as opened:
        yield [
            opened.enter_context(Proxy(url, address=(f"127.0.0.{i}", 0)))
            for i, url in enumerate(shared_masters.urls, 2)
        ]


@pytest.fixture
def proxied(proxies: list[Proxy], make_locks: MakeLocks) -> Callable[..., FastRedlock]:
    """Return what makes a FastRedlock of the five proxies, connected to all."""

    def make(**options: object) -> FastRedlock:
        locks = make_locks([proxy.url for proxy in proxies], **options)
        # The proxies are threads of this process: where it stands still for as long as
        # the short connect_timeout of a test, none of them has answered.
        assert wait_until(lambda: is_connected(locks))
        return locks

    return make


def is_connected(locks: FastRedlock) -> bool:
    try:
        locks.connect()
    except QuorumUnreachableError:
        return False
    return True


@pytest.fixture
def make_fake() -> Iterator[Callable[..., FakeServer]]:
    with ExitStack() as opened:
        yield lambda answers=None: opened.enter_context(FakeServer(answers))


@pytest.fixture
def tls_locks(
    certificates: Certificates, make_locks: MakeLocks
) -> Iterator[FastRedlock]:
    """Make a FastRedlock of one master behind TLS, of the test's own."""
    with tls_master(certificates) as (_, port):
        options = f"?ssl_ca_certs={certificates.authority}"
        yield make_locks([f"rediss://127.0.0.1:{port}/0{options}"])
