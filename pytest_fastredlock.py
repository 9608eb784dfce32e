"""The plugin for pytest: masters, real or in memory, for each test that asks.

pytest loads this module at every start where fastredlock is installed. So it stands
outside of the package, and imports that where a fixture is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from fastredlock import FastRedlock
    from fastredlock.testing import LocalMasters, MemoryMasters

MASTERS = 3


@pytest.fixture(scope="session")
def _redlock_servers() -> Iterator[LocalMasters]:
    """Start the servers of a session, where the first test asks for them."""
    from fastredlock.testing import LocalMasters

    with LocalMasters(MASTERS) as masters:
        yield masters


@pytest.fixture
def redlock_masters(_redlock_servers: LocalMasters) -> LocalMasters:
    """Three real masters on this machine, all running, and empty.

    A `fastredlock.testing.LocalMasters`: a test may stop and pause them; the next test
    finds them running again.
    """
    masters = _redlock_servers
    for i in range(MASTERS):
        masters.start(i)
        masters.resume(i)
    masters.flush()
    return masters


@pytest.fixture
def redlock(redlock_masters: LocalMasters) -> Iterator[FastRedlock]:
    """A FastRedlock of `redlock_masters`, connected; closed after the test."""
    from fastredlock import FastRedlock

    with FastRedlock(redlock_masters.urls) as locks:
        locks.connect()
        yield locks


@pytest.fixture
def redlock_memory() -> Iterator[MemoryMasters]:
    """Every FastRedlock of the program on masters in memory, until the test ends.

    A `fastredlock.testing.MemoryMasters`, empty; see `in_memory` there.
    """
    from fastredlock.testing import in_memory

    with in_memory() as masters:
        yield masters
