"""pottery's two Redlocks when masters fail, and bugs of theirs that are not copied."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from functools import wraps
from typing import Any

import pytest
import redis

from fastredlock.testing import LocalMasters
from tests.compat.pottery.face import STORED, Face, not_copied, set_all, values
from tests.support.keys import KEY
from tests.support.proxy import Proxy
from tests.support.threads import in_threads
from tests.support.waiting import wait_until

Clients = set[redis.Redis]

# --- masters that fail ----------------------------------------------------------------


def without_majority(pottery: Face, masters: LocalMasters, **options: Any) -> Any:
    """Return a lock that is held, three masters of which were stopped since."""
    lock = pottery.Redlock(key=KEY, masters=pottery.clients(masters.urls), **options)
    assert lock.acquire()
    for i in range(3):
        masters.stop(i)
    return lock


def test_minority_that_fails_is_not_noticed(
    pottery: Face, masters: LocalMasters
) -> None:
    masters.stop(0)
    masters.stop(1)
    clients = pottery.clients(masters.urls)
    lock = pottery.Redlock(key=KEY, masters=clients, raise_on_redis_errors=True)
    assert lock.acquire()
    assert lock.locked()
    lock.extend()
    lock.release()


def test_majority_that_fails_is_false_without_the_flag(
    pottery: Face, masters: LocalMasters
) -> None:
    lock = without_majority(pottery, masters)
    assert lock.locked() == 0
    with pytest.raises(pottery.ExtendUnlockedLock) as extended:
        lock.extend()
    with pytest.raises(pottery.ReleaseUnlockedLock) as released:
        lock.release()
    for raised in (extended, released):
        assert len(list(raised.value.redis_errors)) >= 3
        assert all(isinstance(one, Exception) for one in raised.value.redis_errors)
    assert lock.acquire(blocking=False) is False
    assert lock.acquire(timeout=0.3) is False


@pytest.mark.parametrize("when", ["made", "called"])
def test_majority_that_fails_is_an_error_with_the_flag(
    pottery: Face, masters: LocalMasters, when: str
) -> None:
    is_made = when == "made"
    options = {} if is_made else {"raise_on_redis_errors": True}
    lock = without_majority(pottery, masters, raise_on_redis_errors=is_made)
    for call in (lock.locked, lock.extend, lock.release, lock.acquire):
        with pytest.raises(pottery.QuorumIsImpossible) as raised:
            call(**options)
        assert raised.value.key == STORED
        assert len(list(raised.value.redis_errors)) >= 3


def test_majority_that_fails_is_an_error_although_nothing_is_held(
    pottery: Face, masters: LocalMasters
) -> None:
    clients = pottery.clients(masters.urls)
    lock = pottery.Redlock(key=KEY, masters=clients, raise_on_redis_errors=True)
    for i in range(3):
        masters.stop(i)
    for call in (lock.acquire, lock.locked, lock.extend, lock.release):
        with pytest.raises(pottery.QuorumIsImpossible):
            call()


def test_waiter_outlives_an_outage(pottery: Face, masters: LocalMasters) -> None:
    lock = pottery.Redlock(key=KEY, masters=pottery.clients(masters.urls))
    for i in range(3):
        masters.stop(i)

    def start_again() -> None:
        time.sleep(0.5)
        for i in range(3):
            masters.start(i)

    assert in_threads([lock.acquire, start_again])[0] is True


# --- bugs that are not copied ---------------------------------------------------------


@not_copied("theirs", "theirs-asyncio")
def test_holder_when_another_thread_tries_the_same_object_then_keeps_its_token(
    pottery: Face, clients: Clients
) -> None:
    lock = pottery.Redlock(key=KEY, masters=clients)
    assert lock.acquire()
    assert in_threads([lambda: lock.acquire(blocking=False)]) == [False]
    assert lock.locked()
    lock.release()


@not_copied("theirs", "theirs-asyncio")
def test_acquire_with_timeout_zero_tries_once(pottery: Face, clients: Clients) -> None:
    assert pottery.Redlock(key=KEY, masters=clients).acquire(timeout=0) is True


@not_copied("theirs", "theirs-asyncio")
def test_error_of_the_body_is_not_hidden_by_one_of_the_release(
    pottery: Face, clients: Clients
) -> None:
    with pytest.raises(ZeroDivisionError):  # noqa: SIM117, PT012 - as users write it
        with pottery.Redlock(key=KEY, masters=clients) as lock:
            lock.release()
            _ = 1 / 0


@not_copied("theirs")
def test_set_that_the_network_holds_back_does_not_outlive_the_release(
    pottery: Face, urls: list[str], servers: list[redis.Redis]
) -> None:
    with Proxy(urls[0]) as slow:
        clients = pottery.clients([slow.url, *urls[1:]])
        lock = pottery.Redlock(key=KEY, masters=clients)
        assert lock.acquire()
        lock.release()
        assert wait_until(lambda: set(values(servers)) == {None})
        for client in clients:
            client.connection_pool.disconnect()
        before = slow.connections
        slow.set(holds_up=True)
        assert lock.acquire()
        wait_until(lambda: slow.connections > before, within=0.2)
        slow.set(closes_accepted=True)
        lock.release()  # theirs: over another connection
        time.sleep(0.1)
        slow.heal()
        time.sleep(0.3)
        assert values(servers) == [None] * 5


@not_copied("theirs", "theirs-asyncio", is_by_chance=True)
def test_extension_that_is_confirmed_when_it_is_over_is_none(
    pottery: Face, urls: list[str]
) -> None:
    with Proxy(urls[0]) as first, Proxy(urls[1]) as second:
        clients = pottery.clients([first.url, second.url, urls[2]])
        lock = pottery.Redlock(key=KEY, masters=clients, auto_release_time=1.5)
        assert lock.acquire()
        first.set(holds_down=True)
        second.set(holds_down=True)

        def heal() -> None:
            time.sleep(2)
            first.heal()
            second.heal()

        def extend() -> None:
            with pytest.raises(pottery.ExtendUnlockedLock):
                lock.extend()

        in_threads([heal, extend])


@not_copied("theirs-asyncio")
def test_locked_is_as_long_as_a_majority_has_it(
    pottery: Face, clients: Clients, servers: list[redis.Redis]
) -> None:
    lock = pottery.Redlock(key=KEY, masters=clients)
    assert lock.acquire()
    token = next(filter(None, values(servers)))
    for server, seconds in zip(servers, (1, 2, 9), strict=False):
        server.set(STORED, token, ex=seconds)
    set_all(servers[3:], b"another's")
    assert 0 < lock.locked() <= 1


@not_copied("theirs-asyncio")
def test_acquire_that_is_cancelled_leaves_nothing_behind(
    pottery: Face, urls: list[str], servers: list[redis.Redis]
) -> None:
    with Proxy(urls[0]) as first, Proxy(urls[1]) as second, Proxy(urls[2]) as third:
        proxies = [first, second, third]
        clients = pottery.clients([proxy.url for proxy in proxies])
        lock = pottery.Redlock(key=KEY, masters=clients)
        assert lock.acquire()
        lock.release()
        assert wait_until(lambda: set(values(servers)) == {None})
        for proxy in proxies:
            proxy.set(holds_down=True)

        async def cancel() -> None:
            acquiring = asyncio.ensure_future(lock._awaitable.acquire())
            while set(values(servers[:3])) == {None}:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            acquiring.cancel()
            await asyncio.wait({acquiring}, timeout=2)

        lock._run(cancel())
        for proxy in proxies:
            proxy.heal()
        assert wait_until(lambda: set(values(servers)) == {None}, within=1)


@not_copied("theirs")
def test_errors_can_be_put_into_a_set(pottery: Face) -> None:
    assert len({pottery.QuorumNotAchieved(STORED, frozenset())}) == 1


async def coroutine() -> None:
    await asyncio.sleep(0)


def generator() -> Iterator[int]:
    yield 1


async def asynchronous_generator() -> AsyncIterator[int]:
    yield 1


@not_copied("theirs")
@pytest.mark.parametrize("work", [coroutine, generator, asynchronous_generator])
def test_synchronize_refuses_what_runs_after_the_release(
    pottery: Face, clients: Clients, work: Any
) -> None:
    with pytest.raises(TypeError, match=r"is a coroutine function or .*`async with"):
        pottery.synchronize(key=KEY, masters=clients)(work)


@not_copied("theirs")
def test_synchronize_refuses_a_wrapped_coroutine_function_alone_that_does_not_run(
    pottery: Face, clients: Clients
) -> None:
    synchronized = pottery.synchronize(key=KEY, masters=clients)
    wrapped: Any = wraps(coroutine)(lambda: coroutine())
    with pytest.raises(TypeError, match="is a coroutine function or"):
        synchronized(wrapped)()
    assert set(values(list(clients))) == {None}
    running: Any = wraps(coroutine)(lambda: asyncio.run(coroutine()))
    assert synchronized(running)() is None


@not_copied("theirs")
def test_import_leaves_json_alone(pottery: Face) -> None:
    code = (
        f"import sys, json; sys.path[:0] = {sys.path!r}; dumps = json.dumps\n"
        f"import {pottery.module.__name__}; print(json.dumps is dumps)"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert told.stdout == "True\n"
    assert json.dumps({}) == "{}"


@not_copied("theirs")
def test_password_is_in_no_error(pottery: Face) -> None:
    error = pottery.QuorumNotAchieved(STORED, frozenset({"redis://:hunter2@h"}))
    assert "hunter2" not in str(error) + repr(error)
