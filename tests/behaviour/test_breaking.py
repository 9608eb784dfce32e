"""A lock is broken by the hash of its token, by people, for a holder that cannot."""

from __future__ import annotations

from threading import Thread

import pytest
import redis

from fastredlock import (
    ConfigurationError,
    FastRedlock,
    Lease,
    LeaseLostError,
    ReleaseStatus,
)
from fastredlock.testing import LocalMasters
from tests.support.calls import QUICK, connected, granted
from tests.support.fixtures import MakeLocks
from tests.support.keys import KEY, set_all, settled_values, values
from tests.support.proxy import Proxy
from tests.support.waiting import PATIENCE, wait_until

UNKNOWN_HASH = "0123456789abcdef"


@pytest.fixture
def breaker(make_locks: MakeLocks, urls: list[str]) -> FastRedlock:
    """Another client than the holder's."""
    return connected(make_locks(urls, **QUICK))


def test_break_when_the_hash_is_the_holders_then_frees_the_lock_on_all_masters(
    breaker: FastRedlock, lease: Lease, servers: list[redis.Redis]
) -> None:
    (token_hash,) = {str(vote.token_hash) for vote in breaker.holders(KEY)}
    assert token_hash == lease.token_hash
    assert breaker.break_(KEY, token_hash=token_hash) is ReleaseStatus.RELEASED
    assert values(servers) == [None] * 5
    assert breaker.break_(KEY, token_hash=token_hash) is ReleaseStatus.GONE
    assert lease.release() is ReleaseStatus.GONE


def test_break_when_another_holds_by_now_then_leaves_that_one_alone(
    breaker: FastRedlock, lease: Lease, servers: list[redis.Redis]
) -> None:
    old = lease.token_hash
    lease.release()
    taken = granted(breaker.acquire(KEY))
    assert breaker.break_(KEY, token_hash=old) is ReleaseStatus.GONE
    assert settled_values(servers, [taken.token] * 5) == [taken.token] * 5


def test_break_when_a_minority_has_a_token_then_deletes_that_alone(
    breaker: FastRedlock, lease: Lease, servers: list[redis.Redis]
) -> None:
    servers[3].set(KEY, b"left over")
    stranger = str(breaker.holders(KEY)[3].token_hash)
    assert breaker.break_(KEY, token_hash=stranger) is ReleaseStatus.RELEASED
    assert values(servers) == [lease.token] * 3 + [None, lease.token]
    assert lease.extend() > 0


def test_break_when_only_a_slow_master_has_the_token_then_waits_for_its_answer(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis]
) -> None:
    with Proxy(urls[0]) as slow:
        breaker = connected(make_locks([slow.url, *urls[1:]]))
        servers[0].set(KEY, b"left over")
        slow.set(delay=0.05)
        hashes = [vote.token_hash for vote in breaker.holders(KEY)]
        (token_hash,) = filter(None, hashes)
        assert breaker.break_(KEY, token_hash=token_hash) is ReleaseStatus.RELEASED
    assert servers[0].get(KEY) is None


def test_break_when_the_key_has_no_expiry_then_deletes_it(
    breaker: FastRedlock, servers: list[redis.Redis]
) -> None:
    set_all(servers, b"line\n=of an old\n client")
    shown = breaker.holders(KEY)[0]
    assert (shown.remaining_ms, shown.owner) == (-1, None)
    status = breaker.break_(KEY, token_hash=str(shown.token_hash))
    assert (status, values(servers)) == (ReleaseStatus.RELEASED, [None] * 5)


def test_break_when_the_lease_is_kept_then_its_holder_is_told_at_the_next_renewal(
    breaker: FastRedlock, locks: FastRedlock
) -> None:
    lease = granted(locks.acquire(KEY, ttl=0.6, keep_alive=True))
    breaker.break_(KEY, token_hash=lease.token_hash)
    assert lease.lost.wait(PATIENCE)
    with pytest.raises(LeaseLostError, match="expired or "):
        lease.check()


def test_break_when_keys_have_a_prefix_then_deletes_that_one(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis]
) -> None:
    locks = connected(make_locks(urls, key_prefix="app:"))
    lease = granted(locks.acquire(KEY, ttl=10))
    set_all(servers, lease.token)
    status = locks.break_(KEY, token_hash=lease.token_hash)
    assert status is ReleaseStatus.RELEASED
    assert values(servers, f"app:{KEY}") == [None] * 5
    assert values(servers) == [lease.token] * 5


def test_break_when_a_caller_waits_then_it_gets_the_lock_at_once(
    breaker: FastRedlock, make_locks: MakeLocks, urls: list[str]
) -> None:
    stuck = granted(connected(make_locks(urls)).acquire(KEY, ttl=60))
    taken: list[object] = []
    waiter = Thread(
        target=lambda: taken.append(FastRedlock(urls).acquire(KEY, timeout=PATIENCE))
    )
    waiter.start()
    assert wait_until(lambda: any(v.waiting for v in breaker.holders(KEY)))
    breaker.break_(KEY, token_hash=stuck.token_hash)
    waiter.join(PATIENCE)
    assert taken[0] is not None


def test_break_when_fewer_than_a_quorum_answer_then_is_unknown(
    make_locks: MakeLocks, masters: LocalMasters
) -> None:
    locks = connected(make_locks(masters.urls, **QUICK))
    lease = granted(locks.acquire(KEY, ttl=10))
    for index in (2, 3, 4):
        masters.stop(index)
    for token_hash in (lease.token_hash, UNKNOWN_HASH):
        status = locks.break_(KEY, token_hash=token_hash)
        assert status is ReleaseStatus.UNKNOWN


@pytest.mark.parametrize("token_hash", ["", "29c191375357c71", "z" * 16, b"0" * 16])
def test_break_when_the_hash_is_none_then_is_refused(
    breaker: FastRedlock, token_hash: object
) -> None:
    with pytest.raises(ConfigurationError, match="token_hash"):
        breaker.break_(KEY, token_hash=token_hash)  # type: ignore[arg-type]
