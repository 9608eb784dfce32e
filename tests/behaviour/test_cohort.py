"""Cohorts: a lease that is released goes to the next caller here, without a round."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis

from fastredlock import ConfigurationError, FastRedlock, LeaseLostError, ReleaseStatus
from fastredlock._core import begin_releases
from fastredlock._options import scripts
from fastredlock.asyncio import FastRedlock as AwaitableFastRedlock
from tests.support.calls import connected, granted
from tests.support.fixtures import MakeLocks
from tests.support.keys import KEY, settled_values
from tests.support.waiters import Section, Waiters, counter, is_over, queue_key

LONG = 1.0  # s; a stay that no machine is too slow for
TTL = 30.0


@pytest.fixture
def cohort(make_locks: MakeLocks, urls: list[str]) -> FastRedlock:
    return connected(make_locks(urls, ttl=TTL, cohort=LONG))


def rounds_of_acquires(locks: FastRedlock) -> int:
    """Count the acquires whose commands were sent."""
    stats = locks.stats()
    return stats.acquires.won - stats.handed_on


def test_callers_in_one_stay_then_are_granted_in_order_without_a_round(
    cohort: FastRedlock, servers: list[redis.Redis]
) -> None:
    names = [f"{i}" for i in range(20)]
    with Waiters() as waiters:
        lease = granted(cohort.acquire(KEY, ttl=TTL))
        for name in names[:2]:  # the first of them may have come too late for the stay
            waiters.come(name, cohort, hold=0.1)
        lease.release()
        for name in names[2:]:
            waiters.come(name, cohort)
    assert waiters.served == names
    assert counter(cohort, "handed_on") >= 18
    assert cohort.stats().acquires.won == cohort.stats().releases.won == 21
    assert rounds_of_acquires(cohort) <= 3
    assert is_over(servers)


def test_callers_without_a_cohort_then_each_has_a_round(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis]
) -> None:
    locks = connected(make_locks(urls, cohort=0))
    with Waiters() as waiters:
        lease = granted(locks.acquire(KEY))
        for i in range(5):
            waiters.come(f"{i}", locks)
        lease.release()
    assert counter(locks, "handed_on") == 0
    assert is_over(servers)


def take_one(locks: FastRedlock) -> Any:
    """Return a lease of the key."""
    return granted(locks.acquire(KEY, ttl=TTL))


def handed_on(
    locks: FastRedlock,
    before: Callable[[Any], Any],
    first_take: Callable[[FastRedlock], Any] = take_one,
    **of_next: Any,
) -> tuple[Any, Any, bool]:
    """Release a lease while another caller waits; return both, and whether it went on.

    `before` is done with the lease before its release.
    """
    with Waiters() as waiters:
        first = first_take(locks)
        options = {"ttl": TTL, "timeout": 10, **of_next}
        began = counter(locks, "waits")
        next_one = waiters.start(lambda: granted(locks.acquire(KEY, **options)))
        while counter(locks, "waits") == began:
            time.sleep(0.001)
        before(first)
        count = counter(locks, "handed_on")
        assert first.release() is ReleaseStatus.RELEASED
        second = next_one.result(10)
    return first, second, counter(locks, "handed_on") > count


def test_lease_when_handed_on_then_the_first_is_over_and_the_next_has_the_key(
    cohort: FastRedlock, servers: list[redis.Redis]
) -> None:
    first, second, went_on = handed_on(cohort, lambda lease: None)
    assert went_on
    assert not first.is_valid
    assert second.is_valid
    assert TTL * 0.9 < second.remaining() < TTL
    held = settled_values(servers, [second.token] * len(servers))
    assert held == [second.token] * len(servers)
    assert first.token != second.token  # with it the key would be released
    assert first.release() is ReleaseStatus.GONE  # as each second release
    with pytest.raises(LeaseLostError):
        first.extend()
    assert second.is_valid
    assert second.release() is ReleaseStatus.RELEASED
    assert is_over(servers)


def take(locks: FastRedlock) -> Any:
    """Return a lease that its caller waits for."""
    return granted(locks.acquire(KEY, ttl=TTL, timeout=10))


def test_leader_that_was_handed_a_lease_then_wakes_at_once(
    cohort: FastRedlock,
) -> None:
    """It looks for signals every 0.1 s, and would find the lease then."""
    lates = []
    for _ in range(7):
        with Waiters() as waiters:
            first = granted(cohort.acquire(KEY, ttl=TTL))
            began = counter(cohort, "waits")
            waiting = waiters.start(lambda: (take(cohort), time.monotonic()))
            while counter(cohort, "waits") == began:
                time.sleep(0.001)
            time.sleep(0.02)  # it sleeps in poll
            released = time.monotonic()
            first.release()
            second, granted_at = waiting.result(10)
            lates.append(granted_at - released)
            second.release()
    assert counter(cohort, "handed_on") >= 7
    assert sorted(lates)[3] < 0.02, lates


@pytest.mark.parametrize(
    "before",
    [
        pytest.param(lambda lease: lease.token, id="token shown"),
        pytest.param(lambda lease: lease.extend(TTL), id="extended"),
        pytest.param(lambda lease: lease.keep_alive(), id="kept"),
    ],
)
def test_lease_when_anything_else_may_have_it_then_is_released(
    cohort: FastRedlock, servers: list[redis.Redis], before: Callable[[Any], Any]
) -> None:
    first, second, went_on = handed_on(cohort, before)
    assert not went_on
    assert first.token != second.token
    second.release()
    assert is_over(servers)


def test_lease_of_several_when_another_waits_for_the_first_then_is_released(
    cohort: FastRedlock, servers: list[redis.Redis]
) -> None:
    _, second, went_on = handed_on(
        cohort,
        lambda lease: None,
        lambda locks: granted(locks.acquire_all([KEY, KEY + ":2"], ttl=TTL)),
    )
    assert not went_on
    granted(cohort.acquire(KEY + ":2", timeout=1)).release()
    second.release()
    assert is_over(servers)


def test_lease_when_the_next_asks_for_more_than_is_left_then_is_released(
    cohort: FastRedlock, servers: list[redis.Redis]
) -> None:
    _, second, went_on = handed_on(cohort, lambda lease: None, ttl=2 * TTL)
    assert not went_on
    assert second.remaining() > TTL
    second.release()
    assert is_over(servers)


def test_lease_when_the_next_asks_for_a_shorter_ttl_then_is_released(
    cohort: FastRedlock, servers: list[redis.Redis]
) -> None:
    _, second, went_on = handed_on(cohort, lambda lease: None, ttl=TTL / 2)
    assert not went_on
    assert second.ttl == TTL / 2  # so long it blocks others where its holder dies
    second.release()
    assert is_over(servers)


def test_leases_when_handed_on_beside_a_dead_master_then_its_failures_are_not_counted(
    make_locks: MakeLocks, urls: list[str]
) -> None:
    locks = make_locks([*urls[:2], "redis://127.0.0.1:1"], ttl=TTL, cohort=LONG)
    counts = [0]

    def work() -> None:
        for _ in range(200):
            lease = granted(locks.acquire(KEY))
            counts[0] += 1
            lease.release()

    with Waiters() as waiters:
        for _ in range(2):
            waiters.start(work)
    stats = locks.stats()
    assert counts == [400]
    assert stats.handed_on > 100
    assert stats.masters[2].failed <= stats.rounds < 700  # of those that were sent


def test_lease_when_its_stay_is_over_then_is_released(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis]
) -> None:
    locks = connected(make_locks(urls, cohort=0.001))
    _, second, went_on = handed_on(locks, lambda lease: time.sleep(0.002))
    assert not went_on
    second.release()
    assert is_over(servers)


def test_lease_when_two_threads_release_it_then_the_next_keeps_its_key(
    urls: list[str], servers: list[redis.Redis]
) -> None:
    with FastRedlock(urls, ttl=TTL, cohort=LONG) as locks, Waiters() as waiters:
        lease = granted(locks.acquire(KEY))
        began = counter(locks, "waits")
        next_one = waiters.start(lambda: granted(locks.acquire(KEY, timeout=10)))
        while counter(locks, "waits") == began:
            time.sleep(0.001)
        engine = locks._driver.engine
        releases = begin_releases(engine, [lease], ReleaseStatus.UNKNOWN)
        releases.append(lease._begin_release())  # before the first was run
        for release in filter(None, releases):
            locks._driver.run(release)
        second = next_one.result(10)
        held = settled_values(servers, [second.token] * len(servers))
        assert held == [second.token] * len(servers)
        second.release()
    assert is_over(servers)


def test_lease_when_handed_on_then_no_time_of_a_round_is_learnt(
    make_locks: MakeLocks, urls: list[str]
) -> None:
    locks = connected(make_locks(urls, ttl=TTL, cohort=LONG))
    _, second, went_on = handed_on(locks, lambda lease: None)
    assert went_on
    assert locks._driver.engine.shortest_round_trip_ns > 0
    second.release()


ENDS_WHILE_DAEMONS_HAND_ON = """
import sys, threading, time
from fastredlock import FastRedlock
locks = FastRedlock(sys.argv[2:], ttl=30, cohort=0.5)
def work():
    while True:
        with locks.lock(sys.argv[1], timeout=20):
            pass
