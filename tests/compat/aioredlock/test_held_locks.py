"""Locks of aioredlock that are held: extended, listed, destroyed; failing masters."""

from __future__ import annotations

import pytest

from fastredlock.testing import LocalMasters
from tests.compat.aioredlock.face import BRIEF, Face
from tests.compat.face import ANOTHER
from tests.support.keys import KEY
from tests.support.two_libraries import is_stored
from tests.support.waiting import wait_until

pytestmark = pytest.mark.filterwarnings("ignore:distutils Version classes")


# --- extend ---------------------------------------------------------------------------


def test_extend_sets_the_ttl_anew(face: Face) -> None:
    lock = face.lock(3)
    assert face.run(lock.lock_manager.extend(lock, 9)) is None
    assert wait_until(lambda: min(face.lefts_ms()) > 5000)
    face.run(lock.extend())
    assert wait_until(lambda: max(face.lefts_ms()) <= 3000)
    assert lock.valid is True


def test_extend_of_what_is_not_valid_is_refused(face: Face) -> None:
    lock = face.lock()
    face.run(lock.release())
    with pytest.raises(RuntimeError, match=r"^Lock is not valid$"):
        face.run(lock.extend())


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
    for server in better.servers:
        server.flushall()
    with pytest.raises(better.LockAcquiringError, match=r"^Can not set lock$"):
        better.run(lock.extend())
    assert lock.valid is False
    lock = better.lock(BRIEF)
    assert better.is_free()
    with pytest.raises(better.LockAcquiringError):
        better.run(lock.extend())
    assert lock.valid is False
    assert better.values() == [None] * 5


# --- extended in time -----------------------------------------------------------------


def test_lock_without_a_timeout_is_extended_until_it_is_released(face: Face) -> None:
    lock = face.run(face.manager(internal_lock_timeout=1).lock(KEY))
    assert lock.lock_timeout is None
    assert face.is_extended()
    assert is_stored(lock.id.encode(), face.values())
    face.run(lock.release())
    face.wait(0.8)  # longer than from one extension to the next: none may come
    assert face.values() == [None] * 5


def test_lock_that_a_user_calls_invalid_is_extended_no_more(face: Face) -> None:
    async def take() -> None:
        lock = await manager.lock(KEY)
        lock.valid = False
        lock.valid = True
        locks.append(lock)

    locks, manager = list[object](), face.manager(internal_lock_timeout=1)
    face.run(take())
    assert face.is_extended()
    locks[0].valid = False  # type: ignore[attr-defined]
    assert face.until(lambda: face.values() == [None] * 5)


def test_lock_when_lost_while_it_is_extended_then_leaves_no_key_of_ours(
    face: Face,
) -> None:
    lock = face.run(face.manager(internal_lock_timeout=0.9).lock(KEY))
    face.set(count=3)
    left = [ANOTHER] * 3 + [None] * 2
    assert face.until(lambda: not lock.valid and face.values() == left, within=0.8)


def test_lock_when_its_identifier_has_a_minority_then_leaves_no_key_of_it(
    face: Face,
) -> None:
    face.set("id", px=60_000)
    face.set(count=3)
    with pytest.raises(face.LockError):
        face.lock(60, "id")
    left = [ANOTHER] * 3 + [None] * 2
    assert face.until(lambda: face.values() == left)  # theirs: in the background


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
    brief = face.lock(BRIEF, of=manager)
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


def test_block_that_is_left_after_destroy_says_nothing(face: Face) -> None:
    async def leave() -> None:
        async with await manager.lock(KEY, 5) as lock:
            await manager.destroy()
            assert not await lock.is_locked()
            assert not await manager.is_locked(KEY)

    manager = face.manager()
    face.run(leave())
    assert face.values() == [None] * 5


# --- masters that fail ----------------------------------------------------------------


def test_minority_that_fails_is_not_noticed(face: Face, masters: LocalMasters) -> None:
    masters.stop(0)
    masters.stop(1)
    lock = face.lock(of=face.manager(masters.urls))
    face.run(lock.extend())
    assert face.run(lock.is_locked())
    face.run(lock.release())


def test_majority_that_fails_is_a_runtime_error(
    face: Face, masters: LocalMasters
) -> None:
    manager = face.manager(masters.urls)
    first, second = (face.run(manager.lock(key, 60)) for key in ("a", "b"))
    for i in range(3):
        masters.stop(i)
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
