"""Cohorts: a lease that is released goes to the next caller here, without a round."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import count
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
from tests.support.waiters import (
    Section,
    Waiters,
    begins_to_wait,
    counter,
    is_over,
    queue_key,
)

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


def take_one(locks: FastRedlock) -> Any:
    """Return a lease of the key."""
    return granted(locks.acquire(KEY, ttl=TTL))


def handed_on(
    locks: FastRedlock,
    before: Callable[[Any], Any] = lambda lease: None,
    first_take: Callable[[FastRedlock], Any] = take_one,
    **of_next: Any,
) -> tuple[Any, Any, bool]:
    """Release a lease while another caller waits; return both, and whether it went on.

    `before` is done with the lease before its release.
    """
    with Waiters() as waiters:
        first = first_take(locks)
        options = {"ttl": TTL, "timeout": 10, **of_next}
        with begins_to_wait(locks):
            next_one = waiters.start(lambda: granted(locks.acquire(KEY, **options)))
        before(first)
        count = counter(locks, "handed_on")
        assert first.release() is ReleaseStatus.RELEASED
        second = next_one.result(10)
    return first, second, counter(locks, "handed_on") > count


def test_lease_when_handed_on_then_the_first_is_over_and_the_next_has_the_key(
    cohort: FastRedlock, servers: list[redis.Redis]
) -> None:
    first, second, went_on = handed_on(cohort)
    assert went_on
    assert cohort._driver.engine.shortest_round_trip_ns > 0  # of rounds alone
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


def test_leader_that_was_handed_a_lease_then_wakes_at_once(
    cohort: FastRedlock,
) -> None:
    """It looks for signals every 0.1 s, and would find the lease then."""

    def take() -> tuple[Any, float]:
        return granted(cohort.acquire(KEY, ttl=TTL, timeout=10)), time.monotonic()

    lates = []
    for _ in range(7):
        with Waiters() as waiters:
            first = granted(cohort.acquire(KEY, ttl=TTL))
            with begins_to_wait(cohort):
                waiting = waiters.start(take)
            time.sleep(0.02)  # until it sleeps in poll
            released = time.monotonic()
            first.release()
            second, granted_at = waiting.result(10)
            lates.append(granted_at - released)
            second.release()
    assert counter(cohort, "handed_on") >= 7
    assert sorted(lates)[3] < 0.02, lates


def both(locks: FastRedlock) -> Any:
    """Return a lease of the key and of another one."""
    return granted(locks.acquire_all([KEY, KEY + ":2"], ttl=TTL))


NUMBERS = count()


@pytest.mark.parametrize(
    ("options", "release", "of_next"),
    [
        ({}, {"before": lambda lease: lease.token}, {}),
        ({}, {"before": lambda lease: lease.extend(TTL)}, {}),
        ({}, {"before": lambda lease: lease.keep_alive()}, {}),
        ({}, {"first_take": both}, {}),
        ({}, {}, {"ttl": 2 * TTL}),  # more than is left
        ({}, {}, {"ttl": TTL / 2}),  # so long it blocks others where its holder dies
        # A stay that is over.
        ({"cohort": 0.001}, {"before": lambda lease: time.sleep(0.002)}, {}),
        ({"cohort": 0}, {}, {}),
        ({"fencing": True}, {}, {}),
        ({"new_token": lambda: f"t{next(NUMBERS)}"}, {}, {}),
    ],
    ids=[
        *("token shown", "extended", "kept", "several", "longer ttl", "shorter ttl"),
        *("its stay is over", "no cohort", "a number each", "a given token each"),
    ],
)
def test_lease_when_it_does_not_serve_the_next_then_is_released(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis],
    options: dict[str, Any], release: dict[str, Any], of_next: dict[str, Any],
) -> None:  # fmt: skip
    locks = connected(make_locks(urls, **{"ttl": TTL, "cohort": LONG, **options}))
    first, second, went_on = handed_on(locks, **release, **of_next)
    assert not went_on
    assert first.token != second.token
    assert second.ttl == of_next.get("ttl", TTL)
    granted(locks.acquire(KEY + ":2", timeout=1)).release()
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


def test_lease_when_two_threads_release_it_then_the_next_keeps_its_key(
    urls: list[str], servers: list[redis.Redis]
) -> None:
    with FastRedlock(urls, ttl=TTL, cohort=LONG) as locks, Waiters() as waiters:
        lease = granted(locks.acquire(KEY))
        with begins_to_wait(locks):
            next_one = waiters.start(lambda: granted(locks.acquire(KEY, timeout=10)))
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
    for _ in range(4):
        command = [sys.executable, "-c", ENDS_WHILE_DAEMONS_HAND_ON, KEY, *urls]
        subprocess.run(command, check=True, timeout=30)
        assert is_over(servers)


def test_caller_that_came_in_a_stay_when_the_lease_is_released_then_is_next_at_once(
    cohort: FastRedlock, servers: list[redis.Redis]
) -> None:
    _, second, went_on = handed_on(cohort)
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
                await asyncio.sleep(0)
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
        while counts[which] < 2_000:
            lease = granted(locks.acquire(KEY))
            counts[which] += 1
            lease.release()

    with Waiters() as waiters:
        for which in range(2):
            waiters.start(lambda which=which: work(which))
    assert counts == [2_000, 2_000]
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
