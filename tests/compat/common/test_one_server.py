"""Databases of one server as masters, which the replaced libraries take."""

from __future__ import annotations

import logging
from contextlib import closing

import pytest
import redis

from fastredlock import ConfigurationError, FastRedlock
from fastredlock.compat.redis import Lock
from fastredlock.compat.redlock import Redlock
from fastredlock.testing import LocalMasters
from tests.compat.common.test_processes import PAIRS
from tests.support.keys import KEY
from tests.support.library_process import KINDS
from tests.support.two_libraries import load

MANY = ("aioredlock", "pottery", "pottery-asyncio", "redlock-py")


@pytest.fixture
def databases(masters: LocalMasters) -> list[str]:
    return [f"{masters.urls[0].removesuffix('/0')}/{db}" for db in range(1, 6)]


@pytest.mark.parametrize(
    ("kind", "module"), [(kind, name) for kind in MANY for name in PAIRS[kind]]
)
def test_library_locks_on_databases_of_one_server(
    kind: str, module: str, databases: list[str]
) -> None:
    made = KINDS[kind]
    with (
        closing(made(load(module), KEY, databases)) as lock,
        closing(made(load(module), KEY, databases)) as other,
    ):
        assert lock.take()
        assert not other.take()
        lock.release()
        assert other.take()
        other.release()


def test_databases_of_one_server_are_warned_of(
    databases: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    Redlock(databases)
    assert "fail together: use independent servers" in caplog.text
    renamed = [databases[0], databases[1].replace("127.0.0.1", "localhost")]
    assert Redlock(renamed, retry_count=1).lock(KEY, 5000)
    assert "is the same server as" in caplog.text


def test_one_database_under_two_names_has_one_vote(databases: list[str]) -> None:
    renamed = [databases[0], databases[0].replace("127.0.0.1", "localhost")]
    assert Redlock(renamed, retry_count=1).lock(KEY, 5000) is False


def test_databases_of_one_server_stay_refused_elsewhere(databases: list[str]) -> None:
    with pytest.raises(ConfigurationError, match="the same server"):
        FastRedlock(databases)
    with pytest.raises(ConfigurationError, match="the same server"):
        Lock(list(map(redis.Redis.from_url, databases)), KEY, timeout=5)
