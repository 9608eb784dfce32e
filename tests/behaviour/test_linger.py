"""What stays in its process: a released key rests until another one asks for it; the
lease of a cohort goes to the next caller here, without a round.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from fastredlock import ConfigurationError, FastRedlock, LeaseLostError, ReleaseStatus
from fastredlock._core import begin_releases
from fastredlock.asyncio import FastRedlock as AwaitableFastRedlock
from tests.support.calls import connected, granted
from tests.support.fixtures import MakeLocks, Servers
from tests.support.keys import KEY, settled_values, values
from tests.support.processes import Fork, run_to_its_end
from tests.support.waiters import (
    Waiters,
    begins_to_wait,
    counter,
    is_over,
)
from tests.support.waiting import until, wait_until

LINGER = 20.0  # s; longer than any machine is slow
TTL = 30.0
RECALLS = "fastredlock recalls"  # a thread, or a task


@pytest.fixture
def lingering(make_locks: MakeLocks, urls: list[str]) -> FastRedlock:
    return connected(make_locks(urls, ttl=TTL, linger=LINGER, round_timeout=10))


@pytest.fixture
def others(make_locks: MakeLocks, urls: list[str]) -> FastRedlock:
    return connected(make_locks(urls, ttl=TTL))


def shown_hash(locks: FastRedlock) -> str:
    """Return the hash that `holders()` shows; a minority may not have the key yet."""
    return next(vote.token_hash for vote in locks.holders(KEY) if vote.token_hash)


def rest(locks: FastRedlock, key: str = KEY, **options: Any) -> Any:
    """Take the key and release it, so that it rests; return the lease.

    Twice: the first time a thread is started that reads recalls.
    """
    granted(locks.acquire(key, timeout=5, **options)).release()
    lease = granted(locks.acquire(key, timeout=5, **options))
    assert lease.release() is ReleaseStatus.RELEASED
    return lease


def kept(servers: Servers) -> set[bytes | None]:
    """Return what is under the key on the masters."""
    return {*values(servers)}


def watchers() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name == RECALLS]


def test_key_at_rest_then_the_next_caller_here_has_it_without_a_round(
    lingering: FastRedlock, servers: Servers
) -> None:
    first = rest(lingering)
    (value,) = kept(servers)
    assert value is not None
    rounds, lingered = counter(lingering, "rounds"), counter(lingering, "lingered")
    for _ in range(50):
        lease = granted(lingering.acquire(KEY, timeout=0))
        assert lease.is_valid
        assert first.release() is ReleaseStatus.GONE
        assert not first.is_valid
        lease.release()
    assert counter(lingering, "rounds") == rounds
    assert counter(lingering, "lingered") == lingered + 50
    assert lingering.stats().acquires.won == lingering.stats().releases.won == 52
    assert kept(servers) == {value}
    lingering.close()
    assert is_over(servers)


@pytest.mark.parametrize("several", [(), ("another",)], ids=["one", "several"])
def test_key_at_rest_when_another_process_asks_then_is_its_own_at_once(
    lingering: FastRedlock, others: FastRedlock, servers: Servers,
    several: tuple[str, ...],
) -> None:  # fmt: skip
    gaps = []
    for i in range(5):
        key = f"{KEY}{i}"  # others of the same one are remembered for a second
        rest(lingering, key)
        assert {*values(servers, key)} != {None}
        began = time.perf_counter()
        lease = granted(others.acquire_all([key, *several], timeout=5))
        gaps.append(time.perf_counter() - began)
        lease.release()
        assert is_over(servers, key)
    assert sorted(gaps)[2] < 0.1


def test_key_at_rest_when_a_single_try_asks_then_the_next_one_has_it(
    lingering: FastRedlock, others: FastRedlock, servers: Servers
) -> None:
    rest(lingering)
    assert others.acquire(KEY, timeout=0) is None
    assert wait_until(lambda: kept(servers) == {None})
    assert others.acquire(KEY, timeout=0) is not None


def test_key_in_use_when_another_process_asks_then_does_not_rest(
    lingering: FastRedlock, others: FastRedlock, servers: Servers
) -> None:
    rest(lingering)
    lease = granted(lingering.acquire(KEY, timeout=5))
    assert others.acquire(KEY, timeout=0) is None
    time.sleep(0.1)  # until its thread has read the recall
    lease.release()
    assert is_over(servers)


def test_key_at_rest_when_its_time_is_over_then_is_released(
    make_locks: MakeLocks, urls: list[str], servers: Servers
) -> None:
    locks = connected(make_locks(urls, ttl=TTL, linger=0.2))
    rest(locks)
    assert kept(servers) != {None}
    has_thread = type(locks) is FastRedlock
    for _ in range(2):  # a thread ends behind the last, and the next begins one
        assert wait_until(lambda: bool(watchers()) is has_thread, 2)
        assert wait_until(lambda: kept(servers) == {None}, 2)
        assert wait_until(lambda: not watchers(), 2)
        rest(locks)


def test_key_when_its_validity_serves_nobody_any_more_then_a_round_takes_it_anew(
    make_locks: MakeLocks, urls: list[str]
) -> None:
    locks = connected(make_locks(urls, ttl=1, linger=LINGER, round_timeout=0.1))
    end, least = time.monotonic() + 1, 1.0
    while time.monotonic() < end:
        lease = granted(locks.acquire(KEY, timeout=5))
        least = min(least, lease.remaining())
        lease.release()
    assert least > 0.8  # ttl, less drift and one round timeout
    assert 5 < locks.stats().acquires.won - counter(locks, "lingered") < 40


@pytest.mark.parametrize(
    "before",
    [
        pytest.param(lambda lease: lease.token, id="token shown"),
        pytest.param(lambda lease: lease.extend(TTL), id="extended"),
        pytest.param(lambda lease: lease.keep_alive(), id="kept"),
    ],
)
def test_lease_when_anything_else_may_have_it_then_its_key_does_not_rest(
    lingering: FastRedlock, servers: Servers, before: Callable[[Any], Any]
) -> None:
    lease = granted(lingering.acquire(KEY, timeout=5))
    before(lease)
    assert lease.release() is ReleaseStatus.RELEASED
    assert is_over(servers)


def test_lease_when_it_rests_then_its_token_is_not_shown_any_more(
    lingering: FastRedlock, servers: Servers
) -> None:
    lease = rest(lingering)
    (value,) = kept(servers)
    assert value is not None
    assert lease.token != value.decode()
    lingered = counter(lingering, "lingered")
    assert granted(lingering.acquire(KEY, timeout=0)).is_valid
    assert counter(lingering, "lingered") == lingered + 1


def test_callers_here_when_the_key_rests_and_they_want_it_otherwise_then_it_is_replaced(
    lingering: FastRedlock, servers: Servers
) -> None:
    for take in (
        lambda: lingering.acquire_all([KEY, "another"], timeout=0),
        lambda: lingering.acquire_each([KEY])[0],
        lambda: lingering.acquire(KEY, ttl=TTL / 2, timeout=0),
        lambda: lingering.acquire(KEY, timeout=0, linger=0),
    ):
        rest(lingering)
        lingered = counter(lingering, "lingered")
        assert granted(take()).release() is ReleaseStatus.RELEASED
        assert counter(lingering, "lingered") == lingered
    assert is_over(servers)


def test_linger_when_given_for_one_call_then_is_of_that_one(
    others: FastRedlock, servers: Servers
) -> None:
    rest(others, linger=LINGER)
    assert kept(servers) != {None}
    lingered = counter(others, "lingered")
    with others.lock(KEY, timeout=0, linger=LINGER):
        pass
    assert counter(others, "lingered") == lingered + 1
    with others.lock(KEY, timeout=0):
        pass
    assert is_over(servers)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("linger", value) for value in (-0.1, 3601, float("nan"), "1")),
        *(("cohort", value) for value in (-0.001, 1.5, float("nan"), "1", None)),
    ],
)
def test_option_when_it_is_no_time_or_too_long_then_is_refused(
    option: str, value: Any
) -> None:
    with pytest.raises(ConfigurationError, match=option):
        FastRedlock(["redis://a"], **{option: value})


@pytest.mark.parametrize(
    "options",
    [{"fencing": True}, {"new_token": lambda: b"t"}, {"release_script": b"return 1"}],
    ids=["fencing", "new_token", "release_script"],
)
def test_linger_when_each_grant_has_its_own_then_is_refused(
    make_locks: MakeLocks, urls: list[str], options: dict[str, Any]
) -> None:
    with pytest.raises(ConfigurationError, match="linger with"):
        make_locks(urls, linger=1, **options)
    locks = make_locks(urls, **options)
    with pytest.raises(ConfigurationError, match="linger with"):
        locks.acquire(KEY, linger=1)


@pytest.mark.parametrize("who", ["itself", "another"])
def test_key_at_rest_when_it_is_broken_then_nobody_has_it_from_its_rest(
    lingering: FastRedlock, others: FastRedlock, servers: Servers, who: str
) -> None:
    rest(lingering)
    by = lingering if who == "itself" else others
    assert by.break_(KEY, token_hash=shown_hash(by)) is not ReleaseStatus.UNKNOWN
    assert is_over(servers)
    theirs = granted(others.acquire(KEY, timeout=5))
    assert lingering.acquire(KEY, timeout=0) is None
    assert theirs.release() is ReleaseStatus.RELEASED


def test_keys_at_rest_when_all_connections_are_cut_then_are_released_on_the_next(
    lingering: FastRedlock, servers: Servers
) -> None:
    rest(lingering)
    for server in servers:
        for client in server.client_list():
            if client["name"].startswith("fastredlock"):
                server.client_kill_filter(_id=client["id"])
    assert wait_until(lambda: kept(servers) == {None}, 3)


# --- asyncio --------------------------------------------------------------------------


PRELUDE = """
import asyncio, fastredlock, fastredlock.asyncio, os, redis, sys, warnings
warnings.filterwarnings("ignore", ".*use of fork", DeprecationWarning)
URLS = sys.argv[1:]
def made(module=fastredlock):
    return module.FastRedlock(URLS, ttl=30, linger=20, round_timeout=10)
