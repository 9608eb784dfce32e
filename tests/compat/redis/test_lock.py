"""redis-py's Lock and what replaces it, blocking and asyncio: one body for all."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from redis.exceptions import LockError, LockNotOwnedError

from fastredlock.testing import LocalMasters
from tests.support.keys import KEY
from tests.support.redis_flavours import (
    OURS,
    OURS_ASYNCIO,
    THEIRS,
    THEIRS_ASYNCIO,
    Flavour,
    count_together,
    impatient,
    load,
)
from tests.support.threads import later
from tests.support.two_libraries import (
    assert_exclude_each_other,
    differing,
    other_process,
    surface,
)
from tests.support.waiting import stopwatch

# What differs in the surface, and why. What differs in behaviour are the tests with
# `better`: bugs that are not copied.
DIFFERENCES = {
    "Lock.LUA_RELEASE_SCRIPT": "a text of our own with the same keys and answers",
    "Lock.LUA_EXTEND_SCRIPT": "the same",
    "Lock.LUA_REACQUIRE_SCRIPT": "the same",
    "Lock.redis": "a property: its settings are copied again when it is set",
}


def test_surface_differs_where_the_table_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for theirs, ours in [(THEIRS, OURS), (THEIRS_ASYNCIO, OURS_ASYNCIO)]:
        for script in ("lua_release", "lua_extend", "lua_reacquire"):
            # Theirs are kept where they were used before.
            monkeypatch.setattr(load(theirs).Lock, script, None)
        found = differing(
            surface(load(theirs), ["Lock"]), surface(load(ours), ["Lock"])
        )
        names = {name.partition(":")[0] for name in found}
        # Theirs puts its registered scripts there once one has been used.
        names -= {"Lock.lua_release", "Lock.lua_extend", "Lock.lua_reacquire"}
        assert names == DIFFERENCES.keys()


# --- the wire -----------------------------------------------------------------------


def test_lock_is_the_name_with_the_token_and_without_expiry(
    flavour: Flavour, server: redis.Redis
) -> None:
    lock = flavour.lock()
    assert lock.acquire(blocking=False) is True
    assert server.get(KEY) == lock.local.token
    assert len(lock.local.token) == 32
    assert server.ttl(KEY) == -1
    assert lock.release() is None
    assert server.keys() == []
    assert lock.local.token is None


@pytest.mark.parametrize(
    ("timeout", "least", "most"),
    [(10, 9000, 10_000), (9.5, 9000, 9500), (1.0019, 900, 1001)],
)
def test_timeout_is_the_ttl_in_whole_milliseconds(
    flavour: Flavour, server: redis.Redis, timeout: float, least: int, most: int
) -> None:
    flavour.lock(timeout=timeout).acquire()
    assert least < server.pttl(KEY) <= most


def test_timeout_of_zero_is_none(flavour: Flavour, server: redis.Redis) -> None:
    flavour.lock(timeout=0).acquire()
    assert server.ttl(KEY) == -1


@pytest.mark.parametrize("token", ["tök", "tök".encode()])
def test_token_that_is_given_is_stored(
    flavour: Flavour, server: redis.Redis, token: str | bytes
) -> None:
    lock = flavour.lock()
    assert lock.acquire(blocking=False, token=token)
    assert server.get(KEY) == lock.local.token == "tök".encode()
    lock.release()
    assert server.get(KEY) is None


def client_lock(flavour: Flavour, name: Any, client: Any) -> Any:
    """Make a lock of theirs, of the same kind."""
    theirs = load(THEIRS_ASYNCIO if flavour.is_asyncio else THEIRS)
    return flavour.usable(theirs.Lock(client, name, timeout=5))


@pytest.mark.parametrize("name", ["k", b"k", memoryview(b"k"), "kä"])
def test_name_is_encoded_as_the_client_does_it(
    flavour: Flavour, server: redis.Redis, name: Any
) -> None:
    client = flavour.client(encoding="latin-1")
    lock = flavour.lock(name, client, timeout=5)
    assert lock.acquire()
    assert len(server.keys()) == 1
    assert not client_lock(flavour, name, client).acquire(blocking=False)
    lock.release()
    assert server.keys() == []


@pytest.mark.parametrize(
    ("kind", "module"), [("redis-py", THEIRS), ("asyncio", THEIRS_ASYNCIO)]
)
@pytest.mark.slow
def test_theirs_in_another_process_and_this_one_exclude_each_other(
    flavour: Flavour, kind: str, module: str
) -> None:
    class Here:
        lock = flavour.lock(timeout=20)

        def take(self) -> bool:
            return bool(self.lock.acquire(blocking=False))

        def release(self) -> None:
            self.lock.release()

    with other_process(kind, module, KEY, [flavour.url]) as there:
        assert_exclude_each_other(Here(), there)


@pytest.mark.slow
def test_fleet_of_both_loses_no_update(server: redis.Redis) -> None:
    locks = [
        server.lock(KEY, timeout=20, sleep=0.001, lock_class=load(module).Lock)
        for module in (THEIRS, OURS) * 3
    ]
    assert count_together(locks) == 120


@pytest.mark.slow
def test_theirs_in_another_process_waits_for_our_release(flavour: Flavour) -> None:
    lock = flavour.lock(timeout=20)
    with other_process("redis-py", THEIRS, KEY, [flavour.url]) as there:
        lock.acquire()
        there.tell("wait")
        lock.release()
        assert there.answer() == "True"
        there.tell("release")
        assert lock.acquire(blocking_timeout=8)


# --- waiting ------------------------------------------------------------------------


def test_acquire_of_what_another_holds_without_blocking_is_false(
    flavour: Flavour,
) -> None:
    first, second = flavour.lock(), flavour.lock()
    assert first.acquire(blocking=False)
    assert not second.acquire(blocking=False)
    assert not flavour.lock(blocking=False).acquire()
    first.release()
    assert second.acquire(blocking=False)
    assert not first.acquire(blocking=False)


def test_acquire_waits_until_it_is_free(flavour: Flavour, server: redis.Redis) -> None:
    server.set(KEY, "another")
    lock = flavour.lock(sleep=0.01)
    with later(0.05, lambda: server.delete(KEY)), stopwatch() as elapsed:
        assert lock.acquire()
        assert elapsed() > 0.03


def test_blocking_timeout_gives_up_before_a_sleep_would_pass_it(
    flavour: Flavour, server: redis.Redis
) -> None:
    server.set(KEY, "another")
    lock = flavour.lock(sleep=0.05, blocking_timeout=0.15)
    with stopwatch() as elapsed:
        assert lock.acquire() is False
        assert elapsed() > 0.09
    with stopwatch() as elapsed:
        assert flavour.lock(sleep=60, blocking_timeout=1).acquire() is False
        assert elapsed() < 1


def test_arguments_of_acquire_go_before_those_of_the_lock(
    flavour: Flavour, server: redis.Redis
) -> None:
    server.set(KEY, "another")
    lock = flavour.lock(blocking_timeout=60, sleep=0.01)
    with stopwatch() as elapsed:
        assert not lock.acquire(blocking_timeout=0.05)
        assert not lock.acquire(blocking=False)
        assert elapsed() < 8


# --- the context manager ------------------------------------------------------------


def test_with_block_holds_the_lock(flavour: Flavour, server: redis.Redis) -> None:
    with flavour.lock(timeout=5) as lock:
        assert server.get(KEY) == lock.local.token
    assert server.get(KEY) is None


def test_with_block_that_cannot_have_the_lock_raises(
    flavour: Flavour, server: redis.Redis
) -> None:
    server.set(KEY, "another")
    message = "^Unable to acquire lock within the time specified$"
    with (
        pytest.raises(LockError, match=message) as raised,
        flavour.lock(blocking=False),
    ):
        raise AssertionError
    assert not isinstance(raised.value, LockNotOwnedError)
    assert isinstance(raised.value, ValueError)


def test_with_block_that_lost_the_lock_raises_at_its_end(
    flavour: Flavour, server: redis.Redis
) -> None:
    with pytest.raises(LockNotOwnedError), flavour.lock(timeout=5):
        server.set(KEY, "another")
    assert server.get(KEY) == b"another"


def test_with_block_that_lost_the_lock_logs_it_where_it_may_not_raise(
    flavour: Flavour, server: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    with flavour.lock(timeout=5, raise_on_release_error=False):
        server.set(KEY, "another")
    (record,) = caplog.records
    assert record.name == (THEIRS_ASYNCIO if flavour.is_asyncio else THEIRS)
    assert record.getMessage().startswith("Lock was unlocked or no longer owned when")


def test_with_block_that_raises_and_lost_the_lock_raises_what_the_body_raised(
    better: Flavour, server: redis.Redis
) -> None:
    with pytest.raises(ZeroDivisionError), better.lock(timeout=5):
        assert int(bool(server.set(KEY, "another"))) / 0


# --- release ------------------------------------------------------------------------


def test_release_of_what_is_not_held_raises(flavour: Flavour) -> None:
    message = "^Cannot release a lock that's not owned or is already unlocked.$"
    with pytest.raises(LockError, match=message) as raised:
        flavour.lock().release()
    assert raised.value.lock_name == KEY
    assert not isinstance(raised.value, LockNotOwnedError)


def test_release_of_what_another_took_raises_and_forgets(
    flavour: Flavour, server: redis.Redis
) -> None:
    lock = flavour.lock()
    lock.acquire()
    server.set(KEY, "another")
    with pytest.raises(LockNotOwnedError, match=r"no longer owned$"):
        lock.release()
    assert lock.local.token is None
    assert server.get(KEY) == b"another"


def test_lock_can_be_used_again(flavour: Flavour, server: redis.Redis) -> None:
    lock = flavour.lock(timeout=5)
    for _ in range(3):
        with lock:
            assert server.get(KEY) == lock.local.token


def test_token_that_is_handed_over_releases_and_extends(
    flavour: Flavour, server: redis.Redis
) -> None:
    lock, heir = flavour.lock(timeout=5), flavour.lock(timeout=5)
    lock.acquire()
    heir.local.token = lock.local.token
    assert heir.owned()
    assert heir.extend(5)
    assert server.pttl(KEY) > 9000
    assert heir.reacquire()
    assert server.pttl(KEY) <= 5000
    heir.release()
    assert server.get(KEY) is None


@pytest.mark.slow
def test_release_that_failed_can_be_tried_again(
    better_blocking: Flavour, masters: LocalMasters
) -> None:
    client = better_blocking.client(masters.urls[0], socket_timeout=0.1)
    lock = better_blocking.lock(client=client, timeout=60)
    lock.acquire()
    masters.pause(0)
    with pytest.raises((redis.ConnectionError, redis.TimeoutError)):
        lock.release()
    masters.resume(0)
    lock.release()
    assert impatient(masters.urls[0]).get(KEY) is None
