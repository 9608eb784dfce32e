"""Scripts that users set on a Lock of redis-py's kin, as RedBeat does: they are run."""

from __future__ import annotations

from typing import Any

import pytest
from redis.exceptions import LockNotOwnedError

from tests.compat.redis.face import Face
from tests.support.fixtures import Servers
from tests.support.keys import KEY

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


def registered(face: Face, name: str) -> Any:
    return face.default_client.register_script(SCRIPTS[name])


def on_the_lock(face: Face, name: str) -> Any:
    lock = face.lock(timeout=5)
    setattr(lock, name, registered(face, name))
    return lock


def own_class(face: Face, **attributes: Any) -> Any:
    # Theirs puts what one class has registered where all others find it.
    empty = {} if face.is_ours else dict.fromkeys(SCRIPTS)
    return type("Own", (face.Lock,), {**empty, **attributes})


def in_the_body(face: Face, name: str) -> Any:
    text = {f"{name.upper()}_SCRIPT": SCRIPTS[name]}
    return face.made(own_class(face, **text), timeout=5)


def on_the_class(face: Face, name: str) -> Any:
    return face.made(own_class(face, **{name: registered(face, name)}), timeout=5)


@pytest.mark.parametrize("place", [on_the_lock, in_the_body, on_the_class])
def test_script_when_the_user_has_set_it_then_is_run(face: Face, place: Any) -> None:
    lock = place(face, "lua_extend")
    lock.acquire()
    for _ in range(3):
        assert lock.extend(6) is True
    assert 5000 < face.server.pttl(KEY) <= 6000  # not 23 s
    assert lock.owned()
    lock.release()
    assert face.server.keys() == []
    lock = place(face, "lua_reacquire")
    lock.acquire()
    assert lock.reacquire() is True
    assert face.server.pttl(KEY) <= 700
    face.server.delete(KEY)
    with place(face, "lua_release") as lock:
        pass
    assert 0 < face.server.pttl(KEY) <= 700
    assert lock.local.token is None


@pytest.mark.parametrize("name", SCRIPTS)
def test_call_when_the_script_of_the_user_refuses_then_is_not_owned(
    face: Face, name: str
) -> None:
    lock = on_the_lock(face, name)
    lock.acquire()
    face.server.set(KEY, "another")
    with pytest.raises(LockNotOwnedError):
        getattr(lock, name.removeprefix("lua_"))(*[1][: name == "lua_extend"])
    assert face.value() == b"another"


def test_lock_when_its_script_is_called_by_the_user_then_does_what_it_says(
    face: Face,
) -> None:
    """As programs do it that give back a lock of which they know the token."""
    lock = face.lock(timeout=5)
    lock.acquire()
    script, client = lock.lua_release, face.default_client
    assert script(keys=[lock.name], args=[lock.local.token], client=client) == 1
    assert face.server.keys() == []


def test_lock_when_another_client_is_set_then_uses_that(
    face: Face, servers: Servers
) -> None:
    lock = face.lock(timeout=5)
    lock.redis = face.client(face.urls[1])
    lock.acquire()
    assert [server.exists(KEY) for server in servers[:2]] == [0, 1]
    lock.release()
    assert servers[1].keys() == []


@pytest.mark.parametrize("name", SCRIPTS)
def test_script_when_set_for_a_list_of_clients_then_is_refused_at_once(
    ours: Face, name: str
) -> None:
    lock = ours.Lock(ours.clients[:2], KEY)
    with pytest.raises(TypeError, match=f"{name}: one client runs it"):
        setattr(lock, name, registered(ours, name))
    own = own_class(ours, **{f"{name.upper()}_SCRIPT": SCRIPTS[name]})
    with pytest.raises(TypeError, match=f"{name}: one client runs it"):
        own(ours.clients[:2], KEY)
