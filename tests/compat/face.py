"""A library, theirs or ours, on the five shared masters: the base of all faces."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cached_property
from types import ModuleType
from typing import Any

import pytest
import redis
from redis.asyncio import Redis as AIORedis
from redis.asyncio.retry import Retry as AIORetry
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.support.awaited import Awaited
from tests.support.fixtures import Servers
from tests.support.keys import KEY
from tests.support.two_libraries import load
from tests.support.waiting import wait_until

ANOTHER = b"another's"


class Face:
    """A module and its masters; names that it does not have are the module's."""

    key = KEY  # of the lock on the masters

    def __init__(self, name: str, urls: list[str], servers: Servers) -> None:
        self.module: ModuleType = load(name.partition("-")[0])
        self.name, self.urls, self.servers = name, urls, servers
        self.is_ours = name.startswith("fastredlock")
        self.opened = ExitStack()

    @property
    def server(self) -> redis.Redis:
        return self.servers[0]

    @cached_property
    def clients(self) -> list[Any]:
        """One client for each of the masters, closed after the test."""
        return [self.client(url) for url in self.urls]

    def client(self, url: str = "", **options: Any) -> Any:
        """Make a client that does not try again for seconds."""
        options = {"retry": Retry(NoBackoff(), 0), **options}
        client = redis.Redis.from_url(url or self.urls[0], **options)
        return self.opened.enter_context(client)

    def values(self) -> list[Any]:
        return [server.get(self.key) for server in self.servers]

    def is_free(self, within: float | None = None) -> bool:
        """Return whether no server has the lock, or soon has it no more.

        A SET of theirs may come behind their release, by chance: it ends by its ttl.
        """
        within = within or (8.0 if self.is_ours else 12.0)
        return wait_until(lambda: set(self.values()) == {None}, within)

    def set(self, value: Any = ANOTHER, count: int = 5, **options: Any) -> None:
        """Let somebody else hold the lock on so many servers."""
        for server in self.servers[:count]:
            server.set(self.key, value, **options)

    def lefts_ms(self) -> list[int]:
        """Return what the lock has left on those of the servers that have it."""
        lefts = [server.pttl(self.key) for server in self.servers]
        return [left for left in lefts if left != -2]

    def close(self) -> None:
        self.opened.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.module, name)


class LoopFace(Face):
    """A face with a loop of its own; its clients are awaited where its name says so."""

    def __init__(self, name: str, urls: list[str], servers: Servers) -> None:
        super().__init__(name, urls, servers)
        self.is_awaited = "asyncio" in name
        if self.is_ours and self.is_awaited:
            load("fastredlock.asyncio")
        self.loop = asyncio.new_event_loop()
        self.run = self.loop.run_until_complete

    def client(self, url: str = "", **options: Any) -> Any:
        if not self.is_awaited:
            return super().client(url, **options)
        options = {"retry": AIORetry(NoBackoff(), 0), **options}
        client = AIORedis.from_url(url or self.urls[0], **options)
        self.opened.callback(lambda: self.run(client.aclose()))
        return client

    def usable(self, lock: Any) -> Any:
        """Return the lock as a blocking one."""
        return Awaited(lambda work: self.run(work()), lock) if self.is_awaited else lock

    def close(self) -> None:
        super().close()
        self.loop.close()


def faces(cls: Any, *names: str, bug_of: tuple[str, ...] = ()) -> Any:
    """Return a fixture: a test runs with each; those in `bug_of` have to fail."""
    fails = pytest.mark.xfail(strict=True, reason="their bug, which is not copied")
    params = [
        pytest.param(name, marks=fails if name in bug_of else (), id=name)
        for name in names
    ]

    @pytest.fixture(params=params)
    def face(
        request: pytest.FixtureRequest, urls: list[str], servers: Servers
    ) -> Iterator[Any]:
        made = cls(request.param, urls, servers)
        try:
            yield made
        finally:
            made.close()

    return face