for _ in range(5):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.05)
"""


@pytest.mark.slow
def test_interpreter_when_it_ends_while_daemons_hand_on_then_no_key_is_left(
    urls: list[str], servers: list[redis.Redis]
) -> None:
    for _ in range(8):
        command = [sys.executable, "-c", ENDS_WHILE_DAEMONS_HAND_ON, KEY, *urls]
        subprocess.run(command, check=True, timeout=30)
        assert is_over(servers)


@pytest.mark.parametrize("option", ["fencing", "new_token"])
def test_grants_with_a_number_or_a_token_of_their_own_are_never_handed_on(
    make_locks: MakeLocks, urls: list[str], option: str
) -> None:
    tokens = iter(range(1_000_000))
    given: dict[str, Any] = {"fencing": True, "new_token": lambda: f"t{next(tokens)}"}
    locks = connected(make_locks(urls, cohort=LONG, **{option: given[option]}))
    _, second, went_on = handed_on(locks, lambda lease: None)
    assert not went_on
    second.release()


def test_caller_that_came_in_a_stay_when_the_lease_is_released_then_is_next_at_once(
    cohort: FastRedlock, servers: list[redis.Redis]
) -> None:
    _, second, went_on = handed_on(cohort, lambda lease: None)
    assert went_on
    with Waiters() as waiters:
        waiters.come("third", cohort)
        assert second.token  # so it is not handed on, while the stay lasts
        began = time.monotonic()
        second.release()
    assert waiters.at["third"] - began < LONG / 2  # not at the end of the stay
    assert is_over(servers)


def test_task_when_cancelled_just_after_a_lease_went_to_it_then_leaves_no_key(
    urls: list[str], servers: list[redis.Redis]
) -> None:
    async def run() -> None:
        async with AwaitableFastRedlock(urls, ttl=TTL, cohort=LONG) as locks:
            lease = await locks.acquire(KEY)
            assert lease
            task = asyncio.create_task(locks.acquire(KEY))
            while not locks.stats().waits:  # noqa: ASYNC110 - a counter
                await asyncio.sleep(0.001)
            await lease.release()
            assert locks.stats().handed_on == 1
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await asyncio.to_thread(is_over, servers)

    asyncio.run(run())


def test_outsider_when_a_process_keeps_the_lock_among_its_callers_then_has_its_turn(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis]
) -> None:
    inside = connected(make_locks(urls))
    outside = connected(make_locks(urls))
    section, waits = Section(), []
    stop = time.monotonic() + 1.5

    def work() -> None:
        while time.monotonic() < stop:
            lease = granted(inside.acquire(KEY))
            with section:
                pass
            lease.release()

    with Waiters() as waiters:
        for _ in range(8):
            waiters.start(work)
        while time.monotonic() < stop:
            began = time.monotonic()
            lease = granted(outside.acquire(KEY))
            with section:
                waits.append(time.monotonic() - began)
            lease.release()
    section.assert_exclusive()
    assert counter(inside, "handed_on") > 100
    assert len(waits) > 20
    assert sorted(waits)[len(waits) // 2] < 0.1  # a stay, and a hand-over
    assert is_over(servers)


def test_many_hand_overs_in_one_stay_do_not_nest(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis]
) -> None:
    locks = connected(make_locks(urls, cohort=LONG))
    counts = [0, 0]

    def work(which: int) -> None:
        while counts[which] < 5_000:
            lease = granted(locks.acquire(KEY))
            counts[which] += 1
            lease.release()

    with Waiters() as waiters:
        for which in range(2):
            waiters.start(lambda which=which: work(which))
    assert counts == [5_000, 5_000]
    assert is_over(servers)


@pytest.mark.parametrize("cohort", [-0.001, 1.5, float("nan"), "1", None])
def test_cohort_when_out_of_range_then_is_refused(cohort: Any) -> None:
    with pytest.raises(ConfigurationError, match="cohort="):
        FastRedlock(["redis://a"], cohort=cohort)


def test_release_when_another_process_is_first_then_takes_our_entry_out(
    servers: list[redis.Redis],
) -> None:
    """Seen: the last of a cohort left an entry, that of a caller who had been handed
    the lease, for the minute that a queue lives."""
    gate = servers[0]
    with gate.pubsub() as other:
        other.subscribe("fastredlock:waiter:other")
        assert other.get_message(timeout=5) is not None
        gate.zadd(queue_key(KEY), {"other": 1, "ours": 2})
        gate.set(KEY, "token")
        released = gate.eval(
            scripts.RELEASE_AND_NOTIFY.decode(), 1, KEY, "token", "ours"
        )
        assert released == 2  # deleted, and another was notified
    assert gate.zrange(queue_key(KEY), 0, -1) == [b"other"]
    gate.delete(queue_key(KEY), f"fastredlock:turn:{KEY}")
