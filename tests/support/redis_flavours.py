"""redis-py's Lock in four flavours behind one face.

`flavours` is a fixture that gives theirs and ours, blocking and asyncio, one after the
other; a `Flavour` makes clients and locks, and an awaitable lock of it can be used as
if it were a blocking one.
"""

from __future__ import annotations

import asyncio
import importlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.support.awaited import Awaited
from tests.support.keys import KEY

OURS, OURS_ASYNCIO = "fastredlock.compat.redis", "fastredlock.compat.redis.asyncio"
THEIRS, THEIRS_ASYNCIO = "redis.lock", "redis.asyncio.lock"


class Flavour:
    """One library's Lock, blocking or awaitable, on one server."""

    def __init__(self, module: str, url: str) -> None:
        self.is_ours = module in (OURS, OURS_ASYNCIO)
        self.is_asyncio = module in (THEIRS_ASYNCIO, OURS_ASYNCIO)
        self.module = load(module)
        self.url = url
        self.loop = asyncio.new_event_loop() if self.is_asyncio else None
        self._clients: list[Any] = []
        self.default_client = self.client()

    def client(self, url: str | None = None, **options: Any) -> Any:
        """Make a client that does not try again for seconds."""
        kind: Any = redis.asyncio.Redis if self.is_asyncio else redis.Redis
        retry: Any = importlib.import_module(kind.__module__.replace("client", "retry"))
        options.setdefault("retry", retry.Retry(NoBackoff(), 0))
        client = kind.from_url(url or self.url, **options)
        self._clients.append(client)
        return client

    def lock(self, name: Any = KEY, client: Any = None, **options: Any) -> Any:
        """Make a lock; `client` may be a list of them where it is ours."""
        client = client or self.default_client
        return self.usable(self.module.Lock(client, name, **options))

    def usable(self, lock: Any) -> Any:
        """Return the lock as a blocking one."""
        return Awaited(self.loop.run_until_complete, lock) if self.loop else lock

    def close(self) -> None:
        for client in self._clients:
            if self.loop:
                self.loop.run_until_complete(client.aclose())
            else:
                client.close()
        if self.loop:
            self.loop.close()


def load(module: str) -> Any:
    """Import a module, or skip the test where what it stands on is not there."""
    return pytest.importorskip(module, exc_type=ImportError)


def flavours(*modules: str, bug_of: tuple[str, ...] = ()) -> Any:
    """Return a fixture: a test runs with each; those in `bug_of` have to fail."""
    fails = pytest.mark.xfail(strict=True, reason="their bug, which is not copied")
    marked = [
        pytest.param(module, marks=fails if module in bug_of else (), id=module)
        for module in modules
    ]

    @pytest.fixture(params=marked)
    def flavour(request: pytest.FixtureRequest, urls: list[str]) -> Iterator[Flavour]:
        made = Flavour(request.param, urls[0])
        yield made
        made.close()

    return flavour


def impatient(url: str, **options: Any) -> redis.Redis:
    """Return a blocking client that does not try again."""
    options.setdefault("retry", Retry(NoBackoff(), 0))
    return redis.Redis.from_url(url, **options)


def connections(server: redis.Redis) -> int:
    """Count the connections of a server, with the one that asks."""
    return len(server.client_list())


def count_together(locks: list[Any], times: int = 20) -> int:
    """Count under the locks, one thread for each; fewer than all is a lost update."""
    total = 0

    def count(lock: Any) -> None:
        nonlocal total
        for _ in range(times):
            with lock:
                value = total
                time.sleep(0.0005)
                total = value + 1

    threads = [threading.Thread(target=count, args=[lock]) for lock in locks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return total


def cluster() -> Any:
    """Make a client of redis-py whose settings a lock cannot copy."""
    client = redis.RedisCluster.__new__(redis.RedisCluster)
    client.nodes_manager = None  # type: ignore[assignment]
    return client
