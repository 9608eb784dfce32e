"""Three masters, and the journal of one test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis

from fastredlock.testing import LocalMasters

from .programs import Journal, Trouble


@pytest.fixture(scope="session")
def three() -> Iterator[LocalMasters]:
    """Three masters for all programs; nothing is left on them after a test's ttls."""
    with LocalMasters(3) as masters:
        yield masters


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal")


@pytest.fixture
def emptied(three: LocalMasters) -> LocalMasters:
    """The masters, without the keys of programs that were killed."""
    for url in three.urls:
        with redis.Redis.from_url(url) as server:
            server.flushall()
    return three


@pytest.fixture(params=["stopped", "cut off"])
def trouble(request: pytest.FixtureRequest, emptied: LocalMasters) -> Iterator[Trouble]:
    """Return what a process gets into, after which it must have stopped."""
    with ExitStack() as opened:
        yield Trouble(request.param, emptied.urls, opened)
