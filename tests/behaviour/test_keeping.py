"""Leases that are renewed by themselves, on real servers; what `on_lost`, an observer
and log handlers do harms no other one.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from fastredlock import (
    FastRedlock,
    Lease,
    LeaseLostError,
    ReleaseStatus,
)
from fastredlock._locking.validity import validity_of
from tests.support.calls import granted
from tests.support.fixtures import MakeLocks, Servers, blocking
from tests.support.keys import KEY, NOBODY, delete, flush, settled_values, values
from tests.support.noted import handled
from tests.support.waiting import SLACK, settled, wait_until

TTL = 1.0  # s; a process that stands still for half of it loses nothing
BEYOND = 1.3 * TTL
pytestmark = pytest.mark.slow


def keepers() -> int:
    return sum(thread.name == "fastredlock keeper" for thread in threading.enumerate())


class Told:
    """An `on_lost` that notes each call."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, LeaseLostError]] = []
        self.times: list[float] = []

    def __call__(self, lease: Any, error: LeaseLostError) -> None:
        self.times.append(time.monotonic())
        self.calls.append((lease, error))


@pytest.mark.parametrize(
    "enter",
    [
        lambda locks, **options: locks.lock(KEY, **options),
        lambda locks, **options: granted(locks.acquire_all([KEY, "b"], **options)),
    ],
    ids=["lock", "acquire_all"],
)
def test_block_when_it_is_longer_than_the_ttl_then_holds_to_its_end(
    locks: FastRedlock, servers: Servers, enter: Any
) -> None:
    told = Told()
    with enter(locks, ttl=TTL, keep_alive=60, on_lost=told) as lease:
        assert not lease.lost.wait(BEYOND)
        assert sum(value == lease.token for value in values(servers)) >= 3
        lease.check()
    assert settled_values(servers, NOBODY) == NOBODY
    assert told.calls == []


def test_lease_when_nobody_refers_to_it_then_is_not_renewed_any_more(
    locks: FastRedlock, servers: Servers, driver: str
) -> None:
    lease = granted(locks.acquire(KEY, ttl=TTL, keep_alive=True))
    assert not lease.lost.wait(TTL)
    del lease
    gc.collect()
    assert settled_values(servers, NOBODY) == NOBODY
    assert driver != "blocking" or wait_until(lambda: keepers() == 0)


@pytest.mark.parametrize("how", ["close", "drop", "hold", "forget", "forget at once"])
def test_threads_when_clients_are_made_per_call_then_end_with_the_last_release(
    urls: list[str], how: str
) -> None:
    assert wait_until(lambda: keepers() == 0, within=20)  # those of other tests
    before, held = len(os.listdir("/proc/self/fd")), list[object]()
    for i in range(20):
        locks = FastRedlock(urls, ttl=600)
        if how.startswith("forget"):  # its lease, which nobody releases
            lease = locks.acquire(f"{KEY}{i}", keep_alive=True)
            if how == "forget":
                held.append(lease)
            del lease
            continue
        with locks.lock(f"{KEY}{i}", keep_alive=True):
            pass
        if how == "close":
            locks.close()
        if how != "drop":
            held.append(locks)
    del locks
    if how == "forget":
        assert wait_until(lambda: keepers() == 20)
        held.clear()
    assert wait_until(lambda: keepers() == 0)
    assert how == "hold" or wait_until(
        lambda: len(os.listdir("/proc/self/fd")) <= before
    )


def test_lease_when_it_is_gone_before_its_keeper_looks_then_others_are_kept(
    urls: list[str],
) -> None:
    with FastRedlock(urls, ttl=TTL) as locks, locks.lock(KEY, keep_alive=True) as lease:
        gone = granted(locks.acquire("gone"))
        kept = validity_of(gone)
        gone.release()
        del gone
        keeper = locks._driver.keep(kept)
        assert wait_until(lambda: not keeper.added)
        assert not lease.lost.wait(BEYOND)


# ---- lost


def test_keys_when_they_are_flushed_then_the_loss_is_told_at_the_next_renewal(
    locks: FastRedlock, servers: Servers
) -> None:
    told = Told()
    lease = granted(locks.acquire(KEY, ttl=3, keep_alive=True, on_lost=told))
    flush(servers)
    assert lease.lost.wait(1.0 + SLACK)  # a third of the ttl
    assert not lease.is_valid
    assert settled(lambda: len(told.calls), 1) == 1
    error = told.calls[0][1]
    assert "expired or " in str(error)
    assert len(error.votes) == 5
    assert lease.release() is ReleaseStatus.GONE
    assert values(servers) == NOBODY  # never created again
    assert lease.lost.is_set()


