"""Masters that are stopped, paused, cut off or come back: the quorum decides."""

from __future__ import annotations

import re
import time

import pytest
import redis

from fastredlock import FastRedlock, QuorumUnreachableError, ReleaseStatus, Retry, Vote
from fastredlock.testing import LocalMasters
from tests.support.calls import connected, failed_votes, granted
from tests.support.fixtures import MakeLocks, Raw
from tests.support.keys import KEY, NOBODY, settled_values
from tests.support.masters import start, stop
from tests.support.threads import later
from tests.support.waiting import stopwatch, wait_until


@pytest.mark.parametrize("count", [1, 2])
def test_acquire_when_a_minority_is_stopped_then_is_granted_with_their_reason(
    masters: LocalMasters, make_locks: MakeLocks, count: int
) -> None:
    stop(masters, count)
    lease = granted(make_locks(masters.urls).acquire(KEY, timeout=0))
    for vote in lease.votes[:count]:
        assert (vote.vote, vote.text) == (Vote.FAILED, "connection refused")
    assert lease.release() is ReleaseStatus.RELEASED


@pytest.mark.parametrize("count", [1, 2])
def test_acquire_when_a_minority_stops_between_two_then_is_granted(
    masters: LocalMasters, make_locks: MakeLocks, count: int
) -> None:
    locks = connected(make_locks(masters.urls))
    stop(masters, count)
    lease = granted(locks.acquire(KEY, timeout=0))
    assert Vote.GRANTED not in [vote.vote for vote in lease.votes[:count]]


def test_acquire_when_three_of_five_are_stopped_then_raises_with_their_reason(
    masters: LocalMasters, make_locks: MakeLocks
) -> None:
    stop(masters, 3)
    votes = failed_votes(make_locks(masters.urls))
    refused = (Vote.FAILED, "connection refused")
    assert [(vote.vote, vote.text) for vote in votes[:3]] == [refused] * 3


def test_acquire_when_the_last_three_are_stopped_then_all_three_are_named(
    masters: LocalMasters, make_locks: MakeLocks
) -> None:
    for i in (2, 3, 4):
        masters.stop(i)
    votes = failed_votes(make_locks(masters.urls))
    refused = (Vote.FAILED, "connection refused")
    assert [(vote.vote, vote.text) for vote in votes[2:]] == [refused] * 3


def test_acquire_when_the_last_three_are_stopped_then_the_others_are_not_blamed(
    masters: LocalMasters, make_locks: MakeLocks
) -> None:
    for i in (2, 3, 4):
        masters.stop(i)
    votes = failed_votes(make_locks(masters.urls))
    assert Vote.FAILED not in [vote.vote for vote in votes[:2]]


def test_acquire_when_three_of_five_are_stopped_then_leaves_no_key_on_the_others(
    masters: LocalMasters, make_locks: MakeLocks, raw: Raw
) -> None:
    stop(masters, 3)
    failed_votes(make_locks(masters.urls))
    servers = [raw(url) for url in masters.urls[3:]]
    assert settled_values(servers, NOBODY[3:]) == NOBODY[3:]


def test_acquire_when_three_stop_between_two_then_leaves_no_key_on_the_others(
    masters: LocalMasters, make_locks: MakeLocks, raw: Raw
) -> None:
    servers = [raw(url) for url in masters.urls[3:]]
    locks = connected(make_locks(masters.urls))
    stop(masters, 3)
    failed_votes(locks)
    assert settled_values(servers, NOBODY[3:]) == NOBODY[3:]


def test_message_when_three_are_stopped_then_names_resource_counts_time_and_masters(
    masters: LocalMasters, make_locks: MakeLocks
) -> None:
    stop(masters, 3)
    with pytest.raises(QuorumUnreachableError) as raised:
        make_locks(masters.urls).acquire(KEY, timeout=0)
    told = str(raised.value)
    assert re.search(r"^'orders:42': fewer than a quorum .* in \d+ ms: ", told)
    assert re.search(r"\b[0-2] of 5 granted, 3 failed", told)
    assert told.count("FAILED (connection refused)") == 3
    assert all(f"127.0.0.1:{port} " in told for port in masters.ports)


