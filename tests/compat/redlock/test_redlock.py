"""redlock-py 1.0.8 and what replaces it: one body for both."""

from __future__ import annotations

import pickle
import re
import time
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import redis

from fastredlock.testing import LocalMasters
from tests.compat.redlock.face import PAIR, TTL, Impatient
from tests.support import library_process
from tests.support.keys import KEY
from tests.support.two_libraries import (
    assert_exclude_each_other,
    differing,
    is_stored,
    lefts_ms,
    load,
    other_process,
    own_names,
    surface,
)
from tests.support.waiting import stopwatch, wait_until

# What differs in the surface, and why; the rest of what differs are the tests of
# `better` and of `OURS` alone.
DIFFERENCES = {
    "Redlock.servers: missing -> property": "clients, made when they are read",
    "Redlock.quorum: missing -> property": "it cannot be set",
}


def values(servers: list[redis.Redis], key: str = KEY) -> list[Any]:
    return [server.get(key) for server in servers]


def sets(server: redis.Redis) -> int:
    """Count the SET commands of a server so far."""
    stats: dict[str, Any] = server.info("commandstats")
    return int(stats.get("cmdstat_set", {}).get("calls", 0))


# --- surface --------------------------------------------------------------------------


def test_surface_is_theirs() -> None:
    theirs, ours = map(load, PAIR)
    names = own_names(theirs)
    assert sorted(ours.__all__) == sorted(names)
    found = differing(surface(theirs, names), surface(ours, names))
    assert found == DIFFERENCES.keys()


def test_attributes_are_set_as_by_theirs(redlock: ModuleType, urls: list[str]) -> None:
    manager = redlock.Redlock(urls)
    assert len(manager.servers) == 5
    assert (manager.quorum, manager.retry_count, manager.retry_delay) == (3, 3, 0.2)
    manager = redlock.Redlock(urls[:4], retry_count=0, retry_delay=0)
    assert (manager.quorum, manager.retry_count, manager.retry_delay) == (3, 3, 0.2)
    manager = redlock.Redlock(urls, 7, 0.5)
    assert (manager.retry_count, manager.retry_delay) == (7, 0.5)


def test_lock_is_a_tuple_of_three_that_can_be_pickled(
    redlock: ModuleType, urls: list[str]
) -> None:
    lock = redlock.Redlock(urls).lock(KEY, TTL)
    validity, resource, key = lock
    assert lock == redlock.Lock(validity, resource, key)
    assert pickle.loads(pickle.dumps(lock)) == lock
    assert type(validity) is int
    assert 0 < validity <= TTL - TTL // 100 - 2
    assert resource == KEY


def test_multiple_errors_are_joined(redlock: ModuleType) -> None:
    error = redlock.MultipleRedlockException([ValueError("a"), OSError("b")])
    assert str(error) == repr(error) == "a :: b"
    assert [str(one) for one in error.errors] == ["a", "b"]
    assert error.args == ()


def test_no_servers_are_too_few(redlock: ModuleType) -> None:
    message = "^Failed to connect to the majority of redis servers$"
    with pytest.raises(redlock.CannotObtainLock, match=message):
        redlock.Redlock([])


@pytest.mark.parametrize("bad", ["http://h", {"hots": "h"}])
def test_connection_that_cannot_be_understood_raises_a_warning(
    redlock: ModuleType, bad: object
) -> None:
    with pytest.raises(Warning, match=r"http|redis|hots"):
        redlock.Redlock([bad])


# --- wire -----------------------------------------------------------------------------


def test_key_value_and_ttl_on_the_servers(
    redlock: ModuleType, urls: list[str], servers: list[redis.Redis]
) -> None:
    lock = redlock.Redlock(urls).lock(KEY, TTL)
    assert re.fullmatch(rb"[A-Za-z0-9]{22}", lock.key)
    assert wait_until(lambda: is_stored(lock.key, values(servers)))
    assert all(TTL - 2000 < left <= TTL for left in lefts_ms(servers, KEY))


@pytest.mark.parametrize("resource", [b"\xff\x00", "ü", 42, 1.5])
def test_resource_may_be_what_redis_py_takes(
    redlock: ModuleType, urls: list[str], servers: list[redis.Redis], resource: Any
) -> None:
    manager = redlock.Redlock(urls)
    lock = manager.lock(resource, TTL)
    assert lock.resource == resource
    assert wait_until(lambda: is_stored(lock.key, values(servers, resource)))
    manager.unlock(lock)
    assert wait_until(lambda: values(servers, resource) == [None] * 5)


@pytest.mark.parametrize(("here", "there"), [PAIR, PAIR[::-1]])
def test_old_and_new_processes_exclude_each_other(
    here: str, there: str, urls: list[str]
) -> None:
    lock = library_process.RedlockPy(load(here), KEY, urls)
    load(there)
    with other_process("redlock-py", there, KEY, urls) as other:
        assert_exclude_each_other(lock, other)


@pytest.mark.slow
def test_counter_when_old_and_new_processes_share_it_then_loses_no_update(
    urls: list[str], tmp_path: Any
) -> None:
    path = tmp_path / "counter"
    path.write_text("0")
    for module in PAIR:
        load(module)
    with (
        other_process("redlock-py", PAIR[0], KEY, urls) as theirs,
        other_process("redlock-py", PAIR[1], KEY, urls) as ours,
    ):
        for process in (theirs, ours):
            process.tell(f"count {path} 20")
        assert [theirs.answer(), ours.answer()] == ["None", "None"]
    assert path.read_text() == "40"


