"""pottery's locks, blocking and awaitable, then what replaces them."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.compat.face import faces
from tests.compat.pottery.face import OURS, OURS_ASYNCIO, THEIRS, THEIRS_ASYNCIO, Face
from tests.support.waiting import wait_until

ALL = (THEIRS, OURS, THEIRS_ASYNCIO, OURS_ASYNCIO)
face = faces(Face, *ALL)
blocking = faces(Face, THEIRS, OURS)
better = faces(Face, *ALL, bug_of=(THEIRS, THEIRS_ASYNCIO))
better_blocking = faces(Face, THEIRS, OURS, bug_of=(THEIRS,))
better_awaited = faces(Face, THEIRS_ASYNCIO, OURS_ASYNCIO, bug_of=(THEIRS_ASYNCIO,))


@pytest.fixture(autouse=True)
def _no_threads_left() -> Iterator[None]:
    """Wait for their threads: what they still send would reach the next test."""
    before = threading.active_count()
    yield
    assert wait_until(lambda: threading.active_count() <= before)
