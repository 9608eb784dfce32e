"""Locks of redis-py's kin over servers that fail, and over many masters."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.backoff import ConstantBackoff, NoBackoff
from redis.exceptions import LockError
from redis.retry import Retry

from fastredlock import MasterVote, QuorumUnreachableError, Vote
from fastredlock.compat._redis import redis_error
from fastredlock.testing import LocalMasters
from tests.compat.redis.face import Face
from tests.support.keys import KEY
from tests.support.masters import stop
from tests.support.proxy import Proxy
from tests.support.threads import later

# --- servers that fail --------------------------------------------------------------


@pytest.fixture
def one_master() -> Iterator[LocalMasters]:
    with LocalMasters(1) as masters:
        yield masters


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


@pytest.mark.slow
@pytest.mark.parametrize("token", [None, "never used before"])
def test_server_that_does_not_answer_is_a_timeout_error(
    face: Face, one_master: LocalMasters, token: str | None
) -> None:
    client = face.client(one_master.urls[0], socket_timeout=0.2)
    lock = face.lock(client=client, timeout=5)
    lock.locked()
    one_master.pause(0)
    with pytest.raises(redis.TimeoutError):
        lock.acquire(blocking=False, token=token)
    one_master.resume(0)


def test_server_that_restarts_is_found_again(
    face: Face, one_master: LocalMasters
) -> None:
    retry: Any = redis.asyncio.retry.Retry if face.is_awaited else Retry
    client = face.client(one_master.urls[0], retry=retry(NoBackoff(), 3))
    lock = face.lock(client=client, timeout=5)
    for _ in range(2):
        assert lock.acquire(blocking=False)
        one_master.stop(0)
        one_master.start(0)


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
        (Vote.FAILED, "WRONGTYPE Operation", redis.ResponseError),
    ],
)
def test_error_of_a_failed_vote_is_of_the_class_of_redis_py(
    vote: Vote, text: str | None, error: type[Exception]
) -> None:
    votes = (MasterVote("m", vote, text=text), MasterVote("n", Vote.GRANTED))
    made = redis_error(QuorumUnreachableError(KEY, votes, 1, 0.0))
    assert type(made) is error


def test_user_who_may_not_release_gets_the_error_of_redis_py(
    better: Face, one_master: LocalMasters
) -> None:
    """redis-py takes the lock, and has this error at the release."""
    url, natives = one_master.urls[0], ("delifeq", "delex")  # release without a script
    rights = ["on", ">pw", "~*", "+@all", "-evalsha", "-eval", "-script"]
    with redis.Redis.from_url(url) as server:
        rights += [
            f"-{n}" for n in natives if any(server.execute_command(f"COMMAND INFO {n}"))
        ]
        server.execute_command("ACL", "SETUSER", "lim", *rights)
    client = better.client(url, username="lim", password="pw")
    with pytest.raises(redis.exceptions.NoPermissionError, match="NOPERM"):
        better.lock(client=client, timeout=5).acquire()


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
        proxy.set(cut_down_after=0, at_cut="reset")
        with later(0.03, proxy.heal):
            assert lock.acquire(blocking=False) is True
    assert better_blocking.value() == lock.local.token


# --- tokens -------------------------------------------------------------------------


def test_token_cannot_be_guessed_from_another(better: Face) -> None:
    first, second = better.lock("a"), better.lock("b")
    first.acquire()
    second.acquire()
    assert first.local.token[12:] != second.local.token[12:]  # uuid1: clock and host


def test_forked_child_does_not_have_the_lock_of_its_parent(
    better_blocking: Face, tmp_path: Path
) -> None:
    lock, said = better_blocking.lock(timeout=60), tmp_path / "said"
    lock.acquire()
    if os.fork() == 0:
        try:
            lock.release()
        except LockError as error:
            said.write_text(str(error))
        finally:
            os._exit(0)
    os.wait()
    assert better_blocking.value() == lock.local.token
    assert said.read_text().startswith("Cannot release a lock that's not")
    lock.release()


# --- many masters -------------------------------------------------------------------


def test_lock_of_a_list_of_clients_is_held_by_a_majority(ours: Face) -> None:
    clients = ours.clients[:3]
    lock, rival = (ours.lock(client=clients, timeout=10) for _ in range(2))
    assert lock.acquire()
    assert ours.values()[:3] == [lock.local.token] * 3
    assert not rival.acquire(blocking=False)
    assert (lock.locked(), lock.owned(), rival.owned()) == (True, True, False)
    assert lock.extend(10)
    assert all(19_000 < left <= 20_000 for left in ours.lefts_ms())
    lock.release()
    assert ours.is_free()


@pytest.mark.slow
def test_lock_of_a_list_of_clients_does_without_a_minority(
    ours: Face, masters: LocalMasters
) -> None:
    stop(masters, 2)
    clients = [ours.client(url) for url in masters.urls]
    with ours.lock(client=clients, timeout=10) as lock:
        assert lock.owned()
    masters.stop(2)
    for ask in (lock.owned, lock.locked, lock.acquire):
        with pytest.raises(redis.ConnectionError):
            ask()


def test_minority_that_has_the_key_is_not_a_lock(ours: Face) -> None:
    ours.server.set(KEY, "another")
    lock = ours.lock(client=ours.clients[:3], timeout=10)
    assert lock.locked() is False
    assert lock.acquire(blocking_timeout=8)  # once both others are connected
    lock.release()
    assert ours.value() == b"another"
