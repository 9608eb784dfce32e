"""Lingering: a released key rests in its process until another one asks for it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis

import fastredlock.asyncio
from fastredlock import ConfigurationError, FastRedlock, ReleaseStatus
from tests.support.calls import connected, granted
from tests.support.fixtures import MakeLocks
from tests.support.keys import KEY
from tests.support.waiters import counter, is_over

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


def rest(locks: FastRedlock, **options: Any) -> Any:
    """Take the key and release it, so that it rests; return the lease.

    Twice: the first time a thread is started that reads recalls.
    """
    granted(locks.acquire(KEY, timeout=5, **options)).release()
    lease = granted(locks.acquire(KEY, timeout=5, **options))
    assert lease.release() is ReleaseStatus.RELEASED
    return lease


def values(servers: list[redis.Redis]) -> set[bytes | None]:
    """Return what is under the key on the masters."""
    return {server.get(KEY) for server in servers}


def watchers() -> list[str]:
    """Name the threads that read recalls."""
    return [each.name for each in threading.enumerate() if each.name == RECALLS]


def until(is_so: Callable[[], bool], seconds: float = 5) -> None:
    """Wait until something is so."""
    end = time.monotonic() + seconds
    while not is_so() and time.monotonic() < end:
        time.sleep(0.002)
    assert is_so()


def test_key_at_rest_then_the_next_caller_here_has_it_without_a_round(
    lingering: FastRedlock, servers: list[redis.Redis]
) -> None:
    first = rest(lingering)
    (value,) = values(servers)
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
    assert values(servers) == {value}
    lingering.close()
    assert is_over(servers)


def test_key_at_rest_when_another_process_asks_then_is_its_own_at_once(
    lingering: FastRedlock, others: FastRedlock, servers: list[redis.Redis]
) -> None:
    gaps = []
    for _ in range(5):
        rest(lingering)
        assert values(servers) != {None}
        began = time.perf_counter()
        lease = granted(others.acquire(KEY, timeout=5))
        gaps.append(time.perf_counter() - began)
        lease.release()
        time.sleep(1.1)  # as long as others are remembered
    assert sorted(gaps)[2] < 0.1
    assert is_over(servers)


def test_key_at_rest_when_a_single_try_asks_then_the_next_one_has_it(
    lingering: FastRedlock, others: FastRedlock, servers: list[redis.Redis]
) -> None:
    rest(lingering)
    assert others.acquire(KEY, timeout=0) is None
    until(lambda: values(servers) == {None})
    assert others.acquire(KEY, timeout=0) is not None


def test_key_at_rest_when_several_are_asked_for_then_is_given_up(
    lingering: FastRedlock, others: FastRedlock, servers: list[redis.Redis]
) -> None:
    rest(lingering)
    assert others.acquire_all([KEY, "another"], timeout=5) is not None


def test_key_in_use_when_another_process_asks_then_does_not_rest(
    lingering: FastRedlock, others: FastRedlock, servers: list[redis.Redis]
) -> None:
    rest(lingering)
    lease = granted(lingering.acquire(KEY, timeout=5))
    assert others.acquire(KEY, timeout=0) is None
    time.sleep(0.1)  # by now its thread has read the recall
    lease.release()
    assert is_over(servers)


def test_key_at_rest_when_its_time_is_over_then_is_released(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis]
) -> None:
    locks = connected(make_locks(urls, ttl=TTL, linger=0.2))
    rest(locks)
    assert values(servers) != {None}
    has_thread = type(locks) is FastRedlock
    until(lambda: bool(watchers()) is has_thread, 2)
    until(lambda: values(servers) == {None}, 2)
    until(lambda: not watchers(), 2)
    rest(locks)
    until(lambda: bool(watchers()) is has_thread, 2)


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
    lingering: FastRedlock, servers: list[redis.Redis], before: Callable[[Any], Any]
) -> None:
    lease = granted(lingering.acquire(KEY, timeout=5))
    before(lease)
    assert lease.release() is ReleaseStatus.RELEASED
    assert is_over(servers)


def test_lease_when_it_rests_then_its_token_is_not_shown_any_more(
    lingering: FastRedlock, servers: list[redis.Redis]
) -> None:
    lease = rest(lingering)
    (value,) = values(servers)
    assert value is not None
    assert lease.token != value.decode()
    lingered = counter(lingering, "lingered")
    assert granted(lingering.acquire(KEY, timeout=0)).is_valid
    assert counter(lingering, "lingered") == lingered + 1


def test_callers_here_when_the_key_rests_and_they_want_it_otherwise_then_it_is_replaced(
    lingering: FastRedlock, servers: list[redis.Redis]
) -> None:
    rest(lingering)
    granted(lingering.acquire_all([KEY, "another"], timeout=0)).release()
    rest(lingering)
    (lease,) = lingering.acquire_each([KEY])
    assert lease is not None
    lease.release()
    rest(lingering)
    lingered = counter(lingering, "lingered")
    granted(lingering.acquire(KEY, ttl=TTL / 2, timeout=0)).release()
    assert counter(lingering, "lingered") == lingered
    rest(lingering)
    lingered = counter(lingering, "lingered")
    assert lingering.acquire(KEY, timeout=0, linger=0).release() is (  # type: ignore[union-attr]
        ReleaseStatus.RELEASED
    )
    assert counter(lingering, "lingered") == lingered
    assert is_over(servers)


def test_linger_when_given_for_one_call_then_is_of_that_one(
    others: FastRedlock, servers: list[redis.Redis]
) -> None:
    rest(others, linger=LINGER)
    assert values(servers) != {None}
    lingered = counter(others, "lingered")
    with others.lock(KEY, timeout=0, linger=LINGER):
        pass
    assert counter(others, "lingered") == lingered + 1
    with others.lock(KEY, timeout=0):
        pass
    assert is_over(servers)


@pytest.mark.parametrize("linger", [-0.1, 3601, float("nan"), "1"])
def test_linger_when_it_is_no_time_then_is_refused(
    make_locks: MakeLocks, urls: list[str], linger: Any
) -> None:
    with pytest.raises(ConfigurationError, match="linger"):
        make_locks(urls, linger=linger)


@pytest.mark.parametrize(
    "options",
    [
        {"fencing": True},
        {"new_token": lambda: b"t"},
        {"release_script": b"return 1"},
    ],
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


def test_holders_of_a_key_at_rest_name_its_owner_and_that_it_lingers(
    lingering: FastRedlock, others: FastRedlock
) -> None:
    rest(lingering)
    (vote, *_) = others.holders(KEY)
    assert vote.owner is not None
    assert vote.text is not None
    assert "lingers" in vote.text


def test_adopting_and_breaking_by_a_client_that_lingers_then_are_of_that_token(
    lingering: FastRedlock, others: FastRedlock, servers: list[redis.Redis]
) -> None:
    theirs = granted(others.acquire(KEY, timeout=5))
    adopted = lingering.adopt(KEY, theirs.token)
    assert adopted.token == theirs.token
    assert adopted.extend(TTL) > 0
    assert adopted.release() is ReleaseStatus.RELEASED
    theirs = granted(others.acquire(KEY, timeout=5))
    broken = lingering.break_(KEY, token_hash=shown_hash(lingering))
    assert broken is ReleaseStatus.RELEASED
    assert is_over(servers)


@pytest.mark.parametrize("who", ["itself", "another"])
def test_key_at_rest_when_it_is_broken_then_nobody_has_it_from_its_rest(
    lingering: FastRedlock, others: FastRedlock, servers: list[redis.Redis], who: str
) -> None:
    rest(lingering)
    by = lingering if who == "itself" else others
    assert by.break_(KEY, token_hash=shown_hash(by)) is not ReleaseStatus.UNKNOWN
    assert is_over(servers)
    theirs = granted(others.acquire(KEY, timeout=5))
    assert lingering.acquire(KEY, timeout=0) is None
    assert theirs.release() is ReleaseStatus.RELEASED


def test_lease_when_broken_while_it_is_held_then_its_key_does_not_rest(
    lingering: FastRedlock, others: FastRedlock
) -> None:
    lease = granted(lingering.acquire(KEY, timeout=5))
    others.break_(KEY, token_hash=shown_hash(others))
    theirs = granted(others.acquire(KEY, timeout=5))
    assert lease.release() is ReleaseStatus.GONE
    assert lingering.acquire(KEY, timeout=0) is None
    theirs.release()


def test_keys_at_rest_when_all_connections_are_cut_then_are_released_on_the_next(
    lingering: FastRedlock, servers: list[redis.Redis]
) -> None:
    rest(lingering)
    for server in servers:
        for client in server.client_list():
            if client["name"] == "fastredlock":
                server.client_kill_filter(_id=client["id"])
    until(lambda: values(servers) == {None}, 3)


def test_key_at_rest_when_its_gate_has_lost_it_then_is_recalled_by_another_master(
    lingering: FastRedlock, others: FastRedlock, servers: list[redis.Redis]
) -> None:
    for server in servers:  # one of them is its gate
        time.sleep(1.1)
        rest(lingering)
        server.delete(KEY)
        began = time.perf_counter()
        granted(others.acquire(KEY, timeout=5)).release()
        assert time.perf_counter() - began < 1


# --- asyncio --------------------------------------------------------------------------


def tasks_of_recalls() -> list[Any]:
    return [each for each in asyncio.all_tasks() if each.get_name() == RECALLS]


def test_key_at_rest_in_a_loop_then_the_next_task_has_it(
    urls: list[str], servers: list[redis.Redis]
) -> None:
    async def main() -> None:
        async with fastredlock.asyncio.FastRedlock(
            urls, ttl=TTL, linger=LINGER, round_timeout=10
        ) as locks:
            for _ in range(20):
                async with locks.lock(KEY, timeout=5):
                    pass
            assert locks.stats().lingered == 19
            assert len(tasks_of_recalls()) == 1
            assert values(servers) != {None}
        assert is_over(servers)

    asyncio.run(main())


def test_key_at_rest_in_a_loop_when_another_asks_or_its_time_is_over_then_is_free(
    urls: list[str], servers: list[redis.Redis], others: FastRedlock
) -> None:
    async def main() -> None:
        locks = fastredlock.asyncio.FastRedlock(urls, ttl=TTL, round_timeout=10)
        lease = await locks.acquire(KEY, timeout=5, linger=LINGER)
        assert lease is not None
        await lease.release()
        theirs = await asyncio.to_thread(others.acquire, KEY, timeout=5)
        assert theirs is not None
        await asyncio.to_thread(theirs.release)
        await asyncio.sleep(1.1)
        lease = await locks.acquire("short", timeout=5, linger=0.1)
        assert lease is not None
        await lease.release()
        assert servers[0].get("short") is not None
        await asyncio.sleep(0.4)
        assert servers[0].get("short") is None
        assert others.acquire(KEY, timeout=0) is not None

    asyncio.run(main())


ENDS = {
    "the interpreter": """
