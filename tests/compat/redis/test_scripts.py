"""Scripts that users set on a Lock of redis-py's kin, as RedBeat does: they are run."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from redis.exceptions import LockNotOwnedError

from tests.support.keys import KEY
from tests.support.redis_flavours import OURS, OURS_ASYNCIO, Flavour, load

# What RedBeat means by an extension: another time left, not a longer one.
REPLACE = """
    if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end
    return redis.call('pexpire', KEYS[1], ARGV[2])
"""
# A release that keeps others out for a while.
COOL_DOWN = """
    if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end
    return redis.call('pexpire', KEYS[1], 700)
"""
SCRIPTS = {"lua_extend": REPLACE, "lua_reacquire": COOL_DOWN, "lua_release": COOL_DOWN}


def registered(flavour: Flavour, name: str) -> Any:
    return flavour.default_client.register_script(SCRIPTS[name])


def on_the_lock(flavour: Flavour, name: str) -> Any:
    lock = flavour.lock(timeout=5)
    setattr(lock, name, registered(flavour, name))
    return lock


def in_the_body(flavour: Flavour, name: str) -> Any:
    text = {f"{name.upper()}_SCRIPT": SCRIPTS[name]}
    return lock_of(flavour, type("Own", (flavour.module.Lock,), text))


def on_the_class(flavour: Flavour, name: str) -> Any:
    own = type("Own", (flavour.module.Lock,), {})
    setattr(own, name, registered(flavour, name))
    return lock_of(flavour, own)


def lock_of(flavour: Flavour, own: Any) -> Any:
    # Theirs puts what one class has registered where all others find it.
    for name in SCRIPTS:
        if not flavour.is_ours and name not in vars(own):
            setattr(own, name, None)
    return flavour.usable(own(flavour.default_client, KEY, timeout=5))


places = pytest.mark.parametrize("place", [on_the_lock, in_the_body, on_the_class])


@places
def test_extend_when_the_user_has_set_its_script_then_runs_that(
    flavour: Flavour, server: redis.Redis, place: Any
) -> None:
    lock = place(flavour, "lua_extend")
    lock.acquire()
    for _ in range(3):
        assert lock.extend(6) is True
    assert 5000 < server.pttl(KEY) <= 6000  # not 23 s
    assert lock.owned()
    lock.release()
    assert server.keys() == []


@places
def test_reacquire_when_the_user_has_set_its_script_then_runs_that(
    flavour: Flavour, server: redis.Redis, place: Any
) -> None:
    lock = place(flavour, "lua_reacquire")
    lock.acquire()
    assert lock.reacquire() is True
    assert server.pttl(KEY) <= 700


@places
def test_release_when_the_user_has_set_its_script_then_runs_that(
    flavour: Flavour, server: redis.Redis, place: Any
) -> None:
    lock = place(flavour, "lua_release")
    with lock:
        pass
    assert 0 < server.pttl(KEY) <= 700
    assert lock.local.token is None


@pytest.mark.parametrize(
    ("name", "call"),
    [("lua_extend", "extend"), ("lua_reacquire", "reacquire"), ("lua_release", "")],
)
def test_call_when_the_script_of_the_user_refuses_then_is_not_owned(
    flavour: Flavour, server: redis.Redis, name: str, call: str
) -> None:
    lock = on_the_lock(flavour, name)
    lock.acquire()
    server.set(KEY, "another")
    with pytest.raises(LockNotOwnedError):
        getattr(lock, call or "release")(*([1] if call == "extend" else []))
    assert server.get(KEY) == b"another"


def test_lock_when_its_script_is_called_by_the_user_then_does_what_it_says(
    flavour: Flavour, server: redis.Redis
) -> None:
    """As programs do it that give back a lock of which they know the token."""
    lock = flavour.lock(timeout=5)
    lock.acquire()
    script, client = lock.lua_release, flavour.default_client
    assert script(keys=[lock.name], args=[lock.local.token], client=client) == 1
    assert server.keys() == []


def test_lock_when_another_client_is_set_then_uses_that(
    flavour: Flavour, servers: list[redis.Redis], urls: list[str]
) -> None:
    lock = flavour.lock(timeout=5)
    lock.redis = flavour.client(urls[1])
    lock.acquire()
    assert [server.exists(KEY) for server in servers[:2]] == [0, 1]
    lock.release()
    assert servers[1].keys() == []


@pytest.mark.parametrize("module", [OURS, OURS_ASYNCIO])
@pytest.mark.parametrize("name", SCRIPTS)
def test_script_when_set_for_a_list_of_clients_then_is_refused_at_once(
    module: str, name: str, urls: list[str]
) -> None:
    flavour = Flavour(module, urls[0])
    clients = [flavour.default_client, flavour.client(urls[1])]
    lock = load(module).Lock(clients, KEY)
    with pytest.raises(TypeError, match=f"{name}: one client runs it"):
        setattr(lock, name, registered(flavour, name))
    text = {f"{name.upper()}_SCRIPT": SCRIPTS[name]}
    with pytest.raises(TypeError, match=f"{name}: one client runs it"):
        type("Own", (load(module).Lock,), text)(clients, KEY)
    flavour.close()
