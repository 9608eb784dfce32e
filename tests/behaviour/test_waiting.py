"""An acquire while others hold the lock: one try, a timeout, a quick wake-up."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from fastredlock import FastRedlock, ResourceTakenError, Retry, Vote
from tests.support.calls import granted
from tests.support.fixtures import MakeLocks
from tests.support.keys import KEY, NOBODY, set_all, values
from tests.support.threads import later
from tests.support.waiting import stopwatch


def test_acquire_when_timeout_is_zero_then_tries_once(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    set_all(servers, b"another")
    assert locks.acquire(KEY, timeout=0) is None
    assert (locks.stats().rounds, locks.stats().taken) == (1, 1)


@pytest.mark.slow
@pytest.mark.parametrize("timeout", [0.3, 1])
def test_acquire_when_the_timeout_is_over_then_returns_none_about_then(
    locks: FastRedlock, servers: list[redis.Redis], timeout: float
) -> None:
    set_all(servers, b"another")
    with stopwatch() as elapsed:
        assert locks.acquire(KEY, timeout=timeout) is None
    assert timeout <= elapsed() < timeout + 1
    assert locks.stats().rounds >= 2  # at the beginning, and at the end


class Impatient(Retry):
    """Tell an int; it was taken for a round."""

    __slots__ = ()

    def after_taken(self, attempts: int, round_trip: float, draw: float) -> float:
        return 0


def test_acquire_when_its_retry_tells_an_int_then_tries_again(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis]
) -> None:
    set_all(servers, b"another")
    locks = make_locks(urls, retry=Impatient())
    assert locks.acquire(KEY, timeout=0.02) is None
    assert locks.stats().rounds > 1


@pytest.mark.slow
def test_acquire_when_the_holder_releases_then_gets_it_soon(
    make_locks: MakeLocks, urls: list[str]
) -> None:
    lease = granted(make_locks(urls).acquire(KEY))
    released_at = []

    def release() -> None:
        lease.release()
        released_at.append(time.monotonic())

    with later(0.3, release):
        assert make_locks(urls).acquire(KEY, timeout=10)
        acquired_at = time.monotonic()
    assert acquired_at - released_at[0] < 0.6  # the longest delay is 0.25 s


@pytest.mark.slow
def test_waiter_when_the_lock_changes_hands_often_then_loses_little_each_time(
    make_locks: MakeLocks, urls: list[str]
) -> None:
    holder, waiter = make_locks(urls), make_locks(urls)
    with stopwatch() as elapsed:
        for _ in range(20):
            lease = granted(holder.acquire(KEY))
            with later(0.005, lease.release):
                granted(waiter.acquire(KEY)).release()
    assert elapsed() < 1.4  # a mean delay of 0.1 s would make it 2 s


@pytest.mark.slow
def test_acquire_when_the_timeout_ends_in_a_delay_then_tries_at_the_end_of_it(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis]
) -> None:
    locks = make_locks(urls, retry=Retry(delay=60))
    set_all(servers, b"another")
    free = later(0.1, lambda: [server.delete(KEY) for server in servers])
    with stopwatch() as elapsed, free:
        assert locks.acquire(KEY, timeout=0.5)
    assert 0.4 < elapsed() < 5


@pytest.mark.slow
def test_acquire_when_retry_has_a_delay_then_keeps_it(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis]
) -> None:
    locks = make_locks(urls, retry=Retry(delay=0.15, jitter=0))
    set_all(servers, b"another")
    assert locks.acquire(KEY, timeout=0.4) is None
    assert 2 <= locks.stats().rounds <= 4  # at 0, 0.15, 0.3 and 0.4 s


@pytest.mark.slow
def test_acquire_when_no_timeout_is_given_then_waits_until_it_is_free(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    set_all(servers, b"another")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(locks.acquire, KEY)
        time.sleep(0.6)
        assert not waiting.done()
        for server in servers:
            server.delete(KEY)
        assert waiting.result(10)


def test_waiter_when_many_rounds_were_lost_then_left_nothing_behind(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    set_all(servers[:3], b"another")
    assert locks.acquire(KEY, timeout=0.2) is None
    locks.holders()  # answered after the last release
    assert values(servers[3:]) == NOBODY[3:]


def test_lock_when_taken_then_raises_with_a_vote_per_master(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    set_all(servers, b"another")
    with pytest.raises(ResourceTakenError) as raised, locks.lock(KEY, timeout=0):
        servers[0].set("body", "ran")
    error = raised.value
    assert (error.resource, error.attempts, len(error.votes)) == (KEY, 1, 5)
    assert [vote.vote for vote in error.votes].count(Vote.TAKEN) >= 3
    assert 0 < error.elapsed < 5
    assert servers[0].get("body") is None


def test_lock_when_taken_then_names_resource_counts_time_and_each_master(
    locks: FastRedlock, servers: list[redis.Redis], urls: list[str]
) -> None:
    set_all(servers, b"another")
    with pytest.raises(ResourceTakenError) as raised, locks.lock(KEY, timeout=0):
        pass
    told = str(raised.value)
    assert re.search(
        r"'orders:42': held by others after 1 attempt in \d+ ms: "
        r"0 of 5 granted, [345] taken",
        told,
    )
    assert all(url.removeprefix("redis://").removesuffix("/0") in told for url in urls)
