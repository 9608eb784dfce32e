"""aioredlock 0.7.3 and what replaces it: surface, wire, and every call."""

from __future__ import annotations

import re
import time
from contextlib import closing
from typing import Any

import pytest
import redis

from tests.compat.aioredlock.face import BRIEF, PAIR, Face, set_all, values
from tests.support import library_process
from tests.support.keys import KEY
from tests.support.two_libraries import (
    assert_exclude_each_other,
    differing,
    is_stored,
    lefts_ms,
    load,
    other_process,
    surface,
)
from tests.support.waiting import stopwatch, wait_until

UUID = rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"


# What differs in the surface, and why.
DIFFERENCES = {
    "Sentinel.get_master: async (self) -> missing": "a Sentinel is refused",
    "Sentinel.get_sentinel: async (self) -> missing": "a Sentinel is refused",
    "Lock.lock_timeout: missing -> 10.0": "the class shows the default as well",
    "Lock.valid: missing -> False": "the class shows the default as well",
}


pytestmark = pytest.mark.filterwarnings("ignore:distutils Version classes")


# --- surface --------------------------------------------------------------------------


def test_surface_is_theirs() -> None:
    theirs, ours = map(load, PAIR)
    assert sorted(ours.__all__) == sorted(theirs.__all__)
    names = list(theirs.__all__)
    assert differing(surface(theirs, names), surface(ours, names)) == DIFFERENCES.keys()


