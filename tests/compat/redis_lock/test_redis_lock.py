"""python-redis-lock 4.0.1 and what replaces it: one body for both."""

from __future__ import annotations

import logging
import threading
from types import ModuleType
from typing import Any

import pytest
import redis

from fastredlock.compat import redis_lock as ours
from tests.compat.redis_lock.face import LOCK, PAIR, SIGNAL
from tests.support.keys import KEY
from tests.support.redis_flavours import count_together
from tests.support.two_libraries import (
    assert_exclude_each_other,
    differing,
    other_process,
    own_names,
    surface,
)
from tests.support.waiting import stopwatch, wait_until

theirs = pytest.importorskip("redis_lock", reason="extra compat-test")


# What differs in the surface, and why. What differs in behaviour are the tests with
# `better`: bugs that are not copied.
DIFFERENCES = dict.fromkeys(
    (
        *("EXTEND_SCRIPT", "RESET_SCRIPT", "RESET_ALL_SCRIPT", "UNLOCK_SCRIPT"),
        *("Lock.extend_script", "Lock.reset_script", "Lock.reset_all_script"),
        *("Lock.unlock_script", "Lock.register_scripts"),
    ),
    "what would be called is not what runs: the engine has scripts of its own",
)


def test_surface_differs_where_the_table_says_so() -> None:
    plain = (bytes, logging.Logger)
    values = [name for name, value in vars(theirs).items() if isinstance(value, plain)]
    names = own_names(theirs) + values
    found = differing(surface(theirs, names), surface(ours, names))
    assert {name.partition(":")[0] for name in found} == DIFFERENCES.keys()


# --- the wire -----------------------------------------------------------------------


def test_lock_is_a_key_with_the_id_and_without_expiry(
    module: ModuleType, any_client: redis.Redis, server: redis.Redis
) -> None:
    lock = module.Lock(any_client, KEY)
    id_before = lock.id
    assert lock.acquire() is True
    assert server.keys() == [LOCK.encode()]
    assert server.get(LOCK) == lock.id.encode() == id_before.encode()
    assert len(lock.id) == 24
    assert server.ttl(LOCK) == -1
    assert lock.release() is None
    assert server.keys() == [SIGNAL.encode()]


def test_release_leaves_one_signal_for_a_while(
    module: ModuleType, client: redis.Redis, server: redis.Redis
) -> None:
    for _ in range(3):
        with module.Lock(client, KEY):
            pass
    assert server.lrange(SIGNAL, 0, -1) == [b"1"]
    assert 0 < server.pttl(SIGNAL) <= 1000
    with module.Lock(client, KEY, signal_expire=5000):
        pass
    assert 4000 < server.pttl(SIGNAL) <= 5000


@pytest.mark.parametrize(("expire", "seconds"), [(10, 10), (9.9, 9), ("10", 10)])
def test_expire_is_in_whole_seconds(
    module: ModuleType,
    client: redis.Redis,
    server: redis.Redis,
    expire: Any,
    seconds: int,
) -> None:
    module.Lock(client, KEY, expire=expire).acquire()
    assert seconds * 1000 - 900 < server.pttl(LOCK) <= seconds * 1000


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("mine", b"mine"),
        (b"mine", b"mine"),
        (b"\xff\x00", b"/wA="),
        ("ä", "ä".encode()),
    ],
)
def test_id_that_is_given_is_stored(
    module: ModuleType,
    client: redis.Redis,
    server: redis.Redis,
    given: Any,
    stored: bytes,
) -> None:
    lock = module.Lock(client, KEY, id=given)
    assert lock.acquire()
    assert server.get(LOCK) == stored == lock.id.encode()
    lock.release()
    assert server.get(LOCK) is None


@pytest.mark.slow
def test_theirs_in_another_process_and_this_one_exclude_each_other(
    module: ModuleType, client: redis.Redis, urls: list[str]
) -> None:
    class Here:
        lock = module.Lock(client, KEY)

        def take(self) -> bool:
            return bool(self.lock.acquire(blocking=False))

        def release(self) -> None:
            self.lock.release()

    with other_process("redis-lock", PAIR[0], KEY, [urls[0]]) as there:
        assert_exclude_each_other(Here(), there)


@pytest.mark.parametrize(("here", "there"), [PAIR, PAIR[::-1], (PAIR[1], PAIR[1])])
@pytest.mark.slow
def test_waiter_in_another_process_is_woken_by_the_release(
    here: str, there: str, client: redis.Redis, urls: list[str], server: redis.Redis
) -> None:
    lock = {theirs.__name__: theirs, ours.__name__: ours}[here].Lock(client, KEY)
    lock.acquire()
    with other_process("redis-lock", there, KEY, [urls[0]]) as waiter:
        waiter.tell("wait")
        assert wait_until(lambda: is_waited_for(server))
        with stopwatch() as elapsed:
            lock.release()
            assert waiter.answer() == "True"
            assert elapsed() < 4  # below what a waiter waits without a signal
        assert waiter.say("release") == "None"


def is_waited_for(server: redis.Redis) -> bool:
    return any(each["cmd"] == "blpop" for each in server.client_list())


@pytest.mark.slow
def test_fleet_of_both_loses_no_update(client: redis.Redis) -> None:
    locks = [module.Lock(client, KEY, expire=20) for module in (theirs, ours) * 3]
    assert count_together(locks) == 120


