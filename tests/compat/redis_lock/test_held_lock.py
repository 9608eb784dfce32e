"""A held lock of python-redis-lock: released, reset, extended, renewed."""

from __future__ import annotations

import gc
import logging
import threading
from typing import Any

import pytest

from fastredlock import Lease, TokenReusedError
from fastredlock._steps import Steps
from fastredlock.compat import redis_lock
from fastredlock.compat._redis import not_settled
from fastredlock.testing import LocalMasters
from tests.compat.redis_lock.face import LOCK, SIGNAL, Face
from tests.support.keys import KEY
from tests.support.proxy import Proxy
from tests.support.waiting import wait_until

their_thread_may_die = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnhandledThreadExceptionWarning"
)


# --- several threads, one lock object -----------------------------------------------


def test_failed_try_of_another_thread_leaves_what_this_one_holds(ours: Face) -> None:
    lock = ours.lock(expire=5)
    assert lock.acquire()
    assert not lock._take([])  # of a thread that saw the lock free before
    assert lock._lease is not None
    lock.release()
    assert ours.value() is None


def test_release_leaves_what_another_thread_took_since(
    ours: Face, monkeypatch: pytest.MonkeyPatch
) -> None:
    def give_back_and_take(lease: Lease) -> Steps[bool]:
        yield lease.release
        assert lock._take([])
        return True

    lock = ours.lock(expire=5)
    assert lock.acquire()
    with monkeypatch.context() as patched:
        patched.setattr(redis_lock, "give_back", give_back_and_take)
        lock.release()
    assert lock._lease is not None
    lock.release()
    assert ours.value() is None


def test_acquire_forgets_no_lock_that_another_thread_took_since(
    ours: Face, monkeypatch: pytest.MonkeyPatch
) -> None:
    def release_and_take(lock: Any) -> bool:
        lock.release()
        assert lock._take([])
        return False  # it was free in between

    lock = ours.lock()
    assert lock.acquire()
    with monkeypatch.context() as patched:
        patched.setattr(redis_lock.Lock, "_held", property(release_and_take))
        with pytest.raises(redis_lock.AlreadyAcquired):
            lock.acquire(blocking=False)
    lock.release()
    assert ours.value() is None


def test_acquire_while_another_thread_releases_is_no_error(
    ours: Face, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = ours.lock()
    drawn = lock.id

    def take(*_: Any) -> None:  # while the release of this id is under way
        monkeypatch.undo()
        error = TokenReusedError(KEY)
        raise not_settled(error) from error

    monkeypatch.setattr(redis_lock, "take", take)
    with lock:
        assert lock.id != drawn


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
    face.server.pexpire(LOCK, 400)
    return wait_until(lambda: face.server.pttl(LOCK) > 800)


def test_renewal_keeps_the_lock_and_is_one_alone(face: Face) -> None:
    with face.hasty() as lock:
        assert renewed(face)
        with pytest.raises(face.AlreadyStarted, match=r"^Lock refresh thread already"):
            lock._start_lock_renewer()


def test_renewal_ends_when_the_lock_is_garbage(
    face: Face, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "redis_lock")
    lock = face.hasty()
    assert lock.acquire(timeout=100)  # longer than `expire`
    assert renewed(face)
    del lock
    gc.collect()
    assert wait_until(lambda: face.value() is None)
    stopped = f"Stopping loop because Lock({LOCK!r}) was garbage collected."
    assert wait_until(lambda: stopped in caplog.messages)  # people search for it


@their_thread_may_die
def test_lock_that_was_lost_while_renewed_can_be_acquired_again(
    better: Face,
) -> None:
    """Theirs sets the key, then raises AlreadyStarted: nobody can have it any more."""
    lock = better.hasty()
    lock.acquire()
    better.server.delete(LOCK)
    thread = lock._lock_renewal_thread
    assert wait_until(
        lambda: thread[0].lost.is_set() if better.is_ours else not thread.is_alive()
    )
    assert lock.acquire(blocking=False)
    assert renewed(better)
    lock.release()


@their_thread_may_die
@pytest.mark.slow
def test_renewal_goes_on_after_an_error(better: Face, masters: LocalMasters) -> None:
    """Theirs ends at the first error, and says so nowhere."""
    better.default_client = better.client(masters.urls[0], socket_timeout=0.1)
    raw = better.client(masters.urls[0], protocol=2)
    with better.hasty() as lock:
        masters.pause(0)
        waits = threading.Event()
        waits.wait(0.5)  # for a renewal that has failed, which nobody announces
        masters.resume(0)
        raw.pexpire(LOCK, 700)
        assert wait_until(lambda: raw.pttl(LOCK) > 750, within=1.2)
        assert raw.get(LOCK) == lock.id.encode()


@pytest.mark.slow
def test_many_locks_of_one_client_are_renewed_by_one_thread(ours: Face) -> None:
    before = threading.active_count()
    client = ours.default_client
    locks = [ours.Lock(client, str(i), expire=1, auto_renewal=True) for i in range(20)]
    for lock in locks:
        lock.acquire()
    assert threading.active_count() <= before + 1
    for lock in locks:
        ours.server.pexpire(lock._name, 700)
    assert wait_until(lambda: all(ours.server.pttl(lock._name) > 700 for lock in locks))
    for lock in locks:
        lock.release()


@pytest.mark.slow
def test_expire_that_cannot_be_renewed_is_refused_and_leaves_no_key(ours: Face) -> None:
    with Proxy(ours.urls[0]) as proxy:
        proxy.set(delay=0.2)
        slow = ours.client(proxy.url, socket_timeout=5)
        lock = ours.Lock(slow, KEY, expire=1, auto_renewal=True)
        with pytest.raises(ValueError, match="keep_alive needs"):
            lock.acquire()
    assert wait_until(lambda: ours.value() is None, within=0.5)


def test_loss_is_logged_and_a_release_says_so(
    ours: Face, caplog: pytest.LogCaptureFixture
) -> None:
    lock = ours.lock(expire=1, auto_renewal=True)
    lock.acquire()
    ours.server.delete(LOCK)
    assert wait_until(lambda: f"Lock({LOCK!r}) was lost" in caplog.text)
    with pytest.raises(ours.NotAcquired):
        lock.release()
