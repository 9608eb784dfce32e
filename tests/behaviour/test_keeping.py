"""Leases that are renewed by themselves, on real servers."""

from __future__ import annotations

import gc
import logging
import os
import sys
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
import redis

from fastredlock import (
    NO_EXPIRY,
    ConfigurationError,
    FastRedlock,
    Lease,
    LeaseLostError,
    ReleaseStatus,
)
from fastredlock.testing import LocalMasters
from tests.support.calls import connected, granted
from tests.support.fixtures import MakeLocks
from tests.support.keys import KEY, NOBODY, settled_values, values
from tests.support.masters import pause, resume, stop
from tests.support.threads import later
from tests.support.waiting import SLACK, settled, stopwatch, wait_until

TTL = 0.9  # s; a process that stands still for half of it loses nothing
BEYOND = 1.5 * TTL
pytestmark = pytest.mark.slow


def keepers() -> int:
    """Count the threads that keep something."""
    return sum(thread.name == "fastredlock keeper" for thread in threading.enumerate())


def last_end(lease: Lease) -> float:
    """Watch the lease until it is lost; return when its validity ended (monotonic)."""
    end = 0.0
    while (left := lease.remaining()) > 0:
        end = time.monotonic() + left
        time.sleep(0.001)  # so exactly is its end known
    return end


