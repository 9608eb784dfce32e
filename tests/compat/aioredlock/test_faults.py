"""Bugs of aioredlock that are not copied, and the connections that it is handed."""

from __future__ import annotations

import logging
import re
import ssl
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from fastredlock.testing import LocalMasters
from tests.compat.aioredlock.face import Face
from tests.support.keys import KEY
from tests.support.masters import stop
from tests.support.two_libraries import is_stored, load
from tests.support.waiting import wait_until

# --- bugs that are not copied ---------------------------------------------------------


def test_lock_that_others_hold_is_not_called_an_error_of_the_one_that_is_down(
    better: Face, masters: LocalMasters
) -> None:
    for url in masters.urls[:2]:
        with redis.Redis.from_url(url) as server:
            server.set(KEY, "another's")
    masters.stop(2)
    with pytest.raises(better.LockAcquiringError):
        better.lock(of=better.manager(masters.urls[:3]))


def test_get_lock_when_the_times_left_differ_then_gives_what_a_majority_has(
    better: Face,
) -> None:
    better.set("id", px=9_000)
    better.server.pexpire(KEY, 5_000)
    assert better.run(better.manager().get_lock(KEY, "id")).lock_timeout == 9


def test_extend_that_fails_does_not_delete_what_the_body_still_uses(
    better: Face, masters: LocalMasters
) -> None:
    lock = better.lock(60, of=better.manager(masters.urls[:3]))
    stop(masters, 2)
    with pytest.raises(better.LockRuntimeError):
        better.run(lock.extend())
    assert lock.valid is True
    with redis.Redis.from_url(masters.urls[2]) as server:
        assert server.get(KEY) == lock.id.encode()


def test_lock_that_is_lost_while_it_is_extended_is_logged_and_not_valid(
    better: Face, caplog: pytest.LogCaptureFixture
) -> None:
    lock = better.run(better.manager(internal_lock_timeout=2).lock(KEY))
    better.set()
    with caplog.at_level(logging.WARNING):
        assert better.until(lambda: not lock.valid)
    assert f'"{KEY}" is lost' in caplog.text


def test_unlock_of_an_older_lock_does_not_end_the_extension_of_the_newer(
    better: Face,
) -> None:
    manager = better.manager(internal_lock_timeout=2)
    older = better.brief(of=manager)
    assert better.is_free()
    newer = better.run(manager.lock(KEY))
    with pytest.raises(better.LockAcquiringError):
        better.run(older.release())
    assert better.is_extended()
    assert is_stored(newer.id.encode(), better.values())


def test_error_of_the_body_is_not_hidden_by_one_of_the_release(better: Face) -> None:
    manager = better.manager()

    async def body() -> None:
        async with await manager.lock(KEY, 5):
            better.set()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        better.run(body())


def test_identifier_is_in_no_repr(better: Face) -> None:
    lock = better.lock()
    assert lock.id not in repr(lock)  # with the id anybody can release the lock


# --- ours alone -----------------------------------------------------------------------


def test_time_that_cannot_be_extended_is_a_lock_error(ours: Face) -> None:
    manager = ours.manager(internal_lock_timeout=0.01)

    def refusal() -> str:
        with pytest.raises(ours.LockError) as raised:
            ours.run(manager.lock(KEY))
        return f"{raised.value}: {raised.value.__cause__}"

    said = re.compile("Lock timeout: .*keep_alive needs")
    assert wait_until(lambda: said.match(refusal()))  # or a reply took 0.5 ms
    assert ours.is_free()


# --- connections that are handed over -------------------------------------------------


@pytest.fixture(scope="module")
def guarded() -> Iterator[LocalMasters]:
    with LocalMasters(1, options=("--requirepass", "s3cret")) as masters:
        yield masters


def assert_locks(face: Face, connection: Any, url: str) -> None:
    """Check that a lock over this connection is a key in this database."""
    lock = face.lock(of=face.manager([connection]))
    with redis.Redis.from_url(url) as server:
        assert server.get(KEY) == lock.id.encode()
    face.run(lock.release())


def test_connection_may_be_an_address_with_settings(
    face: Face, shared_masters: LocalMasters, guarded: LocalMasters
) -> None:
    address = ("127.0.0.1", shared_masters.ports[0])
    place = {"host": address[0], "port": address[1], "ssl": None}
    for connection in (address, list(address), place):
        assert_locks(face, connection, face.urls[0])
    url = f"redis://:s3cret@127.0.0.1:{guarded.ports[0]}/3"
    settings = {"password": "s3cret", "db": 3, "maxsize": 5, "encoding": "utf-8"}
    place = {"host": "127.0.0.1", "port": guarded.ports[0], **settings}
    for told in (place, f"{url}?encoding=utf-8&timeout=2"):
        assert_locks(face, told, url)
    with LocalMasters(1, unix=True) as masters:
        url = masters.urls[0]
        assert_locks(face, url.removeprefix("unix://"), url)


def test_connection_may_be_a_client_of_aioredis(
    face: Face, guarded: LocalMasters
) -> None:
    aioredis, port = load("aioredis"), guarded.ports[0]
    making = aioredis.create_redis_pool(("127.0.0.1", port), password="s3cret", db=3)
    client = face.run(making)
    assert_locks(face, client, f"redis://:s3cret@127.0.0.1:{port}/3")

    async def close() -> None:  # outside of a loop it would make one and leave it
        client.close()
        await client.wait_closed()

    face.run(close())


def test_connection_that_cannot_be_copied_is_named(ours: Face) -> None:
    context = ssl.create_default_context()
    for connection, message in (
        ({"host": "h", "ssl": context}, "ssl: an SSLContext cannot be copied"),
        ({"host": "h", "connection_cls": object}, "unknown setting 'connection_cls'"),
    ):
        with pytest.raises(ValueError, match=message):
            ours.manager([connection])
