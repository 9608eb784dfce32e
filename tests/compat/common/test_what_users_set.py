"""What users of the five libraries set or override: heeded, or refused at once."""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Callable
from typing import Any

import pytest
import redis
import redis.asyncio

from fastredlock.compat import aioredlock, pottery, redis_lock, redlock
from tests.compat.redis.face import OURS, OURS_ASYNCIO, THEIRS, THEIRS_ASYNCIO
from tests.support.fixtures import Servers
from tests.support.keys import KEY
from tests.support.two_libraries import differing, load, own_names, surface

NOT_RUN: dict[Any, list[str]] = {
    redlock.Redlock: ["lock_instance", "unlock_script", "unlock_instance"],
    pottery.Redlock: ["_release_script", "_extend_script"],
    pottery.AIORedlock: ["_acquired_script", "_acquire_masters"],
    aioredlock.Aioredlock: ["_set_lock", "_auto_extend", "redis"],
    redis_lock.Lock: [
        *("unlock_script", "extend_script", "register_scripts", "_lock_renewer")
    ],
}
READ_ONCE: dict[Any, list[str]] = {
    redlock.Redlock: ["clock_drift_factor"],
    redis_lock.Lock: ["_client", "_name", "_signal", "_signal_expire"],
}
MAKERS: dict[Any, Callable[[str], Any]] = {
    redlock.Redlock: lambda url: redlock.Redlock([url]),
    pottery.Redlock: lambda url: pottery.Redlock(
        key=KEY, masters={redis.Redis.from_url(url)}
    ),
    pottery.AIORedlock: lambda url: pottery.AIORedlock(
        key=KEY, masters={redis.asyncio.Redis.from_url(url)}
    ),
    aioredlock.Aioredlock: lambda url: aioredlock.Aioredlock([url]),
    redis_lock.Lock: lambda url: redis_lock.Lock(
        redis.Redis.from_url(url), KEY, expire=5
    ),
}


def rows(names: dict[Any, list[str]]) -> list[tuple[Any, str]]:
    return [(cls, name) for cls, each in names.items() for name in each]


@pytest.mark.parametrize(("cls", "name"), rows(NOT_RUN))
def test_name_that_is_not_run_when_overridden_or_set_then_is_refused(
    cls: Any, name: str, urls: list[str]
) -> None:
    with pytest.raises(TypeError, match=f"Own.{name} cannot be changed"):
        type("Own", (cls,), {name: None})
    type("Own", (cls,), {"acquire": None, "lock": None})  # these are called
    with pytest.raises(TypeError, match=f"{name} cannot be changed"):
        setattr(MAKERS[cls](urls[0]), name, None)


@pytest.mark.parametrize(("cls", "name"), rows(READ_ONCE))
def test_object_when_what_it_was_made_with_is_set_then_refuses(
    cls: Any, name: str, urls: list[str]
) -> None:
    lock = MAKERS[cls](urls[0])
    with pytest.raises(TypeError, match=f"{name} cannot be changed"):
        setattr(lock, name, getattr(lock, name))


# --- renewal --------------------------------------------------------------------------


def test_renewed_lock_when_its_class_has_an_extend_of_its_own_then_is_refused(
    urls: list[str], servers: Servers
) -> None:
    class Own(redis_lock.Lock):
        def extend(self, expire: float | None = None) -> None:
            super().extend(expire)

    lock = Own(redis.Redis.from_url(urls[0]), KEY, expire=5, auto_renewal=True)
    with pytest.raises(TypeError, match=r"extend\(\) of a subclass"):
        lock.acquire()
    with Own(redis.Redis.from_url(urls[0]), KEY, expire=5) as held:
        held.extend(9)
        assert servers[0].pttl(f"lock:{KEY}") > 5000


def test_lock_without_a_timeout_when_its_manager_has_an_extend_of_its_own_is_refused(
    urls: list[str], servers: Servers
) -> None:
    class Own(aioredlock.Aioredlock):
        async def extend(self, lock: Any, lock_timeout: float | None = None) -> None:
            await super().extend(lock, lock_timeout)

    async def body() -> None:
        manager = Own(urls)
        with pytest.raises(TypeError, match=r"extend\(\) of a subclass"):
            await manager.lock(KEY)
        async with await manager.lock(KEY, lock_timeout=5) as lock:
            await lock.extend()
        await manager.destroy()

    asyncio.run(body())
    assert [server.keys() for server in servers] == [[]] * 5


# --- what is heeded -------------------------------------------------------------------


def test_lock_of_redis_lock_when_released_as_public_subclasses_do_it_then_is_free(
    urls: list[str], servers: Servers
) -> None:
    class Own(redis_lock.Lock):
        def release(self) -> None:
            if self._lock_renewal_thread is not None:
                self._stop_lock_renewer()
            self._client.delete(self._signal)
            self._client.lpush(self._signal, 1)
            self._client.pexpire(self._signal, self._signal_expire)
            self._client.delete(self._name)

    lock = Own(redis.Redis.from_url(urls[0]), KEY, expire=5, auto_renewal=True)
    for _ in range(2):
        assert lock.acquire()
        lock.release()
    assert servers[0].keys() == [f"lock-signal:{KEY}".encode()]


