"""A held lock of python-redis-lock: released, reset, extended, renewed."""

from __future__ import annotations

import gc
import threading
import time
from types import ModuleType
from typing import Any

import pytest
import redis

from fastredlock import Lease, TokenReusedError
from fastredlock.compat import redis_lock as ours
from fastredlock.compat._common.steps import Steps
from fastredlock.compat._redis import not_settled
from fastredlock.testing import LocalMasters
from tests.compat.redis_lock.face import LOCK, SIGNAL, hasty
from tests.support.keys import KEY
from tests.support.proxy import Proxy
from tests.support.redis_flavours import impatient
from tests.support.waiting import wait_until

their_thread_may_die = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnhandledThreadExceptionWarning"
)


# --- release and reset --------------------------------------------------------------


def test_failed_try_of_another_thread_leaves_what_this_one_holds(
    client: redis.Redis, server: redis.Redis
) -> None:
    lock = ours.Lock(client, KEY, expire=5)
    assert lock.acquire()
    assert not lock._take([])  # of a thread that saw the lock free before
    assert lock._lease is not None
    lock.release()
    assert server.get(LOCK) is None


def test_release_leaves_what_another_thread_took_since(
    client: redis.Redis, server: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    def give_back_and_take(lease: Lease) -> Steps[bool]:
        yield lease.release
        assert lock._take([])
        return True

    lock = ours.Lock(client, KEY, expire=5)
    assert lock.acquire()
    with monkeypatch.context() as patched:
        patched.setattr(ours, "give_back", give_back_and_take)
        lock.release()
    assert lock._lease is not None
    lock.release()
    assert server.get(LOCK) is None


def test_acquire_forgets_no_lock_that_another_thread_took_since(
    client: redis.Redis, server: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    def release_and_take(lock: ours.Lock) -> bool:
        lock.release()
        assert lock._take([])
        return False  # it was free in between

    lock = ours.Lock(client, KEY)
    assert lock.acquire()
    with monkeypatch.context() as patched:
        patched.setattr(ours.Lock, "_held", property(release_and_take))
        with pytest.raises(ours.AlreadyAcquired):
            lock.acquire(blocking=False)
    lock.release()
    assert server.get(LOCK) is None


def test_acquire_while_another_thread_releases_is_no_error(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = ours.Lock(client, KEY)
    drawn = lock.id

    def take(*_: Any) -> None:  # while the release of this id is under way
        monkeypatch.undo()
        error = TokenReusedError(KEY)
        raise not_settled(error) from error

    monkeypatch.setattr(ours, "take", take)
    with lock:
        assert lock.id != drawn


def test_release_of_what_is_not_held_raises(
    module: ModuleType, client: redis.Redis, server: redis.Redis
) -> None:
    with pytest.raises(module.NotAcquired, match=r"^Lock\(lock:orders:42\) is not acq"):
        module.Lock(client, KEY).release()
    server.set(LOCK, "another")
    with pytest.raises(module.NotAcquired):
        module.Lock(client, KEY).release()
    assert server.keys() == [LOCK.encode()]


def test_lock_is_released_by_whoever_has_its_id(
    module: ModuleType, client: redis.Redis, server: redis.Redis
) -> None:
    lock = module.Lock(client, KEY)
    lock.acquire()
    module.Lock(client, KEY, id=lock.id).release()
    assert server.keys() == [SIGNAL.encode()]
    with pytest.raises(module.NotAcquired):
        lock.release()


def test_reset_deletes_the_lock_and_signals(
    module: ModuleType, client: redis.Redis, server: redis.Redis
) -> None:
    lock = module.Lock(client, KEY)
    lock.acquire()
    assert module.Lock(client, KEY, signal_expire=3000).reset() is None
    assert server.keys() == [SIGNAL.encode()]
    assert server.llen(SIGNAL) == 1
    assert 2000 < server.pttl(SIGNAL) <= 3000


def test_reset_all_deletes_all_locks_and_signals(
    module: ModuleType, any_client: redis.Redis, server: redis.Redis
) -> None:
    server.set("else", 1)
    for name in ("a", "b"):
        module.Lock(any_client, name).acquire()
    assert module.reset_all(any_client) is None
    assert sorted(server.keys()) == [b"else", b"lock-signal:a", b"lock-signal:b"]
    assert server.llen("lock-signal:a") == 1
    assert 0 < server.pttl("lock-signal:b") <= 1000


# --- extend -------------------------------------------------------------------------


def test_extend_sets_the_time_left(
    module: ModuleType, client: redis.Redis, server: redis.Redis
) -> None:
    with module.Lock(client, KEY, expire=100) as lock:
        assert lock.extend(expire=1000) is None
        assert 990 < server.ttl(LOCK) <= 1000
        lock.extend()
        assert 90 < server.ttl(LOCK) <= 100
        module.Lock(client, KEY, id=lock.id).extend("500")
        assert 490 < server.ttl(LOCK) <= 500


def test_extend_of_what_cannot_be_extended_raises(
    module: ModuleType, client: redis.Redis, server: redis.Redis
) -> None:
    with pytest.raises(module.NotAcquired, match=r"^Lock lock:orders:42 is not acq"):
        module.Lock(client, KEY, expire=5).extend()
    with module.Lock(client, KEY) as lock:
        with pytest.raises(module.NotExpirable, match=r"no assigned expiration time$"):
            lock.extend(5)
        with pytest.raises(TypeError, match=r"^To extend a lock 'expire' must be"):
            lock.extend()
        with pytest.raises(ValueError, match="negative"):
            lock.extend(-1)
        with pytest.raises(module.NotAcquired):
            module.Lock(client, KEY).extend(5)
    assert server.ttl(SIGNAL) >= 0


# --- its holder ---------------------------------------------------------------------


def test_locked_and_owner_tell_who_holds_it(
    module: ModuleType, any_client: redis.Redis
) -> None:
    lock, rival = module.Lock(any_client, KEY), module.Lock(any_client, KEY)
    assert (lock.locked(), lock._held, lock.get_owner_id()) == (False, False, None)
    lock.acquire()
    assert (lock.locked(), lock._held, lock.get_owner_id()) == (True, True, lock.id)
    assert (rival.locked(), rival._held, rival.get_owner_id()) == (True, False, lock.id)


# --- renewal ------------------------------------------------------------------------


def test_renewal_is_set_up_as_documented(
    module: ModuleType, client: redis.Redis
) -> None:
    before = set(threading.enumerate())
    lock = module.Lock(client, KEY, expire=3, auto_renewal=True)
    assert lock._lock_renewal_interval == 2.0
    with lock:
        renewing = set(threading.enumerate()) - before
        assert all(thread.daemon for thread in renewing)
    assert wait_until(lambda: not any(thread.is_alive() for thread in renewing))
    assert module.Lock(client, KEY, expire=3)._lock_renewal_interval is None


def test_renewal_keeps_the_lock(
    module: ModuleType, client: redis.Redis, server: redis.Redis
) -> None:
    with hasty(module, client):
        server.pexpire(LOCK, 400)
        assert wait_until(lambda: server.pttl(LOCK) > 800)


@pytest.mark.slow
def test_renewal_ends_when_the_lock_is_garbage(
    module: ModuleType, client: redis.Redis, server: redis.Redis
) -> None:
    lock = hasty(module, client)
    lock.acquire()
    time.sleep(1.5)
    assert server.get(LOCK) == lock.id.encode()
    del lock
    gc.collect()
    assert wait_until(lambda: server.get(LOCK) is None)


def test_timeout_longer_than_expire_is_fine_with_renewal(
    module: ModuleType, client: redis.Redis
) -> None:
    assert hasty(module, client).acquire(timeout=100)


def test_second_renewal_thread_is_refused(
    module: ModuleType, client: redis.Redis
) -> None:
    with (
        hasty(module, client) as lock,
        pytest.raises(module.AlreadyStarted, match=r"^Lock refresh thread already st"),
    ):
        lock._start_lock_renewer()


@their_thread_may_die
def test_lock_that_was_lost_while_renewed_can_be_acquired_again(
    better: ModuleType, client: redis.Redis, server: redis.Redis
) -> None:
    """Theirs sets the key, then raises AlreadyStarted: nobody can have it any more."""
    lock = hasty(better, client)
    lock.acquire()
    server.delete(LOCK)
    time.sleep(0.5)
    assert lock.acquire(blocking=False)
    server.pexpire(LOCK, 400)
    assert wait_until(lambda: server.pttl(LOCK) > 800)  # renewed as before
    lock.release()


@their_thread_may_die
@pytest.mark.slow
def test_renewal_goes_on_after_an_error(
    better: ModuleType, masters: LocalMasters
) -> None:
    """Theirs ends at the first error, and says so nowhere."""
    with (
        impatient(masters.urls[0], socket_timeout=0.1) as client,
        impatient(masters.urls[0], protocol=2) as raw,
        hasty(better, client) as lock,
    ):
        masters.pause(0)
        time.sleep(0.5)
        masters.resume(0)
        raw.pexpire(LOCK, 900)
        time.sleep(1.2)
        assert raw.get(LOCK) == lock.id.encode()


@pytest.mark.slow
def test_many_locks_of_one_client_are_renewed_by_one_thread(
    client: redis.Redis, server: redis.Redis
) -> None:
    before = threading.active_count()
    locks = [ours.Lock(client, str(i), expire=1, auto_renewal=True) for i in range(20)]
    for lock in locks:
        lock.acquire()
    assert threading.active_count() <= before + 1
    time.sleep(2)
    for lock in locks:
        lock.release()


@pytest.mark.slow
def test_expire_that_cannot_be_renewed_is_refused_and_leaves_no_key(
    urls: list[str], server: redis.Redis
) -> None:
    with Proxy(urls[0]) as proxy, impatient(proxy.url, socket_timeout=5) as slow:
        proxy.set(delay=0.2)
        lock = ours.Lock(slow, KEY, expire=1, auto_renewal=True)
        with pytest.raises(ValueError, match="keep_alive needs"):
            lock.acquire()
    assert wait_until(lambda: server.get(LOCK) is None, within=0.5)


def test_loss_is_logged_and_a_release_says_so(
    client: redis.Redis, server: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    lock = ours.Lock(client, KEY, expire=1, auto_renewal=True)
    lock.acquire()
    server.delete(LOCK)
    assert wait_until(lambda: f"Lock({LOCK!r}) was lost" in caplog.text)
    with pytest.raises(ours.NotAcquired):
        lock.release()
