"""Abilities of the awaitable Lock alone: tasks, cancellation, loops."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from redis.exceptions import LockError

from tests.compat.redis.face import Face
from tests.support.keys import KEY
from tests.support.proxy import Proxy
from tests.support.waiting import until

# --- cancellation -------------------------------------------------------------------


def test_acquire_that_is_cancelled_leaves_no_key(better_awaited: Face) -> None:
    """Theirs leaves a key without expiry, whose token nobody knows."""
    face = better_awaited

    async def body() -> None:
        await lock.locked()  # connected
        proxy.set(holds_down=True)
        task = asyncio.create_task(lock.acquire())
        await until(face.value)
        task.cancel()
        await asyncio.wait({task}, timeout=2)  # theirs does not always heed it
        proxy.heal()
        assert lock.local.token is None

    with Proxy(face.urls[0]) as proxy:
        lock = face.Lock(face.client(proxy.url, protocol=2), KEY)
        face.run(body())
        assert face.is_free(within=1)


def test_release_that_is_cancelled_can_be_tried_again(awaited: Face) -> None:
    async def body() -> None:
        await lock.acquire()
        proxy.set(holds_up=True)
        task = asyncio.create_task(lock.release())
        await asyncio.sleep(0.02)  # it is under way, which nobody sees from outside
        task.cancel()
        await asyncio.wait({task}, timeout=2)  # theirs does not always heed it
        assert lock.local.token is not None
        proxy.heal()
        with suppress(LockError):  # the first may have arrived by now
            await lock.release()
        assert lock.local.token is None

    with Proxy(awaited.urls[0]) as proxy:
        lock = awaited.Lock(awaited.client(proxy.url, protocol=2), KEY)
        awaited.run(body())
        assert awaited.is_free()


# --- the surface --------------------------------------------------------------------


def test_call_that_is_wrong_raises_before_it_is_awaited(awaited: Face) -> None:
    lock = awaited.Lock(awaited.default_client, KEY, timeout=5)
    with pytest.raises(TypeError):
        lock.acquire(sleep=1)
    with pytest.raises(LockError):
        lock.extend(1)
    with pytest.raises(LockError):
        lock.reacquire()


def test_hooks_of_a_subclass_are_awaited(awaited: Face) -> None:
    said: list[Any] = []

    class Hooked(awaited.Lock):  # type: ignore[name-defined]
        async def do_acquire(self, token: bytes) -> bool:
            said.append(token)
            return bool(await super().do_acquire(token))

        async def do_release(self, expected_token: bytes) -> None:
            said.append(expected_token)
            arguments = ([self.name], [expected_token], self.redis)
            assert await self.lua_release(*arguments)

    with awaited.made(Hooked, timeout=5) as lock:
        assert said == [lock.local.token]
    assert said[0] == said[1]
    assert awaited.value() is None