def test_key_that_our_roll_back_deletes_wakes_a_waiter_of_theirs(
    client: redis.Redis, server: redis.Redis
) -> None:
    lock = ours.Lock(client, KEY)
    lock.acquire()
    waiter = threading.Thread(target=theirs.Lock(client, KEY).acquire, daemon=True)
    waiter.start()
    assert wait_until(lambda: is_waited_for(server))
    lock._locks._driver.abandon(lock._lease._round)  # type: ignore[union-attr]
    waiter.join(8)
    assert not waiter.is_alive()


# --- taking -------------------------------------------------------------------------


def test_lock_of_another_is_not_acquired_without_blocking(
    module: ModuleType, client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    with module.Lock(client, KEY):
        assert module.Lock(client, KEY).acquire(blocking=False) is False
    assert [(each.name, each.getMessage()) for each in caplog.records] == [
        ("redis_lock.acquire", f"Failed to acquire Lock({LOCK!r}).")
    ]


@pytest.mark.parametrize("timeout", [1, "1", 1.9])
@pytest.mark.slow
def test_timeout_ends_the_wait(
    module: ModuleType, client: redis.Redis, timeout: Any
) -> None:
    module.Lock(client, KEY).acquire()
    with stopwatch() as elapsed:
        assert module.Lock(client, KEY).acquire(timeout=timeout) is False
        assert 0.9 < elapsed() < 3


@pytest.mark.slow
def test_acquire_waits_for_the_end_of_a_lock_that_expires(
    module: ModuleType, client: redis.Redis
) -> None:
    first = module.Lock(client, KEY, expire=1)
    second = module.Lock(client, KEY, expire=1)
    first.acquire()
    assert second.acquire(blocking=False) is False
    assert second.acquire() is True
    with pytest.raises(module.NotAcquired):
        first.release()
    second.release()


def test_lock_is_acquired_once(module: ModuleType, client: redis.Redis) -> None:
    lock = module.Lock(client, KEY)
    with lock:
        for options in ({}, {"blocking": False}, {"blocking": False, "timeout": 1}):
            with pytest.raises(module.AlreadyAcquired, match=r"^Already acquired from"):
                lock.acquire(**options)
        same = module.Lock(client, KEY, id=lock.id)
        with pytest.raises(RuntimeError, match=r"^Already acquired from this Lock"):
            same.acquire()
    with lock:
        pass


def test_own_id_under_which_another_acquired_is_already_acquired(
    module: ModuleType, client: redis.Redis
) -> None:
    lock = module.Lock(client, KEY)
    module.Lock(client, KEY, id=lock.id).acquire()
    with pytest.raises(module.AlreadyAcquired):
        lock.acquire()


def test_lock_that_was_reset_by_another_can_be_acquired_again(
    module: ModuleType, client: redis.Redis
) -> None:
    lock = module.Lock(client, KEY)
    lock.acquire()
    module.Lock(client, KEY).reset()
    assert lock.acquire(blocking=False) is True
    lock.release()


@pytest.mark.parametrize(
    ("options", "arguments", "error", "message"),
    [
        (
            {},
            {"blocking": False, "timeout": 1},
            "TimeoutNotUsable",
            "Timeout cannot be used if blocking=False",
        ),
        (
            {},
            {"timeout": -1},
            "InvalidTimeout",
            "Timeout (-1) cannot be less than or equal to 0",
        ),
        (
            {"expire": 1},
            {"timeout": 2},
            "TimeoutTooLarge",
            "Timeout (2) cannot be greater than expire (1)",
        ),
    ],
)
def test_acquire_with_a_bad_timeout_raises(
    module: ModuleType,
    client: redis.Redis,
    options: dict[str, Any],
    arguments: dict[str, Any],
    error: str,
    message: str,
) -> None:
    with pytest.raises(getattr(module, error)) as raised:
        module.Lock(client, KEY, **options).acquire(**arguments)
    assert str(raised.value) == message
    assert isinstance(raised.value, RuntimeError)


def test_bad_arguments_are_refused(module: ModuleType, client: redis.Redis) -> None:
    refused: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"expire": -1}, ValueError, "^A negative expire is not acceptable.$"),
        ({"auto_renewal": True}, ValueError, "^Expire may not be None when auto_ren"),
        ({"id": 42}, TypeError, "^Incorrect type for `id`. Must be bytes/str not <cl"),
    ]
    for options, error, message in refused:
        with pytest.raises(error, match=message):
            module.Lock(client, KEY, **options)
    with pytest.raises(ValueError, match=r"^redis_client must be instance of Stri"):
        module.Lock("redis://localhost", KEY)


# --- the context manager ------------------------------------------------------------


def test_with_block_holds_the_lock(module: ModuleType, client: redis.Redis) -> None:
    lock = module.Lock(client, KEY)
    with lock as entered:
        assert entered is lock
        assert lock.locked()
    assert not lock.locked()


def test_with_block_that_may_not_wait_raises(
    module: ModuleType, client: redis.Redis
) -> None:
    with module.Lock(client, KEY):
        lock = module.Lock(client, KEY, blocking=False)
        with pytest.raises(module.NotAcquired, match=r"^Lock\(lock:orders:42\) is not"):
            lock.__enter__()


def test_with_block_that_lost_the_lock_raises_at_its_end(
    module: ModuleType, client: redis.Redis, server: redis.Redis
) -> None:
    with pytest.raises(module.NotAcquired), module.Lock(client, KEY):
        server.delete(LOCK)


def test_with_block_that_raises_and_lost_the_lock_raises_what_the_body_raised(
    better: ModuleType, client: redis.Redis, server: redis.Redis
) -> None:
    with pytest.raises(ZeroDivisionError), better.Lock(client, KEY):
        assert server.delete(LOCK) / 0
