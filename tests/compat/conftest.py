"""The libraries under test as fixtures, wherever that is more than a module."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import redis

from tests.compat.aioredlock import face as aioredlock_face
from tests.compat.pottery.face import EVERY_FACE, Face
from tests.support.waiting import wait_until


@pytest.fixture(params=EVERY_FACE)
def pottery(request: pytest.FixtureRequest) -> Iterator[Face]:
    """pottery, blocking and awaitable, then what replaces it; see `pottery.face`."""
    before = threading.active_count()
    with Face.named(request.param) as face:
        yield face
    # What their threads still send would reach the next test.
    assert wait_until(lambda: threading.active_count() <= before)


@pytest.fixture
def clients(pottery: Face, urls: list[str]) -> set[redis.Redis]:
    """One client of redis-py for each of the five shared masters, emptied before."""
    made: set[redis.Redis] = pottery.clients(urls)
    return made


@pytest.fixture(params=aioredlock_face.PAIR, ids=["theirs", "ours"])
def aioredlock(request: pytest.FixtureRequest) -> Iterator[aioredlock_face.Face]:
    """aioredlock, then what replaces it; see `aioredlock.face`."""
    with aioredlock_face.Face.of(request.param) as face:
        yield face
