"""python-redis-lock 4.0.1 and what replaces it: one body for both."""

from __future__ import annotations

import re
import threading
from typing import Any

import pytest
import redis

from tests.compat.redis_lock.face import LOCK, PAIR, SIGNAL, Face
from tests.support.keys import KEY
from tests.support.two_libraries import load, other_process
from tests.support.waiting import stopwatch, wait_until

decoding = pytest.mark.parametrize("decode_responses", [False, True])

# --- the wire -----------------------------------------------------------------------


@decoding
def test_lock_is_a_key_with_the_id_and_without_expiry(
    face: Face, decode_responses: bool
) -> None:
    lock = face.Lock(face.client(decode_responses=decode_responses), KEY)
    id_before = lock.id
    assert lock.acquire() is True
    assert face.server.keys() == [LOCK.encode()]
    assert face.value() == lock.id.encode() == id_before.encode()
    assert len(lock.id) == 24
    assert face.server.ttl(LOCK) == -1
    assert lock.release() is None
    assert face.server.keys() == [SIGNAL.encode()]


def test_release_leaves_one_signal_for_a_while(face: Face) -> None:
    for _ in range(3):
        with face.lock():
            pass
    assert face.server.lrange(SIGNAL, 0, -1) == [b"1"]
    assert 0 < face.server.pttl(SIGNAL) <= 1000
    with face.lock(signal_expire=5000):
        pass
    assert 4000 < face.server.pttl(SIGNAL) <= 5000


@pytest.mark.parametrize(("expire", "seconds"), [(10, 10), (9.9, 9), ("10", 10)])
def test_expire_is_in_whole_seconds(face: Face, expire: Any, seconds: int) -> None:
    face.lock(expire=expire).acquire()
    assert seconds * 1000 - 900 < face.server.pttl(LOCK) <= seconds * 1000


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("mine", b"mine"),
        (b"mine", b"mine"),
        (b"\xff\x00", b"/wA="),
        ("ä", "ä".encode()),
    ],
)
def test_id_that_is_given_is_stored(face: Face, given: Any, stored: bytes) -> None:
    lock = face.lock(id=given)
    assert lock.acquire()
    assert face.value() == stored == lock.id.encode()
    lock.release()
    assert face.value() is None


@pytest.mark.parametrize("there", PAIR)
@pytest.mark.slow
def test_waiter_in_another_process_is_woken_by_the_release(
    face: Face, there: str
) -> None:
    lock = face.lock()
    lock.acquire()
    with other_process("redis-lock", there, KEY, face.urls) as waiter:
        waiter.tell("wait")
        assert wait_until(lambda: is_waited_for(face.server))
        with stopwatch() as elapsed:
            lock.release()
            assert waiter.answer() == "True"
            assert elapsed() < 4  # below what a waiter waits without a signal
        assert waiter.say("release") == "None"


def is_waited_for(server: redis.Redis) -> bool:
    return any(each["cmd"] == "blpop" for each in server.client_list())


def test_key_that_our_roll_back_deletes_wakes_a_waiter_of_theirs(ours: Face) -> None:
    lock = ours.lock()
    lock.acquire()
    waiting = load(PAIR[0]).Lock(ours.default_client, KEY)
    waiter = threading.Thread(target=waiting.acquire, daemon=True)
    waiter.start()
    assert wait_until(lambda: is_waited_for(ours.server))
    lock._locks._driver.abandon(lock._lease._round)
    waiter.join(8)
    assert not waiter.is_alive()


# --- taking -------------------------------------------------------------------------


def test_lock_of_another_is_not_acquired_without_blocking(
    face: Face, caplog: pytest.LogCaptureFixture
) -> None:
    with face.lock():
        assert face.lock().acquire(blocking=False) is False
    assert [(each.name, each.getMessage()) for each in caplog.records] == [
        ("redis_lock.acquire", f"Failed to acquire Lock({LOCK!r}).")
    ]


@pytest.mark.parametrize("timeout", [1, "1", 1.9])
@pytest.mark.slow
def test_timeout_ends_the_wait(face: Face, timeout: Any) -> None:
    face.lock().acquire()
    with stopwatch() as elapsed:
        assert face.lock().acquire(timeout=timeout) is False
        assert 0.9 < elapsed() < 3


@pytest.mark.slow
def test_acquire_waits_for_the_end_of_a_lock_that_expires(face: Face) -> None:
    first, second = face.lock(expire=1), face.lock(expire=1)
    first.acquire()
    assert second.acquire(blocking=False) is False
    assert second.acquire() is True
    with pytest.raises(face.NotAcquired):
        first.release()
    second.release()


def test_lock_is_acquired_once(face: Face) -> None:
    lock = face.lock()
    with lock:
        for options in ({}, {"blocking": False}, {"blocking": False, "timeout": 1}):
            with pytest.raises(face.AlreadyAcquired, match=r"^Already acquired from"):
                lock.acquire(**options)
        with pytest.raises(RuntimeError, match=r"^Already acquired from this Lock"):
            face.lock(id=lock.id).acquire()
    face.lock(id=lock.id).acquire()  # another, with the id of this one
    with pytest.raises(face.AlreadyAcquired):
        lock.acquire()


def test_lock_that_was_reset_by_another_can_be_acquired_again(face: Face) -> None:
    lock = face.lock()
    lock.acquire()
    face.lock().reset()
    assert lock.acquire(blocking=False) is True
    lock.release()


@pytest.mark.parametrize(
    ("options", "arguments", "error", "message"),
    [
        ({}, [False, 1], "TimeoutNotUsable", "Timeout cannot be used if blocking=F"),
        ({}, [True, -1], "InvalidTimeout", "Timeout (-1) cannot be less than or equa"),
        ({"expire": 1}, [True, 2], "TimeoutTooLarge", "Timeout (2) cannot be greater "),
    ],
)
def test_acquire_with_a_bad_timeout_raises(
    face: Face, options: dict[str, Any], arguments: list[Any], error: str, message: str
) -> None:
    with pytest.raises(getattr(face, error), match=f"^{re.escape(message)}") as raised:
        face.lock(**options).acquire(*arguments)
    assert isinstance(raised.value, RuntimeError)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"expire": -1}, ValueError, "^A negative expire is not acceptable.$"),
        ({"auto_renewal": True}, ValueError, "^Expire may not be None when auto_ren"),
        ({"id": 42}, TypeError, "^Incorrect type for `id`. Must be bytes/str not <cl"),
    ],
)
def test_bad_arguments_are_refused(
    face: Face, options: dict[str, Any], error: Any, message: str
) -> None:
    with pytest.raises(error, match=message):
        face.lock(**options)
    with pytest.raises(ValueError, match=r"^redis_client must be instance of Stri"):
        face.Lock("redis://localhost", KEY)


# --- the context manager ------------------------------------------------------------


def test_with_block_holds_the_lock(face: Face) -> None:
    lock = face.lock()
    with lock as entered:
        assert entered is lock
        assert lock.locked()
        second = face.lock(blocking=False)
        with pytest.raises(face.NotAcquired, match=r"^Lock\(lock:orders:42\) is not"):
            second.__enter__()
    assert not lock.locked()


def test_with_block_that_lost_the_lock_raises_at_its_end(face: Face) -> None:
    with pytest.raises(face.NotAcquired), face.lock():
        face.server.delete(LOCK)


def test_with_block_that_raises_and_lost_the_lock_raises_what_the_body_raised(
    better: Face,
) -> None:
    with pytest.raises(ZeroDivisionError), better.lock():
        assert better.server.delete(LOCK) / 0
