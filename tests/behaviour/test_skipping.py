"""Decorated calls, skipped ones too, their leases, and locks that stay taken behind a
short body."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest

from fastredlock import (
    ConfigurationError,
    FastRedlock,
    LeaseLostError,
    ReleaseStatus,
    ResourceTakenError,
)
from fastredlock.asyncio import FastRedlock as AwaitableFastRedlock
from fastredlock.testing import LocalMasters
from tests.support.cancellation import with_locks
from tests.support.fixtures import MakeLocks, Servers, blocking
from tests.support.keys import KEY
from tests.support.masters import pause, resume
from tests.support.waiting import until


@blocking
@pytest.mark.parametrize("skip", [False, True])
def test_function_when_its_lock_is_taken_then_raises_or_is_skipped_and_logged(
    locks: FastRedlock, make_locks: MakeLocks, urls: list[str],
    caplog: pytest.LogCaptureFixture, skip: bool,
) -> None:  # fmt: skip
    caplog.set_level("INFO", "fastredlock")
    called = []

    @locks.lock(lambda order, **_: f"orders:{order}", timeout=0, skip=skip)
    def ship(order: int, *, by: str) -> str | None:
        called.append(order)
        return f"shipped {order} by {by}"

    with make_locks(urls).lock("orders:42"):
        if skip:
            assert ship(42, by="rail") is None
            (line,) = caplog.messages
            assert line.startswith("skipped: 'orders:42'")
        else:
            with pytest.raises(ResourceTakenError, match="'orders:42'"):
                ship(42, by="rail")
        assert ship(7, by="sea") == "shipped 7 by sea"
    assert ship(42, by="rail") == "shipped 42 by rail"
    assert called == [7, 42]


@blocking
def test_skipping_when_nothing_could_be_skipped_then_is_refused(
    locks: FastRedlock,
) -> None:
    with pytest.raises(ConfigurationError, match="timeout"):
        locks.lock(KEY, skip=True)
    with pytest.raises(ConfigurationError, match="reentrant"):
        locks.lock(KEY, timeout=0, skip=True, reentrant=True)
    skipping = locks.lock(KEY, timeout=0, skip=True)
    with pytest.raises(ConfigurationError, match="with block"), skipping:
        pytest.fail("entered")


@with_locks(ttl=20)
async def test_coroutine_function_when_its_lock_is_taken_then_is_skipped(
    locks: AwaitableFastRedlock,
) -> None:
    @locks.lock(KEY, timeout=0, skip=True)
    async def work() -> bytes | None:
        await until(lambda: locks.stats().taken)  # the other call
        return locks.current(KEY).token

    async def current() -> object:
        return locks.current(KEY)

    both = await asyncio.gather(work(), work())
    assert sum(each is None for each in both) == 1
    async with locks.lock(KEY):
        assert await work() is None
        with pytest.raises(LeaseLostError):
            await asyncio.create_task(current())
    with pytest.raises(ConfigurationError, match="with block"):
        await locks.lock(KEY, timeout=0, skip=True).__aenter__()


# --- at_least -------------------------------------------------------------------------


def stay(servers: Servers, key: str) -> int:
    """Count the masters whose key has what is left of 10 s, not its ttl of 20 s."""
    return sum(5000 < server.pttl(key) <= 10_000 for server in servers)


@blocking
def test_locks_of_all_kinds_when_left_before_at_least_then_stay_taken(
    locks: FastRedlock, servers: Servers
) -> None:
    @locks.lock("decorated", ttl=20, timeout=0, skip=True, at_least=10)
    def work() -> bool | None:
        return True

    assert (work(), work()) == (True, None)
    for lock in (
        locks.lock("one", ttl=20, at_least=10),
        locks.lock("kept", ttl=20, at_least=10, keep_alive=True),
        locks.lock("reentrant", ttl=20, at_least=10, reentrant=True),
        locks.semaphore("slots", 1, ttl=20, at_least=10),
        locks.lock_all(["a", "b"], ttl=20, at_least=10),
    ):
        with contextlib.suppress(ZeroDivisionError), lock as lease:
            raise ZeroDivisionError
        assert lease.release() is ReleaseStatus.GONE  # it was left already
    with locks.lock("long enough", ttl=20, at_least=0.001):
        time.sleep(0.002)
    assert locks.acquire("long enough", timeout=0) is not None
    for name in ("decorated", "one", "kept", "reentrant", "slots#0", "a", "b"):
        assert stay(servers, name) >= 3  # one that connects late has no key


@blocking
def test_lock_when_the_masters_are_away_at_its_end_then_stays_for_its_ttl(
    make_locks: MakeLocks, masters: LocalMasters
) -> None:
    locks = make_locks(masters.urls[:3], round_timeout=0.1)
    with locks.lock(KEY, ttl=2, at_least=1.5) as lease:
        pause(masters, 3)
    resume(masters, 3)
    assert lease.release() is ReleaseStatus.RELEASED  # asked again: not deleted
    assert make_locks(masters.urls[:3]).acquire(KEY, timeout=0) is None


@blocking
def test_lock_when_its_client_is_closed_meanwhile_then_at_least_is_kept(
    locks: FastRedlock, servers: Servers
) -> None:
    with locks.lock(KEY, ttl=20, at_least=10):
        locks.close()
    assert stay(servers, KEY) >= 3


def test_at_least_when_it_cannot_be_kept_then_is_refused_before_any_io() -> None:
    locks = FastRedlock(["redis://127.0.0.1:1"], ttl=20)
    for options, said in (
        ({"at_least": 20.5}, "at_least=20.5: allowed is up to the ttl"),
        ({"at_least": 5, "ttl": 4}, r"at_least=5: allowed is up to the ttl \(4 s\)"),
        ({"at_least": 5, "linger": 1}, "beside linger"),
        ({"at_least": 0}, "at_least=0: allowed is above 0"),
    ):
        with pytest.raises(ConfigurationError, match=said), locks.lock(KEY, **options):
            pytest.fail("entered")


@blocking
def test_current_when_inside_of_a_decorated_call_then_is_its_lease(
    locks: FastRedlock, servers: Servers
) -> None:
    @locks.lock(KEY, ttl=20)
    def work() -> bytes:
        lease = locks.current(KEY)
        lease.check()
        return lease.token

    assert work() != work()
    with locks.lock_all([KEY, "other"]) as both:
        assert locks.current("other") is both
    with pytest.raises(LeaseLostError, match="in no block"):
        locks.current(KEY)


@blocking
def test_current_when_lost_then_its_check_raises(locks: FastRedlock) -> None:
    with contextlib.suppress(LeaseLostError), locks.lock(KEY, ttl=0.1) as lease:
        lease.lost.wait()
        assert locks.current(KEY) is lease
        with pytest.raises(LeaseLostError, match="validity is over"):
            locks.current(KEY).check()


@with_locks(ttl=20)
async def test_awaitable_lock_when_left_before_at_least_then_stays_taken(
    locks: AwaitableFastRedlock, servers: Servers
) -> None:
    async with locks.lock(KEY, at_least=10):
        pass
    assert await locks.acquire(KEY, timeout=0) is None
    assert stay(servers, KEY) >= 3