def test_lock_of_one_is_unlocked_by_the_other(
    urls: list[str], servers: list[redis.Redis]
) -> None:
    theirs, ours = (load(module).Redlock(urls) for module in PAIR)
    for taker, releaser in ((theirs, ours), (ours, theirs)):
        releaser.unlock(taker.lock(KEY, TTL))
        assert wait_until(lambda: values(servers) == [None] * 5)


# --- behaviour ------------------------------------------------------------------------


def test_lock_that_is_held_is_false_after_all_tries(
    redlock: ModuleType, urls: list[str], servers: list[redis.Redis]
) -> None:
    assert redlock.Redlock(urls).lock(KEY, TTL)
    second = redlock.Redlock(urls, retry_count=3, retry_delay=0.05)
    before = sets(servers[0])
    with stopwatch() as elapsed:
        assert second.lock(KEY, TTL) is False
        assert elapsed() >= 0.1
    assert sets(servers[0]) - before == 3


def test_lock_that_is_released_meanwhile_is_got_by_a_later_try(
    redlock: ModuleType, urls: list[str], servers: list[redis.Redis]
) -> None:
    for server in servers:
        server.set(KEY, "another's", px=100)
    assert redlock.Redlock(urls, retry_count=40, retry_delay=0.05).lock(KEY, TTL)


def test_lock_whose_ttl_is_over_is_free(redlock: ModuleType, urls: list[str]) -> None:
    manager = redlock.Redlock(urls)
    assert manager.lock(KEY, 200)
    time.sleep(0.21)
    assert manager.lock(KEY, TTL)


def test_attributes_that_are_changed_later_count(
    redlock: ModuleType, urls: list[str], servers: list[redis.Redis]
) -> None:
    manager = redlock.Redlock(urls)
    assert manager.lock(KEY, TTL)
    manager.retry_count, manager.retry_delay = 1, 0.001
    before = sets(servers[0])
    assert manager.lock(KEY, TTL) is False
    assert sets(servers[0]) - before == 1


@pytest.mark.parametrize("rest", [{}, {"validity": None}, {"validity": 0}])
def test_unlock_needs_resource_and_key_alone(
    redlock: ModuleType,
    urls: list[str],
    servers: list[redis.Redis],
    rest: dict[str, object],
) -> None:
    manager = redlock.Redlock(urls)
    lock = manager.lock(KEY, TTL)
    kept = SimpleNamespace(resource=KEY, key=lock.key.decode(), **rest)
    redlock.Redlock(urls).unlock(kept)
    assert wait_until(lambda: values(servers) == [None] * 5)
    assert manager.unlock(redlock.Lock(0, KEY, lock.key)) is None


def test_unlock_leaves_what_another_has(
    redlock: ModuleType, urls: list[str], servers: list[redis.Redis]
) -> None:
    manager = redlock.Redlock(urls)
    lock = manager.lock(KEY, TTL)
    for server in servers:
        server.set(KEY, "another's")
    manager.unlock(lock)
    assert values(servers) == [b"another's"] * 5


def test_unlock_raises_nothing_when_all_servers_are_gone(
    redlock: ModuleType, masters: LocalMasters, impatient: Impatient
) -> None:
    manager = redlock.Redlock(impatient(masters.urls))
    lock = manager.lock(KEY, TTL)
    for i in range(5):
        masters.stop(i)
    assert manager.unlock(lock) is None


def test_lock_is_false_when_a_majority_is_gone(
    redlock: ModuleType, masters: LocalMasters, impatient: Impatient
) -> None:
    manager = redlock.Redlock(impatient(masters.urls), 2, 0.01)
    for i in range(3):
        masters.stop(i)
    assert manager.lock(KEY, TTL) is False


@pytest.mark.parametrize("ttl", [1.5, 10_000.0])
def test_ttl_that_is_no_int_is_refused(
    redlock: ModuleType, urls: list[str], ttl: float
) -> None:
    with pytest.raises(ValueError, match=f"^ttl {ttl} is not an integer$"):
        redlock.Redlock(urls).lock(KEY, ttl)


@pytest.mark.parametrize("ttl", [-5, 0, 1, 2])
def test_ttl_that_drift_takes_off_gives_no_lock(
    redlock: ModuleType,
    clients: list[redis.Redis],
    servers: list[redis.Redis],
    ttl: int,
) -> None:
    assert redlock.Redlock(clients, 1, 0.001).lock(KEY, ttl) is False
    assert wait_until(lambda: values(servers) == [None] * 5)


def test_subclass_may_draw_the_keys(
    redlock: ModuleType, urls: list[str], servers: list[redis.Redis]
) -> None:
    class Named(redlock.Redlock):  # type: ignore[name-defined]
        def get_unique_id(self) -> bytes:
            return b"worker-7"

    manager = Named(urls)
    assert manager.lock(KEY, TTL).key == b"worker-7"
    assert wait_until(lambda: is_stored(b"worker-7", values(servers)))


def test_one_server_can_be_locked_and_unlocked_alone(
    redlock: ModuleType, clients: list[redis.Redis], servers: list[redis.Redis]
) -> None:
    manager = redlock.Redlock(clients)
    server, value = manager.servers[2], manager.get_unique_id()
    assert manager.lock_instance(server, KEY, value, TTL) is True
    assert values(servers) == [None, None, value, None, None]
    assert manager.lock_instance(server, KEY, b"second", TTL) is None
    assert manager.unlock_instance(server, KEY, b"second") is None
    assert manager.unlock_instance(server, KEY, value) is None
    assert values(servers) == [None] * 5
    with pytest.raises(ValueError, match=r"ttl 1\.5 is not an integer"):
        manager.lock_instance(server, KEY, value, 1.5)
