"""lock_all: all of several resources or none, as a context manager."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from fastredlock import (
    ConfigurationError,
    FastRedlock,
    LeaseLostError,
    QuorumUnreachableError,
    ResourceTakenError,
)
from fastredlock.testing import LocalMasters
from tests.support.calls import connected
from tests.support.fixtures import MakeLocks
from tests.support.keys import NOBODY, settled_values
from tests.support.masters import stop

NAMES = ["from:7", "to:9"]


def test_lock_all_when_free_then_holds_every_key_until_it_is_left(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    lock = locks.lock_all(["from:7", b"to:9", "from:7"], ttl=20)
    for _ in range(2):
        with lock as lease:
            assert lease.resource == ("from:7", b"to:9")
            for name in NAMES:
                wanted: list[bytes | None] = [lease.token] * 5
                assert settled_values(servers, wanted, name) == wanted
        for name in NAMES:
            assert settled_values(servers, NOBODY, name) == NOBODY


def test_lock_all_when_one_is_taken_then_raises_and_holds_none(
    locks: FastRedlock, make_locks: MakeLocks, urls: list[str], servers: Any
) -> None:
    with make_locks(urls).lock("to:9"):
        with (
            pytest.raises(ResourceTakenError, match="'from:7', 'to:9'") as raised,
            locks.lock_all(NAMES, timeout=0),
        ):
            raise AssertionError
        assert raised.value.resource == ("from:7", "to:9")
        assert settled_values(servers, NOBODY, "from:7") == NOBODY


def test_lock_all_when_named_in_any_order_then_excludes(locks: FastRedlock) -> None:
    with locks.lock_all(NAMES):
        lock = locks.lock_all(reversed(NAMES), timeout=0)
        with pytest.raises(ResourceTakenError):
            lock.__enter__()
    with lock:
        pass


def test_lock_all_when_a_quorum_is_down_then_raises(
    make_locks: MakeLocks, masters: LocalMasters
) -> None:
    locks = connected(make_locks(masters.urls))
    stop(masters, 3)
    with pytest.raises(QuorumUnreachableError, match="'from:7', 'to:9'"):
        locks.lock_all(NAMES, timeout=0).__enter__()


def test_lock_all_when_one_key_is_lost_then_says_so_on_leaving(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    lock = locks.lock_all(NAMES)
    lock.__enter__()
    for server in servers:
        server.delete("to:9")
    with pytest.raises(LeaseLostError, match="'from:7', 'to:9'"):
        lock.__exit__(None, None, None)


@pytest.mark.parametrize("resources", ["orders", b"orders", 7, None, ["a", 7], [""]])
def test_lock_all_when_resources_are_bad_then_is_refused_before_any_io(
    make_locks: MakeLocks, urls: list[str], resources: Any
) -> None:
    locks = make_locks(urls)
    with pytest.raises(ConfigurationError):
        locks.lock_all(resources)
    assert locks.stats().rounds == 0


def test_lock_all_of_nothing_when_entered_then_is_refused(locks: FastRedlock) -> None:
    with pytest.raises(ConfigurationError, match="must not be empty"):
        locks.lock_all([]).__enter__()
