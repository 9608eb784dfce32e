"""pottery's two Redlocks when masters fail, and bugs of theirs that are not copied."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import pytest

from fastredlock.testing import LocalMasters
from tests.compat.pottery.face import Face
from tests.support.keys import KEY
from tests.support.masters import stop
from tests.support.processes import run_to_its_end
from tests.support.threads import in_threads

# --- masters that fail ----------------------------------------------------------------


def lock_on(face: Face, masters: LocalMasters, **options: Any) -> Any:
    return face.lock(masters=set(map(face.client, masters.urls)), **options)


def test_minority_that_fails_is_not_noticed(face: Face, masters: LocalMasters) -> None:
    stop(masters, 2)
    lock = lock_on(face, masters, raise_on_redis_errors=True)
    assert lock.acquire()
    assert lock.locked()
    lock.extend()
    lock.release()


def test_majority_that_fails_is_false_without_the_flag(
    face: Face, masters: LocalMasters
) -> None:
    lock = lock_on(face, masters)
    assert lock.acquire()
    stop(masters, 3)
    assert lock.locked() == 0
    for call, error in (
        (lock.extend, face.ExtendUnlockedLock),
        (lock.release, face.ReleaseUnlockedLock),
    ):
        with pytest.raises(error) as raised:
            call()
        errors = list(raised.value.redis_errors)
        assert len(errors) >= 3
        assert all(isinstance(one, Exception) for one in errors)
    assert lock.acquire(blocking=False) is False
    assert lock.acquire(timeout=0.3) is False


@pytest.mark.parametrize("is_held", [True, False], ids=["held", "free"])
@pytest.mark.parametrize("when", ["made", "called"])
def test_majority_that_fails_is_an_error_with_the_flag(
    face: Face, masters: LocalMasters, when: str, is_held: bool
) -> None:
    flag = {"raise_on_redis_errors": True}
    lock = lock_on(face, masters, **(flag if when == "made" else {}))
    assert not is_held or lock.acquire()
    stop(masters, 3)
    first = [] if is_held else [lock.acquire]
    for call in (*first, lock.locked, lock.extend, lock.release, lock.acquire):
        with pytest.raises(face.QuorumIsImpossible) as raised:
            call(**(flag if when == "called" else {}))
        assert raised.value.key == face.key
        assert len(list(raised.value.redis_errors)) >= 3


# --- bugs that are not copied ---------------------------------------------------------


def test_holder_when_another_thread_tries_the_same_object_then_keeps_its_token(
    better: Face,
) -> None:
    lock = better.lock()
    assert lock.acquire()
    assert in_threads([lambda: lock.acquire(blocking=False)]) == [False]
    assert lock.locked()
    lock.release()


def test_acquire_with_timeout_zero_tries_once(better: Face) -> None:
    assert better.lock().acquire(timeout=0) is True


def test_error_of_the_body_is_not_hidden_by_one_of_the_release(better: Face) -> None:
    with pytest.raises(ZeroDivisionError):  # noqa: SIM117, PT012 - as users write it
        with better.lock() as lock:
            lock.release()
            _ = 1 / 0


def test_locked_is_as_long_as_a_majority_has_it(better_awaited: Face) -> None:
    lock = better_awaited.lock()
    assert lock.acquire()
    token = next(filter(None, better_awaited.values()))
    better_awaited.set()
    for server, seconds in zip(better_awaited.servers, (4, 6, 9), strict=False):
        server.set(better_awaited.key, token, ex=seconds)
    tries = (lock.locked() for _ in range(50))  # 0 if the replies were late
    assert 0 < next(filter(None, tries), 0) <= 4


def test_errors_can_be_put_into_a_set_and_hold_no_password(
    better_blocking: Face,
) -> None:
    error = better_blocking.QuorumNotAchieved(KEY, frozenset({"redis://:hunter2@h"}))
    assert len({error}) == 1
    assert "hunter2" not in str(error) + repr(error)


async def coroutine() -> None:
    pass


def generator() -> Iterator[int]:
    yield 1


async def asynchronous_generator() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    "work",
    [coroutine, generator, asynchronous_generator, contextmanager(generator)],
)
def test_synchronize_refuses_what_runs_after_the_release(
    better_blocking: Face, work: Any
) -> None:
    synchronized = better_blocking.synchronize(key=KEY, masters=better_blocking.masters)
    with pytest.raises(TypeError, match=r"is a coroutine function or .*`async with"):
        synchronized(work)


def test_synchronize_refuses_wrapped_functions_alone_that_do_not_run(
    better_blocking: Face,
) -> None:
    synchronized = better_blocking.synchronize(key=KEY, masters=better_blocking.masters)
    for work in (coroutine, generator, asynchronous_generator):
        hidden: Any = wraps(work)(lambda work=work: work())
        with pytest.raises(TypeError, match="is a coroutine function or"):
            synchronized(hidden)()
        assert better_blocking.is_free()
    running: Any = wraps(coroutine)(lambda: asyncio.run(coroutine()))
    assert synchronized(running)() is None


def test_import_leaves_json_alone(better_blocking: Face) -> None:
    code = f"import json; dumps = json.dumps; import {better_blocking.name}; "
    done = run_to_its_end(code + "print(json.dumps is dumps)")
    assert done.stdout == "True\n", done.stderr