locks = FastRedlock(URLS, ttl=30, linger=20, round_timeout=10)
for _ in range(3):
    locks.acquire("j", timeout=5).release()
assert locks.stats().lingered == 1
""",
    "a process of multiprocessing": """
import multiprocessing
def main():
    locks = FastRedlock(URLS, ttl=30, linger=20, round_timeout=10)
    for _ in range(3):
        locks.acquire("j", timeout=5).release()
    assert locks.stats().lingered == 1
child = multiprocessing.get_context("fork").Process(target=main)
child.start()
child.join()
assert child.exitcode == 0
""",
    "a client that is dropped": """
def main():
    locks = FastRedlock(URLS, ttl=30, linger=20)
    for _ in range(3):
        locks.acquire("j", timeout=5).release()
main()
""",
    "a forked parent's": """
import os
locks = FastRedlock(URLS, ttl=30, linger=20, round_timeout=10)
for _ in range(3):
    locks.acquire("j", timeout=5).release()
assert locks.stats().lingered == 1
if os.fork() == 0:
    os._exit(locks.acquire("j", timeout=0) is not None)
assert os.wait()[1] == 0
""",
    "a loop": """
import asyncio, fastredlock.asyncio
locks = fastredlock.asyncio.FastRedlock(URLS, ttl=30, linger=20, round_timeout=10)
async def main():
    await (await locks.acquire("j", timeout=5)).release()
