"""redis-py's Lock and what replaces it, blocking and asyncio: one body for all."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from redis.backoff import ConstantBackoff
from redis.exceptions import LockError, LockNotOwnedError
from redis.retry import Retry

from fastredlock import MasterVote, Vote
from fastredlock.compat._redis import Library
from fastredlock.testing import LocalMasters
from tests.compat.redis.face import THEIRS, THEIRS_ASYNCIO, Face
from tests.support.keys import KEY
from tests.support.processes import Fork
from tests.support.proxy import Proxy
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


# --- servers that fail --------------------------------------------------------------


@pytest.mark.slow
def test_server_that_is_down_is_a_connection_error(
    face: Face, one_master: LocalMasters
) -> None:
    client = face.client(one_master.urls[0])
    lock, held = (face.lock(key, client, timeout=5) for key in ("a", "b"))
    assert held.acquire()
    one_master.stop(0)
    for call in (lock.acquire, lock.locked, lock.owned, held.reacquire):
        with pytest.raises(redis.ConnectionError):
            call()
    with pytest.raises(redis.ConnectionError):
        held.extend(5)
    assert lock.local.token is None
    assert held.local.token is not None


@pytest.mark.parametrize(
    ("setting", "value", "error"),
    [
        ("requirepass", "secret", redis.AuthenticationError),
        ("maxmemory", "1", redis.exceptions.OutOfMemoryError),
    ],
)
def test_error_of_the_server_is_the_error_of_redis_py(
    face: Face, one_master: LocalMasters, setting: str, value: str, error: Any
) -> None:
    with redis.Redis.from_url(one_master.urls[0]) as server:
        server.config_set(setting, value)
    with pytest.raises(error):
        face.lock(client=face.client(one_master.urls[0]), timeout=5).acquire()


@pytest.mark.parametrize(
    ("vote", "text", "error"),
    [
        (Vote.FAILED, "owed a reply for too long", redis.TimeoutError),
        (Vote.FAILED, "no answer to the handshake yet", redis.TimeoutError),
        (Vote.SILENT, None, redis.TimeoutError),
        (Vote.FAILED, "connection refused", redis.ConnectionError),
        (Vote.FAILED, "GET: NOAUTH Authentication", redis.AuthenticationError),
        (Vote.FAILED, "LOADING Redis is", redis.exceptions.BusyLoadingError),
        (Vote.FAILED, "NOPERM this user has no", redis.exceptions.NoPermissionError),
        (Vote.FAILED, "WRONGTYPE Operation", redis.ResponseError),
    ],
)
def test_error_of_a_failed_vote_is_of_the_class_of_redis_py(
    vote: Vote, text: str | None, error: type[Exception]
) -> None:
    votes = (MasterVote("m", vote, text=text), MasterVote("n", Vote.GRANTED))
    made = Library(redis.Redis()).class_of(votes)(KEY)
    assert type(made) is error


def test_key_of_another_type_is_a_response_error(face: Face) -> None:
    face.server.lpush(KEY, 1)
    assert face.lock().acquire(blocking=False) is False
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        face.lock().locked()


def test_acquire_whose_reply_was_lost_does_not_wait_for_itself(
    better_blocking: Face,
) -> None:
    """redis-py sends the SET again and takes its own key for another's."""
    with Proxy(better_blocking.urls[0]) as proxy:
        retry = Retry(ConstantBackoff(0.05), 3)
        client = better_blocking.client(proxy.url, retry=retry, protocol=2)
        lock = better_blocking.lock(client=client, timeout=60)
        assert lock.locked() is False
        proxy.set(cut_down_after=0, at_cut="reset once")
        assert lock.acquire(blocking=False) is True
    assert better_blocking.value() == lock.local.token


# --- tokens -------------------------------------------------------------------------


def test_forked_child_does_not_have_the_lock_of_its_parent(
    better_blocking: Face,
) -> None:
    lock = better_blocking.lock(timeout=60)
    lock.acquire()

    def release() -> None:
        with pytest.raises(LockError, match=r"^Cannot release a lock that's not"):
            lock.release()

    Fork(release).result()
    assert better_blocking.value() == lock.local.token
    lock.release()


# --- many masters -------------------------------------------------------------------


def test_lock_of_a_list_of_clients_is_held_by_a_majority(ours: Face) -> None:
    clients = ours.clients[:3]
    lock, rival = (ours.lock(client=clients, timeout=10) for _ in range(2))
    assert lock.acquire()
    assert ours.values()[:3].count(lock.local.token) >= 2  # one may have been late
    assert not rival.acquire(blocking=False)
    assert (lock.locked(), lock.owned(), rival.owned()) == (True, True, False)
    assert lock.extend(10)
    assert all(19_000 < left <= 20_000 for left in ours.lefts_ms())
    lock.release()
    assert ours.is_free()
