"""Bugs of python-redis-lock that are not copied; servers, the log, mixed fleets."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis

from fastredlock import FastRedlock, MasterVote, Vote
from fastredlock.compat.redis_lock import _signal
from tests.compat.redis_lock.face import LOCK, SIGNAL, Face
from tests.support.fixtures import MakeLocks
from tests.support.processes import Fork
from tests.support.threads import in_threads, later
from tests.support.waiting import stopwatch, wait_until

# --- their bugs ---------------------------------------------------------------------


@contextmanager
def waiter(better: Face, *arguments: Any) -> Iterator[tuple[Any, list[bool]]]:
    """Acquire in a thread, whose answer is put into a list; reset the lock at last."""
    answers: list[bool] = []
    lock = better.lock()
    thread = threading.Thread(
        target=lambda: answers.append(lock.acquire(*arguments)), daemon=True
    )
    thread.start()
    try:
        yield thread, answers
    finally:
        better.lock().reset()  # so that theirs ends
        thread.join(8)


@pytest.mark.slow
def test_lost_race_does_not_begin_the_timeout_anew(better: Face) -> None:
    better.server.set(LOCK, "another")
    with waiter(better, True, 1) as (thread, answers):
        for _ in range(6):
            thread.join(0.3)
            better.server.lpush(SIGNAL, 1)
        assert answers == [False]


@pytest.mark.slow
def test_waiter_without_expire_outlives_a_holder_that_died(better: Face) -> None:
    """Theirs waits for a signal that nobody will send."""
    better.server.set(LOCK, "dead", px=300)
    with waiter(better) as (thread, answers):
        thread.join(2)
        assert answers == [True]


@pytest.mark.slow
def test_wait_longer_than_the_client_waits_for_a_reply_is_no_error(
    better: Face,
) -> None:
    better.server.set(LOCK, "another")
    reset = better.lock().reset
    better.default_client = better.client(socket_timeout=0.2)
    with later(0.5, reset):
        assert better.lock().acquire() is True


@pytest.mark.parametrize("expire", [0.5, 0.999])
def test_expire_below_a_second_is_refused(better: Face, expire: float) -> None:
    """Theirs cuts it off to 0 and gets an error from the server at acquire."""
    with pytest.raises(ValueError, match=f"expire={expire}: allowed is 1 s and more"):
        better.lock(expire=expire)


def test_forked_child_does_not_hold_what_its_parent_holds(better: Face) -> None:
    """Theirs has one id for both: each of them releases the lock of the other."""
    lock = better.lock()
    lock.acquire()

    def use() -> None:
        assert lock.acquire(blocking=False) is False  # not: AlreadyAcquired
        with pytest.raises(better.NotAcquired, match="is not acquired"):
            lock.release()

    Fork(use).result()
    assert better.value() == lock.id.encode()
    lock.release()


# --- servers ------------------------------------------------------------------------


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
    waited: list[tuple[str, float]] = []
    client = redis.Redis(socket_timeout=socket_timeout)
    client.blpop = lambda *args: waited.append(args)  # type: ignore[method-assign]
    vote = MasterVote("m", Vote.TAKEN, remaining_ms=remaining, owner=owner)
    _signal.wait(client, SIGNAL, [vote], left)
    assert waited == [(SIGNAL, waits)]


# --- the log, in which people search for these texts --------------------------------


def test_log_of_a_lock_is_theirs(face: Face, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "redis_lock")
    with face.lock():
        pass
    with face.hasty() as lock:
        interval = lock._lock_renewal_interval
    said = [(each.name[11:], each.getMessage()) for each in caplog.records]
    shown = f"Lock({LOCK!r})"
    holding = [
        ("acquire", f"Acquiring {shown} ..."),
        ("acquire", f"Acquired {shown}."),
        ("release", f"Releasing {shown}."),
    ]
    assert [line for line in said if "refresh" not in line[0]] == 2 * holding
    started = f"Starting renewal thread for {shown}. Refresh interval: {interval} seco"
    assert [(name, text[: len(started)]) for name, text in said if "ref" in name] == [
        ("refresh.start", started),
        ("refresh.shutdown", f"Signaling renewal thread for {shown} to exit."),
        ("refresh.thread", f"Exiting renewal thread for {shown}."),
        ("refresh.exit", f"Renewal thread for {shown} exited."),
    ]


# --- waiters of a FastRedlock beside ------------------------------------------


@pytest.fixture
def locks(make_locks: MakeLocks, urls: list[str]) -> FastRedlock:
    return make_locks(urls[:1])


def test_waiter_when_a_fastredlock_releases_without_a_signal_then_is_next_soon(
    locks: FastRedlock, ours: Face
) -> None:
    lease = locks.acquire(LOCK, ttl=60)
    assert lease is not None
    waiting = ours.lock(expire=10)
    with later(0.3, lease.release), stopwatch() as elapsed:
        assert waiting.acquire(timeout=9)
        assert elapsed() < 4  # not after the longest wait, 5 s
    waiting.release()


@pytest.mark.slow
def test_release_when_a_fastredlock_waits_then_notifies_it(
    locks: FastRedlock, ours: Face
) -> None:
    for _ in range(3):
        holding = ours.lock(expire=60)
        assert holding.acquire()
        before = locks.stats().turns_told

        def release(holding: object = holding) -> None:
            assert wait_until(lambda: locks.holders(LOCK)[0].waiting)
            holding.release()  # type: ignore[attr-defined]

        lease, _ = in_threads([lambda: locks.acquire(LOCK, timeout=5), release])
        assert lease is not None
        assert locks.stats().turns_told == before + 1
        lease.release()
