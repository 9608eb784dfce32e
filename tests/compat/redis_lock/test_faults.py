"""Bugs of python-redis-lock that are not copied; servers and clients; the log."""

from __future__ import annotations

import gc
import logging
import os
import threading
from pathlib import Path
from types import ModuleType

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from fastredlock import ConfigurationError
from fastredlock.compat import redis_lock as ours
from fastredlock.compat.redis_lock import _signal
from fastredlock.testing import LocalMasters
from tests.compat.redis_lock.face import LOCK, SIGNAL, hasty
from tests.support.keys import KEY
from tests.support.redis_flavours import cluster, connections, impatient
from tests.support.threads import later
from tests.support.waiting import wait_until

# --- their bugs ---------------------------------------------------------------------


@pytest.mark.slow
def test_timeout_of_half_a_second_is_half_a_second(
    better: ModuleType, client: redis.Redis
) -> None:
    """Theirs cuts it off to 0, which is none."""
    better.Lock(client, KEY).acquire()
    answers: list[bool] = []
    waiter = threading.Thread(
        target=lambda: answers.append(better.Lock(client, KEY).acquire(timeout=0.5)),
        daemon=True,
    )
    waiter.start()
    waiter.join(1.5)
    better.Lock(client, KEY).reset()  # so that it ends
    waiter.join(8)
    assert answers == [False]


@pytest.mark.slow
def test_lost_race_does_not_begin_the_timeout_anew(
    better: ModuleType, client: redis.Redis, server: redis.Redis
) -> None:
    server.set(LOCK, "another")
    stop = threading.Event()

    def signal() -> None:
        while not stop.wait(0.3):
            server.lpush(SIGNAL, 1)

    signals = threading.Thread(target=signal)
    signals.start()
    waiter = threading.Thread(target=better.Lock(client, KEY).acquire, args=[True, 1])
    waiter.start()
    waiter.join(2)
    is_waiting = waiter.is_alive()
    stop.set()
    signals.join()
    waiter.join(8)
    assert not is_waiting


@pytest.mark.slow
def test_waiter_without_expire_outlives_a_holder_that_died(
    better: ModuleType, client: redis.Redis, server: redis.Redis
) -> None:
    """Theirs waits for a signal that nobody will send."""
    server.set(LOCK, "dead", px=300)
    waiter = threading.Thread(target=better.Lock(client, KEY).acquire, daemon=True)
    waiter.start()
    waiter.join(2)
    is_waiting = waiter.is_alive()
    better.Lock(client, KEY).reset()
    waiter.join(8)
    assert not is_waiting


@pytest.mark.slow
def test_wait_longer_than_the_client_waits_for_a_reply_is_no_error(
    better: ModuleType, urls: list[str], server: redis.Redis
) -> None:
    server.set(LOCK, "another")
    with (
        impatient(urls[0], socket_timeout=0.2) as client,
        later(0.5, lambda: better.Lock(client, KEY).reset()),
    ):
        assert better.Lock(client, KEY).acquire() is True


@pytest.mark.parametrize("expire", [0.5, 0.999])
def test_expire_below_a_second_is_refused(
    better: ModuleType, client: redis.Redis, expire: float
) -> None:
    """Theirs cuts it off to 0 and gets an error from the server at acquire."""
    with pytest.raises(ValueError, match=f"expire={expire}: allowed is 1 s and more"):
        better.Lock(client, KEY, expire=expire)


def test_forked_child_does_not_hold_what_its_parent_holds(
    better: ModuleType, client: redis.Redis, server: redis.Redis, tmp_path: Path
) -> None:
    """Theirs has one id for both: each of them releases the lock of the other."""
    lock = better.Lock(client, KEY)
    lock.acquire()
    if os.fork() == 0:
        try:
            (tmp_path / "taken").write_text(str(lock.acquire(blocking=False)))
            lock.release()
        except better.NotAcquired as error:
            (tmp_path / "said").write_text(str(error))
        finally:
            os._exit(0)
    os.wait()
    assert server.get(LOCK) == lock.id.encode()
    assert (tmp_path / "taken").read_text() == "False"  # not: AlreadyAcquired
    assert "is not acquired" in (tmp_path / "said").read_text()
    lock.release()


# --- servers and clients ------------------------------------------------------------


@pytest.mark.slow
def test_server_that_is_down_is_a_connection_error(
    module: ModuleType, masters: LocalMasters
) -> None:
    with impatient(masters.urls[0]) as client:
        lock = module.Lock(client, KEY)
        masters.stop(0)
        for call in (lock.acquire, lock.release, lock.locked):
            with pytest.raises(redis.ConnectionError):
                call()


