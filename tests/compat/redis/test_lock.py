"""redis-py's Lock and what replaces it, blocking and asyncio: one body for all."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from redis.exceptions import LockError, LockNotOwnedError

from fastredlock.testing import LocalMasters
from tests.compat.redis.face import THEIRS, THEIRS_ASYNCIO, Face
from tests.support.keys import KEY
from tests.support.threads import later
from tests.support.two_libraries import load
from tests.support.waiting import stopwatch

ANOTHER = b"another"

# --- the wire -----------------------------------------------------------------------


def test_lock_is_the_name_with_the_token_and_without_expiry(face: Face) -> None:
    lock = face.lock()
    assert lock.acquire(blocking=False) is True
    assert face.value() == lock.local.token
    assert len(lock.local.token) == 32
    assert face.server.ttl(KEY) == -1
    assert lock.release() is None
    assert face.server.keys() == []
    assert lock.local.token is None


@pytest.mark.parametrize(
    ("timeout", "least", "most"),
    [(10, 9000, 10_000), (9.5, 9000, 9500), (1.0019, 900, 1001), (0, -2, -1)],
)
def test_timeout_is_the_ttl_in_whole_milliseconds(
    face: Face, timeout: float, least: int, most: int
) -> None:
    face.lock(timeout=timeout).acquire()
    assert least < face.server.pttl(KEY) <= most


@pytest.mark.parametrize("token", ["tök", "tök".encode()])
def test_token_that_is_given_is_stored(face: Face, token: str | bytes) -> None:
    lock = face.lock()
    assert lock.acquire(blocking=False, token=token)
    assert face.value() == lock.local.token == "tök".encode()
    lock.release()
    assert face.value() is None


@pytest.mark.parametrize("name", ["k", b"k", memoryview(b"k"), "kä"])
def test_name_is_encoded_as_the_client_does_it(face: Face, name: Any) -> None:
    client = face.client(encoding="latin-1")
    theirs = load(THEIRS_ASYNCIO if face.is_awaited else THEIRS).Lock
    lock = face.lock(name, client, timeout=5)
    assert lock.acquire()
    assert len(face.server.keys()) == 1
    assert not face.made(theirs, name, client, timeout=5).acquire(blocking=False)
    lock.release()
    assert face.server.keys() == []


# --- waiting ------------------------------------------------------------------------


def test_acquire_of_what_another_holds_without_blocking_is_false(face: Face) -> None:
    first, second = face.lock(), face.lock()
    assert first.acquire(blocking=False)
    assert not second.acquire(blocking=False)
    assert not face.lock(blocking=False).acquire()
    first.release()
    assert second.acquire(blocking=False)
    assert not first.acquire(blocking=False)


def test_acquire_waits_until_it_is_free(face: Face) -> None:
    face.server.set(KEY, ANOTHER)
    lock = face.lock(sleep=0.01)
    with later(0.05, lambda: face.server.delete(KEY)), stopwatch() as elapsed:
        assert lock.acquire()
        assert elapsed() > 0.03


def test_blocking_timeout_gives_up_before_a_sleep_would_pass_it(face: Face) -> None:
    face.server.set(KEY, ANOTHER)
    with stopwatch() as elapsed:
        assert face.lock(sleep=0.05, blocking_timeout=0.15).acquire() is False
        assert elapsed() > 0.09
    with stopwatch() as elapsed:
        assert face.lock(sleep=60, blocking_timeout=1).acquire() is False
        assert elapsed() < 1
        lock = face.lock(blocking_timeout=60, sleep=0.01)
        assert not lock.acquire(blocking_timeout=0.05)  # goes before that of the lock
        assert not lock.acquire(blocking=False)
        assert elapsed() < 8


# --- the context manager ------------------------------------------------------------


def test_with_block_holds_the_lock(face: Face) -> None:
    lock = face.lock(timeout=5)
    for _ in range(3):
        with lock:
            assert face.value() == lock.local.token
        assert face.value() is None


def test_with_block_that_cannot_have_the_lock_raises(face: Face) -> None:
    face.server.set(KEY, ANOTHER)
    message = "^Unable to acquire lock within the time specified$"
    with pytest.raises(LockError, match=message) as raised, face.lock(blocking=False):
        raise AssertionError
    assert not isinstance(raised.value, LockNotOwnedError)
    assert isinstance(raised.value, ValueError)


def test_with_block_that_lost_the_lock_raises_at_its_end(
    face: Face, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(LockNotOwnedError), face.lock(timeout=5):
        face.server.set(KEY, ANOTHER)
    assert face.value() == ANOTHER
    face.server.delete(KEY)
    with face.lock(timeout=5, raise_on_release_error=False):
        face.server.set(KEY, ANOTHER)
    (record,) = caplog.records
    assert record.name == (THEIRS_ASYNCIO if face.is_awaited else THEIRS)
    assert record.getMessage().startswith("Lock was unlocked or no longer owned when")


def test_with_block_that_raises_and_lost_the_lock_raises_what_the_body_raised(
    better: Face,
) -> None:
    with pytest.raises(ZeroDivisionError), better.lock(timeout=5):
        assert int(bool(better.server.set(KEY, ANOTHER))) / 0


# --- release ------------------------------------------------------------------------


def test_release_of_what_is_not_held_raises(face: Face) -> None:
    message = "^Cannot release a lock that's not owned or is already unlocked.$"
    with pytest.raises(LockError, match=message) as raised:
        face.lock().release()
    assert raised.value.lock_name == KEY
    assert not isinstance(raised.value, LockNotOwnedError)


def test_release_of_what_another_took_raises_and_forgets(face: Face) -> None:
    lock = face.lock()
    lock.acquire()
    face.server.set(KEY, ANOTHER)
    with pytest.raises(LockNotOwnedError, match=r"no longer owned$"):
        lock.release()
    assert lock.local.token is None
    assert face.value() == ANOTHER


def test_token_that_is_handed_over_releases_and_extends(face: Face) -> None:
    lock, heir = face.lock(timeout=5), face.lock(timeout=5)
    lock.acquire()
    heir.local.token = lock.local.token
    assert heir.owned()
    assert heir.extend(5)
    assert face.server.pttl(KEY) > 9000
    assert heir.reacquire()
    assert face.server.pttl(KEY) <= 5000
    heir.release()
    assert face.value() is None


@pytest.mark.slow
def test_release_that_failed_can_be_tried_again(
    better_blocking: Face, masters: LocalMasters
) -> None:
    client = better_blocking.client(masters.urls[0], socket_timeout=0.1)
    lock = better_blocking.lock(client=client, timeout=60)
    lock.acquire()
    masters.pause(0)
    with pytest.raises((redis.ConnectionError, redis.TimeoutError)):
        lock.release()
    masters.resume(0)
    lock.release()
    assert better_blocking.client(masters.urls[0]).get(KEY) is None
