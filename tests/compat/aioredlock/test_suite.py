"""The demands of the suites of aioredlock, and of its users, on a manager."""

from __future__ import annotations

import pytest
import redis

from fastredlock.testing import LocalMasters
from tests.compat.aioredlock.face import Face
from tests.support.keys import KEY

pytestmark = pytest.mark.filterwarnings("ignore:distutils Version classes")


def set_on(masters: LocalMasters, *values: str | None) -> None:
    """Store a value on each of the first masters, or delete it there."""
    for url, value in zip(masters.urls, values, strict=False):
        with redis.Redis.from_url(url) as server:
            server.set(KEY, value, ex=60) if value else server.delete(KEY)


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


def test_errors_of_a_lock_that_others_hold_have_a_cause(face: Face) -> None:
    manager = face.manager()
    face.lock()
    another = face.Lock(manager, KEY, "another", 5, valid=True)
    for work in (
        manager.lock(KEY, 5),
        manager.get_lock(KEY, "another"),
        another.release(),
    ):
        with pytest.raises(face.LockAcquiringError) as raised:
            face.run(work)
        assert raised.value.__cause__ is not None
    if face.is_ours:
        with pytest.raises(face.LockAcquiringError) as raised:
            face.lock()
        assert "orders:42': held by others" in str(raised.value.__cause__)


@pytest.mark.parametrize("call", ["unlock", "get_lock"])
def test_call_with_one_ours_one_anothers_and_one_down_is_a_runtime_error(
    face: Face, masters: LocalMasters, call: str
) -> None:
    manager = face.manager(masters.urls[:3])
    lock = face.lock(of=manager)
    set_on(masters, lock.id, "another's")
    masters.stop(2)
    with pytest.raises(face.LockRuntimeError):
        face.run(lock.release() if call == "unlock" else manager.get_lock(KEY, lock.id))
    with redis.Redis.from_url(masters.urls[0]) as server:
        assert server.get(KEY) == (None if call == "unlock" else lock.id.encode())


def test_unlock_of_what_is_free_on_a_quorum_is_no_error(
    face: Face, masters: LocalMasters
) -> None:
    lock = face.lock(of=face.manager(masters.urls[:3]))
    set_on(masters, "another's", None)
    face.run(lock.release())


def test_lock_of_an_identifier_without_a_majority_is_a_runtime_error(
    face: Face, masters: LocalMasters
) -> None:
    manager, other = (face.manager(masters.urls[:3]) for _ in range(2))
    held = face.lock(60, "id", of=manager)
    masters.stop(0)
    masters.stop(1)
    with pytest.raises(face.LockRuntimeError):
        face.lock(60, "id", of=other)
    assert held.valid is True


def test_identifier_whose_release_is_not_confirmed_is_a_runtime_error(
    ours: Face,
) -> None:
    """Taken again, the lock would be deleted by the release that is late."""
    manager = ours.manager(ours.urls[:1])
    lock = ours.lock(5, "worker-7", of=manager)
    ours.server.client_pause(1500, all=True)
    with pytest.raises(ours.LockRuntimeError):
        ours.run(lock.release())
    ours.server.client_unpause()
    for client in ours.server.client_list(_type="normal"):
        if client["name"] == "fastredlock":
            ours.server.client_kill_filter(_id=client["id"])
    failures: list[str] = []
    for _ in range(3):
        with pytest.raises(ours.LockRuntimeError) as raised:
            ours.lock(5, "worker-7", of=manager)
        failures.append(type(raised.value.__cause__).__name__)
    assert "TokenReusedError" in failures


def test_sentinel_without_a_master_is_refused(face: Face) -> None:
    for connection in ({"host": "h"}, "redis://h:26379/0", ("h", 26379)):
        with pytest.raises(Exception, match=r"^Master name required for sentinel"):
            face.Sentinel(connection)
    with pytest.raises(Exception, match=r"^Invalid Sentinel Configuration$"):
        face.Sentinel(42, master="orders")
    for named in ({"host": "h", "master": "orders"}, "redis://h:1/0?master=orders"):
        assert face.Sentinel(named).master == "orders"
        assert face.Sentinel(named, master="other").master == "other"
