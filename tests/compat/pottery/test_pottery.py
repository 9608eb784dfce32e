"""pottery's two Redlocks and what replaces them: surface, wire, and every call."""

from __future__ import annotations

import logging
import re
from contextlib import suppress
from typing import Any

import pytest
import redis

from fastredlock.testing import LocalMasters
from tests.compat.face import ANOTHER
from tests.compat.pottery.face import UUID, Face
from tests.support.keys import KEY
from tests.support.processes import run_to_its_end
from tests.support.threads import in_threads
from tests.support.waiting import stopwatch, wait_until

ERRORS = [
    *("PrimitiveError", "QuorumNotAchieved", "QuorumIsImpossible", "TooManyExtensions"),
    *("ExtendUnlockedLock", "ReleaseUnlockedLock"),
]

# --- surface and wire -----------------------------------------------------------------


def test_prefix_of_a_subclass_counts(blocking: Face) -> None:
    mutex = type("Mutex", (blocking.Redlock,), {"_KEY_PREFIX": "mutex"})
    lock = mutex(key=KEY, masters=blocking.masters)
    assert lock.key == f"mutex:{KEY}"
    assert repr(lock).endswith(f"Mutex key=mutex:{KEY}>")


@pytest.mark.parametrize("name", ERRORS[1:])
def test_errors_hold_key_masters_and_errors(face: Face, name: str) -> None:
    cls, given = getattr(face, name), (face.key, face.masters)
    error = cls(*given, redis_errors=["one"])
    assert (error.key, error.masters, error.redis_errors) == (*given, ["one"])
    assert cls(*given).redis_errors == ()
    assert isinstance(error, RuntimeError)
    assert isinstance(error, face.PrimitiveError)
    assert face.key in str(cls(*given))
    assert repr(error).startswith(f"{name}(key={face.key!r}, ")


def test_arguments_that_exclude_each_other_are_refused(face: Face) -> None:
    message = "^can't specify a timeout for a non-blocking call$"
    with pytest.raises(ValueError, match=message):
        face.lock(context_manager_blocking=False, context_manager_timeout=1)
    with pytest.raises(ValueError, match=message):
        face.lock().acquire(blocking=False, timeout=1)


def test_without_masters_the_url_of_the_environment_is_used(blocking: Face) -> None:
    with LocalMasters(1) as masters:
        code = (
            f"from {blocking.name} import *\n"
            f"lock = Redlock(key={KEY!r}); print(lock.acquire(), len(lock.masters))"
        )
        done = run_to_its_end(code, env={"REDIS_URL": masters.urls[0]})
        assert done.stdout == "True 1\n", done.stderr
        with redis.Redis.from_url(masters.urls[0]) as server:
            assert server.get(blocking.key)


def test_key_value_and_ttl_on_the_servers(face: Face) -> None:
    assert face.lock(auto_release_time=2.5).acquire()
    assert wait_until(lambda: sum(map(bool, face.values())) >= 3)
    (value,) = set(face.values()) - {None}
    assert re.fullmatch(UUID, value)
    assert all(1000 < left <= 2500 for left in face.lefts_ms())


# --- acquire and release --------------------------------------------------------------


def test_acquire_when_others_hold_it_then_tries_once_or_for_the_timeout(
    face: Face,
) -> None:
    face.set()
    lock = face.lock()
    assert lock.acquire(blocking=False) is False
    with stopwatch() as elapsed:
        assert lock.acquire(timeout=0.2) is False
        assert 0.19 < elapsed() < 2  # theirs is early by a tick of its loop
    face.set(px=150)
    assert lock.acquire()  # when the ttl of the holder is over


def test_release_of_what_is_not_held_raises(face: Face) -> None:
    lock = face.lock()
    with pytest.raises(face.ReleaseUnlockedLock) as raised:
        lock.release()
    assert (raised.value.key, raised.value.masters) == (face.key, lock.masters)
    assert list(raised.value.redis_errors) == []
    assert lock.acquire()
    lock.release()
    with pytest.raises(face.ReleaseUnlockedLock):
        lock.release()
    assert lock.acquire()
    face.set()
    with pytest.raises(face.ReleaseUnlockedLock):
        lock.release()
    assert face.values() == [ANOTHER] * 5


