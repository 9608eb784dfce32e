"""Connections: what keeps them, what finds out that one is dead, where they lead."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import redis
from behaviour.helpers import KEY, MakeLocks, granted, stopwatch
from proxy import Proxy

from fastredlock import FastRedlock, QuorumUnreachableError, ReleaseStatus
from fastredlock.testing import LocalMasters

from .helpers import QUICK, SLACK, take_and_release


def test_address_when_another_server_stands_behind_the_name_then_is_found(
    shared_masters: LocalMasters,
    servers: list[redis.Redis],
    make_locks: MakeLocks,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = str(tmp_path_factory.mktemp("name") / "s")
    locks = make_locks([f"unix://{path}"])
    with Proxy(shared_masters.urls[0], path):
        take_and_release(locks)
    # The name is the path: what answers there now is another server.
    with Proxy(shared_masters.urls[1], path):
        lease = granted(locks.acquire(KEY, timeout=2))
        assert [server.exists(KEY) for server in servers[:2]] == [0, 1]
        assert lease.release() is ReleaseStatus.RELEASED


@pytest.mark.slow
def test_idle_connection_when_it_was_cut_then_the_first_round_finds_new_ones(
    proxies: list[Proxy], proxied: Callable[..., FastRedlock]
) -> None:
    locks = proxied()
    take_and_release(locks)
    time.sleep(1.1)  # idle for longer than the engine trusts a connection
    for proxy in proxies:
        proxy.reset()
    lease = granted(locks.acquire(KEY, timeout=0))
    assert lease.release() is ReleaseStatus.RELEASED


@pytest.mark.slow
def test_idle_connection_when_it_was_cut_behind_unread_replies_then_is_found_out(
    proxies: list[Proxy], proxied: Callable[..., FastRedlock]
) -> None:
    locks = proxied(**QUICK)
    for proxy in proxies:
        proxy.set(holds_down=True)
    with pytest.raises(QuorumUnreachableError):
        locks.acquire("late", timeout=0)
    for proxy in proxies:
        proxy.heal()
    time.sleep(1.1)  # as above; the late replies stand before the end of each stream
    for proxy in proxies:
        proxy.reset()
    lease = granted(locks.acquire(KEY, timeout=0))
    assert lease.release() is ReleaseStatus.RELEASED


@pytest.mark.slow
def test_idle_connection_when_a_middlebox_forgot_it_then_acquire_outlasts_it(
    proxies: list[Proxy], proxied: Callable[..., FastRedlock]
) -> None:
    locks = proxied()
    for proxy in proxies:
        proxy.set(swallows=True)
    with pytest.raises(QuorumUnreachableError):
        locks.acquire(KEY, timeout=0)
    for proxy in proxies:
        proxy.set(swallows=False)  # what is open stays dead; what is opened is not
    with stopwatch() as elapsed:
        granted(locks.acquire(KEY))
    assert elapsed() < 1 + SLACK
