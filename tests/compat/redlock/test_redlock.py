"""redlock-py 1.0.8 and what replaces it: one body for both; its bugs are not copied."""

from __future__ import annotations

import pickle
import random
import re
import time
from types import SimpleNamespace
from typing import Any

import pytest

from fastredlock.testing import LocalMasters
from tests.compat.redlock.face import PAIR, TTL, Face
from tests.support.keys import KEY
from tests.support.masters import stop
from tests.support.proxy import Proxy
from tests.support.threads import later
from tests.support.two_libraries import is_stored, load
from tests.support.waiting import stopwatch, wait_until

# --- values ---------------------------------------------------------------------------


def test_lock_is_a_tuple_of_three_that_can_be_pickled(face: Face) -> None:
    lock = face.manager().lock(KEY, TTL)
    validity, resource, key = lock
    assert lock == face.Lock(validity, resource, key)
    assert pickle.loads(pickle.dumps(lock)) == lock
    assert type(validity) is int
    assert 0 < validity <= TTL - TTL // 100 - 2
    assert resource == KEY


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
    tries = face.sets() - before
    assert tries == 3 or (face.is_ours and tries > 3)  # it waits in turn between them
    manager.retry_count, manager.retry_delay = 1, 0.001
    assert manager.lock(KEY, TTL) is False
    assert face.sets() - before == tries + 1


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


# --- bugs that are not copied -------------------------------------------------


def test_quorum_is_a_lock_although_another_server_is_down(
    better: Face, masters: LocalMasters
) -> None:
    manager = better.Redlock([better.client(url) for url in masters.urls])
    masters.stop(4)
    lock = manager.lock(KEY, TTL)  # theirs: raises, and leaves four keys behind
    assert lock
    manager.unlock(lock)
    assert manager.lock(KEY, TTL)


def test_every_try_has_a_key_of_its_own(better: Face) -> None:
    drawn = []

    class Watched(better.Redlock):  # type: ignore[name-defined]
        def get_unique_id(self) -> bytes:
            drawn.append(super().get_unique_id())
            return bytes(drawn[-1])

    assert better.manager().lock(KEY, TTL)
    watched = Watched(better.urls, retry_count=3, retry_delay=0.001)
    assert watched.lock(KEY, TTL) is False
    assert len(set(drawn)) == len(drawn) >= 3


def test_key_cannot_be_predicted_from_the_seed_of_random(better: Face) -> None:
    manager, keys = better.manager(), []
    for _ in range(2):
        random.seed(7)
        keys.append(manager.get_unique_id())
    assert keys[0] != keys[1]


def test_validity_when_the_wall_clock_is_set_back_then_is_not_longer_than_the_ttl(
    better: Face, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager, hours = better.Redlock(better.clients), iter(range(100, 0, -1))
    monkeypatch.setattr(time, "time", lambda: next(hours) * 3600.0)
    assert manager.lock(KEY, TTL).validity < TTL


# --- ours alone -----------------------------------------------------------------------


def test_same_database_twice_is_refused(ours: Face) -> None:
    """Theirs takes it, and never gets a lock."""
    with pytest.raises(Warning, match="are the same database"):
        ours.Redlock([{"host": "h", "db": 1}, {"host": "h", "db": 1}])


def test_failed_try_is_logged_with_what_every_server_said(
    ours: Face, masters: LocalMasters, caplog: pytest.LogCaptureFixture
) -> None:
    manager = ours.Redlock(masters.urls, retry_count=1)
    stop(masters, 3)
    assert manager.lock(KEY, TTL) is False
    assert "fewer than a quorum of masters could answer" in caplog.text
    assert f"127.0.0.1:{masters.ports[0]} FAILED" in caplog.text


def test_first_try_waits_for_connections_longer_than_for_a_round(ours: Face) -> None:
    with Proxy(ours.urls[0]) as slow:
        manager = ours.Redlock([slow.url], retry_count=1)
        slow.set(holds_down=True)
        with later(0.3, slow.heal):
            assert manager.lock(KEY, 2_000)  # a round with this ttl waits 0.1 s
