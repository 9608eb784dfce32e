"""A lease ends by itself, for its holder before it ends for anybody else."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NoReturn

import pytest
import redis

from fastredlock import (
    NO_EXPIRY,
    FastRedlock,
    Lease,
    LeaseLostError,
    ReleaseStatus,
    ValidityExhaustedError,
)
from fastredlock.testing import LocalMasters
from tests.support.calls import connected, granted
from tests.support.fixtures import MakeLocks, Raw, blocking
from tests.support.keys import KEY, NOBODY, set_all, settled_values, values
from tests.support.lock_process import line_of, take, worker
from tests.support.masters import pause, resume
from tests.support.threads import later
from tests.support.waiting import stopwatch, wait_until


def fail_after_theft(servers: list[redis.Redis]) -> NoReturn:
    set_all(servers, b"another")
    raise ZeroDivisionError


def boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@pytest.mark.parametrize("drift_factor", [0.01, 0.0, 0.25])
def test_validity_when_taken_is_ttl_less_drift_counted_from_the_first_write(
    make_locks: MakeLocks, urls: list[str], drift_factor: float
) -> None:
    locks = make_locks(urls, drift_factor=drift_factor)
    before = boottime()
    lease = granted(locks.acquire(KEY, ttl=8))
    after, remaining, read = boottime(), lease.remaining(), boottime()
    most = 8 - 8 * drift_factor - 0.002
    assert most - (read - before) - 1e-6 <= remaining <= most - (read - after) + 0.001
    assert lease.is_valid
    assert lease.ttl == 8


def test_keys_when_taken_then_live_for_the_ttl_and_no_longer(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    lease = granted(locks.acquire(KEY, ttl=30))
    settled_values(servers, [lease.token] * 5)
    assert all(20_000 < server.pttl(KEY) <= 30_000 for server in servers)


def test_ttl_when_it_is_a_fraction_then_reaches_the_masters_in_ms(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    lease = granted(locks.acquire(KEY, ttl=5.4321))
    settled_values(servers, [lease.token] * 5)
    assert 4_000 < servers[0].pttl(KEY) <= 5432


@pytest.mark.slow
def test_remaining_when_the_lease_ends_is_zero_before_a_quorum_lost_the_key(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    lease = granted(locks.acquire(KEY, ttl=0.4))
    settled_values(servers, [lease.token] * 5)
    samples = []
    # The keys are read first: still valid afterwards means valid while they were read.
    while (held := values(servers).count(lease.token)) + 1 and lease.remaining() > 0:
        samples.append(held)
        assert held >= 3
    assert samples
    assert (lease.remaining(), lease.is_valid) == (0.0, False)


@pytest.mark.slow
def test_waiter_when_the_lease_of_another_ends_then_gets_it(
    make_locks: MakeLocks, urls: list[str]
) -> None:
    lease = granted(make_locks(urls).acquire(KEY, ttl=0.4))
    with stopwatch() as waited:
        assert make_locks(urls).acquire(KEY)
    assert not lease.is_valid
    assert 0.2 < waited() < 5


@pytest.mark.slow
def test_lock_of_a_killed_process_when_its_ttl_is_over_then_is_free(
    locks: FastRedlock, urls: list[str]
) -> None:
    with worker(take, urls, KEY, 0.5) as holder:
        assert line_of(holder)
        holder.kill()
        assert locks.acquire(KEY, timeout=10)


def test_lease_without_expiry_stands_until_it_is_released(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    lease = granted(locks.acquire(KEY, ttl=NO_EXPIRY))
    assert [server.ttl(KEY) for server in servers] == [-1] * 5
    assert lease.remaining() > 900_000_000
    assert lease.release() is ReleaseStatus.RELEASED
    assert settled_values(servers, NOBODY) == NOBODY


@pytest.mark.slow
def test_with_block_when_the_lease_ended_in_it_then_raises_on_leaving(
    locks: FastRedlock,
) -> None:
    lock = locks.lock(KEY, ttl=0.3)
    lease = lock.__enter__()
    assert wait_until(lambda: not lease.is_valid)
    with pytest.raises(LeaseLostError, match="'orders:42': lost before the end"):
        lock.__exit__(None, None, None)


def test_with_block_when_another_took_the_key_then_raises_and_spares_it(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    with pytest.raises(LeaseLostError), locks.lock(KEY):
        set_all(servers, b"another")
    assert values(servers) == [b"another"] * 5


def test_with_block_when_the_body_raises_and_the_lease_is_lost_then_the_body_wins(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    with pytest.raises(ZeroDivisionError), locks.lock(KEY):
        fail_after_theft(servers)


@pytest.mark.slow
def test_acquire_when_a_quorum_grants_after_the_validity_then_raises_and_undoes_it(
    masters: LocalMasters, make_locks: MakeLocks, raw: Raw
) -> None:
    locks = connected(make_locks(masters.urls, ttl=0.3, round_timeout=20))
    pause(masters, 3)
    go_on = later(0.5, lambda: resume(masters, 3))
    with go_on, pytest.raises(ValidityExhaustedError) as raised:
        locks.acquire(KEY)
    assert "'orders:42': granted by a quorum, but the round" in str(raised.value)
    assert locks.stats().too_late == 1
    assert settled_values([raw(url) for url in masters.urls], NOBODY) == NOBODY


@blocking
@pytest.mark.parametrize(
    "take",
    [
        lambda locks: locks.acquire(KEY, ttl=NO_EXPIRY),
        lambda locks: locks.acquire(KEY, ttl=NO_EXPIRY, permits=2),
        lambda locks: locks.acquire_all([KEY, "b"], ttl=NO_EXPIRY),
        lambda locks: locks.acquire(KEY, ttl=5),
    ],
    ids=["one", "slot", "all", "with a ttl"],
)
def test_lease_without_expiry_when_extended_then_is_valid(
    locks: FastRedlock, take: Callable[[FastRedlock], Lease | None]
) -> None:
    """Seen once: its ttl was left out of the scripts, which every server refused."""
    lease = granted(take(locks))
    assert lease.extend(NO_EXPIRY) > 10**6
    assert lease.release() is ReleaseStatus.RELEASED
    granted(locks.acquire_all([KEY, "b"], timeout=0)).release()


@blocking
def test_reentrant_block_when_without_expiry_then_joins(locks: FastRedlock) -> None:
    with locks.lock(KEY, ttl=5) as outer:
        with locks.lock(KEY, ttl=NO_EXPIRY, reentrant=True) as inner:
            assert inner.remaining() > 10**6
        assert outer.is_valid
