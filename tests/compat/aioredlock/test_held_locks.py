"""aioredlock 0.7.3 and what replaces it: one body of tests for both."""

from __future__ import annotations

import re
from typing import Any

import pytest

from fastredlock._options.masters import parse_masters
from fastredlock.compat.aioredlock.sentinel import master_of
from fastredlock.testing import LocalMasters
from tests.compat.aioredlock.face import Face
from tests.compat.face import ANOTHER
from tests.support.keys import KEY, delete, flush
from tests.support.masters import stop
from tests.support.two_libraries import is_stored
from tests.support.waiting import stopwatch, wait_until

# --- extend ---------------------------------------------------------------------------


def test_extend_sets_the_ttl_anew(face: Face) -> None:
    lock = face.lock(3)
    assert face.run(lock.lock_manager.extend(lock, 9)) is None
    assert wait_until(lambda: min(face.lefts_ms()) > 5000)
    face.run(lock.extend())
    assert wait_until(lambda: max(face.lefts_ms()) <= 3000)
    assert lock.valid is True


@pytest.mark.parametrize("count", [3, 5])
def test_extend_of_what_another_has_raises_and_leaves_no_key(
    face: Face, count: int
) -> None:
    lock = face.lock(60)
    face.set(count=count)
    with pytest.raises(face.LockAcquiringError, match=r"^Can not set lock$"):
        face.run(lock.extend())
    assert face.values() == [ANOTHER] * count + [None] * (5 - count)
    assert lock.valid is False


def test_extend_when_its_keys_are_gone_then_it_is_lost(better: Face) -> None:
    """Theirs takes the lock anew, as anybody may have done meanwhile."""
    lock = better.lock(3)
    flush(better.servers)
    with pytest.raises(better.LockAcquiringError, match=r"^Can not set lock$"):
        better.run(lock.extend())
    assert lock.valid is False
    lock = better.brief()
    assert better.is_free()
    with pytest.raises(better.LockAcquiringError):
        better.run(lock.extend())
    assert lock.valid is False
    assert better.values() == [None] * 5


# --- extended in time -----------------------------------------------------------------


@pytest.mark.slow
def test_lock_without_a_timeout_is_extended_until_it_is_released(face: Face) -> None:
    lock = face.run(face.manager(internal_lock_timeout=2).lock(KEY))
    assert lock.lock_timeout is None
    assert face.is_extended()
    assert is_stored(lock.id.encode(), face.values())
    face.run(lock.release())
    face.wait(1.5)  # longer than from one extension to the next: none may come
    assert face.values() == [None] * 5


@pytest.mark.slow
def test_lock_that_a_user_calls_invalid_is_extended_no_more(face: Face) -> None:
    async def take() -> None:
        lock = await manager.lock(KEY)
        lock.valid = False
        lock.valid = True
        locks.append(lock)

    locks, manager = list[object](), face.manager(internal_lock_timeout=2)
    face.run(take())
    assert face.is_extended()
    locks[0].valid = False  # type: ignore[attr-defined]
    assert face.until(lambda: face.values() == [None] * 5)


# --- others ---------------------------------------------------------------------------


def test_is_locked_says_so_of_anybody(face: Face) -> None:
    manager = face.manager()
    for count, is_locked in ((2, False), (3, True)):
        face.set(count=count)
        assert face.run(manager.is_locked(KEY)) is is_locked
    with pytest.raises(TypeError, match=r"Argument should be ether aioredlock.Lock"):
        face.run(manager.is_locked(42))


def test_get_lock_gives_the_lock_of_an_identifier(face: Face) -> None:
    lock = face.lock()
    assert wait_until(lambda: is_stored(lock.id.encode(), face.values()))
    manager = face.manager()
    found = face.run(manager.get_lock(KEY, lock.id))
    assert (found.resource, found.id, found.valid) == (KEY, lock.id, True)
    assert (found.lock_timeout, found.lock_manager) == (5, manager)
    face.run(found.extend())
    face.run(found.release())
    assert face.is_free()
    with pytest.raises(face.LockAcquiringError, match=r"^Can not get lock$"):
        face.run(manager.get_lock(KEY, lock.id))


def test_active_locks_are_those_that_are_held(face: Face) -> None:
    manager = face.manager()
    first, second = (face.run(manager.lock(key, 5)) for key in ("a", "b"))
    brief = face.brief(of=manager)
    assert face.is_free()
    face.run(first.release())
    assert face.run(manager.get_active_locks()) == [second]
    assert brief.valid is True


def test_destroy_releases_all(face: Face) -> None:
    manager = face.manager()
    locks = [face.run(manager.lock(KEY)), face.run(manager.lock("b", 5))]
    assert face.run(manager.destroy()) is None
    assert [lock.valid for lock in locks] == [False, False]
    assert face.is_free()


# --- masters that fail ----------------------------------------------------------------


def test_majority_that_fails_is_a_runtime_error(
    face: Face, masters: LocalMasters
) -> None:
    manager = face.manager(masters.urls)
    first, second = (face.run(manager.lock(key, 60)) for key in ("a", "b"))
    stop(masters, 3)
    for work, verb in (
        (manager.lock(KEY, 5), "set"),
        (second.extend(), "set"),
        (first.release(), "unset"),
        (manager.get_lock("b", second.id), "get"),
    ):
        with pytest.raises(face.LockRuntimeError, match=f"^Can not {verb} lock$") as e:
            face.run(work)
        assert e.value.__cause__ is not None
    assert face.run(manager.is_locked("b")) is False


# --- the demands of its suites and of its users -------------------------------


def test_lock_made_by_hand_without_expiry_can_be_released(face: Face) -> None:
    face.set("id")
    manager = face.manager()
    lock = face.run(manager.get_lock(KEY, "id"))
    assert (lock.lock_timeout, lock.valid) == (-1, True)
    made = face.Lock(manager, KEY, "id", lock_timeout=-1, valid=True)
    face.run(made.release())
    assert face.values() == [None] * 5
    with pytest.raises(face.LockError):
        face.run(lock.extend())


def test_sentinel_is_a_service_with_its_settings(ours: Face) -> None:
    place = {"host": "h", "create_connection_timeout": 3, "password": "hunter2"}
    [endpoint] = parse_masters([master_of(ours.Sentinel(place, master="orders", db=2))])
    assert endpoint.name == "sentinel:h:26379/orders/2"
    assert endpoint.password == "hunter2"


UUID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
RETRY = "Retry delay must be greater than 0 seconds."


# --- arguments ------------------------------------------------------------------------


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


def test_key_value_and_ttl_on_the_servers(face: Face) -> None:
    lock = face.lock(2.5)
    assert re.fullmatch(UUID, lock.id)
    assert wait_until(lambda: is_stored(lock.id.encode(), face.values()))
    assert all(1000 < left <= 2500 for left in face.lefts_ms())
    assert (lock.resource, lock.lock_timeout, lock.valid) == (KEY, 2.5, True)


# --- lock -----------------------------------------------------------------------------


def test_lock_when_others_hold_it_then_raises_after_all_tries(face: Face) -> None:
    face.set()
    delays = {"retry_delay_min": 0.05, "retry_delay_max": 0.1}
    manager = face.manager(retry_count=3, **delays)
    with stopwatch() as elapsed:
        with pytest.raises(face.LockAcquiringError, match=r"^Can not set lock$"):
            face.lock(of=manager)
        assert elapsed() >= 0.1


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
