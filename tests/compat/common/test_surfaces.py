"""What each replacement shows: the names and signatures of the library."""

from __future__ import annotations

import importlib
import logging

import pytest

from tests.compat.redis.face import OURS, OURS_ASYNCIO, THEIRS, THEIRS_ASYNCIO
from tests.support.two_libraries import differing, load, own_names, surface

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
        {  # a Sentinel is refused; the class shows the defaults as well
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
