"""Drivers, loops, a lease: the beginning of many behaviour tests."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import redis

from fastredlock import FastRedlock, Lease
from tests.support.awaited import DRIVERS, LOOPS
from tests.support.calls import granted
from tests.support.cancellation import World
from tests.support.keys import KEY, settled_values

# Where sockets and timers decide, the loops differ: these run on uvloop as well.
OF_LOOPS = ("test_closing", "test_outages", "test_release", "test_waiting_in_turn")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test over the drivers, but those that are marked for one of them."""
    marks = metafunc.definition.iter_markers("parametrize")
    if "driver" in metafunc.fixturenames and not any(
        "driver" in mark.args for mark in marks
    ):
        is_of_loops = metafunc.module.__name__.endswith(OF_LOOPS)
        drivers = DRIVERS if is_of_loops else DRIVERS[:2]
        metafunc.parametrize("driver", drivers, indirect=True)


@pytest.fixture
def driver(request: pytest.FixtureRequest) -> str:
    """Name the driver of the test."""
    return str(request.param)


@pytest.fixture(params=LOOPS)
def kind(request: pytest.FixtureRequest) -> str:
    """Run each test of the awaitable FastRedlock itself on both kinds of loop."""
    return str(request.param)


@pytest.fixture
def lease(locks: FastRedlock, servers: list[redis.Redis]) -> Lease:
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
def world(servers: list[redis.Redis], urls: list[str]) -> World:
    """The masters, and another client, of a test that cancels calls."""
    return World(servers, urls)
