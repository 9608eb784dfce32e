"""A lease: how long it is valid, made longer or shorter, released, over by itself.

Never revived, never another's, and over for its holder before it is for anybody else.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest

from fastredlock import (
    NO_EXPIRY,
    FastRedlock,
    Lease,
    LeaseLostError,
    NotExtendedError,
    ReleaseStatus,
)
from fastredlock.testing import LocalMasters
from tests.support.calls import connected, granted
from tests.support.fixtures import MakeLocks, Raw, Servers, blocking, by_script
from tests.support.keys import (
    KEY,
    NOBODY,
    delete,
    flush_scripts,
    set_all,
    settled_values,
    values,
)
from tests.support.masters import pause, resume, stop
from tests.support.threads import in_threads
from tests.support.waiting import wait_until

RELEASED, GONE, UNKNOWN = ReleaseStatus

# --- how long -------------------------------------------------------------------------


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
    assert lease.release() is RELEASED
    granted(locks.acquire_all([KEY, "b"], timeout=0)).release()


@pytest.mark.parametrize("error", [None, ZeroDivisionError])
def test_with_block_when_another_took_the_key_then_raises_and_spares_it(
    locks: FastRedlock, servers: Servers, error: type[Exception] | None
) -> None:
    def body() -> None:
        set_all(servers, b"another")
        if error:
            raise error

    with pytest.raises(error or LeaseLostError), locks.lock(KEY):
        body()  # what it raises wins
    assert values(servers) == [b"another"] * 5


# --- extended -------------------------------------------------------------------------


def test_extend_when_longer_or_shorter_then_validity_and_all_keys_follow(
    lease: Lease, servers: Servers
) -> None:
    validity = lease.extend(100)
    assert 90 < lease.remaining() <= validity <= 100 - 1 - 0.002
    assert lease.ttl == 100
    assert wait_until(lambda: min(server.pttl(KEY) for server in servers) > 90_000)
    assert 90 < lease.extend() < 100  # by the last ttl
    validity = lease.extend(4)
    assert 1 < lease.remaining() <= validity <= 4 - 0.04 - 0.002
    assert wait_until(lambda: max(server.pttl(KEY) for server in servers) <= 4000)
    assert values(servers) == [lease.token] * 5


def test_extend_when_the_keys_are_gone_then_raises_and_does_not_create_them(
    locks: FastRedlock, lease: Lease, servers: Servers
) -> None:
    delete(servers)
    with pytest.raises(
        LeaseLostError, match=r"'orders:42': lost: (its key is gone|expired)"
    ) as raised:
        lease.extend(10)
    assert "0 of 5 granted" in str(raised.value)
    assert sum(map(int, re.findall(r"(\d) gone\b", str(raised.value)))) >= 3
    locks.holders()  # answered after every extension
    assert values(servers) == NOBODY
    assert (lease.remaining(), lease.is_valid) == (0.0, False)


def test_extend_when_scripts_were_flushed_everywhere_then_works_in_one_call(
    locks: FastRedlock, lease: Lease, servers: Servers
) -> None:
    flush_scripts(servers)
    assert lease.extend(100) > 90
    assert locks.stats().rounds == 2
    locks.holders()  # reads NOSCRIPT from the slowest, and waits for what follows
    assert min(server.pttl(KEY) for server in servers) > 90_000


# --- released -------------------------------------------------------------------------


def test_release_when_held_then_is_gone_everywhere_and_again_spares_the_next_holder(
    locks: FastRedlock, lease: Lease, servers: Servers
) -> None:
    assert lease.release() is RELEASED
    assert settled_values(servers, NOBODY) == NOBODY
    assert (lease.remaining(), lease.is_valid) == (0.0, False)
    heir = granted(locks.acquire(KEY, timeout=0))
    assert lease.release() is GONE
    assert settled_values(servers, [heir.token] * 5) == [heir.token] * 5
    ((validity, status),) = in_threads([lambda: (heir.extend(60), heir.release())])
    assert (validity > 50, status) == (True, RELEASED)


@by_script
def test_release_when_scripts_were_flushed_everywhere_then_works_in_one_call(
    locks: FastRedlock, lease: Lease, servers: Servers
) -> None:
    flush_scripts(servers)
    assert lease.release() is RELEASED
    assert locks.stats().rounds == 2
    locks.holders(KEY)  # reads what a slow one has answered, and sends it the source
    assert wait_until(lambda: values(servers) == NOBODY)
    assert locks.stats().repeated_scripts == 10  # those of holders() as well


def test_lease_when_masters_are_stopped_then_a_quorum_decides(
    masters: LocalMasters, make_locks: MakeLocks, raw: Raw
) -> None:
    locks = connected(make_locks(masters.urls))
    lease, other = granted(locks.acquire(KEY)), granted(locks.acquire("other"))
    stop(masters, 2)
    assert lease.extend(30) > 20
    assert other.release() is RELEASED
    masters.stop(2)
    with pytest.raises(NotExtendedError, match="not confirmed by a quorum, valid") as e:
        lease.extend(100)
    assert 10 < e.value.remaining < 30
    assert 10 < lease.remaining() <= e.value.remaining
    assert lease.release() is UNKNOWN
    assert not lease.is_valid
    servers = [raw(url) for url in masters.urls[3:]]
    assert settled_values(servers, NOBODY[3:]) == NOBODY[3:]


@pytest.mark.parametrize("is_asked_again", [False, True])
def test_release_when_three_of_five_are_paused_then_reaches_them_when_they_go_on(
    masters: LocalMasters, make_locks: MakeLocks, raw: Raw, is_asked_again: bool
) -> None:
    servers = [raw(url) for url in masters.urls]
    locks = connected(make_locks(masters.urls, ttl=60, round_timeout=0.1))
    lease = granted(locks.acquire(KEY))
    settled_values(servers, [lease.token] * 5)
    pause(masters, 3)
    assert lease.release() is UNKNOWN
    assert not is_asked_again or lease.release() is UNKNOWN
    resume(masters, 3)
    if is_asked_again:  # the first one was still queued: then it finds nothing
        assert wait_until(lambda: lease.release() in (RELEASED, GONE))
    assert settled_values(servers, NOBODY) == NOBODY
