"""Masters that are frozen: they accept connections, and never answer."""

from __future__ import annotations

import re

import pytest

from fastredlock import QuorumUnreachableError, ReleaseStatus, Retry, Vote
from fastredlock.testing import LocalMasters
from tests.support.calls import connected, failed_votes, granted
from tests.support.fixtures import MakeLocks, Raw
from tests.support.keys import KEY, NOBODY, settled_values, values
from tests.support.masters import pause, resume
from tests.support.threads import later
from tests.support.waiting import stopwatch, wait_until


@pytest.mark.slow
def test_message_when_replies_came_after_the_round_then_names_the_round_timeout(
    masters: LocalMasters, make_locks: MakeLocks
) -> None:
    retry = Retry(delay=0, unreachable_tries=10_000)
    locks = connected(make_locks(masters.urls, round_timeout=0.05, retry=retry))
    pause(masters, 3)
    with later(0.2, lambda: resume(masters, 3)):
        assert locks.acquire("comes in a later round")
    pause(masters, 3)
    with pytest.raises(QuorumUnreachableError) as raised:
        locks.acquire(KEY, timeout=0)
    told = str(raised.value)
    assert re.search(r"replies took up to \d+ ms, a round waits 50 ms", told)
    assert "round_timeout" in told


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2])
def test_pairs_when_connected_masters_are_paused_then_cost_no_waiting(
    masters: LocalMasters, make_locks: MakeLocks, count: int
) -> None:
    locks = connected(make_locks(masters.urls, ttl=20))  # a round would wait for 1 s
    pause(masters, count)
    with stopwatch() as elapsed:
        for _ in range(20):
            with locks.lock(KEY):
                pass
    assert elapsed() < 2


def test_first_acquire_when_a_minority_is_paused_then_does_not_wait_for_it(
    masters: LocalMasters, make_locks: MakeLocks
) -> None:
    pause(masters, 2)
    locks = make_locks(masters.urls, ttl=100, connect_timeout=10)
    with stopwatch() as elapsed:
        assert locks.acquire(KEY)
    assert elapsed() < 3


def test_acquire_when_a_majority_is_paused_then_names_the_silent_ones(
    masters: LocalMasters, make_locks: MakeLocks
) -> None:
    locks = connected(make_locks(masters.urls, round_timeout=0.05))
    pause(masters, 3)
    votes = failed_votes(locks)
    assert [vote.vote for vote in votes[:3]] == [Vote.SILENT] * 3
    assert all("no reply within 50 ms" in str(vote.text) for vote in votes[:3])


@pytest.mark.slow
def test_first_acquire_when_a_majority_is_paused_then_waits_connect_timeout_at_most(
    masters: LocalMasters, make_locks: MakeLocks
) -> None:
    pause(masters, 3)
    locks = make_locks(masters.urls, connect_timeout=0.3)
    with stopwatch() as elapsed, pytest.raises(QuorumUnreachableError) as raised:
        locks.acquire(KEY, timeout=0)
    assert 0.2 < elapsed() < 2
    assert [vote.vote for vote in raised.value.votes[:3]] == [Vote.FAILED] * 3


@pytest.mark.slow
def test_paused_master_when_it_owes_a_reply_for_long_then_is_reopened_and_cleaned(
    masters: LocalMasters, make_locks: MakeLocks, raw: Raw
) -> None:
    servers = [raw(url) for url in masters.urls]
    locks = connected(make_locks(masters.urls, ttl=60, round_timeout=0.1))
    masters.pause(0)
    with locks.lock(KEY):
        pass
    assert wait_until(lambda: locks.holders() and locks.stats().losses, within=10)
    masters.resume(0)
    assert wait_until(lambda: locks.holders()[0].vote is Vote.GRANTED)
    assert values(servers) == NOBODY


@pytest.mark.slow
def test_paused_master_when_released_after_it_was_given_up_then_is_cleaned_as_well(
    masters: LocalMasters, make_locks: MakeLocks, raw: Raw
) -> None:
    servers = [raw(url) for url in masters.urls]
    locks = connected(make_locks(masters.urls, ttl=60, round_timeout=0.1))
    masters.pause(0)
    lease = granted(locks.acquire(KEY))
    assert wait_until(lambda: locks.holders() and locks.stats().losses, within=10)
    assert lease.release() is ReleaseStatus.RELEASED
    masters.resume(0)
    assert wait_until(lambda: locks.holders()[0].vote is Vote.GRANTED)
    assert settled_values(servers, NOBODY) == NOBODY
