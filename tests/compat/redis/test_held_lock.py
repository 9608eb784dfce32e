"""A held Lock of redis-py's kin: more time for it, its holder, its hooks."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from redis.exceptions import LockError, LockNotOwnedError

from tests.compat.redis.face import Face
from tests.support.fixtures import Servers
from tests.support.keys import KEY
from tests.support.threads import in_threads
from tests.support.waiting import wait_until

more_time = pytest.mark.parametrize(
    ("what", "arguments"), [("extend", [10]), ("reacquire", [])]
)

# --- extend and reacquire -----------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "arguments", "left"),
    [
        ("extend", [10], 15_000),
        ("extend", [10.5], 15_500),
        ("extend", [20, True], 20_000),
        ("reacquire", [], 10_000),
    ],
)
def test_more_time_is_added_to_what_is_left_or_replaces_it(
    face: Face, what: str, arguments: list[float], left: int
) -> None:
    lock = face.lock(timeout=10)
    lock.acquire()
    face.server.pexpire(KEY, 5000)
    assert getattr(lock, what)(*arguments) is True
    assert left - 500 < face.server.pttl(KEY) <= left
    lock.release()


@more_time
def test_more_time_for_what_is_not_held_raises(
    face: Face, what: str, arguments: list[int]
) -> None:
    lock = face.lock(timeout=10)
    with pytest.raises(LockError, match=f"^Cannot {what} an unlocked lock$"):
        getattr(lock, what)(*arguments)
    lock.acquire()
    face.server.set(KEY, "another")
    with pytest.raises(LockNotOwnedError, match=f"^Cannot {what} a lock that's no"):
        getattr(lock, what)(*arguments)
    assert face.server.ttl(KEY) == -1


def test_lock_that_somebody_else_prolonged_can_be_extended(face: Face) -> None:
    lock = face.lock(timeout=0.1)
    lock.acquire()
    face.server.pexpire(KEY, 60_000)
    assert wait_until(lambda: face.server.pttl(KEY) < 59_890)  # by now it was over
    assert lock.owned()
    assert lock.extend(1, replace_ttl=True)
    assert face.server.pttl(KEY) <= 1000
    lock.release()


def test_timeout_below_a_millisecond_deletes_nothing(better: Face) -> None:
    lock = better.lock(timeout=0)
    lock.acquire()
    with pytest.raises(LockError, match="no timeout"):
        lock.reacquire()
    assert better.value() is not None
    lock.release()
    with pytest.raises(LockError, match=r"ttl=0.0: allowed is 0.003 to"):
        better.lock(timeout=0.0004).acquire()


# --- its holder ---------------------------------------------------------------------


@pytest.mark.parametrize("decode_responses", [False, True])
def test_locked_and_owned_tell_who_holds_it(face: Face, decode_responses: bool) -> None:
    client = face.client(decode_responses=decode_responses)
    first, second = face.lock(client=client), face.lock(client=client)
    assert (first.locked(), first.owned()) == (False, False)
    first.acquire()
    assert (first.locked(), first.owned()) == (True, True)
    assert (second.locked(), second.owned()) == (True, False)
    first.release()
    assert (first.locked(), first.owned()) == (False, False)


def test_token_is_not_seen_by_other_threads(better_blocking: Face) -> None:
    lock = better_blocking.lock(timeout=5)
    lock.acquire()
    assert in_threads([lock.owned]) == [False]  # theirs: no attribute 'token'
    with ThreadPoolExecutor(1) as pool, pytest.raises(LockError):
        pool.submit(lock.release).result()
    assert better_blocking.value() == lock.local.token


def test_lock_that_is_not_thread_local_is_released_by_another_thread(
    blocking: Face,
) -> None:
    lock = blocking.lock(timeout=5, thread_local=False)
    lock.acquire()
    assert in_threads([lock.owned]) == [True]
    assert in_threads([lock.release]) == [None]
    assert blocking.value() is None


# --- hooks --------------------------------------------------------------------------


def test_hooks_of_a_subclass_are_called(blocking: Face) -> None:
    said: list[Any] = []

    def noting(name: str) -> Any:
        def hook(self: Any, *arguments: Any) -> Any:
            said.append((name, *arguments))
            return getattr(blocking.Lock, name)(self, *arguments)

        return hook

    names = ("do_acquire", "do_release", "do_extend", "do_reacquire")
    own = type("Own", (blocking.Lock,), {name: noting(name) for name in names})
    lock = blocking.made(own, timeout=5)
    lock.acquire(token="t")
    lock.extend(1)
    lock.reacquire()
    lock.release()
    assert said == [
        ("do_acquire", b"t"),
        ("do_extend", 1, False),
        ("do_reacquire",),
        ("do_release", b"t"),
    ]


# --- one object, several threads ----------------------------------------------------


def test_release_does_not_forget_who_took_the_lock_since(blocking: Face) -> None:
    server = blocking.server

    class Lock(blocking.Lock):  # type: ignore[name-defined]
        def do_release(self, expected_token: bytes) -> None:
            super().do_release(expected_token)
            if server.get("next") is None:  # another thread is faster
                server.set("next", 1)
                assert self.acquire(blocking=False)

    lock = Lock(server, KEY, timeout=5, thread_local=False)
    lock.acquire()
    lock.release()
    assert lock.owned()
    lock.release()
    assert blocking.value() is None
    assert lock.local.token is None


@pytest.mark.parametrize("token", ["mine", b"mine"])
def test_token_that_a_user_has_set_is_that_of_the_lock(face: Face, token: Any) -> None:
    lock = face.lock(timeout=5)
    face.server.set(KEY, "mine", px=5000)
    lock.local.token = token
    assert lock.owned() is isinstance(token, bytes)
    assert lock.extend(5)
    assert face.server.pttl(KEY) > 9000
    lock.release()
    assert face.value() is None


@pytest.mark.parametrize("token", ["", b""])
def test_empty_token_is_an_error_of_redis_py(ours_blocking: Face, token: Any) -> None:
    lock = ours_blocking.lock(timeout=5)
    lock.local.token = token
    for call in (
        lambda: lock.extend(1, True),
        lock.reacquire,
        lock.release,
        lambda: lock.acquire(token=token),
    ):
        with pytest.raises(LockError, match="not empty"):
            call()


@pytest.mark.parametrize("kind", ["client", "name", "local"])
def test_lease_of_another_client_or_lock_is_not_released_in_its_place(
    ours_blocking: Face, servers: Servers, kind: str
) -> None:
    lock, key, server = ours_blocking.lock(timeout=5), KEY, servers[0]
    lock.acquire()
    if kind == "client":
        lock.redis = server = servers[1]
    elif kind == "name":
        lock.name = key = "other"
    else:  # of a user
        lock.local = SimpleNamespace(token=lock.local.token)
    server.set(key, lock.local.token)
    lock.release()
    assert server.get(key) is None


# --- scripts that users set, as RedBeat does: they are run ----------------------------


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
