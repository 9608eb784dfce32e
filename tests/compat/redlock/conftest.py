"""redlock-py, then what replaces it, and clients of their masters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.compat.redlock.face import PAIR, Impatient
from tests.support.two_libraries import library

redlock = library(*PAIR)


@pytest.fixture
def impatient() -> Iterator[Impatient]:
    """Return a function from URLs to clients that do not try again for seconds.

    They are closed after the test. An error that redlock-py met, or that a test raised,
    keeps them in a cycle, and the garbage collector may come to a socket before the
    connection that would close it: a ResourceWarning in any later test.
    """
    with ExitStack() as opened:
        yield lambda urls: [
            opened.enter_context(redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0)))
            for url in urls
        ]


@pytest.fixture
def clients(impatient: Impatient, urls: list[str]) -> list[redis.Redis]:
    """Make clients of the five shared masters, emptied before each test."""
    return impatient(urls)
