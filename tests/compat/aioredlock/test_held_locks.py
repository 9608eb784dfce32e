"""Locks of aioredlock that are held: extended, listed, destroyed; failing masters."""

from __future__ import annotations

import time
from asyncio import sleep

import pytest
import redis

from fastredlock.testing import LocalMasters
from tests.compat.aioredlock.face import BRIEF, Face, not_copied, set_all, values
from tests.support.keys import KEY
from tests.support.two_libraries import is_stored, lefts_ms
from tests.support.waiting import wait_until

pytestmark = pytest.mark.filterwarnings("ignore:distutils Version classes")


# --- what users do with it ------------------------------------------------------------


@pytest.mark.slow
def test_lock_that_a_user_calls_invalid_is_extended_no_more(
    aioredlock: Face, urls: list[str], servers: list[redis.Redis]
) -> None:
    async def body() -> None:
        lock = await manager.lock(KEY)
        lock.valid = False
        lock.valid = True
        await sleep(0.7)
        assert is_stored(lock.id.encode(), values(servers))
        lock.valid = False
        await sleep(0.7)
        assert values(servers) == [None] * 5

    manager = aioredlock.manager(urls, internal_lock_timeout=0.5)
    aioredlock.run(body())


def test_block_that_is_left_after_destroy_says_nothing(
    aioredlock: Face, urls: list[str], servers: list[redis.Redis]
) -> None:
    async def leave() -> None:
        async with await manager.lock(KEY, 5) as lock:
            await manager.destroy()
            assert not await lock.is_locked()
            assert not await manager.is_locked(KEY)

    manager = aioredlock.manager(urls)
    aioredlock.run(leave())
    assert values(servers) == [None] * 5


# --- extend ---------------------------------------------------------------------------


def test_extend_sets_the_ttl_anew(
    aioredlock: Face, urls: list[str], servers: list[redis.Redis]
) -> None:
    manager = aioredlock.manager(urls)
    lock = aioredlock.run(manager.lock(KEY, 3))
    assert aioredlock.run(manager.extend(lock, 9)) is None
    assert wait_until(lambda: min(lefts_ms(servers, KEY)) > 5000)
    aioredlock.run(lock.extend())
    assert wait_until(lambda: max(lefts_ms(servers, KEY)) <= 3000)
    assert lock.valid is True


def test_extend_of_what_is_not_valid_is_refused(
    aioredlock: Face, urls: list[str]
) -> None:
    manager = aioredlock.manager(urls)
    lock = aioredlock.run(manager.lock(KEY, 3))
    aioredlock.run(manager.unlock(lock))
    with pytest.raises(RuntimeError, match=r"^Lock is not valid$"):
        aioredlock.run(manager.extend(lock))


def test_extend_of_what_another_has_raises(
    aioredlock: Face, urls: list[str], servers: list[redis.Redis]
) -> None:
    lock = aioredlock.run(aioredlock.manager(urls).lock(KEY, 3))
    set_all(servers, "another's")
    with pytest.raises(aioredlock.LockAcquiringError, match=r"^Can not set lock$"):
        aioredlock.run(lock.extend())
    assert values(servers) == [b"another's"] * 5
    assert lock.valid is False


@not_copied  # it takes the lock anew, as anybody may have done meanwhile
def test_extend_when_its_keys_are_gone_then_it_is_lost(
    aioredlock: Face, urls: list[str], servers: list[redis.Redis]
) -> None:
    lock = aioredlock.run(aioredlock.manager(urls).lock(KEY, 3))
    for server in servers:
        server.flushall()
    with pytest.raises(aioredlock.LockAcquiringError, match=r"^Can not set lock$"):
        aioredlock.run(lock.extend())
    assert lock.valid is False


def test_extend_when_it_is_refused_then_leaves_no_key_of_ours(
    aioredlock: Face, urls: list[str], servers: list[redis.Redis]
) -> None:
    manager = aioredlock.manager(urls)
    lock = aioredlock.run(manager.lock(KEY, 60))
    set_all(servers[:3], "another's")
    with pytest.raises(aioredlock.LockError):
        aioredlock.run(lock.extend())
    assert values(servers) == [b"another's"] * 3 + [None] * 2


def test_lock_when_its_identifier_has_a_minority_then_leaves_no_key_of_it(
    aioredlock: Face, urls: list[str], servers: list[redis.Redis]
) -> None:
    set_all(servers[:3], "another's")
    set_all(servers[3:], "id", px=60_000)
    manager = aioredlock.manager(urls)
    with pytest.raises(aioredlock.LockError):
        aioredlock.run(manager.lock(KEY, 60, lock_identifier="id"))
    aioredlock.wait(0.2)  # theirs does it in the background
    assert values(servers) == [b"another's"] * 3 + [None] * 2


