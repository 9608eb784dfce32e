"""Whatever a logging handler does, a warning breaks no call."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fastredlock import FastRedlock, ReleaseStatus
from fastredlock.testing import LocalMasters
from tests.support.calls import granted
from tests.support.fixtures import MakeLocks
from tests.support.keys import KEY


class Handler(logging.Handler):
    """Do something at each record; what it raises is raised."""

    def __init__(self, work: Callable[[], object]) -> None:
        super().__init__()
        self.work = work
        self.texts: list[str] = []

    def handle(self, record: logging.LogRecord) -> bool:
        self.texts.append(record.getMessage())
        self.work()
        return True


@pytest.fixture
def handle() -> Iterator[Callable[[Callable[[], object]], Handler]]:
    """Return what gives the package's logger a handler for one test."""
    logger = logging.getLogger("fastredlock")
    added = []

    def add(work: Callable[[], object]) -> Handler:
        added.append(Handler(work))
        logger.addHandler(added[-1])
        return added[-1]

    yield add
    for handler in added:
        logger.removeHandler(handler)


@pytest.fixture(scope="module")
def evicting() -> Iterator[LocalMasters]:
    """Start a master that evicts keys: each client is warned of it."""
    options = ("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
    with LocalMasters(1, options=options) as masters:
        yield masters


def fail() -> None:
    raise ValueError("from the handler")


def pair(locks: FastRedlock, key: str = KEY) -> None:
    assert granted(locks.acquire(key)).release() is ReleaseStatus.RELEASED


@pytest.mark.parametrize("prints", [True, False])
def test_warning_when_the_handler_raises_then_the_call_goes_on_and_it_is_told_once(
    evicting: LocalMasters, make_locks: MakeLocks, handle: Callable[..., Handler],
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, prints: bool,
) -> None:  # fmt: skip
    monkeypatch.setattr(logging, "raiseExceptions", prints)
    handler = handle(fail)
    locks = make_locks(evicting.urls)
    for _ in range(3):
        pair(locks)
    (text,) = handler.texts
    assert "evicts" in text
    printed = capsys.readouterr().err
    assert "ValueError: from the handler" in printed if prints else printed == ""


def test_warning_when_the_handler_takes_a_lock_then_it_is_told_once(
    evicting: LocalMasters, handle: Callable[..., Handler]
) -> None:
    with FastRedlock(evicting.urls) as locks:
        handler = handle(lambda: pair(locks, "the handler's"))
        pair(locks)
    assert len(handler.texts) == 1


def test_warning_when_the_handler_makes_a_client_each_time_then_has_an_end(
    evicting: LocalMasters, handle: Callable[..., Handler]
) -> None:
    even: list[Any] = [*evicting.urls, ("127.0.0.1", 1)]
    handler = handle(lambda: FastRedlock(even))
    FastRedlock(even)
    assert len(handler.texts) == 1
