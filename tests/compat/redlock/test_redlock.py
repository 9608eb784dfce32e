"""redlock-py 1.0.8 and what replaces it: one body for both."""

from __future__ import annotations

import pickle
import re
from types import SimpleNamespace
from typing import Any

import pytest

from fastredlock.testing import LocalMasters
from tests.compat.face import ANOTHER
from tests.compat.redlock.face import PAIR, TTL, Face
from tests.support.keys import KEY
from tests.support.two_libraries import is_stored, load
from tests.support.waiting import stopwatch, wait_until

# --- values ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "options", "attributes"),
    [
        (5, {}, (3, 3, 0.2)),
        (4, {"retry_count": 0, "retry_delay": 0}, (3, 3, 0.2)),
        (5, {"retry_count": 7, "retry_delay": 0.5}, (3, 7, 0.5)),
    ],
)
def test_attributes_are_set_as_by_theirs(
    face: Face, count: int, options: dict[str, Any], attributes: object
) -> None:
    manager = face.Redlock(face.urls[:count], *options.values())
    assert len(manager.servers) == count
    found = (manager.quorum, manager.retry_count, manager.retry_delay)
    assert found == attributes


def test_lock_is_a_tuple_of_three_that_can_be_pickled(face: Face) -> None:
    lock = face.manager().lock(KEY, TTL)
    validity, resource, key = lock
    assert lock == face.Lock(validity, resource, key)
    assert pickle.loads(pickle.dumps(lock)) == lock
    assert type(validity) is int
    assert 0 < validity <= TTL - TTL // 100 - 2
    assert resource == KEY


def test_multiple_errors_are_joined(face: Face) -> None:
    error = face.MultipleRedlockException([ValueError("a"), OSError("b")])
    assert str(error) == repr(error) == "a :: b"
    assert [str(one) for one in error.errors] == ["a", "b"]
    assert error.args == ()


def test_connections_that_give_no_quorum_are_refused(face: Face) -> None:
    message = "^Failed to connect to the majority of redis servers$"
    with pytest.raises(face.CannotObtainLock, match=message):
        face.Redlock([])
    for bad in ("http://h", {"hots": "h"}):
        with pytest.raises(Warning, match=r"http|redis|hots"):
            face.Redlock([bad])


# --- wire -----------------------------------------------------------------------------


def test_key_value_and_ttl_on_the_servers(face: Face) -> None:
    lock = face.manager().lock(KEY, TTL)
    assert re.fullmatch(rb"[A-Za-z0-9]{22}", lock.key)
    assert wait_until(lambda: is_stored(lock.key, face.values()))
    assert all(TTL - 2000 < left <= TTL for left in face.lefts_ms())


@pytest.mark.parametrize("resource", [b"\xff\x00", "ü", 42, 1.5])
def test_resource_may_be_what_redis_py_takes(face: Face, resource: Any) -> None:
    face.key, manager = resource, face.manager()
    lock = manager.lock(resource, TTL)
    assert lock.resource == resource
    assert wait_until(lambda: is_stored(lock.key, face.values()))
    manager.unlock(lock)
    assert face.is_free()


def test_lock_of_one_is_unlocked_by_the_other(face: Face) -> None:
    for other in map(load, PAIR):
        other.Redlock(face.urls).unlock(face.manager().lock(KEY, TTL))
        assert face.is_free()


# --- lock -----------------------------------------------------------------------------


def test_lock_that_is_held_is_false_after_all_tries(face: Face) -> None:
    assert face.manager().lock(KEY, TTL)
    manager, before = face.manager(retry_count=3, retry_delay=0.05), face.sets()
    with stopwatch() as elapsed:
        assert manager.lock(KEY, TTL) is False
        assert elapsed() >= 0.1
    assert face.sets() - before == 3
    manager.retry_count, manager.retry_delay = 1, 0.001
    assert manager.lock(KEY, TTL) is False
    assert face.sets() - before == 4


def test_lock_that_is_over_meanwhile_is_got_by_a_later_try(face: Face) -> None:
    face.set(px=100)
    manager = face.manager(retry_count=40, retry_delay=0.05)
    assert manager.lock(KEY, 200)
    assert manager.lock(KEY, TTL)


@pytest.mark.parametrize("ttl", [1.5, 10_000.0])
def test_ttl_that_is_no_int_is_refused(face: Face, ttl: float) -> None:
    with pytest.raises(ValueError, match=f"^ttl {ttl} is not an integer$"):
        face.manager().lock(KEY, ttl)


@pytest.mark.parametrize("ttl", [-5, 0, 1, 2])
def test_ttl_that_drift_takes_off_gives_no_lock(face: Face, ttl: int) -> None:
    assert face.Redlock(face.clients, 1, 0.001).lock(KEY, ttl) is False
    assert face.is_free()


def test_subclass_may_draw_the_keys(face: Face) -> None:
    named = type("Named", (face.Redlock,), {"get_unique_id": lambda _: b"worker-7"})
    assert named(face.urls).lock(KEY, TTL).key == b"worker-7"
    assert wait_until(lambda: is_stored(b"worker-7", face.values()))


@pytest.mark.parametrize("gone", [3, 5])
def test_calls_raise_nothing_when_a_majority_is_gone(
    face: Face, masters: LocalMasters, gone: int
) -> None:
    manager = face.Redlock([face.client(url) for url in masters.urls], 2, 0.01)
    lock = manager.lock(KEY, TTL)
    for i in range(gone):
        masters.stop(i)
    assert manager.unlock(lock) is None
    assert manager.lock(KEY, TTL) is False


# --- unlock ---------------------------------------------------------------------------


@pytest.mark.parametrize("rest", [{}, {"validity": None}, {"validity": 0}])
def test_unlock_needs_resource_and_key_alone(
    face: Face, rest: dict[str, object]
) -> None:
    manager = face.manager()
    lock = manager.lock(KEY, TTL)
    kept = SimpleNamespace(resource=KEY, key=lock.key.decode(), **rest)
    face.manager().unlock(kept)
    assert face.is_free()
    assert manager.unlock(face.Lock(0, KEY, lock.key)) is None


def test_unlock_leaves_what_another_has(face: Face) -> None:
    manager = face.manager()
    lock = manager.lock(KEY, TTL)
    face.set()
    manager.unlock(lock)
    assert face.values() == [ANOTHER] * 5


def test_one_server_can_be_locked_and_unlocked_alone(face: Face) -> None:
    manager = face.Redlock(face.clients)
    server, value = manager.servers[2], manager.get_unique_id()
    assert manager.lock_instance(server, KEY, value, TTL) is True
    assert face.values() == [None, None, value, None, None]
    assert manager.lock_instance(server, KEY, b"second", TTL) is None
    assert manager.unlock_instance(server, KEY, b"second") is None
    assert manager.unlock_instance(server, KEY, value) is None
    assert face.values() == [None] * 5
    with pytest.raises(ValueError, match=r"ttl 1\.5 is not an integer"):
        manager.lock_instance(server, KEY, value, 1.5)
