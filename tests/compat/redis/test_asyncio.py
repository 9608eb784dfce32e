"""Abilities of the awaitable Lock alone: tasks, cancellation, loops.

All else that redis.asyncio's Lock and ours have in common, with the blocking ones, is
in test_redis_lock_class.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.exceptions import LockError

from fastredlock import ConfigurationError
from fastredlock.testing import LocalMasters
from tests.support.keys import KEY
from tests.support.proxy import Proxy
from tests.support.redis_flavours import OURS_ASYNCIO as OURS
from tests.support.redis_flavours import THEIRS_ASYNCIO as THEIRS
from tests.support.two_libraries import forbid_sockets
from tests.support.waiting import wait_until

pytest.importorskip("fastredlock.asyncio", exc_type=ImportError)

fails = pytest.mark.xfail(strict=True, reason="their bug, which is not copied")


@pytest.fixture
def server(servers: list[redis.Redis]) -> redis.Redis:
    """Raw access to the one master of most tests."""
    return servers[0]


@pytest.fixture(params=[THEIRS, OURS])
def lock_class(request: pytest.FixtureRequest) -> Any:
    return importlib.import_module(request.param).Lock


@pytest.fixture(params=[pytest.param(THEIRS, marks=fails), OURS])
def better(request: pytest.FixtureRequest) -> Any:
    return importlib.import_module(request.param).Lock


@pytest.fixture
def ours() -> Any:
    return importlib.import_module(OURS).Lock


def run(url: str, body: Callable[[Any], Awaitable[Any]], **options: Any) -> Any:
    """Run a coroutine function with a client in a loop of its own."""

    async def with_client() -> Any:
        async with redis.asyncio.Redis.from_url(url, **options) as client:
            return await body(client)

    return asyncio.run(with_client())


# --- tasks --------------------------------------------------------------------------


def test_tasks_exclude_each_other(lock_class: Any, urls: list[str]) -> None:
    async def body(client: Any) -> int:
        inside = most = 0

        async def task() -> None:
            nonlocal inside, most
            lock = client.lock(KEY, timeout=20, sleep=0.001, lock_class=lock_class)
            async with lock:
                inside += 1
                most = max(most, inside)
                await asyncio.sleep(0.001)
                inside -= 1

        await asyncio.gather(*(task() for _ in range(20)))
        return most

    assert run(urls[0], body) == 1


def test_lock_is_released_in_another_task(
    lock_class: Any, urls: list[str], server: redis.Redis
) -> None:
    async def body(client: Any) -> None:
        lock = lock_class(client, KEY, timeout=20)
        assert await asyncio.wait_for(lock.acquire(), 8)
        await asyncio.create_task(lock.release())

    run(urls[0], body)
    assert server.get(KEY) is None


# --- cancellation -------------------------------------------------------------------


def test_acquire_that_is_cancelled_leaves_no_key(
    better: Any, urls: list[str], server: redis.Redis
) -> None:
    """Theirs leaves a key without expiry, whose token nobody knows."""

    async def body(client: Any) -> None:
        lock = better(client, KEY)
        await lock.locked()  # connected
        proxy.set(holds_down=True)
        task = asyncio.create_task(lock.acquire())
        while server.get(KEY) is None:  # noqa: ASYNC110 - of another program
            await asyncio.sleep(0.005)
        task.cancel()
        await asyncio.wait({task}, timeout=2)  # theirs does not always heed it
        proxy.heal()
        assert lock.local.token is None
        for _ in range(100):
            if server.get(KEY) is None:
                return
            await asyncio.sleep(0.01)
        raise AssertionError

    with Proxy(urls[0]) as proxy:
        run(proxy.url, body, protocol=2)


def test_wait_that_is_cancelled_takes_nothing(
    ours: Any, urls: list[str], server: redis.Redis
) -> None:
    """Theirs goes on after about one cancellation in twenty, and waits for ever."""

    async def body(client: Any) -> None:
        server.set(KEY, "another")
        lock = ours(client, KEY, sleep=0.001)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(lock.acquire(), 0.05)
        server.delete(KEY)
        await asyncio.sleep(0.02)

    run(urls[0], body)
    assert server.get(KEY) is None


def test_release_that_is_cancelled_can_be_tried_again(
    lock_class: Any, urls: list[str], server: redis.Redis
) -> None:
    async def body(client: Any) -> None:
        lock = lock_class(client, KEY)
        await lock.acquire()
        proxy.set(holds_up=True)
        task = asyncio.create_task(lock.release())
        await asyncio.sleep(0.02)
        task.cancel()
        await asyncio.wait({task}, timeout=2)  # theirs does not always heed it
        assert lock.local.token is not None
        proxy.heal()
        with suppress(LockError):  # the first may have arrived by now
            await lock.release()
        assert lock.local.token is None

    with Proxy(urls[0]) as proxy:
        run(proxy.url, body, protocol=2)
        assert wait_until(lambda: server.get(KEY) is None)


# --- the surface --------------------------------------------------------------------


def test_acquire_takes_no_sleep(lock_class: Any, urls: list[str]) -> None:
    async def body(client: Any) -> None:
        with pytest.raises(TypeError):
            await lock_class(client, KEY).acquire(sleep=1)

    run(urls[0], body)


def test_extend_of_what_is_not_held_raises_before_it_is_awaited(
    lock_class: Any, urls: list[str]
) -> None:
    async def body(client: Any) -> None:
        lock = lock_class(client, KEY, timeout=5)
        with pytest.raises(LockError):
            lock.extend(1)
        with pytest.raises(LockError):
            lock.reacquire()

    run(urls[0], body)


def test_hooks_of_a_subclass_are_awaited(
    lock_class: Any, urls: list[str], server: redis.Redis
) -> None:
    said: list[Any] = []

    class Hooked(lock_class):
        async def do_acquire(self, token: bytes) -> bool:
            said.append(token)
            return bool(await super().do_acquire(token))

        async def do_release(self, expected_token: bytes) -> None:
            said.append(expected_token)
            arguments = ([self.name], [expected_token], self.redis)
            assert await self.lua_release(*arguments)

    async def body(client: Any) -> None:
        async with client.lock(KEY, timeout=5, lock_class=Hooked) as lock:
            assert said == [lock.local.token]

    run(urls[0], body)
    assert said[0] == said[1]
    assert server.get(KEY) is None


# --- loops and clients --------------------------------------------------------------


def test_lock_made_outside_of_a_loop_serves_one_loop_after_another(
    ours: Any, urls: list[str]
) -> None:
    lock = ours(redis.asyncio.Redis.from_url(urls[0]), KEY, timeout=5)

    async def hold() -> bool:
        async with lock:
            return bool(await lock.owned())

    assert [asyncio.run(hold()) for _ in range(3)] == [True] * 3


def test_sockets_of_the_client_are_not_used(ours: Any, urls: list[str]) -> None:
    async def body(client: Any) -> None:
        async with ours(forbid_sockets(client), KEY, timeout=5) as lock:
            assert await lock.owned()
            assert await lock.extend(5)

    run(urls[0], body)


def refused_clients() -> Iterator[tuple[Any, str]]:
    cluster = redis.asyncio.RedisCluster.__new__(redis.asyncio.RedisCluster)
    cluster.nodes_manager = None  # type: ignore[assignment]
    yield cluster, "a cluster client is not one master"
    sentinel = redis.asyncio.Sentinel([("localhost", 1)])
    yield sentinel.master_for("m"), "the Sentinel service 'm' has no fixed address"
    client = redis.asyncio.Redis(redis_connect_func=print)
    yield client, "redis_connect_func cannot be copied"


@pytest.mark.parametrize(("client", "message"), list(refused_clients()))
def test_client_that_cannot_be_copied_is_refused_when_the_lock_is_made(
    ours: Any, client: Any, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        ours(client, KEY)


def test_lock_of_a_list_of_clients_is_held_by_a_majority(
    ours: Any, masters: LocalMasters
) -> None:
    masters.stop(0)

    async def body() -> None:
        clients = [redis.asyncio.Redis.from_url(url) for url in masters.urls[:3]]
        lock = ours(clients, KEY, timeout=10)
        async with lock:
            assert (await lock.locked(), await lock.owned()) == (True, True)
            assert await ours(clients, KEY).acquire(blocking=False) is False
            assert await lock.extend(10)
        assert await lock.locked() is False

    asyncio.run(body())