def test_servers_of_redlock_when_they_are_used_then_are_clients(
    urls: list[str], servers: Servers
) -> None:
    settings = servers[1].connection_pool.connection_kwargs
    where = {name: settings[name] for name in ("host", "port")}
    manager = redlock.Redlock([urls[0], where, servers[2]])
    lock = manager.lock(KEY, 5000)
    assert lock
    assert [server.get(KEY) for server in manager.servers].count(lock.key) >= 2
    assert manager.servers[2] is servers[2]
    assert manager.servers is manager.servers
    for name in ("servers", "quorum"):
        with pytest.raises(AttributeError, match=name):
            setattr(manager, name, 1)
    manager.unlock(lock)
    for server in manager.servers[:2]:
        server.close()


# --- surfaces -------------------------------------------------------------------------


COMPAT = "fastredlock.compat."
POTTERY = [  # its other names are containers, counters and timers, which are no locks
    *("AIORedlock", "Redlock", "synchronize", "PrimitiveError", "QuorumNotAchieved"),
    *("QuorumIsImpossible", "TooManyExtensions", "ExtendUnlockedLock"),
    "ReleaseUnlockedLock",
]
SCRIPTS = {"Lock.lua_release", "Lock.lua_extend", "Lock.lua_reacquire"}
TEXTS = {  # of our own, with the same keys and answers
    *("Lock.LUA_RELEASE_SCRIPT", "Lock.LUA_EXTEND_SCRIPT"),
    "Lock.LUA_REACQUIRE_SCRIPT",
}
SURFACES: dict[str, tuple[str, str, list[str] | None, set[str]]] = {
    "redlock": (
        *("redlock", f"{COMPAT}redlock", None),
        {  # clients, made when they are read; and what cannot be set
            "Redlock.servers: missing -> property",
            "Redlock.quorum: missing -> property",
        },
    ),
    "aioredlock": (
        *("aioredlock", f"{COMPAT}aioredlock", None),
        {  # redis-py asks the sentinels; the class shows the defaults as well
            "Sentinel.get_master: async (self) -> missing",
            "Sentinel.get_sentinel: async (self) -> missing",
            "Lock.lock_timeout: missing -> 10.0",
            "Lock.valid: missing -> False",
        },
    ),
    "pottery": (
        *("pottery", f"{COMPAT}pottery", POTTERY),
        {  # set again, masters are used; without any, the error has other words
            "Redlock.masters: member_descriptor -> property",
            "AIORedlock.masters: member_descriptor -> property",
            "AIORedlock",
        },
    ),
    # A client's settings are copied again when it is set.
    "redis": (THEIRS, OURS, ["Lock"], {"Lock.redis", *TEXTS}),
    "redis-asyncio": (THEIRS_ASYNCIO, OURS_ASYNCIO, ["Lock"], {"Lock.redis", *TEXTS}),
    "redis_lock": (
        *("redis_lock", f"{COMPAT}redis_lock", None),
        {  # what would be called is not what runs
            *("EXTEND_SCRIPT", "RESET_SCRIPT", "RESET_ALL_SCRIPT", "UNLOCK_SCRIPT"),
            *("Lock.extend_script", "Lock.reset_script", "Lock.reset_all_script"),
            *("Lock.unlock_script", "Lock.register_scripts"),
        },
    ),
    "django": (
        *("redis_lock.django_cache", f"{COMPAT}redis_lock.django_cache"),
        *(["RedisCache"], set[str]()),
    ),
}


@pytest.mark.parametrize("name", SURFACES)
def test_surface_differs_where_the_table_says_so(name: str) -> None:
    *modules, names, differences = SURFACES[name]
    theirs, ours = (load(module) for module in modules)
    plain = (bytes, logging.Logger)
    values = [name for name, value in vars(theirs).items() if isinstance(value, plain)]
    names = names or getattr(theirs, "__all__", None) or own_names(theirs) + values
    assert sorted(getattr(ours, "__all__", names)) == sorted(names)
    found = differing(surface(theirs, list(names)), surface(ours, list(names)))
    found = {each if each in differences else each.split(":")[0] for each in found}
    # redis-py's Lock keeps the scripts that it has registered once.
    assert found - SCRIPTS == differences


def test_awaitable_lock_of_pottery_without_masters_is_refused() -> None:
    with pytest.raises(ValueError, match="none given"):
        load(f"{COMPAT}pottery").AIORedlock(key="key")


# --- names that people import from sub-modules ----------------------------------------

ERRORS = ["LockAcquiringError", "LockError", "LockRuntimeError"]
PLACES = {
    "aioredlock.algorithm": ["Aioredlock"],
    "aioredlock.errors": ["AioredlockError", *ERRORS],
    "aioredlock.lock": ["Lock"],
    "aioredlock.sentinel": ["Sentinel", "SentinelConfigError"],
    "pottery.aioredlock": ["AIORedlock"],
    "pottery.exceptions": POTTERY[3:],
    "pottery.redlock": ["Redlock", "synchronize"],
}


@pytest.mark.parametrize("module", PLACES)
def test_name_is_where_theirs_is(module: str) -> None:
    package = module.partition(".")[0]
    load(package)  # or skip
    theirs = importlib.import_module(module)
    ours = importlib.import_module(f"{COMPAT}{module}")
    for name in PLACES[module]:
        assert hasattr(theirs, name)
        found = getattr(ours, name)
        assert getattr(load(f"{COMPAT}{package}"), name, found) is found