def rest(locks):
    for _ in range(3):
        locks.acquire("j", timeout=5).release()
    assert locks.stats().lingered == 1
def none_is_left():
    assert not any(redis.Redis.from_url(url).exists("j") for url in URLS)
awaited = made(fastredlock.asyncio)
async def once():
    await (await awaited.acquire("j", timeout=5)).release()
    assert awaited.stats().lingered == 0
def use_a_loop_that_is_closed():
    loop = asyncio.new_event_loop()
    loop.run_until_complete(once())
    loop.close()
"""
LOOPS = """
asyncio.run(once())  # a loop
none_is_left()
asyncio.run(once())
none_is_left()

awaited = made(fastredlock.asyncio)
async def hold():
    async with awaited.lock("j", timeout=5):
        await asyncio.Event().wait()
async def main():
    globals()["task"] = asyncio.create_task(hold())
    while not awaited.stats().won:
        await asyncio.sleep(0)
asyncio.run(main())  # a task that is cancelled with its loop
none_is_left()

awaited = made(fastredlock.asyncio)
async def main():
    await once()
    sys.exit(0)
for _ in range(2):  # just after
    try:
        asyncio.run(main())
    except SystemExit:
        pass
    none_is_left()

awaited = made(fastredlock.asyncio)
use_a_loop_that_is_closed()
asyncio.run(once())  # behind one that was closed as it was
none_is_left()
async def close():
    await once()
    await asyncio.wait_for(awaited.close(), 5)
