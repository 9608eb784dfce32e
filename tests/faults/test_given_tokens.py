"""A token that the caller gives again must not meet the release of its last use."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from fastredlock import (
    ConfigurationError,
    FastRedlock,
    QuorumUnreachableError,
    ReleaseStatus,
    ResourceTakenError,
    TokenReusedError,
)
from tests.support.calls import QUICK, granted
from tests.support.fixtures import MakeLocks, Servers
from tests.support.keys import KEY, settled_values, values
from tests.support.proxy import Proxy, set_each
from tests.support.waiting import wait_until

TOKEN = b"worker-7"
Make = Callable[..., FastRedlock]


def lost_release(locks: FastRedlock, proxies: list[Proxy], ttl: float = 60) -> None:
    """Take the lock; release it into sockets that nobody reads, which are lost then."""
    lease = granted(locks.acquire(KEY, ttl=ttl, timeout=0))
    for proxy in proxies:
        proxy.until(lambda proxy: lease.token in proxy.sent_up)
        proxy.set(swallows=True)
    lease.release()
    for proxy in proxies:
        proxy.until(lambda proxy: lease.token in proxy.swallowed)
        proxy.reset()
        proxy.heal()


def reconnect(locks: FastRedlock) -> None:
    def are_ready() -> bool:
        with suppress(QuorumUnreachableError):
            locks.connect()
        return {state.name for state, _ in locks._driver.engine.states} == {"READY"}

    assert wait_until(are_ready)


def test_acquire_when_the_release_of_its_token_is_not_confirmed_then_is_refused(
    proxied: Make, proxies: list[Proxy], urls: list[str], servers: Servers
) -> None:
    locks = proxied(**QUICK, new_token=lambda: TOKEN)
    lost_release(locks, proxies)
    reconnect(locks)  # what was swallowed is sent again now, on the new connections
    assert settled_values(servers, [None] * 5) == [None] * 5
    sent = [proxy.sent_up.count(TOKEN) for proxy in proxies]
    with pytest.raises(TokenReusedError, match=r"orders:42.* fresh") as raised:
        locks.acquire(KEY, timeout=0)
    assert [proxy.sent_up.count(TOKEN) for proxy in proxies] == sent
    assert isinstance(raised.value, ConfigurationError)
    assert "worker-7" not in f"{raised.value!s}{raised.value!r}"
    with pytest.raises(TokenReusedError):
        locks.acquire_all(["another", KEY])
    with pytest.raises(TokenReusedError):
        locks.acquire_each(["another", KEY])
    assert granted(locks.acquire("another", timeout=0)).release() is (
        ReleaseStatus.RELEASED
    )


def test_acquire_when_its_token_is_held_here_then_is_taken_and_the_keys_stay(
    proxied: Make, proxies: list[Proxy], servers: Servers
) -> None:
    locks = proxied(**QUICK, new_token=lambda: TOKEN)
    lease = granted(locks.acquire(KEY, ttl=60, timeout=0))
    assert settled_values(servers, [TOKEN] * 5) == [TOKEN] * 5
    assert locks.acquire(KEY, timeout=0) is None
    assert locks.acquire_each([KEY]) == [None]
    assert locks.acquire_all(["free", KEY], timeout=0) is None
    set_each(proxies, holds_down=True)  # its answer comes late
    with pytest.raises(QuorumUnreachableError):
        locks.acquire(KEY, timeout=0)
    set_each(proxies, holds_down=False)
    with pytest.raises(ResourceTakenError):
        locks.lock(KEY, timeout=0.05).__enter__()
    assert values(servers) == [TOKEN] * 5
    assert lease.release() is ReleaseStatus.RELEASED
    assert granted(locks.acquire(KEY, timeout=0)).release() is ReleaseStatus.RELEASED


@pytest.mark.parametrize("is_kept", [False, True])
def test_acquire_when_its_keys_were_deleted_then_is_granted_and_the_lease_is_lost(
    make_locks: MakeLocks, urls: list[str], servers: Servers, is_kept: bool
) -> None:
    # ragflow: a process that was restarted frees its lock by DEL, and has a fixed id.
    locks = make_locks(urls, new_token=lambda: TOKEN)
    locks.connect()
    lease = granted(locks.acquire(KEY, ttl=0.3, timeout=0, keep_alive=is_kept))
    locks.holders(KEY)  # answered after every acquire
    for server in servers:
        server.delete(KEY)
    again = granted(locks.acquire(KEY, ttl=60, timeout=0))
    assert not lease.is_valid
    if is_kept:
        assert wait_until(lambda: lease.lost)
    assert lease.release() is ReleaseStatus.GONE
    assert settled_values(servers, [TOKEN] * 5) == [TOKEN] * 5
    assert min(server.pttl(KEY) for server in servers) > 50_000  # and not extended
    assert again.release() is ReleaseStatus.RELEASED


def test_lease_when_its_time_is_over_and_its_token_is_used_again_then_is_gone(
    make_locks: MakeLocks, urls: list[str], servers: Servers
) -> None:
    # Its release would delete the next lock with this token.
    locks = make_locks(urls, new_token=lambda: TOKEN)
    locks.connect()
    first = granted(locks.acquire(KEY, ttl=0.1))
    second = granted(locks.acquire(KEY, timeout=1))
    assert not first.is_valid
    assert first.release() is ReleaseStatus.GONE
    assert locks.release_each([first]) == [ReleaseStatus.GONE]
    # The slowest two masters may have let the first key expire a moment later.
    assert values(servers).count(TOKEN) >= 3
    assert second.release() is ReleaseStatus.RELEASED