@pytest.mark.slow
def test_message_when_servers_are_stopped_then_does_not_blame_the_round_timeout(
    masters: LocalMasters, make_locks: MakeLocks
) -> None:
    # The two that run answer at once; nobody reads that before the next attempt.
    locks = connected(make_locks(masters.urls, ttl=2, retry=Retry(delay=0.2, jitter=0)))
    stop(masters, 3)
    with pytest.raises(QuorumUnreachableError) as raised:
        locks.acquire(KEY)
    assert raised.value.attempts == 3
    assert "round_timeout" not in str(raised.value)


@pytest.mark.slow
def test_acquire_when_all_refuse_then_raises_fast_after_three_tries(
    masters: LocalMasters, make_locks: MakeLocks
) -> None:
    stop(masters, 5)
    with stopwatch() as elapsed, pytest.raises(QuorumUnreachableError) as raised:
        make_locks(masters.urls).acquire(KEY, timeout=30)
    assert elapsed() < 3
    assert raised.value.attempts == 3


def test_acquire_when_all_refuse_and_timeout_is_zero_then_raises_after_one_try(
    masters: LocalMasters, make_locks: MakeLocks
) -> None:
    stop(masters, 5)
    with stopwatch() as elapsed, pytest.raises(QuorumUnreachableError) as raised:
        make_locks(masters.urls).acquire(KEY, timeout=0)
    assert elapsed() < 0.4
    assert raised.value.attempts == 1


@pytest.mark.slow
def test_connections_when_cut_while_idle_then_a_single_try_still_succeeds(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    for server in servers:
        server.client_kill_filter(_type="normal", skipme=True)
    time.sleep(1.1)  # idle connections are looked at before they are used
    assert locks.acquire(KEY, timeout=0)


@pytest.mark.slow
def test_acquire_when_the_timeout_ends_unreachable_then_raises_about_then(
    masters: LocalMasters, make_locks: MakeLocks
) -> None:
    stop(masters, 3)
    locks = make_locks(masters.urls, retry=Retry(unreachable_tries=1000))
    with stopwatch() as elapsed, pytest.raises(QuorumUnreachableError):
        locks.acquire(KEY, timeout=0.4)
    assert 0.4 <= elapsed() < 2


@pytest.mark.slow
def test_acquire_when_masters_return_inside_the_timeout_then_is_granted(
    masters: LocalMasters, make_locks: MakeLocks
) -> None:
    stop(masters, 5)
    locks = make_locks(masters.urls, retry=Retry(unreachable_tries=1000))
    with later(0.3, lambda: start(masters, 5)):
        assert locks.acquire(KEY, timeout=20)


def test_master_when_it_restarts_then_is_used_again_soon(
    masters: LocalMasters, make_locks: MakeLocks
) -> None:
    locks = connected(make_locks(masters.urls))
    masters.stop(2)
    lease = granted(locks.acquire("while it is away", timeout=0))
    assert lease.votes[2].vote in (Vote.FAILED, Vote.PENDING)  # asked again by then
    masters.start(2)

    def is_back() -> bool:
        with locks.lock(KEY) as lease:
            locks.holders()  # waits for the replies of all that are connected
            return lease.votes[2].vote is Vote.GRANTED

    assert wait_until(is_back, within=5)


@pytest.mark.slow
def test_acquire_when_the_quorum_needs_a_restarted_master_then_is_granted_at_once(
    masters: LocalMasters, make_locks: MakeLocks
) -> None:
    locks = connected(make_locks(masters.urls))
    stop(masters, 3)
    failed_votes(locks)
    masters.start(0)
    with stopwatch() as elapsed:
        assert locks.acquire(KEY, timeout=10)
    assert elapsed() < 5


def test_connections_when_servers_cut_them_then_the_next_acquire_reconnects(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    for server in servers:
        server.client_kill_filter(_type="normal", skipme=True)
    lease = granted(locks.acquire(KEY, timeout=10))
    assert lease.release() is ReleaseStatus.RELEASED
    assert settled_values(servers, NOBODY) == NOBODY
