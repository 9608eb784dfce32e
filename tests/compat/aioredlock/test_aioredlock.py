"""aioredlock and what replaces it: arguments, wire, lock and unlock."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.compat.aioredlock.face import BRIEF, Face
from tests.compat.face import ANOTHER
from tests.support.keys import KEY, delete
from tests.support.two_libraries import is_stored
from tests.support.waiting import stopwatch, wait_until

UUID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
RETRY = "Retry delay must be greater than 0 seconds."


# --- arguments ------------------------------------------------------------------------


def test_attributes_are_set_as_by_theirs(face: Face) -> None:
    manager = face.manager(retry_count="2", retry_delay_min=1)
    assert manager.redis_connections is face.urls
    assert (manager.retry_count, manager.retry_delay_min) == (2, 1.0)
    assert (manager.retry_delay_max, manager.internal_lock_timeout) == (0.3, 10.0)
    assert manager.log.name == "aioredlock.algorithm"


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("retry_count", 0, "Retry count must be greater or equal 1."),
        ("retry_delay_min", 0, RETRY),
        ("retry_delay_max", -1, RETRY),
        ("internal_lock_timeout", 0, "Internal lock_timeout must be greater than 0"),
    ],
)
def test_argument_out_of_range_is_refused(
    face: Face, option: str, value: int, message: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        face.manager([("localhost", 1)], **{option: value})


def test_password_is_in_no_repr(face: Face) -> None:
    url, place = "redis://:hunter2@h:1/0", {"host": "g", "password": "hunter2"}
    shown = repr(face.manager([url, place, ("f", 6379)]))
    assert "hunter2" not in shown
    assert shown.startswith("Aioredlock(redis_connections=['redis://:*******@h")
    assert shown.endswith(
        "retry_count=1, retry_delay_min=0.1, retry_delay_max=0.3, "
        "internal_lock_timeout=10.0)"
    )


def test_lock_is_made_of_five_fields(face: Face) -> None:
    manager = face.manager()
    lock = face.Lock(manager, "resource", "id")
    assert (lock.lock_manager, lock.resource, lock.id) == (manager, "resource", "id")
    assert (lock.lock_timeout, lock.valid) == (10.0, False)
    assert lock == face.Lock(manager, "resource", "id", 10.0, False)
    assert lock != face.Lock(manager, "resource", "other")


def test_key_value_and_ttl_on_the_servers(face: Face) -> None:
    lock = face.lock(2.5)
    assert re.fullmatch(UUID, lock.id)
    assert wait_until(lambda: is_stored(lock.id.encode(), face.values()))
    assert all(1000 < left <= 2500 for left in face.lefts_ms())
    assert (lock.resource, lock.lock_timeout, lock.valid) == (KEY, 2.5, True)


# --- lock -----------------------------------------------------------------------------


def test_lock_and_unlock(face: Face) -> None:
    manager = face.manager()
    lock = face.lock(of=manager)
    for asking in (manager.is_locked(KEY), manager.is_locked(lock), lock.is_locked()):
        assert face.run(asking) is True
    assert face.run(manager.unlock(lock)) is None
    assert lock.valid is False
    assert face.is_free()
    assert face.run(manager.is_locked(KEY)) is False


def test_lock_when_others_hold_it_then_raises_after_all_tries(face: Face) -> None:
    face.set()
    delays = {"retry_delay_min": 0.05, "retry_delay_max": 0.1}
    manager = face.manager(retry_count=3, **delays)
    with stopwatch() as elapsed:
        with pytest.raises(face.LockAcquiringError, match=r"^Can not set lock$"):
            face.lock(of=manager)
        assert elapsed() >= 0.1


def test_lock_that_is_over_meanwhile_is_got_by_a_later_try(face: Face) -> None:
    face.set(px=100)
    assert face.lock(of=face.manager(retry_count=20)).valid
    assert face.run(face.manager().lock("brief", BRIEF)).valid
    assert wait_until(lambda: not any(each.exists("brief") for each in face.servers))
    assert face.run(face.manager().lock("brief", 5)).valid


@pytest.mark.parametrize(
    ("timeout", "kind", "message"),
    [
        (0, "ValueError", "^Lock timeout must be greater than 0 seconds.$"),
        (-1.5, "ValueError", "^Lock timeout must be greater than 0 seconds.$"),
        (0.001, "LockError", "Lock timeout"),  # drift takes it off
    ],
)
def test_lock_timeout_that_is_not_enough_is_refused(
    face: Face, timeout: float, kind: str, message: str
) -> None:
    error = getattr(face.module, kind, ValueError)
    manager = face.manager()
    lock = face.lock(of=manager)
    for work in (manager.lock("b", timeout), manager.extend(lock, timeout)):
        with pytest.raises(error, match=message):
            face.run(work)


def test_identifier_is_stored_and_takes_its_own_lock_again(face: Face) -> None:
    lock = face.lock(3, "worker-7")
    assert lock.id == "worker-7"
    assert wait_until(lambda: is_stored(b"worker-7", face.values()))
    again = face.lock(9, "worker-7")
    assert (again.id, again.valid) == ("worker-7", True)
    assert wait_until(lambda: min(face.lefts_ms()) > 5000)
    with pytest.raises(face.LockAcquiringError):
        face.lock(9, "worker-8")


@pytest.mark.parametrize("identifier", [7, 1.5, b"7", "seven"])
def test_identifier_may_be_a_number(face: Face, identifier: Any) -> None:
    manager = face.manager()
    assert face.lock(5, identifier, of=manager).id == identifier
    found = face.run(manager.get_lock(KEY, identifier))
    assert found.id == identifier
    face.run(found.extend())
    face.run(found.release())
    assert face.is_free()


@pytest.mark.parametrize("fails", [False, True])
def test_async_with_holds_it_in_the_body(face: Face, fails: bool) -> None:
    manager = face.manager()

    async def body() -> None:
        async with await manager.lock(KEY) as lock:
            assert lock.valid is True
            assert await lock.is_locked()
            if fails:
                raise ZeroDivisionError
        assert lock.valid is False

    if fails:
        with pytest.raises(ZeroDivisionError):
            face.run(body())
    else:
        face.run(body())
    assert face.is_free()


# --- unlock ---------------------------------------------------------------------------


def test_unlock_of_what_nobody_holds_is_no_error(face: Face) -> None:
    lock = face.lock()
    face.run(lock.release())
    face.run(lock.release())
    lock = face.lock()
    delete(face.servers)
    face.run(lock.release())


def test_unlock_of_what_another_has_raises(face: Face) -> None:
    lock = face.lock()
    face.set()
    with pytest.raises(face.LockAcquiringError, match=r"^Can not unset lock$"):
        face.run(lock.release())
    assert face.values() == [ANOTHER] * 5
    assert lock.valid is False


def test_unlock_of_a_lock_made_of_its_fields(face: Face) -> None:
    lock, other = face.lock(), face.manager()
    face.run(other.unlock(face.Lock(other, KEY, lock.id, valid=True)))
    assert face.is_free()
