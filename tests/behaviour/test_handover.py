"""A lease used by another process, and what everybody may see of a lease."""

from __future__ import annotations

from hashlib import sha256

import pytest
import redis

from fastredlock import FastRedlock, LeaseLostError, ReleaseStatus, Vote
from fastredlock.testing import LocalMasters
from tests.support.calls import connected, granted
from tests.support.fixtures import MakeLocks
from tests.support.keys import KEY, NOBODY, set_all, settled_values, values
from tests.support.lock_process import line_of, take, worker
from tests.support.masters import stop
from tests.support.threads import in_threads


def test_adopt_when_another_process_took_it_then_releases_it(
    locks: FastRedlock, urls: list[str], servers: list[redis.Redis]
) -> None:
    with worker(take, urls, KEY, 30.0) as holder:
        lease = locks.adopt(KEY, line_of(holder))
    assert lease.release() is ReleaseStatus.RELEASED
    assert settled_values(servers, NOBODY) == NOBODY


def test_adopt_when_extended_then_knows_its_validity(
    locks: FastRedlock, urls: list[str]
) -> None:
    with worker(take, urls, KEY, 30.0) as holder:
        lease = locks.adopt(KEY, line_of(holder), ttl=60)
    assert (lease.remaining(), lease.is_valid) == (0.0, False)
    assert 50 < lease.extend() < 60
    assert lease.is_valid


def test_adopt_when_the_token_is_wrong_then_touches_nothing(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    set_all(servers, b"another")
    lease = locks.adopt(KEY, "guessed")
    with pytest.raises(LeaseLostError):
        lease.extend(60)
    assert lease.release() is ReleaseStatus.GONE
    locks.holders()  # answered after every release
    assert values(servers) == [b"another"] * 5
    assert [server.pttl(KEY) for server in servers] == [-1] * 5


def test_adopt_when_released_then_the_first_holder_finds_it_gone(
    make_locks: MakeLocks, urls: list[str]
) -> None:
    lease = granted(make_locks(urls).acquire(KEY))
    assert make_locks(urls).adopt(KEY, lease.token).release() is ReleaseStatus.RELEASED
    assert lease.release() is ReleaseStatus.GONE


def test_adopt_when_made_then_does_no_io(
    make_locks: MakeLocks, urls: list[str]
) -> None:
    locks = make_locks(urls)
    locks.adopt(KEY, b"token")
    assert (locks.stats().connects, locks.stats().rounds) == (0, 0)


def test_lease_when_another_thread_uses_it_then_extends_and_releases_there(
    locks: FastRedlock,
) -> None:
    lease = granted(locks.acquire(KEY))
    ((validity, status),) = in_threads([lambda: (lease.extend(60), lease.release())])
    assert validity > 50
    assert status is ReleaseStatus.RELEASED


def test_holders_when_held_then_tell_hash_and_time_and_not_the_token(
    locks: FastRedlock,
) -> None:
    lease = granted(locks.acquire(KEY, ttl=30))
    held = sha256(lease.token).hexdigest()[:16]
    holders = locks.holders(KEY)
    assert [(vote.vote, vote.token_hash) for vote in holders] == [
        (Vote.TAKEN, held)
    ] * 5
    assert all(20_000 < (vote.remaining_ms or 0) <= 30_000 for vote in holders)
    assert lease.token.decode() not in f"{holders} {list(map(str, holders))}"


def test_holders_when_nobody_holds_then_are_granted_without_hash(
    locks: FastRedlock,
) -> None:
    holders = locks.holders(KEY)
    assert [(vote.vote, vote.token_hash) for vote in holders] == [
        (Vote.GRANTED, None)
    ] * 5


def test_holders_when_split_then_tell_each_master_apart_in_configured_order(
    locks: FastRedlock, servers: list[redis.Redis], urls: list[str]
) -> None:
    for server, value in zip(servers, [b"a", b"a", b"b", b"b"], strict=False):
        server.set(KEY, value)
    a, b = (sha256(value).hexdigest()[:16] for value in (b"a", b"b"))
    holders = locks.holders(KEY)
    assert [vote.token_hash for vote in holders] == [a, a, b, b, None]
    assert [vote.remaining_ms for vote in holders[:4]] == [-1] * 4
    names = [url.removeprefix("redis://").removesuffix("/0") for url in urls]
    assert [vote.master for vote in holders] == names


def test_holders_when_no_resource_is_named_then_are_those_of_the_default(
    make_locks: MakeLocks, urls: list[str]
) -> None:
    locks = connected(make_locks(urls, "nightly"))
    assert locks.acquire("nightly")
    assert [vote.vote for vote in locks.holders()] == [Vote.TAKEN] * 5


def test_holders_when_masters_are_down_then_say_why_for_each(
    masters: LocalMasters, make_locks: MakeLocks
) -> None:
    locks = connected(make_locks(masters.urls))
    assert locks.acquire(KEY)
    stop(masters, 4)
    locks.holders(KEY)  # finds the connections cut
    votes = [vote.vote for vote in locks.holders(KEY)]
    assert votes == [Vote.FAILED] * 4 + [Vote.TAKEN]


def test_holders_when_asked_then_change_nothing(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    lease = granted(locks.acquire(KEY, ttl=30))
    for _ in range(3):
        locks.holders(KEY)
    assert values(servers) == [lease.token] * 5
    assert lease.release() is ReleaseStatus.RELEASED
