"""Bugs of aioredlock that are not copied, and the connections that it is handed."""

from __future__ import annotations

import asyncio
import gc
import logging
import ssl
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from fastredlock.testing import LocalMasters
from tests.compat.aioredlock.face import (
    BRIEF,
    Face,
    not_copied,
    ours_alone,
    set_all,
    values,
)
from tests.support.keys import KEY
from tests.support.two_libraries import forbid_sockets, is_stored, load
from tests.support.waiting import wait_until

pytestmark = pytest.mark.filterwarnings("ignore:distutils Version classes")


# --- bugs that are not copied ---------------------------------------------------------


@not_copied
def test_node_that_does_not_answer_delays_nothing(
    aioredlock: Face, masters: LocalMasters
) -> None:
    manager = aioredlock.manager(masters.urls)
    aioredlock.run(aioredlock.run(manager.lock(KEY, 5)).release())
    masters.pause(4)
    try:
        taking = asyncio.wait_for(manager.lock(KEY, 5), timeout=1)
        assert aioredlock.run(taking).valid
    finally:
        masters.resume(4)


@not_copied
def test_lock_that_others_hold_is_not_called_an_error_of_the_one_that_is_down(
    aioredlock: Face, masters: LocalMasters
) -> None:
    with redis.Redis.from_url(masters.urls[0]) as server:
        server.set(KEY, "another's")
    with redis.Redis.from_url(masters.urls[1]) as server:
        server.set(KEY, "another's")
    masters.stop(2)
    manager = aioredlock.manager(masters.urls[:3])
    with pytest.raises(aioredlock.LockAcquiringError):
        aioredlock.run(manager.lock(KEY, 5))


@not_copied
def test_get_lock_when_the_times_left_differ_then_gives_what_a_majority_has(
    aioredlock: Face, urls: list[str], servers: list[redis.Redis]
) -> None:
    set_all(servers, "id", px=9_000)
    servers[0].pexpire(KEY, 5_000)
    manager = aioredlock.manager(urls)
    assert aioredlock.run(manager.get_lock(KEY, "id")).lock_timeout == 9


@not_copied
def test_failed_lock_has_left_nothing_behind_when_it_raises(
    aioredlock: Face, urls: list[str], servers: list[redis.Redis]
) -> None:
    set_all(servers[:3], "another's")
    manager = aioredlock.manager(urls)
    with pytest.raises(aioredlock.LockAcquiringError):
        aioredlock.run(manager.lock(KEY, 5))
    assert wait_until(lambda: values(servers[3:]) == [None, None], within=1)


@not_copied
def test_extend_does_not_revive_a_lock_whose_time_was_over(
    aioredlock: Face, urls: list[str], servers: list[redis.Redis]
) -> None:
    lock = aioredlock.run(aioredlock.manager(urls).lock(KEY, BRIEF))
    time.sleep(BRIEF + 0.01)  # anybody may have had it meanwhile
    with pytest.raises(aioredlock.LockAcquiringError):
        aioredlock.run(lock.extend())
    assert lock.valid is False
    assert values(servers) == [None] * 5


@not_copied
def test_extend_that_fails_does_not_delete_what_the_body_still_uses(
    aioredlock: Face, masters: LocalMasters
) -> None:
    lock = aioredlock.run(aioredlock.manager(masters.urls[:3]).lock(KEY, 60))
    masters.stop(0)
    masters.stop(1)
    with pytest.raises(aioredlock.LockRuntimeError):
        aioredlock.run(lock.extend())
    assert lock.valid is True
    with redis.Redis.from_url(masters.urls[2]) as server:
        assert server.get(KEY) == lock.id.encode()


def test_lock_of_an_identifier_without_a_majority_is_a_runtime_error(
    aioredlock: Face, masters: LocalMasters
) -> None:
    manager, other = (aioredlock.manager(masters.urls[:3]) for _ in range(2))
    held = aioredlock.run(manager.lock(KEY, 60, "id"))
    masters.stop(0)
    masters.stop(1)
    with pytest.raises(aioredlock.LockRuntimeError):
        aioredlock.run(other.lock(KEY, 60, "id"))
    assert held.valid is True