def test_attributes_are_set_as_by_theirs(aioredlock: Face, urls: list[str]) -> None:
    manager = aioredlock.manager(urls, retry_count="2", retry_delay_min=1)
    assert manager.redis_connections is urls
    assert (manager.retry_count, manager.retry_delay_min) == (2, 1.0)
    assert (manager.retry_delay_max, manager.internal_lock_timeout) == (0.3, 10.0)
    assert manager.log.name == "aioredlock.algorithm"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"retry_count": 0}, "Retry count must be greater or equal 1."),
        ({"retry_delay_min": 0}, "Retry delay must be greater than 0 seconds."),
        ({"retry_delay_max": -1}, "Retry delay must be greater than 0 seconds."),
        (
            {"internal_lock_timeout": 0},
            "Internal lock_timeout must be greater than 0 seconds.",
        ),
    ],
)
def test_argument_out_of_range_is_refused(
    aioredlock: Face, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        aioredlock.manager([("localhost", 1)], **options)


def test_password_is_in_no_repr(aioredlock: Face) -> None:
    manager = aioredlock.manager(
        ["redis://:hunter2@h:1/0", {"host": "g", "password": "hunter2"}, ("f", 6379)]
    )
    assert "hunter2" not in repr(manager)
    assert repr(manager).startswith("Aioredlock(redis_connections=['redis://:*******@h")
    assert repr(manager).endswith(
        "retry_count=1, retry_delay_min=0.1, retry_delay_max=0.3, "
        "internal_lock_timeout=10.0)"
    )


def test_lock_is_made_of_five_fields(aioredlock: Face, urls: list[str]) -> None:
    manager = aioredlock.manager(urls)
    lock = aioredlock.Lock(manager, "resource", "id")
    assert (lock.lock_manager, lock.resource, lock.id) == (manager, "resource", "id")
    assert (lock.lock_timeout, lock.valid) == (10.0, False)
    assert lock == aioredlock.Lock(manager, "resource", "id", 10.0, False)
    assert lock != aioredlock.Lock(manager, "resource", "other")


# --- wire -----------------------------------------------------------------------------


def test_key_value_and_ttl_on_the_servers(
    aioredlock: Face, urls: list[str], servers: list[redis.Redis]
) -> None:
    lock = aioredlock.run(aioredlock.manager(urls).lock(KEY, lock_timeout=2.5))
    assert re.fullmatch(UUID.decode(), lock.id)
    assert wait_until(lambda: is_stored(lock.id.encode(), values(servers)))
    assert all(1000 < left <= 2500 for left in lefts_ms(servers, KEY))
    assert (lock.resource, lock.lock_timeout, lock.valid) == (KEY, 2.5, True)


@pytest.mark.parametrize(("here", "there"), [PAIR, PAIR[::-1]])
def test_old_and_new_processes_exclude_each_other(
    here: str, there: str, urls: list[str]
) -> None:
    load(there)
    with (
        closing(library_process.Aioredlock(load(here), KEY, urls)) as lock,
        other_process("aioredlock", there, KEY, urls) as other,
    ):
        assert_exclude_each_other(lock, other)


@pytest.mark.slow
def test_counter_when_old_and_new_processes_share_it_then_loses_no_update(
    urls: list[str], tmp_path: Any
) -> None:
    path = tmp_path / "counter"
    path.write_text("0")
    for module in PAIR:
        load(module)
    with (
        other_process("aioredlock", PAIR[0], KEY, urls) as theirs,
        other_process("aioredlock", PAIR[1], KEY, urls) as ours,
    ):
        for process in (theirs, ours):
            process.tell(f"count {path} 20")
        assert [theirs.answer(), ours.answer()] == ["None", "None"]
    assert path.read_text() == "40"


# --- lock and unlock ------------------------------------------------------------------


def test_lock_and_unlock(
    aioredlock: Face, urls: list[str], servers: list[redis.Redis]
) -> None:
    manager = aioredlock.manager(urls)
    lock = aioredlock.run(manager.lock(KEY, 5))
    assert aioredlock.run(manager.is_locked(KEY)) is True
    assert aioredlock.run(manager.is_locked(lock)) is True
    assert aioredlock.run(lock.is_locked()) is True
    assert aioredlock.run(manager.unlock(lock)) is None
    assert lock.valid is False
    assert wait_until(lambda: values(servers) == [None] * 5)
    assert aioredlock.run(manager.is_locked(KEY)) is False


def test_lock_when_others_hold_it_then_raises_after_all_tries(
    aioredlock: Face, urls: list[str], servers: list[redis.Redis]
) -> None:
    set_all(servers, "another's")
    manager = aioredlock.manager(
        urls, retry_count=3, retry_delay_min=0.05, retry_delay_max=0.1
    )
    with (
        stopwatch() as elapsed,
        pytest.raises(aioredlock.LockAcquiringError, match=r"^Can not set lock$"),
    ):
        aioredlock.run(manager.lock(KEY, 5))
    assert elapsed() >= 0.1


def test_lock_that_is_released_meanwhile_is_got_by_a_later_try(
    aioredlock: Face, urls: list[str], servers: list[redis.Redis]
) -> None:
    set_all(servers, "another's", px=100)
    manager = aioredlock.manager(urls, retry_count=20)
    assert aioredlock.run(manager.lock(KEY, 5)).valid


def test_lock_whose_timeout_is_over_is_free(aioredlock: Face, urls: list[str]) -> None:
    manager = aioredlock.manager(urls)
    aioredlock.run(manager.lock(KEY, BRIEF))
    time.sleep(BRIEF + 0.01)
    assert aioredlock.run(manager.lock(KEY, 5)).valid


@pytest.mark.parametrize("lock_timeout", [0, -1.5])
def test_lock_timeout_that_is_not_positive_is_refused(
    aioredlock: Face, urls: list[str], lock_timeout: float
) -> None:
    message = "^Lock timeout must be greater than 0 seconds.$"
    manager = aioredlock.manager(urls)
    with pytest.raises(ValueError, match=message):
        aioredlock.run(manager.lock(KEY, lock_timeout))
    lock = aioredlock.run(manager.lock(KEY, 5))
    with pytest.raises(ValueError, match=message):
        aioredlock.run(manager.extend(lock, lock_timeout))


def test_identifier_is_stored_and_takes_its_own_lock_again(
    aioredlock: Face, urls: list[str], servers: list[redis.Redis]
) -> None:
    manager = aioredlock.manager(urls)
    lock = aioredlock.run(manager.lock(KEY, 3, "worker-7"))
    assert lock.id == "worker-7"
    assert wait_until(lambda: is_stored(b"worker-7", values(servers)))
    again = aioredlock.run(aioredlock.manager(urls).lock(KEY, 9, "worker-7"))
    assert (again.id, again.valid) == ("worker-7", True)
    assert wait_until(lambda: min(lefts_ms(servers, KEY)) > 5000)
    with pytest.raises(aioredlock.LockAcquiringError):
        aioredlock.run(manager.lock(KEY, 9, "worker-8"))


def test_async_with_holds_it_in_the_body(
    aioredlock: Face, urls: list[str], servers: list[redis.Redis]
) -> None:
    manager = aioredlock.manager(urls)

    async def body() -> None:
        async with await manager.lock(KEY) as lock:
            assert lock.valid is True
            assert await lock.is_locked()
        assert lock.valid is False

    aioredlock.run(body())
    assert wait_until(lambda: values(servers) == [None] * 5)


def test_async_with_lets_the_error_of_the_body_pass(
    aioredlock: Face, urls: list[str], servers: list[redis.Redis]
) -> None:
    manager = aioredlock.manager(urls)

    async def body() -> None:
        async with await manager.lock(KEY, 5):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        aioredlock.run(body())
    assert wait_until(lambda: values(servers) == [None] * 5)


def test_unlock_of_what_nobody_holds_is_no_error(
    aioredlock: Face, urls: list[str], servers: list[redis.Redis]
) -> None:
    manager = aioredlock.manager(urls)
    lock = aioredlock.run(manager.lock(KEY, 5))
    aioredlock.run(lock.release())
    aioredlock.run(lock.release())
    lock = aioredlock.run(manager.lock(KEY, 5))
    for server in servers:
        server.delete(KEY)
    aioredlock.run(manager.unlock(lock))


def test_unlock_of_what_another_has_raises(
    aioredlock: Face, urls: list[str], servers: list[redis.Redis]
) -> None:
    lock = aioredlock.run(aioredlock.manager(urls).lock(KEY, 5))
    set_all(servers, "another's")
    with pytest.raises(aioredlock.LockAcquiringError, match=r"^Can not unset lock$"):
        aioredlock.run(lock.release())
    assert values(servers) == [b"another's"] * 5
    assert lock.valid is False


def test_unlock_of_a_lock_made_of_its_fields(
    aioredlock: Face, urls: list[str], servers: list[redis.Redis]
) -> None:
    lock = aioredlock.run(aioredlock.manager(urls).lock(KEY, 5))
    other = aioredlock.manager(urls)
    aioredlock.run(other.unlock(aioredlock.Lock(other, KEY, lock.id, valid=True)))
    assert wait_until(lambda: values(servers) == [None] * 5)