@pytest.mark.parametrize("given", [None, "mine"])
@pytest.mark.slow
def test_own_id_is_not_used_again_after_a_try_without_an_answer(
    masters: LocalMasters, given: str | None
) -> None:
    """The roll-back of that try may arrive late: it must not meet the next key."""
    with impatient(masters.urls[0]) as client:
        lock = ours.Lock(client, KEY, id=given)
        before = lock.id
        masters.stop(0)
        with pytest.raises(redis.ConnectionError):
            lock.acquire()
        assert (lock.id == before) == (given is not None)


def test_lock_for_every_use_opens_one_connection(
    urls: list[str], server: redis.Redis
) -> None:
    gc.collect()
    before = connections(server)
    pool = redis.ConnectionPool.from_url(urls[0])
    clients = [redis.Redis(connection_pool=pool) for _ in range(20)]
    for client in clients:
        with ours.Lock(client, KEY):
            pass
    assert connections(server) <= before + 1


def test_client_that_cannot_be_copied_is_refused_when_the_lock_is_made() -> None:
    with pytest.raises(ConfigurationError, match="a cluster client is not one master"):
        ours.Lock(cluster(), KEY, strict=False)


@pytest.mark.parametrize(
    ("owner", "remaining", "left", "socket_timeout", "waits"),
    [
        (None, -1, None, None, _signal.LONGEST_WAIT),
        (None, -1, 2.0, None, 2.0),
        (None, 1000, None, None, 1.002),
        (None, -1, None, 0.4, 0.2),
        (None, -1, 0.0001, None, _signal.SHORTEST_WAIT),
        ("host:1", -1, None, None, _signal.WITHOUT_SIGNAL),
        ("host:1", -1, 0.1, None, 0.1),
    ],
)
def test_wait_is_as_long_as_it_is_of_use(
    owner: str | None,
    remaining: int,
    left: float | None,
    socket_timeout: float | None,
    waits: float,
) -> None:
    from fastredlock import MasterVote, Vote

    waited: list[tuple[str, float]] = []
    client = redis.Redis(socket_timeout=socket_timeout, retry=Retry(NoBackoff(), 0))
    client.blpop = lambda *args: waited.append(args)  # type: ignore[method-assign]
    vote = MasterVote("m", Vote.TAKEN, remaining_ms=remaining, owner=owner)
    _signal.wait(client, SIGNAL, [vote], left)
    assert waited == [(SIGNAL, waits)]


def test_log_of_a_release_names_the_lock(
    module: ModuleType, client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "redis_lock"), module.Lock(client, KEY):
        pass
    assert [(each.name, each.getMessage()) for each in caplog.records] == [
        ("redis_lock.acquire", f"Acquiring Lock({LOCK!r}) ..."),
        ("redis_lock.acquire", f"Acquired Lock({LOCK!r})."),
        ("redis_lock.release", f"Releasing Lock({LOCK!r})."),
    ]


@pytest.mark.slow
def test_log_of_a_renewal_is_theirs(
    module: ModuleType, client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """People search their logs for these texts."""
    caplog.set_level(logging.DEBUG, "redis_lock")
    with hasty(module, client) as lock:
        interval = lock._lock_renewal_interval
        pass
    assert [
        (each.name.removeprefix("redis_lock."), each.getMessage())
        for each in caplog.records
        if "refresh" in each.name
    ] == [
        (
            "refresh.start",
            f"Starting renewal thread for Lock({LOCK!r}). "
            f"Refresh interval: {interval} seconds.",
        ),
        (
            "refresh.shutdown",
            f"Signaling renewal thread for Lock({LOCK!r}) to exit.",
        ),
        ("refresh.thread", f"Exiting renewal thread for Lock({LOCK!r})."),
        ("refresh.exit", f"Renewal thread for Lock({LOCK!r}) exited."),
    ]


@pytest.mark.slow
def test_log_of_a_renewal_names_a_lock_that_is_garbage(
    module: ModuleType, client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """People search their logs for this text."""
    caplog.set_level(logging.DEBUG, "redis_lock")
    lock = hasty(module, client)
    lock.acquire()
    del lock
    gc.collect()
    stopped = f"Stopping loop because Lock({LOCK!r}) was garbage collected."
    assert wait_until(lambda: stopped in caplog.messages)
