"""The demands of the suites of aioredlock, and of its users, on a manager."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from fastredlock.testing import LocalMasters
from tests.compat.aioredlock.face import PAIR, Face, ours_alone, set_all, values
from tests.support.keys import KEY

pytestmark = pytest.mark.filterwarnings("ignore:distutils Version classes")


@pytest.fixture(params=PAIR)
def aioredlock(request: pytest.FixtureRequest) -> Iterator[Face]:
    """Give theirs, then ours."""
    with Face.of(request.param) as face:
        yield face


@pytest.mark.parametrize("identifier", [7, 1.5, b"7", "seven"])
def test_identifier_may_be_a_number(
    aioredlock: Face, urls: list[str], servers: list[redis.Redis], identifier: Any
) -> None:
    manager = aioredlock.manager(urls)
    lock = aioredlock.run(manager.lock(KEY, 5, lock_identifier=identifier))
    assert lock.id == identifier
    found = aioredlock.run(manager.get_lock(KEY, identifier))
    assert found.id == identifier
    aioredlock.run(found.extend())
    aioredlock.run(found.release())
    assert values(servers) == [None] * 5


def test_timeout_that_drift_takes_off_is_a_lock_error(
    aioredlock: Face, urls: list[str]
) -> None:
    manager = aioredlock.manager(urls)
    with pytest.raises(aioredlock.LockError, match="Lock timeout"):
        aioredlock.run(manager.lock(KEY, 0.001))
    lock = aioredlock.run(manager.lock("another", 5))
    with pytest.raises(aioredlock.LockError, match="Lock timeout"):
        aioredlock.run(manager.extend(lock, 0.001))


def test_lock_made_by_hand_without_expiry_can_be_released(
    aioredlock: Face, urls: list[str], servers: list[redis.Redis]
) -> None:
    set_all(servers, "id")
    manager = aioredlock.manager(urls)
    lock = aioredlock.run(manager.get_lock(KEY, "id"))
    assert (lock.lock_timeout, lock.valid) == (-1, True)
    made = aioredlock.Lock(manager, KEY, "id", lock_timeout=-1, valid=True)
    aioredlock.run(made.release())
    assert values(servers) == [None] * 5
    with pytest.raises(aioredlock.LockError):
        aioredlock.run(lock.extend())


def test_errors_have_a_cause(
    aioredlock: Face, masters: LocalMasters, servers: list[redis.Redis]
) -> None:
    manager = aioredlock.manager(masters.urls[:3])
    lock = aioredlock.run(manager.lock(KEY, 5))
    another = aioredlock.Lock(manager, KEY, "another", 5, valid=True)
    acquiring = [
        manager.lock(KEY, 5),
        manager.get_lock(KEY, "another"),
        another.release(),
    ]
    for work in acquiring:
        with pytest.raises(aioredlock.LockAcquiringError) as raised:
            aioredlock.run(work)
        assert raised.value.__cause__ is not None
    for i in range(3):
        masters.stop(i)
    for work in (
        manager.lock(KEY, 5),
        manager.get_lock(KEY, lock.id),
        manager.extend(lock),
        manager.unlock(lock),
    ):
        with pytest.raises(aioredlock.LockRuntimeError) as raised:
            aioredlock.run(work)
        assert raised.value.__cause__ is not None


@ours_alone
def test_cause_of_a_taken_lock_says_what_every_server_said(
    aioredlock: Face, urls: list[str], servers: list[redis.Redis]
) -> None:
    set_all(servers, "another's")
    with pytest.raises(aioredlock.LockAcquiringError) as raised:
        aioredlock.run(aioredlock.manager(urls).lock(KEY, 5))
    assert "orders:42': held by others" in str(raised.value.__cause__)


def test_unlock_with_one_ours_one_anothers_and_one_down_is_a_runtime_error(
    aioredlock: Face, masters: LocalMasters
) -> None:
    manager = aioredlock.manager(masters.urls[:3])
    lock = aioredlock.run(manager.lock(KEY, 5))
    with redis.Redis.from_url(masters.urls[1]) as server:
        server.set(KEY, "another's")
    masters.stop(2)
    with pytest.raises(aioredlock.LockRuntimeError):
        aioredlock.run(lock.release())
    with redis.Redis.from_url(masters.urls[0]) as server:
        assert server.get(KEY) is None


def test_unlock_of_what_is_free_on_a_quorum_is_no_error(
    aioredlock: Face, masters: LocalMasters
) -> None:
    manager = aioredlock.manager(masters.urls[:3])
    lock = aioredlock.run(manager.lock(KEY, 5))
    with redis.Redis.from_url(masters.urls[0]) as server:
        server.set(KEY, "another's")
    with redis.Redis.from_url(masters.urls[1]) as server:
        server.delete(KEY)
    aioredlock.run(lock.release())


def test_get_lock_with_one_ours_one_anothers_and_one_down_is_a_runtime_error(
    aioredlock: Face, masters: LocalMasters
) -> None:
    for url, value in zip(masters.urls, ("id", "another's"), strict=False):
        with redis.Redis.from_url(url) as server:
            server.set(KEY, value, ex=5)
    masters.stop(2)
    manager = aioredlock.manager(masters.urls[:3])
    with pytest.raises(aioredlock.LockRuntimeError):
        aioredlock.run(manager.get_lock(KEY, "id"))


@ours_alone
def test_identifier_whose_release_is_not_confirmed_is_a_runtime_error(
    aioredlock: Face, urls: list[str], servers: list[redis.Redis]
) -> None:
    """F3. Taken again, the lock would be deleted by the release that is late."""
    manager = aioredlock.manager(urls[:1])
    lock = aioredlock.run(manager.lock(KEY, 5, lock_identifier="worker-7"))
    servers[0].client_pause(1500, all=True)
    with pytest.raises(aioredlock.LockRuntimeError):
        aioredlock.run(lock.release())
    servers[0].client_unpause()
    for client in servers[0].client_list(_type="normal"):
        if client["name"] == "fastredlock":
            servers[0].client_kill_filter(_id=client["id"])
    failures: list[Any] = []
    for _ in range(3):
        with pytest.raises(aioredlock.LockRuntimeError) as raised:
            aioredlock.run(manager.lock(KEY, 5, lock_identifier="worker-7"))
        failures.append(type(raised.value.__cause__).__name__)
    assert "TokenReusedError" in failures
