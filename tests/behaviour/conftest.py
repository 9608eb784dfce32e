"""Drivers, loops, a lease: the beginning of many behaviour tests."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from fastredlock import FastRedlock, Lease
from tests.support.awaited import LOOPS
from tests.support.calls import granted
from tests.support.cancellation import World
from tests.support.fixtures import Servers
from tests.support.keys import KEY, settled_values


@pytest.fixture(params=LOOPS)
def kind(request: pytest.FixtureRequest) -> str:
    """Run each test of the awaitable FastRedlock itself on both kinds of loop."""
    return str(request.param)


@pytest.fixture
def lease(locks: FastRedlock, servers: Servers) -> Lease:
    """Hold KEY on all five masters for 10 s."""
    taken = granted(locks.acquire(KEY, ttl=10))
    assert settled_values(servers, [taken.token] * 5) == [taken.token] * 5
    return taken


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Let no signal handler run in a callback of the collector: it would be ignored."""
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def world(servers: Servers, urls: list[str]) -> World:
    """The masters, and another client, of a test that cancels calls."""
    return World(servers, urls)
