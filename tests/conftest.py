"""Real masters, raw access to them, and the one place where a FastRedlock is made."""

from __future__ import annotations

import gc
import logging
import signal
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from importlib.util import find_spec
from typing import Any

import pytest
import redis

from fastredlock import FastRedlock
from fastredlock.testing import LocalMasters
from tests.support.awaited import DRIVERS, LoopThread, awaited_locks
from tests.support.certificates import Certificates
from tests.support.parallel import pytest_cmdline_main
from tests.support.queue_table import queue_mistakes
from tests.support.stolen_time import (
    pytest_report_teststatus,
    pytest_runtest_makereport,
    pytest_runtest_protocol,
    pytest_terminal_summary,
)

__all__ = [  # hooks, for pytest
    "pytest_cmdline_main",
    "pytest_report_teststatus",
    "pytest_runtest_makereport",
    "pytest_runtest_protocol",
    "pytest_terminal_summary",
]

# A shell without job control starts what runs in the background with SIGINT ignored,
# and so would be all programs that the tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the tests themselves out of each collection of garbage: it took 0.15 s."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


@pytest.hookimpl(wrapper=True)
def without_lupa(item: pytest.Item) -> Generator[None, object, object]:
    """Leave out what runs in memory if lupa is not installed: it has few wheels."""
    try:
        return (yield)
    except ImportError as error:
        if "fastredlock[memory]" in str(error) and find_spec("lupa") is None:
            pytest.skip("no lupa is installed")
        raise


pytest_runtest_setup = pytest_runtest_call = without_lupa


@pytest.fixture(scope="module")
def thawed() -> Iterator[None]:
    """Let in_memory() find the clients of test modules among all objects."""
    gc.unfreeze()
    yield
    gc.collect()  # what is garbage by now would stay for ever
    gc.freeze()


@pytest.fixture
def may_make_mistakes() -> None:
    """Allow events of a wait queue that its table rules out, in this test."""


@pytest.fixture(autouse=True)
def no_mistakes(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail where a wait queue had an event that its table rules out."""
    before = queue_mistakes()
    yield
    is_allowed = "may_make_mistakes" in request.fixturenames
    assert is_allowed or queue_mistakes() == before


@pytest.fixture(autouse=True)
def free_handlers() -> Iterator[None]:
    """Release what an exception of a signal handler has left locked in `logging`.

    That acquires a handler's lock before its `try`. pytest's handlers serve all tests:
    a thread of a later one would wait for ever.
    """
    yield
    for handler in logging.getLogger().handlers:
        with suppress(RuntimeError):  # it is not locked by this thread
            while handler.lock is not None:
                handler.release()


@pytest.fixture(scope="session", autouse=True)
def quiet_lists() -> Iterator[None]:
    """Log no line about other clients' masters: tests share theirs, or some of them."""

    def is_of_the_test(record: logging.LogRecord) -> bool:
        return "another client has" not in record.getMessage()

    logger = logging.getLogger("fastredlock")
    logger.addFilter(is_of_the_test)
    yield
    logger.removeFilter(is_of_the_test)


@pytest.fixture(scope="session")
def shared_masters() -> Iterator[LocalMasters]:
    """Five masters that no test stops or pauses; take `servers` or `urls` instead."""
    with LocalMasters(5) as masters:
        yield masters


@pytest.fixture(scope="session")
def shared_servers(shared_masters: LocalMasters) -> Iterator[list[redis.Redis]]:
    """Raw access to the shared masters; take `servers` instead."""
    with ExitStack() as opened:
        yield [
            opened.enter_context(redis.Redis.from_url(url, protocol=2))
            for url in shared_masters.urls
        ]


@pytest.fixture
def servers(shared_servers: list[redis.Redis]) -> list[redis.Redis]:
    """Raw access to the five shared masters, emptied before each test.

    Clients that an earlier one has left open may have other lists of masters, of which
    each new client would be told: they are cut off.
    """
    for server in shared_servers:
        server.flushall()
        for client in server.client_list():
            if "|" in client["name"]:  # and its lists behind it
                server.client_kill_filter(_id=client["id"])
    return shared_servers


@pytest.fixture
def urls(shared_masters: LocalMasters, servers: list[redis.Redis]) -> list[str]:
    """Name the five shared masters, emptied before each test."""
    return shared_masters.urls


@pytest.fixture(scope="session")
def scripts_release(shared_servers: list[redis.Redis]) -> None:
    """Skip where the servers release by a command of their own: see `by_script`."""
    if any(shared_servers[0].execute_command("COMMAND INFO", "DELIFEQ", "DELEX")):
        pytest.skip("these servers release by a command, not by a script")


@pytest.fixture
def masters() -> Iterator[LocalMasters]:
    """Start five masters for one test, which may stop, start and pause them."""
    with LocalMasters(5) as masters:
        yield masters


@pytest.fixture
def one_master() -> Iterator[LocalMasters]:
    with LocalMasters(1) as masters:
        yield masters


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def raw() -> Iterator[Callable[..., redis.Redis]]:
    """Return a function from a URL to a redis-py client, closed after the test."""
    with ExitStack() as opened:
        yield lambda url, **options: opened.enter_context(
            redis.Redis.from_url(url, protocol=2, **options)
        )


OVER_DRIVERS = (
    *("tests.behaviour.", "tests.faults.", "tests.setups.test_credentials"),
    *("tests.setups.test_otel", "tests.setups.test_prometheus"),
    "tests.setups.test_changing_masters",
    "tests.setups.test_tls",
)
OVER_LOOPS = (
    *("test_closing", "test_outages", "test_masters", "test_connections"),
    *("test_late", "test_credentials", "test_tls"),
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test over the drivers, where it is not marked for some of them."""
    marks = metafunc.definition.iter_markers("parametrize")
    name = metafunc.module.__name__
    if (
        name.startswith(OVER_DRIVERS)
        and "driver" in metafunc.fixturenames
        and not any("driver" in mark.args for mark in marks)
    ):
        drivers = DRIVERS if name.endswith(OVER_LOOPS) else DRIVERS[:2]
        metafunc.parametrize("driver", drivers, indirect=True)


@pytest.fixture
def driver(request: pytest.FixtureRequest) -> str:
    """Name the driver of the engine."""
    return str(getattr(request, "param", "blocking"))


@pytest.fixture
def make_locks(driver: str) -> Iterator[Callable[..., FastRedlock]]:
    """Return what makes a FastRedlock for a test and closes it after the test.

    The only place that does. Where an event loop drives, it is the awaitable one under
    the names of the blocking one.
    """
    with ExitStack() as made:
        make: Callable[..., Any] = FastRedlock
        if driver != "blocking":
            thread = LoopThread(driver)
            made.callback(thread.close)
            make = partial(awaited_locks, thread)
        yield lambda masters, *args, **options: made.enter_context(
            make(masters, *args, **options)
        )


@pytest.fixture
def holder(make_locks: Callable[..., FastRedlock], urls: list[str]) -> FastRedlock:
    """Make another one, which is connected as well."""
    locks = make_locks(urls)
    locks.connect()
    return locks


@pytest.fixture
def locks(make_locks: Callable[..., FastRedlock], urls: list[str]) -> FastRedlock:
    """Make a FastRedlock that is connected to the five shared masters."""
    locks = make_locks(urls)
    locks.connect()
    return locks