class Told:
    """An `on_lost` that notes each call."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, LeaseLostError]] = []
        self.times: list[float] = []

    def __call__(self, lease: Any, error: LeaseLostError) -> None:
        self.times.append(time.monotonic())
        self.calls.append((lease, error))


def test_lease_when_kept_then_outlives_its_ttl_until_it_is_released(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    lease = granted(locks.acquire(KEY, ttl=TTL, keep_alive=True))
    for _ in range(12):
        assert not lease.lost.wait(TTL / 6)
        assert lease.remaining() > TTL / 3
        lease.check()
    assert lease.release() is ReleaseStatus.RELEASED
    assert settled_values(servers, NOBODY) == NOBODY
    rounds = locks.stats().rounds
    time.sleep(TTL)  # nothing happens in it
    assert locks.stats().rounds == rounds
    assert not lease.lost.is_set()


@pytest.mark.parametrize(
    "enter",
    [
        lambda locks, **options: locks.lock(KEY, **options),
        lambda locks, **options: locks.lock_all([KEY, "b"], **options),
        lambda locks, **options: granted(locks.acquire_all([KEY, "b"], **options)),
    ],
    ids=["lock", "lock_all", "acquire_all"],
)
def test_block_when_it_is_longer_than_the_ttl_then_holds_to_its_end(
    locks: FastRedlock, servers: list[redis.Redis], enter: Any
) -> None:
    told = Told()
    with enter(locks, ttl=TTL, keep_alive=60, on_lost=told) as lease:
        assert not lease.lost.wait(BEYOND)
        assert sum(value == lease.token for value in values(servers)) >= 3
        lease.check()
    assert settled_values(servers, NOBODY) == NOBODY
    assert told.calls == []


def test_function_when_decorated_then_its_lease_is_kept(urls: list[str]) -> None:
    with FastRedlock(urls, ttl=TTL) as locks:

        @locks.lock(lambda name: name, keep_alive=True)
        def work(name: str) -> bool:
            return locks.current(name).lost.wait(BEYOND)

        assert not work(KEY)


def test_lease_when_adopted_and_kept_then_is_renewed_from_then_on(
    locks: FastRedlock, make_locks: MakeLocks, urls: list[str]
) -> None:
    lease = granted(locks.acquire(KEY, ttl=TTL))
    other = make_locks(urls)
    adopted = other.adopt(KEY, lease.token, ttl=TTL)
    adopted.keep_alive(True)
    assert wait_until(lambda: adopted.is_valid)
    assert not adopted.lost.wait(BEYOND)
    assert not lease.is_valid
    assert adopted.release() is ReleaseStatus.RELEASED


def test_lease_when_the_bound_is_reached_then_ends_and_is_told(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    told = Told()
    with stopwatch() as elapsed:
        options: Any = {"keep_alive": 1.2 * TTL, "on_lost": told}
        assert granted(locks.acquire(KEY, ttl=TTL, **options)).lost.wait(60)
    assert 1.2 * TTL <= elapsed() <= 2.2 * TTL + SLACK
    assert wait_until(lambda: told.calls)
    assert "not renewed any more" in str(told.calls[0][1])
    assert settled_values(servers, NOBODY) == NOBODY


def test_lease_when_keeping_is_ended_then_ends_with_its_ttl(locks: FastRedlock) -> None:
    lease = granted(locks.acquire(KEY, ttl=TTL, keep_alive=True))
    lease.keep_alive(False)
    assert lease.lost.wait(60)
    with pytest.raises(LeaseLostError):
        lease.check()


def test_lease_when_nobody_refers_to_it_then_is_not_renewed_any_more(
    locks: FastRedlock, servers: list[redis.Redis], driver: str
) -> None:
    lease = granted(locks.acquire(KEY, ttl=TTL, keep_alive=True))
    assert not lease.lost.wait(TTL)
    del lease
    gc.collect()
    assert settled_values(servers, NOBODY) == NOBODY
    assert driver != "blocking" or wait_until(lambda: keepers() == 0)


def test_lease_when_its_client_was_dropped_then_is_kept_all_the_same(
    urls: list[str],
) -> None:
    lease = granted(FastRedlock(urls, ttl=TTL).acquire(KEY, keep_alive=True))
    gc.collect()
    assert not lease.lost.wait(BEYOND)
    assert lease.release() is ReleaseStatus.RELEASED


def test_thread_when_nothing_is_kept_then_is_none(urls: list[str]) -> None:
    assert wait_until(lambda: keepers() == 0, within=20)  # those of other tests
    with FastRedlock(urls) as locks:
        with locks.lock(KEY):
            assert keepers() == 0
        with locks.lock(KEY, ttl=TTL, keep_alive=True):
            leases = [locks.acquire(f"{KEY}{i}", keep_alive=True) for i in range(5)]
            assert wait_until(lambda: keepers() == 1)
            locks.release_each(leases)
        assert wait_until(lambda: keepers() == 0, within=20)
        with locks.lock(KEY, ttl=TTL, keep_alive=True) as lease:
            assert not lease.lost.wait(BEYOND)


@pytest.mark.parametrize("how", ["close", "drop", "hold"])
def test_threads_when_clients_are_made_per_call_then_end_with_the_last_release(
    urls: list[str], how: str
) -> None:
    assert wait_until(lambda: keepers() == 0, within=20)  # those of other tests
    before, held = len(os.listdir("/proc/self/fd")), []
    for i in range(20):
        locks = FastRedlock(urls, ttl=600)
        with locks.lock(f"{KEY}{i}", keep_alive=True):
            pass
        if how == "close":
            locks.close()
        if how != "drop":
            held.append(locks)
    del locks
    assert wait_until(lambda: keepers() == 0)
    assert how == "hold" or len(os.listdir("/proc/self/fd")) <= before


# ---- lost


def test_keys_when_they_are_flushed_then_the_loss_is_told_at_the_next_renewal(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    told = Told()
    lease = granted(locks.acquire(KEY, ttl=3, keep_alive=True, on_lost=told))
    for server in servers:
        server.flushall()
    assert lease.lost.wait(1.0 + SLACK)  # a third of the ttl
    assert not lease.is_valid
    assert settled(lambda: len(told.calls), 1) == 1
    error = told.calls[0][1]
    assert "expired or " in str(error)
    assert len(error.votes) == 5
    assert lease.release() is ReleaseStatus.GONE
    assert values(servers) == NOBODY  # never created again
    assert lease.lost.is_set()


@pytest.mark.parametrize(("count", "seconds"), [(3, 0.6), (1, 2.0)])
def test_masters_when_a_few_are_away_or_a_quorum_for_a_while_then_nothing_is_lost(
    masters: LocalMasters, make_locks: MakeLocks, count: int, seconds: float
) -> None:
    told, locks = Told(), connected(make_locks(masters.urls, ttl=1.6))
    lease = granted(locks.acquire(KEY, keep_alive=True, on_lost=told))
    assert not lease.lost.wait(0.2)
    pause(masters, count)
    assert not lease.lost.wait(seconds)
    resume(masters, count)
    assert wait_until(lambda: lease.remaining() > 1.2)
    assert not lease.lost.wait(1.6)
    assert told.calls == []
    assert lease.release() is ReleaseStatus.RELEASED


@pytest.mark.parametrize("harm", [pause, stop])
def test_quorum_when_it_is_away_for_longer_then_the_loss_is_told_at_the_end(
    masters: LocalMasters, make_locks: MakeLocks, harm: Any
) -> None:
    told, locks = Told(), connected(make_locks(masters.urls, ttl=1.2))
    lease = granted(locks.acquire(KEY, keep_alive=True, on_lost=told))
    assert not lease.lost.wait(0.2)
    harm(masters, 3)
    end = last_end(lease)
    assert lease.lost.is_set()
    assert settled(lambda: len(told.calls), 1) == 1
    assert -0.1 < told.times[0] - end < 0.1
    assert "no renewal was confirmed in time" in str(told.calls[0][1])
    with pytest.raises(LeaseLostError, match="no renewal was confirmed"):
        lease.check()


def test_with_block_when_the_lease_is_lost_then_says_so_on_leaving(
    locks: FastRedlock, servers: list[redis.Redis], driver: str
) -> None:
    if driver != "blocking":
        pytest.skip("the body is cancelled")

    def hold() -> None:
        with locks.lock(KEY, ttl=TTL, keep_alive=True) as lease:
            for server in servers:
                server.flushall()
            assert lease.lost.wait(10)

    with pytest.raises(LeaseLostError, match="expired or ") as raised:
        hold()
    assert len(raised.value.votes) == 5


@pytest.mark.parametrize("how", ["by the clock", "asked before", "the key is gone"])
def test_loss_when_its_release_sees_it_first_then_is_told_once(
    urls: list[str], servers: list[redis.Redis], how: str
) -> None:
    told = Told()
    noted: list[str] = []
    observer = SimpleNamespace(lost=lambda *_: noted.append("lost"))
    interval = sys.getswitchinterval()
    with FastRedlock(urls, ttl=TTL, observer=observer) as locks:
        lease = granted(locks.acquire(KEY, keep_alive=True, on_lost=told))
        sys.setswitchinterval(30)  # the keeper does not run, as in a stopped process
        try:
            if how == "the key is gone":
                for server in servers:
                    server.delete(KEY)
            while how != "the key is gone" and lease.is_valid:
                pass
            assert how != "asked before" or lease.lost.is_set()
            lease.release()
        finally:
            sys.setswitchinterval(interval)
        assert lease.lost.is_set()
        assert settled(lambda: (len(told.calls), noted), (1, ["lost"])) == (1, ["lost"])
        time.sleep(TTL / 2)  # nothing more is told in it
        assert (len(told.calls), noted) == (1, ["lost"])


def test_callback_when_it_raises_then_is_logged_and_others_are_kept(
    locks: FastRedlock, servers: list[redis.Redis], caplog: pytest.LogCaptureFixture
) -> None:
    def fail(lease: object, error: LeaseLostError) -> None:
        raise ValueError("on purpose")

    other = granted(locks.acquire("other", ttl=TTL, keep_alive=True))
    lease = granted(locks.acquire(KEY, ttl=TTL, keep_alive=True, on_lost=fail))
    with caplog.at_level(logging.WARNING, "fastredlock"):
        for server in servers:
            server.delete(KEY)
        assert lease.lost.wait(10)
        assert wait_until(lambda: "on purpose" in caplog.text)
    assert not other.lost.wait(TTL)
    assert other.release() is ReleaseStatus.RELEASED


def test_wait_when_the_lease_is_released_then_ends_without_a_loss(
    locks: FastRedlock,
) -> None:
    lease = granted(locks.acquire(KEY, ttl=60, keep_alive=True))
    assert not lease.lost.wait(0.05)
    with later(0.1, lease.release):
        assert not lease.lost.wait(60)
    with pytest.raises(LeaseLostError, match="it was released"):
        lease.check()


def test_wait_when_the_lease_is_not_kept_then_ends_with_its_validity(
    locks: FastRedlock,
) -> None:
    lease = granted(locks.acquire(KEY, ttl=TTL))
    end = time.monotonic() + lease.remaining()
    assert lease.lost.wait()
    assert end <= time.monotonic() < end + SLACK
    with pytest.raises(LeaseLostError, match="its validity is over"):
        lease.check()


def test_client_when_it_is_closed_then_nothing_is_renewed_and_the_loss_is_told(
    make_locks: MakeLocks, urls: list[str]
) -> None:
    told, locks = Told(), make_locks(urls, ttl=TTL)
    lease = granted(locks.acquire(KEY, keep_alive=True, on_lost=told))
    locks.close()
    assert lease.lost.wait(2 * TTL)
    assert wait_until(lambda: told.calls)


# ---- refused


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"ttl": 0.01, "keep_alive": True}, r"keep_alive needs 0\.017 s or more"),
        ({"ttl": NO_EXPIRY, "keep_alive": True}, "keep_alive with NO_EXPIRY"),
        ({"keep_alive": -1}, "keep_alive=-1"),
        ({"keep_alive": "yes"}, "'yes'"),
        ({"on_lost": print}, "on_lost needs keep_alive"),
        ({"keep_alive": True, "on_lost": 5}, "on_lost=5"),
    ],
)
def test_options_when_they_cannot_be_kept_then_are_refused_before_any_io(
    make_locks: MakeLocks, options: dict[str, Any], text: str
) -> None:
    locks = make_locks(["redis://localhost:1"])
    with pytest.raises(ConfigurationError, match=text):
        locks.acquire(KEY, timeout=0, **options)
    with pytest.raises(ConfigurationError, match=text):
        locks.lock(KEY, timeout=0, **options).__enter__()
    assert locks.stats().connects == 0


def test_lease_when_it_is_over_then_cannot_be_kept(locks: FastRedlock) -> None:
    lease = granted(locks.acquire(KEY))
    lease.release()
    with pytest.raises(LeaseLostError, match="not kept: it was released"):
        lease.keep_alive(True)
