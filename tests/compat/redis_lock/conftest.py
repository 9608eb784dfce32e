"""python-redis-lock and what replaces it, with a client and its master."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from tests.compat.redis_lock.face import PAIR
from tests.support.redis_flavours import impatient
from tests.support.two_libraries import library, not_copied

module = library(*PAIR)
better = not_copied(*PAIR)


@pytest.fixture
def server(servers: list[redis.Redis]) -> redis.Redis:
    """Raw access to the one master."""
    return servers[0]


@pytest.fixture
def client(urls: list[str]) -> Iterator[redis.Redis]:
    with impatient(urls[0]) as made:
        yield made


@pytest.fixture(params=[False, True], ids=["bytes", "decoded"])
def any_client(
    request: pytest.FixtureRequest, urls: list[str]
) -> Iterator[redis.Redis]:
    with impatient(urls[0], decode_responses=request.param) as made:
        yield made
