"""Whose lock was broken by a person learns by whom, where its loss is told."""

from __future__ import annotations

import re
from collections.abc import Callable
from hashlib import sha1
from typing import Any

import pytest

from fastredlock import FastRedlock, LeaseLostError, ReleaseStatus
from fastredlock.testing import LocalMasters, MemoryLocks
from tests.support.calls import connected, granted
from tests.support.fixtures import MakeLocks, Raw, Servers, blocking
from tests.support.keys import KEY, delete, set_all
from tests.support.local_servers import allow
from tests.support.waiting import wait_until

BROKEN = r"lost: broken by \S+@\S+ \d+ s ago"
TAKES: dict[str, Callable[[Any], Any]] = {
    "one": lambda locks: locks.acquire(KEY, ttl=20),
    "all": lambda locks: locks.acquire_all(["another", KEY], ttl=20),
    "shared": lambda locks: locks.acquire(KEY, ttl=20, shared=True),
}


def break_lock(locks: FastRedlock, lease: Any) -> None:
    status = locks.break_(KEY, token_hash=lease.token_hash)
    assert status is ReleaseStatus.RELEASED
    locks.holders(KEY)  # answered after every break


def trace_of(lease: Any) -> str:
    return f"fastredlock:broken:{KEY}:{sha1(lease.token).hexdigest()}"


def loss(lease: Any) -> str:
    with pytest.raises(LeaseLostError) as raised:
        lease.extend()
    assert lease.token.decode() not in str(raised.value)
    return raised.value.reason


@pytest.fixture
def breaker(make_locks: MakeLocks, urls: list[str]) -> FastRedlock:
    return make_locks(urls)


def test_kept_lease_when_broken_then_its_error_says_by_whom(
    locks: FastRedlock, breaker: FastRedlock
) -> None:
    told: list[LeaseLostError] = []
    lease = granted(
        locks.acquire(
            KEY, ttl=0.5, keep_alive=True, on_lost=lambda _, error: told.append(error)
        )
    )
    break_lock(breaker, lease)
    assert wait_until(lambda: told)
    assert re.fullmatch(BROKEN, told[0].reason), told


@pytest.mark.parametrize("is_taken", [False, True])
@pytest.mark.parametrize("take", TAKES)
def test_lease_when_broken_then_its_extension_says_by_whom(
    locks: FastRedlock, breaker: FastRedlock, servers: Servers, take: str,
    is_taken: bool,
) -> None:  # fmt: skip
    lease = granted(TAKES[take](locks))
    break_lock(breaker, lease)
    other = granted(breaker.acquire(KEY, ttl=20)) if is_taken else None
    if is_taken and take == "shared":  # the key is of another type by now
        assert loss(lease) == "lost: taken by another"
    else:
        assert re.fullmatch(BROKEN, loss(lease))
    if other is not None:  # the trace is of one token: no other loss is blamed on it
        delete(servers)
        assert loss(other) == "lost: its key is gone: expired or deleted"


@pytest.mark.parametrize("take", ["one", "shared"])
def test_leases_when_broken_one_behind_the_other_then_each_is_told(
    locks: FastRedlock, breaker: FastRedlock, take: str
) -> None:
    leases = []
    for _ in range(2):  # a writer waits for readers that are dead: each is broken
        leases.append(granted(TAKES[take](locks)))
        break_lock(breaker, leases[-1])
    assert all(re.fullmatch(BROKEN, loss(lease)) for lease in leases)


def test_trace_when_a_lock_is_broken_then_lives_as_long_as_the_key_would_have(
    locks: FastRedlock, breaker: FastRedlock, servers: Servers
) -> None:
    for ttl, least, most in ((1, 59_000, 60_000), (200, 199_000, 200_000)):
        lease = granted(locks.acquire(KEY, ttl=ttl))
        locks.holders(KEY)  # answered after every SET
        break_lock(breaker, lease)
        for server in servers:
            assert least < server.pttl(trace_of(lease)) <= most
            assert lease.token.decode() not in str(server.get(trace_of(lease)))


def test_break_when_the_token_is_not_there_then_leaves_no_trace(
    locks: FastRedlock, breaker: FastRedlock, servers: Servers
) -> None:
    lease = granted(locks.acquire(KEY, ttl=20))
    locks.holders(KEY)  # answered after every SET
    set_all(servers[:2], "another's")
    break_lock(breaker, lease)
    assert [server.exists(trace_of(lease)) for server in servers] == [0, 0, 1, 1, 1]
    assert [server.exists(KEY) for server in servers] == [1, 1, 0, 0, 0]


@pytest.mark.parametrize("trace", ["text", "60000", "1 " + "x" * 300, ""])
def test_trace_when_it_is_none_then_the_loss_is_as_without(
    locks: FastRedlock, servers: Servers, trace: str
) -> None:
    lease = granted(locks.acquire(KEY, ttl=20))
    delete(servers)
    set_all(servers, trace, trace_of(lease))
    assert loss(lease) == "lost: its key is gone: expired or deleted"


@blocking
def test_break_when_a_master_stands_still_then_its_key_goes_later(
    make_locks: MakeLocks, masters: LocalMasters, raw: Raw
) -> None:
    locks = connected(make_locks(masters.urls))
    lease = granted(locks.acquire(KEY, ttl=60))
    server = raw(masters.urls[4])
    assert wait_until(lambda: server.exists(KEY))
    masters.pause(4)
    break_lock(locks, lease)
    assert re.fullmatch(BROKEN, loss(lease))
    masters.resume(4)
    assert wait_until(lambda: bool(locks.ping()) and not server.exists(KEY))


KEYS = f"~{KEY} ~fastredlock:probe"
RIGHTS = f"{KEYS} +set +get +del +pttl +pexpire +eval +evalsha +script|load"


@blocking
def test_break_when_its_user_may_write_no_trace_then_is_as_without(
    make_locks: MakeLocks, one_master: LocalMasters, raw: Raw
) -> None:
    ann = allow(raw(one_master.urls[0]), one_master, RIGHTS)
    locks = make_locks([ann])
    lease = granted(locks.acquire(KEY, ttl=20))
    break_lock(locks, lease)
    assert loss(lease) in {
        "lost: its key is gone: expired or deleted",
        "lost: expired or taken by another",  # by a command of the server
    }


def test_break_when_in_memory_then_is_told_as_well() -> None:
    locks = MemoryLocks()
    lease = granted(locks.acquire(KEY, ttl=30))
    break_lock(locks, lease)
    assert re.fullmatch(BROKEN, loss(lease))