def test_lock_when_lost_while_it_is_extended_then_leaves_no_key_of_ours(
    aioredlock: Face, urls: list[str], servers: list[redis.Redis]
) -> None:
    manager = aioredlock.manager(urls, internal_lock_timeout=0.9)
    lock = aioredlock.run(manager.lock(KEY))
    set_all(servers[:3], "another's")
    aioredlock.wait(0.7)
    assert lock.valid is False
    assert values(servers) == [b"another's"] * 3 + [None] * 2


@pytest.mark.slow
def test_lock_without_a_timeout_is_extended_until_it_is_released(
    aioredlock: Face, urls: list[str], servers: list[redis.Redis]
) -> None:
    manager = aioredlock.manager(urls, internal_lock_timeout=1)
    lock = aioredlock.run(manager.lock(KEY))
    assert lock.lock_timeout is None
    aioredlock.wait(1.6)
    assert wait_until(lambda: is_stored(lock.id.encode(), values(servers)))
    aioredlock.run(lock.release())
    aioredlock.wait(0.8)
    assert values(servers) == [None] * 5


# --- others ---------------------------------------------------------------------------


def test_is_locked_says_so_of_anybody(
    aioredlock: Face, urls: list[str], servers: list[redis.Redis]
) -> None:
    manager = aioredlock.manager(urls)
    set_all(servers[:2], "another's")
    assert aioredlock.run(manager.is_locked(KEY)) is False
    set_all(servers[:3], "another's")
    assert aioredlock.run(manager.is_locked(KEY)) is True
    with pytest.raises(TypeError, match=r"Argument should be ether aioredlock.Lock"):
        aioredlock.run(manager.is_locked(42))


def test_get_lock_gives_the_lock_of_an_identifier(
    aioredlock: Face, urls: list[str], servers: list[redis.Redis]
) -> None:
    lock = aioredlock.run(aioredlock.manager(urls).lock(KEY, 5))
    assert wait_until(lambda: is_stored(lock.id.encode(), values(servers)))
    manager = aioredlock.manager(urls)
    found = aioredlock.run(manager.get_lock(KEY, lock.id))
    assert (found.resource, found.id, found.valid) == (KEY, lock.id, True)
    assert found.lock_timeout == 5
    assert found.lock_manager is manager
    aioredlock.run(found.extend())
    aioredlock.run(found.release())
    assert wait_until(lambda: values(servers) == [None] * 5)
    with pytest.raises(aioredlock.LockAcquiringError, match=r"^Can not get lock$"):
        aioredlock.run(manager.get_lock(KEY, lock.id))


def test_active_locks_are_those_that_are_held(
    aioredlock: Face, urls: list[str]
) -> None:
    manager = aioredlock.manager(urls)
    first, second = (aioredlock.run(manager.lock(key, 5)) for key in ("a", "b"))
    brief = aioredlock.run(manager.lock("c", BRIEF))
    time.sleep(BRIEF + 0.01)
    aioredlock.run(first.release())
    assert aioredlock.run(manager.get_active_locks()) == [second]
    assert brief.valid is True


def test_destroy_releases_all(
    aioredlock: Face, urls: list[str], servers: list[redis.Redis]
) -> None:
    manager = aioredlock.manager(urls)
    locks = [aioredlock.run(manager.lock(KEY)), aioredlock.run(manager.lock("b", 5))]
    assert aioredlock.run(manager.destroy()) is None
    assert [lock.valid for lock in locks] == [False, False]
    assert wait_until(lambda: values(servers) == [None] * 5)


# --- masters that fail ----------------------------------------------------------------


def test_minority_that_fails_is_not_noticed(
    aioredlock: Face, masters: LocalMasters
) -> None:
    masters.stop(0)
    masters.stop(1)
    lock = aioredlock.run(aioredlock.manager(masters.urls).lock(KEY, 5))
    aioredlock.run(lock.extend())
    assert aioredlock.run(lock.is_locked())
    aioredlock.run(lock.release())


def test_majority_that_fails_is_a_runtime_error(
    aioredlock: Face, masters: LocalMasters
) -> None:
    manager = aioredlock.manager(masters.urls)
    first, second = (aioredlock.run(manager.lock(key, 60)) for key in ("a", "b"))
    for i in range(3):
        masters.stop(i)
    for call in (manager.lock(KEY, 5), second.extend()):
        with pytest.raises(aioredlock.LockRuntimeError, match=r"^Can not set lock$"):
            aioredlock.run(call)
    with pytest.raises(aioredlock.LockRuntimeError, match=r"^Can not unset lock$"):
        aioredlock.run(first.release())
    with pytest.raises(aioredlock.LockRuntimeError, match=r"^Can not get lock$"):
        aioredlock.run(manager.get_lock("b", second.id))
    assert aioredlock.run(manager.is_locked("b")) is False
