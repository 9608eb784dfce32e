"""The Django cache backend of python-redis-lock and ours: one body for both."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest
import redis

from tests.support.two_libraries import differing, surface

conf = pytest.importorskip("django.conf")
pytest.importorskip("django_redis")

MODULES = ("redis_lock.django_cache", "fastredlock.compat.redis_lock.django_cache")


@pytest.fixture(scope="module", autouse=True)
def _django() -> None:
    if not conf.settings.configured:
        conf.settings.configure()


def cache_of(module: str, url: str, **options: Any) -> Any:
    """Make a cache as Django does it from its settings."""
    from django.core.cache import CacheHandler

    backend = f"{module}.RedisCache"
    settings = {"BACKEND": backend, "LOCATION": url, "OPTIONS": options}
    return CacheHandler({"default": settings})["default"]


@contextmanager
def opened(module: str, url: str) -> Iterator[Any]:
    """Make a cache whose connections are closed at the end of the block."""
    made = cache_of(module, url)
    try:
        yield made
    finally:
        made.client.get_client().connection_pool.disconnect()


@pytest.fixture(params=MODULES, ids=["theirs", "ours"])
def cache(request: pytest.FixtureRequest, urls: list[str]) -> Iterator[Any]:
    with opened(request.param, urls[0]) as made:
        yield made


@pytest.fixture
def server(servers: list[redis.Redis]) -> redis.Redis:
    """Raw access to the one master."""
    return servers[0]


def test_surface_is_the_same() -> None:
    modules = [pytest.importorskip(name) for name in MODULES]
    theirs, ours = (surface(module, ["RedisCache"]) for module in modules)
    assert differing(theirs, ours) == set()


def test_lock_is_that_of_python_redis_lock(cache: Any, server: redis.Redis) -> None:
    with cache.lock("a", expire=5) as lock:
        assert server.get("lock:a") == lock.id.encode()
        assert 0 < server.ttl("lock:a") <= 5
        assert not cache.lock("a").acquire(blocking=False)
        cache.lock("a", id=lock.id, auto_renewal=False).extend(9)
        assert 5 < server.ttl("lock:a") <= 9
    assert server.keys() == [b"lock-signal:a"]


def test_value_that_is_missing_is_made_once(cache: Any) -> None:
    made: list[int] = []

    def make() -> int:
        time.sleep(0.01)
        made.append(42)
        return 42

    threads = [
        threading.Thread(target=cache.locked_get_or_set, args=["k", make])
        for _ in range(5)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cache.locked_get_or_set("k", make) == 42
    assert made == [42]


def test_value_is_made_under_the_lock_and_kept_as_told(
    cache: Any, server: redis.Redis
) -> None:
    held: list[list[bytes]] = []

    def make() -> str:
        held.append(sorted(cast("list[bytes]", server.keys("lock:*"))))
        return "v"

    assert cache.locked_get_or_set("k", make, timeout=50, version=7) == "v"
    assert 0 < cache.ttl("k", version=7) <= 50
    assert cache.locked_get_or_set("j", make, lock_key="mine", expire=9) == "v"
    assert held == [[b"lock:get_or_set:k"], [b"lock:mine"]]


def test_value_that_is_none_is_refused(cache: Any) -> None:
    with pytest.raises(ValueError, match=r"^`value_creator` must return"):
        cache.locked_get_or_set("k", lambda: None)


def test_reset_all_frees_all_locks(cache: Any) -> None:
    locks = [cache.lock(name) for name in ("a", "b")]
    for lock in locks:
        lock.acquire()
    cache.reset_all()
    assert not any(lock.locked() for lock in locks)


@pytest.mark.parametrize("module", MODULES)
def test_client_class_without_a_raw_client_is_refused(
    module: str, urls: list[str]
) -> None:
    sharded = "django_redis.client.ShardClient"
    cache = cache_of(module, urls[0], CLIENT_CLASS=sharded)
    with pytest.raises(NotImplementedError, match="doesn't have a raw client"):
        cache.lock("a")


def test_locks_of_both_libraries_exclude_each_other(urls: list[str]) -> None:
    theirs, ours = MODULES
    with opened(theirs, urls[0]) as first, opened(ours, urls[0]) as second:
        with first.lock("a"):
            assert not second.lock("a").acquire(blocking=False)
        with second.lock("a"):
            assert not first.lock("a").acquire(blocking=False)
