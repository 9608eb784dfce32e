"""The Django cache backend of python-redis-lock and ours: one body for both."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from tests.compat import face as base
from tests.compat.redis_lock.face import PAIR
from tests.support.threads import in_threads

conf = pytest.importorskip("django.conf")
pytest.importorskip("django_redis")


class Face(base.Face):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.cache = self.made()
        pool = self.cache.client.get_client().connection_pool
        self.opened.callback(pool.disconnect)

    def made(self, **options: Any) -> Any:
        """Make a cache as Django does it from its settings."""
        from django.core.cache import CacheHandler

        if not conf.settings.configured:
            conf.settings.configure()
        settings = {"LOCATION": self.urls[0], "OPTIONS": options}
        backend = {"BACKEND": f"{self.name}.RedisCache", **settings}
        return CacheHandler({"default": backend})["default"]


face = base.faces(Face, *(f"{name}.django_cache" for name in PAIR))


def test_lock_is_that_of_python_redis_lock(face: Face) -> None:
    cache, server = face.cache, face.server
    with cache.lock("a", expire=5) as lock:
        assert server.get("lock:a") == lock.id.encode()
        assert 0 < server.ttl("lock:a") <= 5
        cache.lock("a", id=lock.id, auto_renewal=False).extend(9)
        assert 5 < server.ttl("lock:a") <= 9
        for name in PAIR:
            other = Face(f"{name}.django_cache", face.urls, face.servers)
            assert not other.cache.lock("a").acquire(blocking=False)
            other.close()
    assert server.keys() == [b"lock-signal:a"]


def test_value_that_is_missing_is_made_once(face: Face) -> None:
    made, together = list[int](), threading.Barrier(5)

    def make() -> int:
        made.append(42)
        return 42

    def ask() -> Any:
        together.wait()
        return face.cache.locked_get_or_set("k", make)

    assert in_threads([ask] * 5) == [42] * 5
    assert made == [42]


def test_value_is_made_under_the_lock_and_kept_as_told(face: Face) -> None:
    held: list[list[bytes]] = []
    ask = face.cache.locked_get_or_set

    def make() -> str:
        held.append(sorted(cast("list[bytes]", face.server.keys("lock:*"))))
        return "v"

    assert ask("k", make, timeout=50, version=7) == "v"
    assert 0 < face.cache.ttl("k", version=7) <= 50
    assert ask("k", make, version=7) == "v"  # it is there, and no lock is taken
    assert ask("j", make, lock_key="mine", expire=9) == "v"
    assert held == [[b"lock:get_or_set:k"], [b"lock:mine"]]
    with pytest.raises(ValueError, match=r"^`value_creator` must return"):
        ask("none", lambda: None)


def test_client_class_without_a_raw_client_is_refused(face: Face) -> None:
    cache = face.made(CLIENT_CLASS="django_redis.client.ShardClient")
    with pytest.raises(NotImplementedError, match="doesn't have a raw client"):
        cache.lock("a")
