"""The table of migration/README.md: which key each library locks, and beside whom."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
import redis
from kombu.transport.redis import PrefixedStrictRedis

from fastredlock import FastRedlock
from fastredlock._options.keys import unprefixed
from fastredlock._reports.log import logged
from fastredlock.compat import pottery, redis_lock
from fastredlock.compat.redis import Lock
from tests.docs.documents import ROOT, rows
from tests.support.fixtures import Servers
from tests.support.keys import KEY
from tests.support.library_process import KINDS
from tests.support.two_libraries import load

PAGE = ROOT / "docs" / "migration" / "README.md"
HEADING = "## Which key a lock has"


class Django:
    """`cache.lock` of django-redis, which hands the key on to redis-py's Lock."""

    def __init__(self, module: Any, key: str, urls: list[str]) -> None:
        from django.conf import settings
        from django.core.cache import CacheHandler

        if not settings.configured:
            settings.configure()
        backend = "django_redis.cache.RedisCache"
        given = {"default": {"BACKEND": backend, "LOCATION": urls[0]}}
        self.client = CacheHandler(given)["default"]
        key = self.client.make_key(key)
        self.lock = module.Lock(redis.Redis.from_url(urls[0]), key, 20)

    def take(self) -> bool:
        return bool(self.lock.acquire(blocking=False))

    def release(self) -> None:
        self.lock.release()

    def close(self) -> None:
        self.lock.redis.close()


class Kombu(Django):
    def __init__(self, module: Any, key: str, urls: list[str]) -> None:
        pool = redis.ConnectionPool.from_url(urls[0])
        client = PrefixedStrictRedis(connection_pool=pool, global_keyprefix="shop:")
        self.lock = client.lock(key, 20, lock_class=module.Lock)


REDIS = ("redis.lock", "fastredlock.compat.redis")
LIBRARIES: dict[str, tuple[Any, tuple[str, str]]] = {  # by the first word of a row
    "redlock-py": (KINDS["redlock-py"], ("redlock", "fastredlock.compat.redlock")),
    "aioredlock": (
        KINDS["aioredlock"],
        ("aioredlock", "fastredlock.compat.aioredlock"),
    ),
    "pottery": (KINDS["pottery"], ("pottery", "fastredlock.compat.pottery")),
    "redis-py's": (KINDS["redis-py"], REDIS),
    "django-redis's": (Django, REDIS),
    "Kombu": (Kombu, REDIS),
    "python-redis-lock": (
        KINDS["redis-lock"],
        ("redis_lock", "fastredlock.compat.redis_lock"),
    ),
}


class Row:
    """A row of the page, as it is written there."""

    def __init__(self, library: str, key: str, masters: str, option: str) -> None:
        self.library, self.is_one = library, masters == "one"
        self.key = re.findall("`(.*?)`", key)[0]
        found = re.search(r'`key_prefix="(.*)"`', option)
        self.prefix = found[1] if found else ""


ROWS = [
    Row(library, *cells)
    for names, *cells in rows(PAGE, HEADING)
    for library in re.split(r", (?=aioredlock)", names)
]
CASES = [
    pytest.param(row, module, id=f"{row.library.split()[0]}-{module}")
    for row in ROWS
    for module in LIBRARIES[row.library.split()[0]][1]
]


def test_page_has_a_row_for_every_library() -> None:
    assert [row.library.split()[0] for row in ROWS] == list(LIBRARIES)


@pytest.fixture
def lock(row: Row, module: str, urls: list[str]) -> Iterator[Any]:
    kind = LIBRARIES[row.library.split()[0]][0]
    used = urls[:1] if row.is_one else urls[:3]
    with closing(kind(load(module), KEY, used)) as lock:
        yield lock


@pytest.mark.parametrize(("row", "module"), CASES)
def test_library_and_fastredlock_with_the_prefix_of_its_row_exclude_each_other(
    row: Row, module: str, lock: Any, urls: list[str], servers: Servers
) -> None:
    used = 1 if row.is_one else 3
    options: Any = {"key_prefix": row.prefix, "round_timeout": 2}
    with FastRedlock(urls[:used], **options) as locks:
        assert lock.take()
        assert sum(server.exists(row.key) for server in servers[:used]) > used // 2
        assert locks.acquire(KEY, timeout=0) is None
        lock.release()
        with locks.lock(KEY):
            assert sum(server.exists(row.key) for server in servers[:used]) > used // 2
            assert not lock.take()


@pytest.mark.parametrize(("row", "module"), CASES)
def test_library_beside_another_key_or_three_masters_excludes_nobody_as_the_page_warns(
    row: Row, module: str, lock: Any, urls: list[str]
) -> None:
    assert lock.take()
    if row.prefix:
        with FastRedlock(urls[:1] if row.is_one else urls[:3]) as locks:
            assert locks.acquire(KEY, timeout=8) is not None
    if row.is_one:
        with FastRedlock(urls[:3], key_prefix=row.prefix) as locks:
            assert locks.acquire(KEY, timeout=8) is not None


# --- the warning ----------------------------------------------------------------------

PREFIXED: dict[str, Callable[[str], Any]] = {
    "lock:": lambda url: redis_lock.Lock(redis.Redis.from_url(url), KEY),
    "redlock:": lambda url: pottery.Redlock(
        key=KEY, masters={redis.Redis.from_url(url)}
    ),
    "shop:": lambda url: Kombu(load("fastredlock.compat.redis"), KEY, [url]),
}


@pytest.fixture(autouse=True)
def nothing_logged() -> None:
    for each in list(unprefixed):  # of other tests, and not collected yet
        unprefixed.discard(each)
    logged.difference_update({text for text in logged if "key_prefix" in text})


@pytest.mark.parametrize("prefix", PREFIXED)
def test_lock_with_a_prefix_beside_a_fastredlock_without_warns_once(
    prefix: str, urls: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    make = PREFIXED[prefix]
    with FastRedlock(urls[:1], key_prefix=prefix):
        make(urls[0])
        Lock(redis.Redis.from_url(urls[0]), KEY)
        assert not warnings(caplog)  # the replacements have FastRedlocks of their own
        with FastRedlock(urls[:1]):
            make(urls[0]), make(urls[0])
    (warning,) = warnings(caplog)
    assert f"'{prefix}{KEY}'" in warning
    assert f"key_prefix='{prefix}'" in warning


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [text for text in caplog.messages if "key_prefix" in text]