@not_copied
def test_lock_that_is_lost_while_it_is_extended_is_logged_and_not_valid(
    aioredlock: Face,
    urls: list[str],
    servers: list[redis.Redis],
    caplog: pytest.LogCaptureFixture,
) -> None:
    manager = aioredlock.manager(urls, internal_lock_timeout=0.5)
    lock = aioredlock.run(manager.lock(KEY))
    set_all(servers, "another's")
    with caplog.at_level(logging.WARNING):
        aioredlock.wait(1)
    assert lock.valid is False
    assert f'"{KEY}" is lost' in caplog.text


@not_copied
def test_unlock_of_an_older_lock_does_not_end_the_extension_of_the_newer(
    aioredlock: Face, urls: list[str], servers: list[redis.Redis]
) -> None:
    manager = aioredlock.manager(urls, internal_lock_timeout=0.5)
    older = aioredlock.run(manager.lock(KEY, BRIEF))
    time.sleep(BRIEF + 0.01)
    newer = aioredlock.run(manager.lock(KEY))
    with pytest.raises(aioredlock.LockAcquiringError):
        aioredlock.run(older.release())
    aioredlock.wait(1)
    assert is_stored(newer.id.encode(), values(servers))


@not_copied
def test_error_of_the_body_is_not_hidden_by_one_of_the_release(
    aioredlock: Face, urls: list[str], servers: list[redis.Redis]
) -> None:
    manager = aioredlock.manager(urls)

    async def body() -> None:
        async with await manager.lock(KEY, 5):
            set_all(servers, "another's")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        aioredlock.run(body())


@not_copied
def test_lock_that_another_has_by_now_is_not_active(
    aioredlock: Face, urls: list[str]
) -> None:
    manager = aioredlock.manager(urls)
    aioredlock.run(manager.lock(KEY, BRIEF))
    time.sleep(BRIEF + 0.01)
    aioredlock.run(aioredlock.manager(urls).lock(KEY, 5))
    assert aioredlock.run(manager.get_active_locks()) == []


@not_copied
def test_identifier_is_in_no_repr(aioredlock: Face, urls: list[str]) -> None:
    lock = aioredlock.run(aioredlock.manager(urls).lock(KEY, 5))
    assert lock.id not in repr(lock)  # with the id anybody can release the lock


@ours_alone
def test_extension_that_is_not_confirmed_is_tried_again(
    aioredlock: Face, masters: LocalMasters
) -> None:
    manager = aioredlock.manager(masters.urls[:3], internal_lock_timeout=1.0)
    lock = aioredlock.run(manager.lock(KEY))
    for i in range(2):
        masters.pause(i)
    aioredlock.wait(0.75)
    for i in range(2):
        masters.resume(i)
    aioredlock.wait(1.0)
    assert lock.valid is True
    assert aioredlock.run(lock.is_locked())


@ours_alone
@pytest.mark.slow
def test_lock_that_nobody_refers_to_any_more_is_not_extended(
    aioredlock: Face, urls: list[str], servers: list[redis.Redis]
) -> None:
    """Theirs has a task that holds it, for as long as the loop runs."""

    async def leave() -> bytes:
        lock = await aioredlock.Aioredlock(urls, internal_lock_timeout=1.5).lock(KEY)
        await asyncio.sleep(2)
        return bytes(lock.id.encode())

    token = aioredlock.run(leave())
    assert is_stored(token, values(servers))
    gc.collect()  # a manager and its locks refer to each other
    assert wait_until(lambda: not is_stored(token, values(servers)), within=4)


@ours_alone
def test_loss_while_it_is_extended_cancels_no_task(
    aioredlock: Face, urls: list[str], servers: list[redis.Redis]
) -> None:
    manager = aioredlock.manager(urls, internal_lock_timeout=0.5)

    async def body() -> bool:
        lock = await manager.lock(KEY)
        set_all(servers, "another's")
        await asyncio.sleep(1)
        return bool(lock.valid)

    assert aioredlock.run(body()) is False


@ours_alone
def test_time_that_cannot_be_extended_is_a_lock_error(
    aioredlock: Face, urls: list[str], servers: list[redis.Redis]
) -> None:
    manager = aioredlock.manager(urls, internal_lock_timeout=0.01)
    with pytest.raises(aioredlock.LockError, match=r"^Lock timeout$") as raised:
        aioredlock.run(manager.lock(KEY))
    assert "keep_alive needs" in str(raised.value.__cause__)
    assert values(servers) == [None] * 5