asyncio.run(main())
LEFT()
async def again():
    await (await locks.acquire("j", timeout=5)).release()
    assert locks.stats().lingered == 0
asyncio.run(again())
""",
    "a task that is cancelled with its loop": """
import asyncio, fastredlock.asyncio
locks = fastredlock.asyncio.FastRedlock(URLS, ttl=30, linger=20, round_timeout=10)
async def hold():
    async with locks.lock("j", timeout=5):
        await asyncio.sleep(100)
async def main():
    globals()["task"] = asyncio.create_task(hold())
    await asyncio.sleep(0.1)
asyncio.run(main())
LEFT()
""",
    "a loop, just after": """
import asyncio, fastredlock.asyncio, sys
locks = fastredlock.asyncio.FastRedlock(URLS, ttl=30, linger=20, round_timeout=10)
async def main():
    await (await locks.acquire("j", timeout=5)).release()
    sys.exit(0)
for _ in range(2):
    try:
        asyncio.run(main())
    except SystemExit:
        pass
    LEFT()
""",
    "a loop behind one that was closed as it was": """
import asyncio, fastredlock.asyncio
locks = fastredlock.asyncio.FastRedlock(URLS, ttl=30, linger=20, round_timeout=10)
async def main():
    await (await locks.acquire("j", timeout=5)).release()
loop = asyncio.new_event_loop()
loop.run_until_complete(main())
loop.close()
asyncio.run(main())
LEFT()
async def close():
    await main()
    await asyncio.wait_for(locks.close(), 5)
asyncio.run(close())
""",
    "a loop that is closed as it is": """
import asyncio, fastredlock.asyncio
locks = fastredlock.asyncio.FastRedlock(URLS, ttl=30, linger=20, round_timeout=10)
async def main():
    await (await locks.acquire("j", timeout=5)).release()
loop = asyncio.new_event_loop()
loop.run_until_complete(main())
loop.close()
""",
}


@pytest.mark.parametrize("end", ENDS)
def test_keys_at_rest_at_an_end_then_are_released(
    urls: list[str], servers: list[redis.Redis], end: str
) -> None:
    program = f"""
import redis
from fastredlock import FastRedlock
URLS = {urls!r}
def LEFT():
    assert not any(redis.Redis.from_url(url).exists("j") for url in URLS)
{ENDS[end]}"""
    words = [sys.executable, "-c", program]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert (ended.stdout, ended.stderr, ended.returncode) == ("", "", 0)
    assert not any(server.exists("j") for server in servers)