# --- locked and extend ----------------------------------------------------------------


def test_locked_is_the_time_left_in_seconds(face: Face) -> None:
    lock = face.lock()
    assert lock.locked() == 0
    assert type(lock.locked()) is int
    assert lock.acquire()
    assert 8 < lock.locked() < 10
    assert face.lock().locked() == 0
    lock.release()
    assert lock.locked() == 0


def test_extend_sets_the_ttl_anew(face: Face) -> None:
    lock = face.lock(auto_release_time=4)
    assert lock.acquire()
    lock.auto_release_time = 8
    assert lock.extend() is None
    assert wait_until(lambda: 6 < lock.locked() < 8)  # theirs: not at once
    assert wait_until(lambda: min(face.lefts_ms(), default=0) > 6000)


def test_extend_goes_so_often_and_every_acquire_starts_anew(face: Face) -> None:
    lock = face.lock(num_extensions=2)
    for _ in range(2):
        assert lock.acquire()
        lock.extend()
        lock.extend()
        with pytest.raises(face.TooManyExtensions) as raised:
            lock.extend()
        assert raised.value.key == face.key
        lock.release()
    lock.num_extensions = 0
    with pytest.raises(face.TooManyExtensions):
        lock.extend()


def test_lock_that_is_lost_is_not_locked_and_not_extended(face: Face) -> None:
    lock = face.lock()
    with pytest.raises(face.ExtendUnlockedLock):
        lock.extend()
    assert lock.acquire()
    face.set(count=3)
    assert lock.locked() == 0
    face.set()
    with pytest.raises(face.ExtendUnlockedLock) as raised:
        lock.extend()
    assert (raised.value.key, raised.value.masters) == (face.key, lock.masters)


# --- around a block, and `synchronize` ----------------------------------------


@pytest.mark.parametrize(
    ("option", "value"),
    [("context_manager_blocking", False), ("context_manager_timeout", 0.1)],
)
def test_with_when_others_hold_it_then_raises(
    face: Face, option: str, value: Any
) -> None:
    face.set()
    lock = face.lock(**{option: value})
    with pytest.raises(face.QuorumNotAchieved) as raised, lock:
        pytest.fail("the body ran")
    assert (raised.value.key, raised.value.masters) == (face.key, lock.masters)


def test_with_when_it_was_lost_in_the_body_then_raises(face: Face) -> None:
    with pytest.raises(face.ReleaseUnlockedLock), face.lock():
        face.set()
    with pytest.raises(face.ReleaseUnlockedLock), face.lock("released") as lock:
        lock.release()


def test_synchronize_runs_one_call_at_a_time(blocking: Face) -> None:
    inside: list[int] = []
    overlaps: list[int] = []

    @blocking.synchronize(key=KEY, masters=blocking.masters)
    def work(number: int, *, square: bool) -> int:
        """Square it."""
        overlaps.extend(inside)
        inside.append(number)
        assert blocking.values().count(None) < 3  # a pause, too, for others
        inside.remove(number)
        return number**2 if square else 0

    calls = [lambda number=number: work(number, square=True) for number in range(4)]
    assert in_threads(calls) == [0, 1, 4, 9]
    assert overlaps == []
    assert (work.__name__, work.__doc__) == ("work", "Square it.")


def test_synchronize_logs_how_long_it_waited_and_held(
    blocking: Face, caplog: pytest.LogCaptureFixture
) -> None:
    @blocking.synchronize(key=KEY, masters=blocking.masters, blocking=False)
    def work() -> None:
        pass

    with caplog.at_level(logging.INFO, "pottery"):
        work()
        assert blocking.is_free()
        blocking.set()
        with suppress(blocking.QuorumNotAchieved):
            work()
    said = [line for line in caplog.messages if "waited" in line]
    start = rf"{re.escape(work.__qualname__)}\(\) waited for {blocking.key} for \d+ ms"
    ends = (r"held for \d+ ms", "never acquired lock")
    for line, end in zip(said, ends, strict=True):
        assert re.fullmatch(f"{start}; {end}", line)
