"""pottery's Redlock and AIORedlock, theirs and ours, behind one blocking face.

The fixture `pottery` gives all four, one after the other. A test for some of them says
which: `BLOCKING`, or `not_copied(...)` where theirs has to fail.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest
import redis
from redis.asyncio import Redis as AIORedis
from redis.asyncio.retry import Retry as AIORetry
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.support.awaited import Awaited
from tests.support.keys import KEY
from tests.support.two_libraries import load

PAIR = ("pottery", "fastredlock.compat.pottery")
OURS = PAIR[1]
STORED = f"redlock:{KEY}"
UUID = rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"

MODULES = {"theirs": PAIR[0], "ours": PAIR[1]}
EVERY_FACE = ["theirs", "ours", "theirs-asyncio", "ours-asyncio"]
BLOCKING = pytest.mark.parametrize("pottery", ["theirs", "ours"], indirect=True)


def not_copied(*bugs_of: str, is_by_chance: bool = False) -> pytest.MarkDecorator:
    """Run a test with these faces, which have the bug, and with ours of each."""
    reason = "their bug, which is not copied"
    fails = pytest.mark.xfail(strict=not is_by_chance, reason=reason)
    faces = [
        face
        for bug_of in bugs_of
        for face in (
            pytest.param(bug_of, marks=fails),
            bug_of.replace("theirs", "ours"),
        )
    ]
    return pytest.mark.parametrize("pottery", faces, indirect=True)


class Face:
    """One of the four; names that it does not have are the module's."""

    def __init__(
        self, module: ModuleType, loop: asyncio.AbstractEventLoop | None
    ) -> None:
        self.module = module
        self.loop = loop
        self.name = "Redlock" if loop is None else "AIORedlock"
        self._clients: list[Any] = []

    @classmethod
    @contextmanager
    def named(cls, name: str) -> Iterator[Face]:
        """Load it, with a loop of its own if it needs one; close all it made."""
        library, _, driver = name.partition("-")
        module = load(MODULES[library])
        if name == "ours-asyncio":
            load("fastredlock.asyncio")
        face = cls(module, asyncio.new_event_loop() if driver else None)
        try:
            yield face
        finally:
            face.close()

    def Redlock(self, **options: Any) -> Any:  # noqa: N802 - its name
        """Make a Redlock, or an AIORedlock that is driven by the loop."""
        made = getattr(self.module, self.name)(**options)
        return (
            made if self.loop is None else Awaited(self.loop.run_until_complete, made)
        )

    def clients(self, urls: list[str]) -> Any:
        """Make a set of clients that do not try for seconds when a server is gone."""
        return {self.client(url) for url in urls}

    def client(self, url: str, **options: Any) -> Any:
        """Make a client as this face needs it."""
        if self.loop is None:
            client: Any = redis.Redis.from_url(
                url, retry=Retry(NoBackoff(), 0), **options
            )
        else:
            client = AIORedis.from_url(url, retry=AIORetry(NoBackoff(), 0), **options)
        self._clients.append(client)
        return client

    def close(self) -> None:
        """Close what it made."""
        for client in self._clients:
            if self.loop is None:
                client.close()
            else:
                self.loop.run_until_complete(client.aclose())
        if self.loop is not None:
            self.loop.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.module, name)


def values(servers: list[redis.Redis]) -> list[Any]:
    """Return what each server stores."""
    return [server.get(STORED) for server in servers]


def set_all(servers: list[redis.Redis], value: bytes, **options: Any) -> None:
    """Let somebody else hold it on these servers."""
    for server in servers:
        server.set(STORED, value, **options)
