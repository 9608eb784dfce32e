"""A lease made longer or shorter, never revived, never another's."""

from __future__ import annotations

import re
from functools import partial

import pytest
import redis

from fastredlock import (
    FastRedlock,
    Lease,
    LeaseLostError,
    NotExtendedError,
    ReleaseStatus,
    Vote,
)
from fastredlock.testing import LocalMasters
from tests.support.calls import connected, granted
from tests.support.fixtures import MakeLocks
from tests.support.keys import KEY, NOBODY, set_all, settled_values, values
from tests.support.masters import pause, stop
from tests.support.threads import in_threads
from tests.support.waiting import wait_until


def test_extend_when_longer_then_validity_and_all_keys_grow(
    lease: Lease, servers: list[redis.Redis]
) -> None:
    validity = lease.extend(100)
    assert 90 < lease.remaining() <= validity <= 100 - 1 - 0.002
    assert lease.ttl == 100
    assert wait_until(lambda: min(server.pttl(KEY) for server in servers) > 90_000)


def test_extend_when_shorter_then_validity_and_all_keys_shrink(
    lease: Lease, servers: list[redis.Redis]
) -> None:
    validity = lease.extend(4)
    assert 1 < lease.remaining() <= validity <= 4 - 0.04 - 0.002
    assert wait_until(lambda: max(server.pttl(KEY) for server in servers) <= 4000)


def test_extend_when_no_ttl_is_given_then_uses_the_last_one(lease: Lease) -> None:
    lease.extend(100)
    assert 90 < lease.extend() < 100
    assert lease.ttl == 100


@pytest.mark.slow
def test_extend_when_repeated_then_outlives_the_first_ttl(locks: FastRedlock) -> None:
    lease = granted(locks.acquire(KEY, ttl=0.5))
    other = granted(locks.acquire("clock", ttl=0.5))
    while other.is_valid:
        lease.extend(10)
    assert lease.is_valid
    assert lease.release() is ReleaseStatus.RELEASED


def test_extend_when_the_token_is_kept_then_others_are_still_kept_out(
    lease: Lease, servers: list[redis.Redis]
) -> None:
    lease.extend(20)
    assert values(servers) == [lease.token] * 5


@pytest.mark.slow
def test_extend_when_the_lease_has_ended_then_raises_and_does_not_bring_it_back(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    lease = granted(locks.acquire(KEY, ttl=0.3))
    assert settled_values(servers, NOBODY) == NOBODY
    with pytest.raises(LeaseLostError, match="'orders:42': not extended: its validity"):
        lease.extend(10)
    assert values(servers) == NOBODY
    assert not lease.is_valid


def test_extend_when_the_keys_are_gone_then_raises_and_does_not_create_them(
    locks: FastRedlock, lease: Lease, servers: list[redis.Redis]
) -> None:
    for server in servers:
        server.delete(KEY)
    with pytest.raises(
        LeaseLostError, match=r"'orders:42': lost: (its key is gone|expired)"
    ) as raised:
        lease.extend(10)
    said = re.search(r"0 of 5 granted, (\d) gone\b( or taken)?", str(raised.value))
    assert said is not None
    assert int(said[1]) >= 3
    locks.holders()  # answered after every extension
    assert values(servers) == NOBODY
    assert (lease.remaining(), lease.is_valid) == (0.0, False)


def test_extend_when_another_has_the_keys_then_raises_and_leaves_them_alone(
    locks: FastRedlock, lease: Lease, servers: list[redis.Redis]
) -> None:
    set_all(servers, b"another")
    with pytest.raises(LeaseLostError) as raised:
        lease.extend(10)
    locks.holders()  # answered after every extension
    assert len(raised.value.votes) == 5
    assert Vote.GONE not in {each.vote for each in raised.value.votes}
    assert raised.value.remaining == 0.0
    assert values(servers) == [b"another"] * 5
    assert [server.pttl(KEY) for server in servers] == [-1] * 5


def test_extend_when_two_masters_lost_the_key_then_holds_without_recreating_it(
    locks: FastRedlock, lease: Lease, servers: list[redis.Redis]
) -> None:
    for server in servers[:2]:
        server.delete(KEY)
    assert lease.extend(100) > 90
    locks.holders()  # answered after every extension
    assert values(servers[:2]) == NOBODY[:2]


def test_extend_when_three_masters_lost_the_key_then_raises(
    locks: FastRedlock, lease: Lease, servers: list[redis.Redis]
) -> None:
    for server in servers[:3]:
        server.delete(KEY)
    with pytest.raises(LeaseLostError):
        lease.extend(100)
    locks.holders()  # answered after every extension
    assert values(servers[:3]) == NOBODY[:3]


def test_extend_when_the_lease_was_released_then_raises_and_does_not_create_keys(
    lease: Lease, servers: list[redis.Redis]
) -> None:
    lease.release()
    with pytest.raises(LeaseLostError, match="not extended: it was released"):
        lease.extend()
    assert settled_values(servers, NOBODY) == NOBODY


def test_extend_when_scripts_were_flushed_everywhere_then_works_in_one_call(
    locks: FastRedlock, lease: Lease, servers: list[redis.Redis]
) -> None:
    for server in servers:
        server.script_flush()
    assert lease.extend(100) > 90
    assert locks.stats().rounds == 2
    locks.holders()  # reads NOSCRIPT from the slowest, and waits for what follows
    assert min(server.pttl(KEY) for server in servers) > 90_000


def test_extend_when_two_of_five_are_stopped_then_works(
    masters: LocalMasters, make_locks: MakeLocks
) -> None:
    lease = granted(connected(make_locks(masters.urls)).acquire(KEY))
    masters.stop(0)
    masters.stop(1)
    assert lease.extend(100) > 90


def test_extend_when_three_of_five_are_stopped_then_says_how_long_it_still_stands(
    masters: LocalMasters, make_locks: MakeLocks
) -> None:
    lease = granted(connected(make_locks(masters.urls)).acquire(KEY, ttl=30))
    stop(masters, 3)
    with pytest.raises(NotExtendedError, match="not confirmed by a quorum, valid") as e:
        lease.extend(100)
    assert 10 < e.value.remaining < 30
    assert 10 < lease.remaining() <= e.value.remaining


@pytest.mark.slow
def test_extend_when_shorter_and_unconfirmed_then_no_more_than_that_is_promised(
    masters: LocalMasters, make_locks: MakeLocks
) -> None:
    locks = connected(make_locks(masters.urls, ttl=60, round_timeout=0.1))
    lease = granted(locks.acquire(KEY))
    pause(masters, 3)
    with pytest.raises(NotExtendedError):
        lease.extend(5)
    assert 0 < lease.remaining() < 5


def test_extend_when_many_threads_do_it_at_once_then_promises_no_more_than_the_keys(
    lease: Lease, servers: list[redis.Redis]
) -> None:
    ttls = [40, 20, 30, 50, 25, 35, 45, 15]
    for _ in range(5):
        in_threads([partial(lease.extend, ttl) for ttl in ttls])
        lives = [server.pttl(KEY) / 1000 for server in servers]
        remaining = lease.remaining()
        assert remaining > 0
        assert sum(life >= remaining for life in lives) >= 3
