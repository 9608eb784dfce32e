"""A held Lock of redis-py's kin: more time for it, its holder, its hooks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from redis.exceptions import LockError, LockNotOwnedError

from tests.support.keys import KEY
from tests.support.redis_flavours import OURS, THEIRS, Flavour, load

# --- extend and reacquire -----------------------------------------------------------


@pytest.mark.parametrize("seconds", [10, 10.5])
def test_extend_adds_to_the_time_that_is_left(
    flavour: Flavour, server: redis.Redis, seconds: float
) -> None:
    lock = flavour.lock(timeout=10)
    lock.acquire()
    server.pexpire(KEY, 5000)
    assert lock.extend(seconds) is True
    added = int(seconds * 1000)
    assert 4500 + added < server.pttl(KEY) <= 5000 + added
    lock.release()


def test_extend_replaces_the_time_that_is_left(
    flavour: Flavour, server: redis.Redis
) -> None:
    lock = flavour.lock(timeout=10)
    lock.acquire()
    assert lock.extend(20, replace_ttl=True) is True
    assert 19_000 < server.pttl(KEY) <= 20_000


def test_reacquire_sets_the_time_left_to_the_timeout(
    flavour: Flavour, server: redis.Redis
) -> None:
    lock = flavour.lock(timeout=10)
    lock.acquire()
    server.pexpire(KEY, 5000)
    assert lock.reacquire() is True
    assert 9000 < server.pttl(KEY) <= 10_000


@pytest.mark.parametrize(("what", "arguments"), [("extend", [10]), ("reacquire", [])])
def test_more_time_for_what_is_not_held_raises(
    flavour: Flavour, server: redis.Redis, what: str, arguments: list[int]
) -> None:
    lock = flavour.lock(timeout=10)
    with pytest.raises(LockError, match=f"^Cannot {what} an unlocked lock$"):
        getattr(lock, what)(*arguments)
    lock.acquire()
    server.set(KEY, "another")
    with pytest.raises(LockNotOwnedError, match=f"^Cannot {what} a lock that's no"):
        getattr(lock, what)(*arguments)
    assert server.ttl(KEY) == -1


@pytest.mark.parametrize(("what", "arguments"), [("extend", [10]), ("reacquire", [])])
def test_more_time_for_what_has_no_timeout_raises(
    flavour: Flavour, what: str, arguments: list[int]
) -> None:
    lock = flavour.lock()
    lock.acquire()
    with pytest.raises(LockError, match=f"^Cannot {what} a lock with no timeout$"):
        getattr(lock, what)(*arguments)


def test_lock_that_somebody_else_prolonged_can_be_extended(
    flavour: Flavour, server: redis.Redis
) -> None:
    lock = flavour.lock(timeout=0.1)
    lock.acquire()
    server.pexpire(KEY, 60_000)
    time.sleep(0.11)
    assert lock.owned()
    assert lock.extend(1, replace_ttl=True)
    assert server.pttl(KEY) <= 1000
    lock.release()


def test_reacquire_of_a_lock_with_a_timeout_of_zero_does_not_delete_it(
    better: Flavour, server: redis.Redis
) -> None:
    lock = better.lock(timeout=0)
    lock.acquire()
    with pytest.raises(LockError, match="no timeout"):
        lock.reacquire()
    assert server.get(KEY) is not None


def test_timeout_below_a_millisecond_is_a_lock_error(better: Flavour) -> None:
    with pytest.raises(LockError, match=r"ttl=0.0: allowed is 0.003 to"):
        better.lock(timeout=0.0004).acquire()


# --- its holder ---------------------------------------------------------------------


@pytest.mark.parametrize("decode_responses", [False, True])
def test_locked_and_owned_tell_who_holds_it(
    flavour: Flavour, decode_responses: bool
) -> None:
    client = flavour.client(decode_responses=decode_responses)
    first, second = flavour.lock(client=client), flavour.lock(client=client)
    assert (first.locked(), first.owned()) == (False, False)
    first.acquire()
    assert (first.locked(), first.owned()) == (True, True)
    assert (second.locked(), second.owned()) == (True, False)
    first.release()
    assert (first.locked(), first.owned()) == (False, False)


def test_attributes_are_those_of_the_constructor(flavour: Flavour) -> None:
    lock = flavour.lock("n", None, timeout=1, sleep=2, blocking=False)
    assert lock.redis is flavour.default_client
    assert (lock.name, lock.timeout, lock.sleep, lock.blocking) == ("n", 1, 2, False)
    assert (lock.blocking_timeout, lock.thread_local) == (None, True)
    assert lock.raise_on_release_error is True


def in_thread(call: Callable[[], object]) -> object:
    """Return what the call returned or raised in a thread of its own."""
    answers: list[object] = []

    def run() -> None:
        try:
            answers.append(call())
        except Exception as error:
            answers.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return answers[0]


def test_token_is_not_seen_by_other_threads(
    better_blocking: Flavour, server: redis.Redis
) -> None:
    lock = better_blocking.lock(timeout=5)
    lock.acquire()
    assert in_thread(lock.owned) is False  # theirs: no attribute 'token'
    assert isinstance(in_thread(lock.release), LockError)
    assert server.get(KEY) == lock.local.token


@pytest.mark.parametrize("module", [THEIRS, OURS])
def test_lock_that_is_not_thread_local_is_released_by_another_thread(
    module: str, server: redis.Redis
) -> None:
    lock = load(module).Lock(server, KEY, timeout=5, thread_local=False)
    lock.acquire()
    assert in_thread(lock.owned) is True
    assert in_thread(lock.release) is None
    assert server.get(KEY) is None


# --- hooks --------------------------------------------------------------------------


def hooked(base: Any, said: list[Any]) -> Any:
    """Make a subclass that notes what its hooks are given."""

    class Hooked(base):
        def do_acquire(self, token: bytes) -> bool:
            said.append(("acquire", token))
            return bool(super().do_acquire(token))

        def do_release(self, expected_token: bytes) -> None:
            said.append(("release", expected_token))
            super().do_release(expected_token)

        def do_extend(self, additional_time: float, replace_ttl: bool) -> Any:
            said.append(("extend", additional_time, replace_ttl))
            return super().do_extend(additional_time, replace_ttl)

        def do_reacquire(self) -> Any:
            said.append(("reacquire",))
            return super().do_reacquire()

    return Hooked


@pytest.mark.parametrize("module", [THEIRS, OURS])
def test_hooks_of_a_subclass_are_called(module: str, server: redis.Redis) -> None:
    said: list[Any] = []
    lock = server.lock(KEY, timeout=5, lock_class=hooked(load(module).Lock, said))
    lock.acquire(token="t")
    lock.extend(1)
    lock.reacquire()
    lock.release()
    assert said == [
        ("acquire", b"t"),
        ("extend", 1, False),
        ("reacquire",),
        ("release", b"t"),
    ]


@pytest.mark.parametrize("module", [THEIRS, OURS])
def test_hooks_may_do_without_what_they_replace(
    module: str, server: redis.Redis
) -> None:
    class OnAKeyOfItsOwn(load(module).Lock):
        def do_acquire(self, token: bytes) -> bool:
            return bool(self.redis.set(f"own:{self.name}", token, nx=True, px=9000))

        def do_release(self, expected_token: bytes) -> None:
            keys = [f"own:{self.name}"]
            assert self.lua_release(keys=keys, args=[expected_token], client=self.redis)

        def do_extend(self, additional_time: float, replace_ttl: bool) -> Any:
            arguments = [
                self.local.token,
                int(additional_time * 1000),
                int(replace_ttl),
            ]
            return bool(self.lua_extend([f"own:{self.name}"], arguments, self.redis))

        def do_reacquire(self) -> Any:
            arguments = [self.local.token, 4000]
            return bool(self.lua_reacquire([f"own:{self.name}"], arguments, self.redis))

    lock = OnAKeyOfItsOwn(server, KEY, timeout=5)
    assert lock.acquire()
    assert lock.extend(9)
    assert 17_000 < server.pttl(f"own:{KEY}") <= 18_000
    assert lock.extend(3, replace_ttl=True)
    assert server.pttl(f"own:{KEY}") <= 3000
    assert lock.reacquire()
    assert 3000 < server.pttl(f"own:{KEY}") <= 4000
    lock.release()
    assert server.keys() == []


@pytest.mark.parametrize("module", [THEIRS, OURS])
def test_lock_class_makes_it_from_a_client(module: str, server: redis.Redis) -> None:
    cls = load(module).Lock
    with server.lock(KEY, timeout=5, blocking_timeout=1, lock_class=cls) as lock:
        assert isinstance(lock, cls)
        assert server.get(KEY) == lock.local.token


# --- one object, several threads ----------------------------------------------------


@pytest.mark.parametrize("name", [THEIRS, OURS])
def test_release_does_not_forget_who_took_the_lock_since(
    name: str, server: redis.Redis
) -> None:
    class Lock(load(name).Lock):
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
    assert server.get(KEY) is None
    assert lock.local.token is None


@pytest.mark.parametrize("kind", [str, bytes])
def test_token_that_a_user_has_set_is_that_of_the_lock(
    flavour: Flavour, server: redis.Redis, kind: type
) -> None:
    lock = flavour.lock(timeout=5)
    server.set(KEY, "mine", px=5000)
    lock.local.token = kind("mine") if kind is str else b"mine"
    assert lock.owned() is (kind is bytes)
    assert lock.extend(5)
    assert server.pttl(KEY) > 9000
    lock.release()
    assert server.get(KEY) is None


@pytest.mark.parametrize("token", ["", b""])
def test_empty_token_is_an_error_of_redis_py(
    server: redis.Redis, token: str | bytes
) -> None:
    lock = load(OURS).Lock(server, KEY, timeout=5)
    lock.local.token = token
    for call in (lambda: lock.extend(1, True), lock.reacquire, lock.release):
        with pytest.raises(LockError, match="not empty"):
            call()
    with pytest.raises(LockError, match="not empty"):
        lock.acquire(token=token)


@pytest.mark.parametrize("kind", ["client", "name", "local"])
def test_lease_of_another_client_or_lock_is_not_released_in_its_place(
    servers: list[redis.Redis], kind: str
) -> None:
    lock, key, server = load(OURS).Lock(servers[0], KEY, timeout=5), KEY, servers[0]
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


@pytest.mark.parametrize("kind", [LockError, LockNotOwnedError])
def test_lock_error_is_made_of_its_text_alone_as_before_redis_py_5_0_2(
    server: redis.Redis, monkeypatch: pytest.MonkeyPatch, kind: type[LockError]
) -> None:
    monkeypatch.delattr(LockError, "__init__")
    error = load(OURS).Lock(server, KEY, timeout=5)._error("text", kind)
    assert (type(error), str(error), error.lock_name) == (kind, "text", KEY)
