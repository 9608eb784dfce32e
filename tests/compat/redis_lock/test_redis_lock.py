"""python-redis-lock 4.0.1 and what replaces it: one body for both."""

from __future__ import annotations

import gc
import logging
import re
import threading
from typing import Any

import pytest
import redis

from fastredlock import Lease
from fastredlock._steps import Steps
from fastredlock.compat._redis import Library
from tests.compat.redis_lock.face import LOCK, PAIR, SIGNAL, Face
from tests.support.keys import KEY
from tests.support.two_libraries import load
from tests.support.waiting import wait_until

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


their_thread_may_die = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnhandledThreadExceptionWarning"
)


# --- several threads, one lock object -----------------------------------------------


def test_release_leaves_what_another_thread_took_since(
    ours: Face, monkeypatch: pytest.MonkeyPatch
) -> None:
    def give_back_and_take(_: Any, lease: Lease) -> Steps[bool]:
        yield lease.release
        assert lock._take([])
        return True

    lock = ours.lock(expire=5)
    assert lock.acquire()
    with monkeypatch.context() as patched:
        patched.setattr(Library, "give_back", give_back_and_take)
        lock.release()
    assert lock._lease is not None
    lock.release()
    assert ours.value() is None


# --- release and reset --------------------------------------------------------------


def test_release_of_what_is_not_held_raises(face: Face) -> None:
    with pytest.raises(face.NotAcquired, match=r"^Lock\(lock:orders:42\) is not acq"):
        face.lock().release()
    face.server.set(LOCK, "another")
    with pytest.raises(face.NotAcquired):
        face.lock().release()
    assert face.server.keys() == [LOCK.encode()]


def test_lock_is_released_by_whoever_has_its_id(face: Face) -> None:
    lock = face.lock()
    lock.acquire()
    face.lock(id=lock.id).release()
    assert face.server.keys() == [SIGNAL.encode()]
    with pytest.raises(face.NotAcquired):
        lock.release()


def test_reset_deletes_the_lock_and_signals(face: Face) -> None:
    face.lock().acquire()
    assert face.lock(signal_expire=3000).reset() is None
    assert face.server.keys() == [SIGNAL.encode()]
    assert face.server.llen(SIGNAL) == 1
    assert 2000 < face.server.pttl(SIGNAL) <= 3000


@pytest.mark.parametrize("decode_responses", [False, True])
def test_reset_all_deletes_all_locks_and_signals(
    face: Face, decode_responses: bool
) -> None:
    client = face.client(decode_responses=decode_responses)
    face.server.set("else", 1)
    for name in ("a", "b"):
        face.Lock(client, name).acquire()
    assert face.reset_all(client) is None
    left = [b"else", b"lock-signal:a", b"lock-signal:b"]
    assert sorted(face.server.keys()) == left
    assert face.server.llen("lock-signal:a") == 1
    assert 0 < face.server.pttl("lock-signal:b") <= 1000


# --- extend, and who holds it -------------------------------------------------------


def test_extend_sets_the_time_left(face: Face) -> None:
    with face.lock(expire=100) as lock:
        assert lock.extend(expire=1000) is None
        assert 990 < face.server.ttl(LOCK) <= 1000
        lock.extend()
        assert 90 < face.server.ttl(LOCK) <= 100
        face.lock(id=lock.id).extend("500")
        assert 490 < face.server.ttl(LOCK) <= 500


def test_extend_of_what_cannot_be_extended_raises(face: Face) -> None:
    with pytest.raises(face.NotAcquired, match=r"^Lock lock:orders:42 is not acq"):
        face.lock(expire=5).extend()
    with face.lock() as lock:
        for arguments, error, message in (
            ([5], face.NotExpirable, r"no assigned expiration time$"),
            ([], TypeError, r"^To extend a lock 'expire' must be"),
            ([-1], ValueError, "negative"),
        ):
            with pytest.raises(error, match=message):
                lock.extend(*arguments)
        with pytest.raises(face.NotAcquired):
            face.lock().extend(5)
    assert face.server.ttl(SIGNAL) >= 0


@pytest.mark.parametrize("decode_responses", [False, True])
def test_locked_and_owner_tell_who_holds_it(face: Face, decode_responses: bool) -> None:
    client = face.client(decode_responses=decode_responses)
    lock, rival = face.Lock(client, KEY), face.Lock(client, KEY)
    assert (lock.locked(), lock._held, lock.get_owner_id()) == (False, False, None)
    lock.acquire()
    assert (lock.locked(), lock._held, lock.get_owner_id()) == (True, True, lock.id)
    assert (rival.locked(), rival._held, rival.get_owner_id()) == (True, False, lock.id)


# --- renewal ------------------------------------------------------------------------


def test_renewal_is_set_up_as_documented(face: Face) -> None:
    before = set(threading.enumerate())
    lock = face.lock(expire=3, auto_renewal=True)
    assert lock._lock_renewal_interval == 2.0
    with lock:
        renewing = set(threading.enumerate()) - before
        assert all(thread.daemon for thread in renewing)
    assert wait_until(lambda: not any(thread.is_alive() for thread in renewing))
    assert face.lock(expire=3)._lock_renewal_interval is None


def renewed(face: Face) -> bool:
    """Return whether its time left grows again, of a lock of 3 s."""
    face.server.pexpire(LOCK, 2200)
    return wait_until(lambda: face.server.pttl(LOCK) > 2500)


@pytest.mark.slow
def test_renewal_keeps_the_lock_and_is_one_alone(face: Face) -> None:
    with face.hasty(3) as lock:
        assert renewed(face)
        with pytest.raises(face.AlreadyStarted, match=r"^Lock refresh thread already"):
            lock._start_lock_renewer()


@pytest.mark.slow
def test_renewal_ends_when_the_lock_is_garbage(
    face: Face, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "redis_lock")
    lock = face.hasty(3)
    assert lock.acquire(timeout=100)  # longer than `expire`
    assert renewed(face)
    del lock
    gc.collect()
    assert wait_until(lambda: face.value() is None)
    stopped = f"Stopping loop because Lock({LOCK!r}) was garbage collected."
    assert wait_until(lambda: stopped in caplog.messages)  # people search for it


@their_thread_may_die
@pytest.mark.slow
def test_lock_that_was_lost_while_renewed_can_be_acquired_again(better: Face) -> None:
    """Theirs sets the key, then raises AlreadyStarted: nobody can have it any more."""
    lock = better.hasty(3)
    lock.acquire()
    better.server.delete(LOCK)
    thread = lock._lock_renewal_thread
    assert wait_until(
        lambda: thread[0].lost.is_set() if better.is_ours else not thread.is_alive()
    )
    assert lock.acquire(blocking=False)
    assert renewed(better)
    lock.release()


def test_loss_is_logged_and_a_release_says_so(
    ours: Face, caplog: pytest.LogCaptureFixture
) -> None:
    lock = ours.lock(expire=1, auto_renewal=True)
    lock.acquire()
    ours.server.delete(LOCK)
    assert wait_until(lambda: f"Lock({LOCK!r}) was lost" in caplog.text)
    with pytest.raises(ours.NotAcquired):
        lock.release()
