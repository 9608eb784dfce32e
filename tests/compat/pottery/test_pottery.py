"""pottery's two Redlocks and what replaces them: surface, wire, and every call."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from contextlib import closing
from typing import Any

import pytest
import redis

from fastredlock.testing import LocalMasters
from tests.compat.pottery.face import (
    BLOCKING,
    PAIR,
    STORED,
    UUID,
    Face,
    set_all,
    values,
)
from tests.support import library_process
from tests.support.keys import KEY
from tests.support.threads import in_threads
from tests.support.two_libraries import (
    assert_exclude_each_other,
    differing,
    lefts_ms,
    load,
    other_process,
    surface,
)
from tests.support.waiting import stopwatch, wait_until

Clients = set[redis.Redis]

LOCKS = [
    *("AIORedlock", "Redlock", "synchronize", "PrimitiveError", "QuorumNotAchieved"),
    *("QuorumIsImpossible", "TooManyExtensions", "ExtendUnlockedLock"),
    "ReleaseUnlockedLock",
]
# What differs in the surface, and why. The other names of pottery are its containers,
# counters and timers, which are no locks.
DIFFERENCES = {
    "Redlock.masters": "set again, they are used",
    "AIORedlock.masters": "the same",
    "AIORedlock": "without masters, that there are none is refused in other words",
}
ERRORS = [*LOCKS[4:]]
KINDS: dict[str, Any] = {
    "pottery": library_process.Pottery,
    "pottery-asyncio": library_process.PotteryAsyncio,
}


def load_all(kind: str, *modules: str) -> None:
    """Import what a process of this kind needs, or skip the test."""
    needed = ["fastredlock.asyncio"] if kind == "pottery-asyncio" else []
    for module in [*modules, *needed]:
        load(module)


# --- surface --------------------------------------------------------------------------


def test_surface_is_theirs() -> None:
    theirs, ours = map(load, PAIR)
    assert sorted(ours.__all__) == sorted([*LOCKS])
    found = differing(surface(theirs, LOCKS), surface(ours, LOCKS))
    assert {name.partition(":")[0] for name in found} == DIFFERENCES.keys()
    with pytest.raises(ValueError, match="none given"):
        ours.AIORedlock(key=KEY)


def test_attributes_are_set_as_by_theirs(pottery: Face, clients: Clients) -> None:
    lock = pottery.Redlock(key=KEY, masters=list(clients))
    assert (lock.key, lock.masters) == (STORED, frozenset(clients))
    assert repr(lock) == f"<{pottery.name} key={STORED}>"
    assert (lock.raise_on_redis_errors, lock.auto_release_time) == (False, 10)
    assert (lock.num_extensions, lock.context_manager_blocking) == (3, True)
    assert lock.context_manager_timeout == -1
    lock.key = "other"
    assert lock.key == "redlock:other"
    with pytest.raises(AttributeError):
        lock.unknown = 1


@BLOCKING
def test_prefix_of_a_subclass_counts(pottery: Face, clients: Clients) -> None:
    class Mutex(pottery.module.Redlock):  # type: ignore[name-defined]
        _KEY_PREFIX = "mutex"

    lock = Mutex(key=KEY, masters=clients)
    assert lock.key == f"mutex:{KEY}"
    assert repr(lock).endswith(f"Mutex key=mutex:{KEY}>")


@pytest.mark.parametrize("name", ERRORS)
def test_errors_hold_key_masters_and_errors(
    pottery: Face, clients: Clients, name: str
) -> None:
    cls = getattr(pottery, name)
    error = cls(STORED, clients, redis_errors=["one"])
    assert (error.key, error.masters, error.redis_errors) == (STORED, clients, ["one"])
    assert cls(STORED, clients).redis_errors == ()
    assert isinstance(error, RuntimeError)
    assert isinstance(error, pottery.PrimitiveError)
    assert STORED in str(cls(STORED, clients))
    assert repr(error).startswith(f"{name}(key={STORED!r}, ")


def test_arguments_that_exclude_each_other_are_refused(
    pottery: Face, clients: Clients
) -> None:
    message = "^can't specify a timeout for a non-blocking call$"
    with pytest.raises(ValueError, match=message):
        pottery.Redlock(
            key=KEY,
            masters=clients,
            context_manager_blocking=False,
            context_manager_timeout=1,
        )
    with pytest.raises(ValueError, match=message):
        pottery.Redlock(key=KEY, masters=clients).acquire(blocking=False, timeout=1)


@BLOCKING
def test_without_masters_the_url_of_the_environment_is_used(
    pottery: Face,
) -> None:
    with LocalMasters(1) as masters:
        code = (
            f"import sys; sys.path[:0] = {sys.path!r}\n"
            f"from {pottery.module.__name__} import *\n"
            f"lock = Redlock(key={KEY!r}); print(lock.acquire(), len(lock.masters))"
        )
        told = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "REDIS_URL": masters.urls[0]},
        )
        assert told.stdout == "True 1\n"
        with redis.Redis.from_url(masters.urls[0]) as server:
            assert server.get(STORED)


# --- wire -----------------------------------------------------------------------------


def test_key_value_and_ttl_on_the_servers(
    pottery: Face, clients: Clients, servers: list[redis.Redis]
) -> None:
    assert pottery.Redlock(key=KEY, masters=clients, auto_release_time=2.5).acquire()
    assert wait_until(lambda: sum(map(bool, values(servers))) >= 3)
    (value,) = set(values(servers)) - {None}
    assert re.fullmatch(UUID, value)
    assert all(1000 < left <= 2500 for left in lefts_ms(servers, STORED))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("here", "there"), [PAIR, PAIR[::-1]])
def test_old_and_new_processes_exclude_each_other(
    here: str, there: str, kind: str, urls: list[str]
) -> None:
    load_all(kind, there)
    with (
        closing(KINDS[kind](load(here), KEY, urls)) as lock,
        other_process(kind, there, KEY, urls) as other,
    ):
        assert_exclude_each_other(lock, other)


@pytest.mark.parametrize("there", PAIR)
def test_waiter_gets_what_the_other_process_releases(
    pottery: Face, there: str, urls: list[str], clients: Clients
) -> None:
    lock = pottery.Redlock(key=KEY, masters=clients)
    load(there)
    with other_process("pottery", there, KEY, urls) as other:
        assert other.say("take") == "True"
        assert not lock.acquire(timeout=0.05)
        other.tell("release")
        assert lock.acquire(timeout=5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_counter_when_old_and_new_processes_share_it_then_loses_no_update(
    kind: str, urls: list[str], tmp_path: Any
) -> None:
    path = tmp_path / "counter"
    path.write_text("0")
    load_all(kind, *PAIR)
    with (
        other_process(kind, PAIR[0], KEY, urls) as theirs,
        other_process(kind, PAIR[1], KEY, urls) as ours,
    ):
        for process in (theirs, ours):
            process.tell(f"count {path} 20")
        assert [theirs.answer(), ours.answer()] == ["None", "None"]
    assert path.read_text() == "40"


# --- acquire and release --------------------------------------------------------------


def test_acquire_and_release(
    pottery: Face, clients: Clients, servers: list[redis.Redis]
) -> None:
    lock = pottery.Redlock(key=KEY, masters=clients)
    assert lock.acquire() is True
    assert lock.release() is None
    assert wait_until(lambda: values(servers) == [None] * 5)
    assert lock.acquire(blocking=False) is True


def test_acquire_when_others_hold_it_then_tries_once_or_for_the_timeout(
    pottery: Face, clients: Clients, servers: list[redis.Redis]
) -> None:
    set_all(servers, b"another's")
    lock = pottery.Redlock(key=KEY, masters=clients)
    assert lock.acquire(blocking=False) is False
    with stopwatch() as elapsed:
        assert lock.acquire(timeout=0.2) is False
        assert 0.19 < elapsed() < 2  # theirs is early by a tick of its loop


def test_acquire_waits_until_the_ttl_of_the_holder_is_over(
    pottery: Face, clients: Clients, servers: list[redis.Redis]
) -> None:
    set_all(servers, b"another's", px=150)
    assert pottery.Redlock(key=KEY, masters=clients).acquire()


def test_acquire_by_the_same_object_waits_for_its_own_ttl(
    pottery: Face, clients: Clients
) -> None:
    lock = pottery.Redlock(key=KEY, masters=clients, auto_release_time=0.2)
    assert lock.acquire()
    with stopwatch() as elapsed:
        assert lock.acquire()
        assert elapsed() > 0.1


def test_auto_release_time_that_is_changed_later_counts(
    pottery: Face, clients: Clients, servers: list[redis.Redis]
) -> None:
    lock = pottery.Redlock(key=KEY, masters=clients)
    lock.auto_release_time = 2
    assert lock.acquire()
    assert wait_until(lambda: len(lefts_ms(servers, STORED)) >= 3)
    assert max(lefts_ms(servers, STORED)) <= 2000


def test_release_of_what_is_not_held_raises(
    pottery: Face, clients: Clients, servers: list[redis.Redis]
) -> None:
    lock = pottery.Redlock(key=KEY, masters=clients)
    with pytest.raises(pottery.ReleaseUnlockedLock) as raised:
        lock.release()
    assert (raised.value.key, raised.value.masters) == (STORED, lock.masters)
    assert list(raised.value.redis_errors) == []
    assert lock.acquire()
    lock.release()
    with pytest.raises(pottery.ReleaseUnlockedLock):
        lock.release()
    assert lock.acquire()
    set_all(servers, b"another's")
    with pytest.raises(pottery.ReleaseUnlockedLock):
        lock.release()
    assert values(servers) == [b"another's"] * 5


def test_lock_may_be_released_by_another_thread(
    pottery: Face, clients: Clients
) -> None:
    lock = pottery.Redlock(key=KEY, masters=clients)
    assert lock.acquire()
    assert in_threads([lock.release]) == [None]
    assert lock.acquire(blocking=False)


# --- locked and extend ----------------------------------------------------------------


def test_locked_is_the_time_left_in_seconds(pottery: Face, clients: Clients) -> None:
    lock = pottery.Redlock(key=KEY, masters=clients)
    assert lock.locked() == 0
    assert type(lock.locked()) is int
    assert lock.acquire()
    assert 8 < lock.locked() < 10
    assert pottery.Redlock(key=KEY, masters=clients).locked() == 0
    lock.release()
    assert lock.locked() == 0


def test_locked_is_zero_when_it_was_lost(
    pottery: Face, clients: Clients, servers: list[redis.Redis]
) -> None:
    lock = pottery.Redlock(key=KEY, masters=clients)
    assert lock.acquire()
    set_all(servers[:3], b"another's")
    assert lock.locked() == 0
    brief = pottery.Redlock(key="brief", masters=clients, auto_release_time=0.05)
    assert brief.acquire()
    time.sleep(0.06)
    assert brief.locked() == 0


def test_extend_sets_the_ttl_anew(
    pottery: Face, clients: Clients, servers: list[redis.Redis]
) -> None:
    lock = pottery.Redlock(key=KEY, masters=clients, auto_release_time=4)
    assert lock.acquire()
    lock.auto_release_time = 8
    assert lock.extend() is None
    assert wait_until(lambda: 6 < lock.locked() < 8)  # theirs: not at once
    assert wait_until(lambda: min(lefts_ms(servers, STORED)) > 6000)


def test_extend_goes_so_often_and_every_acquire_starts_anew(
    pottery: Face, clients: Clients
) -> None:
    lock = pottery.Redlock(key=KEY, masters=clients, num_extensions=2)
    for _ in range(2):
        assert lock.acquire()
        lock.extend()
        lock.extend()
        with pytest.raises(pottery.TooManyExtensions) as raised:
            lock.extend()
        assert raised.value.key == STORED
        lock.release()
    lock.num_extensions = 0
    with pytest.raises(pottery.TooManyExtensions):
        lock.extend()


def test_extend_of_what_is_not_held_raises(
    pottery: Face, clients: Clients, servers: list[redis.Redis]
) -> None:
    lock = pottery.Redlock(key=KEY, masters=clients)
    with pytest.raises(pottery.ExtendUnlockedLock):
        lock.extend()
    assert lock.acquire()
    set_all(servers, b"another's")
    with pytest.raises(pottery.ExtendUnlockedLock) as raised:
        lock.extend()
    assert (raised.value.key, raised.value.masters) == (STORED, lock.masters)
    brief = pottery.Redlock(key="brief", masters=clients, auto_release_time=0.05)
    assert brief.acquire()
    time.sleep(0.06)
    with pytest.raises(pottery.ExtendUnlockedLock):
        brief.extend()
