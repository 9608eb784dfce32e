"""Masters that are frozen for long: how long callers wait, and what is left behind."""

from __future__ import annotations

import time

import pytest

from fastredlock import QuorumUnreachableError, ReleaseStatus, Retry, Vote
from fastredlock.testing import LocalMasters
from tests.support.calls import connected, granted
from tests.support.fixtures import MakeLocks, Raw
from tests.support.keys import KEY, sizes
from tests.support.masters import pause, resume
from tests.support.waiting import stopwatch, wait_until


@pytest.mark.slow
def test_timeout_when_the_ttl_is_long_then_ends_the_round(
    masters: LocalMasters, make_locks: MakeLocks
) -> None:
    """Seen: a round of ttl=400 waited for 20 s."""
    locks = connected(make_locks(masters.urls, ttl=400, round_timeout=20))
    pause(masters, 3)
    with stopwatch() as elapsed, pytest.raises(QuorumUnreachableError):
        locks.acquire(KEY, timeout=0.3)
    assert 0.25 < elapsed() < 2.0


@pytest.mark.slow
def test_single_try_when_the_ttl_is_long_then_waits_a_second_at_most(
    masters: LocalMasters, make_locks: MakeLocks
) -> None:
    locks = connected(make_locks(masters.urls, ttl=400))
    lease = granted(locks.acquire("another"))
    pause(masters, 3)
    with stopwatch() as elapsed, pytest.raises(QuorumUnreachableError):
        locks.acquire(KEY, timeout=0)
    assert elapsed() < 2.5
    with stopwatch() as elapsed:
        assert lease.release() is ReleaseStatus.UNKNOWN
    assert elapsed() < 2.5


@pytest.mark.slow
def test_silent_master_when_the_ttl_is_long_then_is_given_up_within_seconds(
    masters: LocalMasters, make_locks: MakeLocks
) -> None:
    """Seen: a dead master was noticed after 60 s at ttl=600."""
    locks = connected(make_locks(masters.urls, ttl=600))
    pause(masters, 1)
    with locks.lock(KEY):
        pass
    assert wait_until(lambda: locks.holders() and locks.stats().losses, within=4)


@pytest.mark.slow
def test_short_timeout_when_a_far_quorum_refuses_then_is_not_unreachable(
    masters: LocalMasters, make_locks: MakeLocks, raw: Raw
) -> None:
    servers = [raw(url) for url in masters.urls]
    for server in servers:
        server.set(KEY, b"another")
    locks = connected(make_locks(masters.urls, ttl=5))
    with stopwatch() as elapsed:
        assert locks.acquire(KEY, timeout=0.05) is None
    assert elapsed() < 0.5


@pytest.mark.slow
def test_orphan_when_a_server_was_frozen_for_longer_than_the_ttl_then_is_deleted(
    masters: LocalMasters, make_locks: MakeLocks, raw: Raw
) -> None:
    """Seen: rolled-back acquires came back as keys of the full ttl on SIGCONT."""
    servers = [raw(url) for url in masters.urls]
    ttl = 2.0
    retry = Retry(unreachable_tries=1)
    locks = connected(make_locks(masters.urls, ttl=ttl, retry=retry))
    pause(masters, 5)
    for i in range(20):
        with pytest.raises(QuorumUnreachableError):
            locks.acquire(f"lost:{i}", timeout=0)
    time.sleep(ttl + 1.0)
    resume(masters, 5)
    assert wait_until(lambda: locks.acquire(KEY, timeout=0))
    assert wait_until(lambda: all(server.dbsize() <= 1 for server in servers), within=1)


@pytest.mark.slow
def test_releases_when_a_server_was_frozen_for_longer_than_the_ttl_then_are_sent(
    masters: LocalMasters, make_locks: MakeLocks, raw: Raw
) -> None:
    servers = [raw(url) for url in masters.urls]
    locks = connected(make_locks(masters.urls, ttl=1.5))
    masters.pause(0)
    for i in range(200):
        granted(locks.acquire(f"item:{i}")).release()
    deadline = time.monotonic() + 3.5
    while time.monotonic() < deadline:
        granted(locks.acquire(KEY)).release()
        time.sleep(0.02)
    masters.resume(0)
    assert wait_until(lambda: locks.holders(KEY)[0].vote is Vote.GRANTED)
    assert wait_until(lambda: sizes(servers) == [0] * 5, within=1)