# --- connections that are handed over -------------------------------------------------


def assert_locks(aioredlock: Face, connection: Any, url: str) -> None:
    """Check that a lock over this connection is a key in this database."""
    lock = aioredlock.run(aioredlock.manager([connection]).lock(KEY, 5))
    with redis.Redis.from_url(url) as server:
        assert server.get(KEY) == lock.id.encode()
    aioredlock.run(lock.release())


def test_connection_may_be_an_address(
    aioredlock: Face, urls: list[str], shared_masters: LocalMasters
) -> None:
    for connection in (
        ("127.0.0.1", shared_masters.ports[0]),
        ["127.0.0.1", shared_masters.ports[0]],
        {"host": "127.0.0.1", "port": shared_masters.ports[0], "ssl": None},
    ):
        assert_locks(aioredlock, connection, urls[0])


@pytest.fixture(scope="module")
def guarded() -> Iterator[LocalMasters]:
    """One master with a password."""
    with LocalMasters(1, options=("--requirepass", "s3cret")) as masters:
        yield masters


def test_connection_may_have_a_password_and_a_database(
    aioredlock: Face, guarded: LocalMasters
) -> None:
    place = {"host": "127.0.0.1", "port": guarded.ports[0]}
    url = f"redis://:s3cret@127.0.0.1:{guarded.ports[0]}/3"
    settings = {"password": "s3cret", "db": 3, "maxsize": 5, "encoding": "utf-8"}
    for connection in ({**place, **settings}, f"{url}?encoding=utf-8&timeout=2"):
        assert_locks(aioredlock, connection, url)


def test_connection_may_be_a_client_of_aioredis(
    aioredlock: Face, guarded: LocalMasters
) -> None:
    aioredis = load("aioredis")
    port = guarded.ports[0]
    client = aioredlock.run(
        aioredis.create_redis_pool(("127.0.0.1", port), password="s3cret", db=3)
    )
    assert_locks(aioredlock, client, f"redis://:s3cret@127.0.0.1:{port}/3")

    async def close() -> None:  # outside of a loop it would make one and leave it
        client.close()
        await client.wait_closed()

    aioredlock.run(close())


def test_connection_may_be_the_path_of_a_unix_socket(aioredlock: Face) -> None:
    with LocalMasters(1, unix=True) as masters:
        path = masters.urls[0].removeprefix("unix://")
        lock = aioredlock.run(aioredlock.manager([path]).lock(KEY, 5))
        with redis.Redis(unix_socket_path=path) as server:
            assert server.get(KEY) == lock.id.encode()
        aioredlock.run(lock.release())


@ours_alone
def test_sockets_of_clients_are_never_used(aioredlock: Face, urls: list[str]) -> None:
    clients = [forbid_sockets(redis.asyncio.Redis.from_url(url)) for url in urls]
    lock = aioredlock.run(aioredlock.manager(clients).lock(KEY, 5))
    aioredlock.run(lock.extend())
    aioredlock.run(lock.release())


@ours_alone
def test_connection_that_cannot_be_copied_is_named(aioredlock: Face) -> None:
    sentinel = aioredlock.Sentinel(("h", 26379), master="orders")
    context = ssl.create_default_context()
    for connection, message in (
        (sentinel, "Sentinel service 'orders' has no fixed address"),
        ({"host": "h", "ssl": context}, "ssl: an SSLContext cannot be copied"),
        ({"host": "h", "connection_cls": object}, "unknown setting 'connection_cls'"),
    ):
        with pytest.raises(ValueError, match=message):
            aioredlock.manager([connection])


def test_sentinel_without_a_master_is_refused(aioredlock: Face) -> None:
    for connection in ({"host": "h"}, "redis://h:26379/0", ("h", 26379)):
        with pytest.raises(Exception, match=r"^Master name required for sentinel"):
            aioredlock.Sentinel(connection)
    with pytest.raises(Exception, match=r"^Invalid Sentinel Configuration$"):
        aioredlock.Sentinel(42, master="orders")
    for connection in (
        {"host": "h", "master": "orders"},
        "redis://h:26379/0?master=orders",
    ):
        assert aioredlock.Sentinel(connection).master == "orders"
        assert aioredlock.Sentinel(connection, master="other").master == "other"