asyncio.run(close())
"""
ENDS = {
    "the interpreter": "locks = made(); rest(locks)",
    "a forked parent's": """
locks = made()
rest(locks)
if os.fork() == 0:
    os._exit(locks.acquire("j", timeout=0) is not None)
assert os.wait()[1] == 0
""",
    "loops": LOOPS,
    "a loop that is closed as it is": "use_a_loop_that_is_closed()",
}


@pytest.mark.slow
@pytest.mark.parametrize("end", ENDS)
def test_keys_at_rest_at_an_end_then_are_released(
    urls: list[str], servers: Servers, end: str
) -> None:
    ended = run_to_its_end(PRELUDE + ENDS[end], *urls)
    assert (ended.stdout, ended.stderr, ended.returncode) == ("", "", 0)
    assert not any(server.exists("j") for server in servers)


# --- cohorts --------------------------------------------------------------------------

LONG = 1.0  # s; a stay that no machine is too slow for


@pytest.fixture
def cohort(make_locks: MakeLocks, urls: list[str]) -> FastRedlock:
    return connected(make_locks(urls, ttl=TTL, cohort=LONG))


def rounds_of_acquires(locks: FastRedlock) -> int:
    stats = locks.stats()
    return stats.acquires.won - stats.handed_on


def test_callers_in_one_stay_then_are_granted_in_order_without_a_round(
    cohort: FastRedlock, servers: Servers
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
    cohort: FastRedlock, servers: Servers
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


def test_token_when_it_was_handed_on_and_is_given_then_is_as_any_other(
    cohort: FastRedlock, make_locks: MakeLocks, urls: list[str]
) -> None:
    """Seen: a process died of it, as an engine with given tokens draws none."""
    first, second, went_on = handed_on(cohort)
    assert went_on
    second.release()
    given = first.token

    def use() -> list[str]:
        locks = make_locks(urls, new_token=lambda: given)
        statuses = locks.adopt(KEY, given).release(), take_one(locks).release()
        return [status.name for status in statuses]

    assert Fork(use).result() == ["GONE", "RELEASED"]


def both(locks: FastRedlock) -> Any:
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
    make_locks: MakeLocks, urls: list[str], servers: Servers,
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


def test_lease_when_two_threads_release_it_then_the_next_keeps_its_key(
    urls: list[str], servers: Servers
) -> None:
    with FastRedlock(urls, ttl=TTL, cohort=LONG) as locks, Waiters() as waiters:
        lease = granted(locks.acquire(KEY))
        with begins_to_wait(locks):
            next_one = waiters.start(lambda: granted(locks.acquire(KEY, timeout=10)))
        releases, _ = begin_releases(locks._driver, [lease])
        releases.append(lease._begin_release())  # before the first was run
        for release in filter(None, releases):
            locks._driver.run(release)
        second = next_one.result(10)
        held = settled_values(servers, [second.token] * len(servers))
        assert held == [second.token] * len(servers)
        second.release()
    assert is_over(servers)


def test_task_when_cancelled_just_after_a_lease_went_to_it_then_leaves_no_key(
    urls: list[str], servers: Servers
) -> None:
    async def run() -> None:
        async with AwaitableFastRedlock(urls, ttl=TTL, cohort=LONG) as locks:
            lease = await locks.acquire(KEY)
            assert lease
            task = asyncio.create_task(locks.acquire(KEY))
            await until(lambda: locks.stats().waits, pause=0)
            await lease.release()
            assert locks.stats().handed_on == 1
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await asyncio.to_thread(is_over, servers)

    asyncio.run(run())