@pytest.mark.parametrize("how", ["by the clock", "asked before", "the key is gone"])
def test_loss_when_its_release_sees_it_first_then_is_told_once(
    urls: list[str], servers: Servers, how: str
) -> None:
    told = Told()
    noted: list[str] = []
    observer = SimpleNamespace(lost=lambda *_: noted.append("lost"))
    interval = sys.getswitchinterval()
    with FastRedlock(urls, ttl=0.5, observer=observer) as locks:
        lease = granted(locks.acquire(KEY, keep_alive=True, on_lost=told))
        sys.setswitchinterval(30)  # the keeper does not run, as in a stopped process
        try:
            if how == "the key is gone":
                delete(servers)
            while how != "the key is gone" and lease.is_valid:
                pass
            assert how != "asked before" or lease.lost.is_set()
            lease.release()
        finally:
            sys.setswitchinterval(interval)
        assert lease.lost.is_set()
        assert settled(lambda: (len(told.calls), noted), (1, ["lost"])) == (1, ["lost"])
        time.sleep(0.3)  # nothing more is told in it
        assert (len(told.calls), noted) == (1, ["lost"])


def test_wait_when_the_lease_is_not_kept_then_ends_with_its_validity(
    locks: FastRedlock,
) -> None:
    lease = granted(locks.acquire(KEY, ttl=0.3))
    end = time.monotonic() + lease.remaining()
    assert lease.lost.wait()
    assert end <= time.monotonic() < end + SLACK
    with pytest.raises(LeaseLostError, match="its validity is over"):
        lease.check()
    lease = granted(locks.acquire(KEY, ttl=0.3, keep_alive=True))
    lease.keep_alive(False)
    assert lease.lost.wait(2)


def test_client_when_it_is_closed_then_nothing_is_renewed_and_the_loss_is_told(
    make_locks: MakeLocks, urls: list[str]
) -> None:
    told, locks = Told(), make_locks(urls, ttl=0.4)
    lease = granted(locks.acquire(KEY, keep_alive=True, on_lost=told))
    locks.close()
    assert lease.lost.wait(2)
    assert wait_until(lambda: told.calls)


# ---- foreign code


@pytest.fixture
def end() -> Iterator[threading.Event]:
    """Let what takes long in a test end with it."""
    end = threading.Event()
    yield end
    end.set()


class SlowObserver:
    """Take some time at each renewal; note what is lost."""

    def __init__(self, seconds: float, end: threading.Event) -> None:
        self._seconds = seconds
        self._end = end
        self.extensions = 0
        self.lost_names: list[object] = []

    def extended(self, resource: object, remaining: float) -> None:
        self.extensions += 1
        self._end.wait(self._seconds)

    def lost(self, resource: object, held: float, error: LeaseLostError) -> None:
        self.lost_names.append(resource)


def kept_for_a_moment(locks: FastRedlock, count: int, on_lost: Any) -> list[Lease]:
    """Take leases that are lost at the end of their first validity."""
    return [
        granted(locks.acquire(f"k{i}", keep_alive=0.01, on_lost=on_lost))
        for i in range(count)
    ]


# ---- on_lost


@blocking
@pytest.mark.parametrize("harms", ["callback", "log handler"])
def test_losses_when_each_callback_or_log_handler_exits_then_all_are_told(
    make_locks: MakeLocks, urls: list[str], caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str], harms: str,
) -> None:  # fmt: skip
    calls: list[object] = []
    printed: list[str] = []

    def fail(lease: Any, _: object) -> None:
        calls.append(lease)
        raise SystemExit(3) if harms == "callback" else ValueError("on purpose")

    def is_told() -> bool:
        if harms == "callback":
            return caplog.text.count("on_lost raised SystemExit") == 50
        printed.append(capsys.readouterr().err)
        return "".join(printed).count("\nSystemExit") == 50

    def emit() -> None:
        if harms == "log handler":
            sys.exit("on purpose")

    with handled(emit):
        _leases = kept_for_a_moment(make_locks(urls, ttl=TTL), 50, fail)
        assert wait_until(lambda: len(calls) == 50)
        assert wait_until(is_told)


# ---- observers


@blocking
def test_leases_when_an_observer_never_returns_then_are_kept_and_lost_all_the_same(
    make_locks: MakeLocks, urls: list[str], servers: Servers, end: threading.Event
) -> None:
    observer = SlowObserver(60, end)
    locks = make_locks(urls, ttl=TTL, observer=observer)
    dropped = granted(locks.acquire("dropped", keep_alive=True))
    assert wait_until(lambda: observer.extensions == 1)
    lease = granted(locks.acquire(KEY, keep_alive=True))
    del dropped  # not kept by the call that takes long, nor by one that waits
    gc.collect()
    assert not lease.lost.wait(BEYOND)
    assert settled_values(servers, NOBODY, "dropped") == NOBODY
    assert len(locks._driver.keeper._notes) <= 2  # of each lease once
    delete(servers)
    assert wait_until(lambda: observer.lost_names == [KEY])
