"""Databases of one server as masters, which the replaced libraries take."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from fastredlock import ConfigurationError, FastRedlock
from fastredlock.compat.redis import Lock
from fastredlock.testing import LocalMasters
from tests.compat.aioredlock.face import Face as AioredlockFace
from tests.compat.pottery.face import EVERY_FACE, Face
from tests.support.keys import KEY
from tests.support.two_libraries import load

pytestmark = pytest.mark.filterwarnings("ignore:distutils Version classes")

NAMES = ["redlock", "fastredlock.compat.redlock"]
DATABASES = range(1, 6)


@pytest.fixture
def databases(masters: LocalMasters) -> list[str]:
    """Name five databases of one server."""
    return [f"{masters.urls[0].removesuffix('/0')}/{db}" for db in DATABASES]


@pytest.fixture(params=EVERY_FACE)
def pottery(request: pytest.FixtureRequest) -> Iterator[Face]:
    """Give all four of pottery's locks, theirs and ours."""
    with Face.named(request.param) as face:
        yield face


@pytest.fixture(params=["aioredlock", "fastredlock.compat.aioredlock"])
def aioredlock(request: pytest.FixtureRequest) -> Iterator[AioredlockFace]:
    """Give theirs, then ours."""
    with AioredlockFace.of(request.param) as face:
        yield face


def test_pottery_locks_on_databases_of_one_server(
    pottery: Face, databases: list[str]
) -> None:
    masters = pottery.clients(databases)
    lock = pottery.Redlock(key=KEY, masters=masters, auto_release_time=5)
    other = pottery.Redlock(key=KEY, masters=masters, auto_release_time=5)
    assert lock.acquire(blocking=False)
    assert not other.acquire(blocking=False)
    lock.release()
    assert other.acquire(blocking=False)
    other.release()


def test_aioredlock_locks_on_databases_of_one_server(
    aioredlock: AioredlockFace, databases: list[str]
) -> None:
    manager = aioredlock.manager(databases)
    lock = aioredlock.run(manager.lock(KEY, 5))
    with pytest.raises(aioredlock.LockError):
        aioredlock.run(manager.lock(KEY, 5))
    aioredlock.run(lock.release())
    assert not aioredlock.run(manager.is_locked(KEY))


@pytest.mark.parametrize("name", NAMES)
def test_redlock_py_locks_on_databases_of_one_server(
    name: str, databases: list[str]
) -> None:
    manager = load(name).Redlock(databases, retry_count=1)
    lock = manager.lock(KEY, 5000)
    assert lock
    assert manager.lock(KEY, 5000) is False
    manager.unlock(lock)
    assert manager.lock(KEY, 5000)


def test_databases_of_one_server_are_warned_of(
    databases: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    load(NAMES[1]).Redlock(databases)
    assert "fail together: use independent servers" in caplog.text


def test_databases_of_one_server_under_two_names_are_warned_of(
    databases: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    renamed = [databases[0], databases[1].replace("127.0.0.1", "localhost")]
    manager = load(NAMES[1]).Redlock(renamed, retry_count=1)
    assert manager.lock(KEY, 5000)
    assert "is the same server as" in caplog.text


def test_one_database_under_two_names_has_one_vote(databases: list[str]) -> None:
    renamed = [databases[0], databases[0].replace("127.0.0.1", "localhost")]
    manager = load(NAMES[1]).Redlock(renamed, retry_count=1)
    assert manager.lock(KEY, 5000) is False


def test_databases_of_one_server_stay_refused_elsewhere(databases: list[str]) -> None:
    with pytest.raises(ConfigurationError, match="the same server"):
        FastRedlock(databases)
    clients: list[Any] = [redis.Redis.from_url(url) for url in databases]
    with pytest.raises(ConfigurationError, match="the same server"):
        Lock(clients, KEY, timeout=5)
