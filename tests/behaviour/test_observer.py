"""What a client tells of itself: to an observer, by counters, in the log; whatever they
do harms no call.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from fastredlock import (
    FastRedlock,
    LeaseLostError,
    OperationStats,
    QuorumUnreachableError,
    ReleaseStatus,
    ResourceTakenError,
    Vote,
)
from fastredlock.asyncio import FastRedlock as AwaitableFastRedlock
from fastredlock.observer import EVENTS
from fastredlock.testing import LocalMasters
from tests.support.awaited import run_on
from tests.support.calls import QUICK, connected, granted
from tests.support.fixtures import MakeLocks, Servers, blocking
from tests.support.keys import KEY, NOBODY, set_all, values
from tests.support.loop_calls import taken
from tests.support.masters import stop
from tests.support.noted import Noted, handled
from tests.support.processes import Fork
from tests.support.waiting import SLACK, settled, turn, until, wait_until

RELEASED, GONE, UNKNOWN = ReleaseStatus
TTL = 0.6  # s
PAIR = ["acquired", "margin", "released"]
BLOCK = ["acquired", "entered", "left", "margin", "released"]


@pytest.fixture
def noted() -> Noted:
    return Noted()


@pytest.fixture
def observed(make_locks: MakeLocks, urls: list[str], noted: Noted) -> FastRedlock:
    return connected(make_locks(urls, observer=noted))


# ---- one lock


def test_lease_when_observed_then_tells_how_long_it_waited_and_held(
    observed: FastRedlock, noted: Noted
) -> None:
    lease = granted(observed.acquire(KEY, ttl=10))
    bare: Any = getattr(lease, "_awaitable", lease)
    assert repr(bare).startswith("<Lease '")  # it is a lease like any other
    left = lease.extend(30)
    assert lease.release() is RELEASED
    assert lease.release() is GONE
    with pytest.raises(LeaseLostError, match="it was released"):
        lease.extend()
    assert noted.events == ["acquired", "extended", "margin", "released"]
    (_, acquired), (_, extended), (_, margin), (_, released) = noted.told
    assert acquired == (KEY, lease.waited, 1)
    assert 0 < lease.waited < SLACK
    assert extended == (KEY, left)
    assert margin == (KEY, pytest.approx(29.7, abs=SLACK))
    resource, held = released
    assert (resource, 0 < held < SLACK) == (KEY, True)


def test_acquire_when_others_hold_it_then_tells_taken_at_the_end_alone(
    observed: FastRedlock, noted: Noted, servers: Servers
) -> None:
    set_all(servers, b"theirs")
    assert observed.acquire(KEY, timeout=0.1) is None
    with pytest.raises(ResourceTakenError) as raised, observed.lock(KEY, timeout=0):
        pass
    assert noted.events == ["taken", "taken"]
    (_, waited, attempts), second = noted.of("taken")
    assert 0.1 <= waited < 0.1 + SLACK
    assert attempts >= 2
    assert second == (KEY, raised.value.elapsed, 1)


def test_acquire_when_no_quorum_is_there_then_tells_the_error_that_it_raises(
    make_locks: MakeLocks, masters: LocalMasters, noted: Noted
) -> None:
    locks = make_locks(masters.urls, observer=noted, **QUICK)
    stop(masters, 3)
    for call in (locks.acquire, lambda key, timeout: locks.acquire_each([key])):
        noted.clear()
        with pytest.raises(QuorumUnreachableError) as raised:
            call(KEY, timeout=0)
        error = raised.value
        assert noted.told == [("unreachable", (KEY, error.elapsed, 1, error))]
        failed = [vote.vote for vote in error.votes].count(Vote.FAILED)
        assert failed == 3


def test_block_when_entered_then_tells_what_acquire_tells_and_when_it_was_left(
    observed: FastRedlock, noted: Noted
) -> None:
    lock = observed.lock(KEY, ttl=10)
    for _ in range(2):
        with lock:
            pass
    with granted(observed.acquire(KEY)):
        assert noted.told[-1] == ("entered", (KEY,))
    with observed.lock_all(["b", "a"]):
        pass
    granted(observed.acquire_all(["b", "a"])).release()
    assert noted.events == BLOCK * 4 + PAIR
    resources = [values[0] for _, values in noted.told]
    assert resources == [KEY] * 15 + [("b", "a")] * 8


@blocking
def test_reentrant_lock_when_its_holder_enters_again_then_is_told_of_one_block(
    observed: FastRedlock, noted: Noted
) -> None:
    with observed.lock(KEY, reentrant=True), observed.lock(KEY, reentrant=True):
        pass
    assert noted.events == BLOCK


# ---- extensions, and losses


def test_extend_when_the_key_is_gone_then_tells_the_loss_and_no_release(
    observed: FastRedlock, noted: Noted, servers: Servers
) -> None:
    lease = granted(observed.acquire(KEY))
    set_all(servers, b"theirs")
    for _ in range(2):
        with pytest.raises(LeaseLostError):
            lease.extend()
    assert lease.release() is GONE
    assert noted.events == ["acquired", "lost"]
    ((resource, held, error),) = noted.of("lost")
    assert (resource, error.resource) == (KEY, KEY)
    assert 0 < held < SLACK
    assert "theirs" not in str(error)


def test_release_when_the_key_is_gone_then_tells_a_loss(
    observed: FastRedlock, noted: Noted, servers: Servers
) -> None:
    lease = granted(observed.acquire(KEY))
    set_all(servers, b"theirs")
    assert lease.release() is GONE
    left = pytest.raises(LeaseLostError, match="'b': lost before the end")
    with left, observed.lock("b", ttl=0.05) as lease:
        assert lease.lost.wait(5)
    in_block = ["acquired", "entered", "left", "lost"]
    assert noted.events == ["acquired", "lost", *in_block]


# ---- many at once


def test_each_when_observed_then_tells_of_each_in_the_order_given(
    observed: FastRedlock, noted: Noted, servers: Servers
) -> None:
    set_all(servers, b"theirs", "b")
    leases = observed.acquire_each(["a", "b", "c"])
    assert [name for name, _ in noted.told] == ["acquired", "taken", "acquired"]
    assert [told[0] for _, told in noted.told] == ["a", "b", "c"]
    assert {told[2] for _, told in noted.told} == {1}
    first = granted(leases[0])
    assert noted.of("acquired")[0] == ("a", first.waited, first.attempts)
    noted.clear()
    left = observed.extend_each(leases, 30)
    assert noted.told == [("extended", ("a", left[0])), ("extended", ("c", left[2]))]
    set_all(servers, b"theirs", "a")
    noted.clear()
    assert observed.extend_each(leases)[0] is None
    assert noted.events == ["lost", "extended"]
    noted.clear()
    assert observed.release_each(leases) == [GONE, GONE, RELEASED]
    assert noted.events == ["margin", "released"]
    assert noted.told[1][1][0] == "c"
    observed.release_each(leases)
    assert noted.events == ["margin", "released"]


# ---- kept leases


@pytest.mark.slow
def test_kept_lease_when_it_is_lost_then_its_keeper_tells_it_once(
    observed: FastRedlock, noted: Noted, servers: Servers, driver: str
) -> None:
    lease = granted(observed.acquire(KEY, ttl=TTL, keep_alive=True))
    assert wait_until(lambda: noted.events.count("extended") >= 4)
    assert all(0 < left <= TTL for _, left in noted.of("extended"))
    set_all(servers, b"theirs")
    assert wait_until(lambda: "lost" in noted.events)
    told = dict(zip(noted.events, noted.threads, strict=True))
    if driver == "blocking":
        assert told["extended"] == "fastredlock observer"
        assert told["lost"] == "fastredlock on_lost"
    else:  # the loop's thread, as of all other events
        assert told["extended"] == told["lost"] == told["acquired"]
    assert noted.of("lost")[0][1] > TTL  # it was held so long
    assert lease.lost.is_set()
    assert lease.release() is GONE
    assert noted.events.count("lost") == 1
    assert "released" not in noted.events


# ---- what an observer does


def test_observer_when_it_raises_then_no_call_fails_and_one_line_is_logged(
    make_locks: MakeLocks, urls: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[object] = []

    def fail(*values: object) -> None:
        calls.append(values)
        raise ValueError("theirs")

    raising = SimpleNamespace(**dict.fromkeys(EVENTS, fail))
    locks = connected(make_locks(urls, observer=raising))
    with caplog.at_level(logging.WARNING, "fastredlock"):
        lease = granted(locks.acquire(KEY))
        assert locks.acquire(KEY, timeout=0) is None
        lease.extend()
        assert lease.release() is RELEASED
        assert locks.release_each(locks.acquire_each(["a", "b"])) == [RELEASED] * 2
    assert len(calls) == 11
    (text,) = [record.getMessage() for record in caplog.records]
    assert "acquired raised ValueError('theirs')" in text
    assert lease.token.decode() not in text


@blocking
@pytest.mark.parametrize("event", ["acquired", "entered", "released"])
def test_call_when_its_observer_is_interrupted_then_leaves_no_key(
    make_locks: MakeLocks, urls: list[str], servers: Servers, event: str
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    noted = Noted()
    setattr(noted, event, interrupt)
    locks = connected(make_locks(urls, observer=noted))
    calls: list[Any] = [lambda: locks.lock(KEY).__enter__().release()]
    if event == "acquired":
        calls += [lambda: locks.acquire(KEY), lambda: locks.acquire_each([KEY])]
    for call in calls:
        with pytest.raises(KeyboardInterrupt):
            call()
        assert settled(lambda: values(servers), NOBODY, within=1) == NOBODY
    assert event != "entered" or noted.told[1:] == [("left", (KEY,))]


def test_call_when_it_is_cancelled_then_tells_nothing(
    urls: list[str], noted: Noted, kind: str
) -> None:
    async def body() -> None:
        async with AwaitableFastRedlock(urls, observer=noted) as locks:
            lease = await taken(locks)
            noted.clear()
            waiting = asyncio.ensure_future(locks.acquire(KEY, timeout=8))
            await until(lambda: locks.stats().waits == 1)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert noted.events == []
            releasing = asyncio.ensure_future(lease.release())
            await turn()
            releasing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await releasing
            assert noted.events == []

    run_on(kind, body())


@blocking
def test_forked_child_when_it_releases_its_parents_lease_then_tells_nothing(
    observed: FastRedlock, noted: Noted
) -> None:
    lease = granted(observed.acquire(KEY))
    noted.clear()

    def leave() -> list[str]:
        with suppress(LeaseLostError):
            lease.__exit__(None, None, None)
        with observed.lock("child"):
            pass
        return noted.events

    assert Fork(leave).result() == BLOCK
    assert lease.release() is RELEASED
    assert noted.events == ["margin", "released"]


# ---- counters


def test_stats_when_each_operation_was_used_then_tell_them_apart(
    locks: FastRedlock, servers: Servers
) -> None:
    assert locks.stats().round_trip == 0.0
    lease = granted(locks.acquire(KEY))
    assert locks.acquire(KEY, timeout=0) is None
    lease.extend()
    locks.holders(KEY)
    lease.release()
    stats = locks.stats()
    assert stats.acquires == OperationStats(won=1, taken=1)
    assert stats.extends == stats.releases == stats.inspects == OperationStats(won=1)
    assert (stats.won, stats.taken, stats.rounds) == (4, 1, 5)
    assert (stats.unreachable, stats.too_late, stats.losses) == (0, 0, 0)
    assert 0 < stats.round_trip < 1
    set_all(servers[:3], b"theirs", "b")
    locks.acquire_each(["b"])
    assert locks.stats().acquires == OperationStats(won=1, taken=2)
    assert locks.stats().rolled_back >= 1


@pytest.fixture(scope="module")
def evicting() -> Iterator[LocalMasters]:
    """Start a master that evicts keys: each client is warned of it."""
    options = ("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
    with LocalMasters(1, options=options) as masters:
        yield masters


def pair_of(locks: FastRedlock, key: str = KEY) -> None:
    assert granted(locks.acquire(key)).release() is ReleaseStatus.RELEASED


@pytest.mark.parametrize("prints", [True, False])
def test_warning_when_the_handler_raises_then_the_call_goes_on_and_it_is_told_once(
    evicting: LocalMasters, make_locks: MakeLocks, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch, prints: bool,
) -> None:  # fmt: skip
    def fail() -> None:
        raise ValueError("from the handler")

    monkeypatch.setattr(logging, "raiseExceptions", prints)
    with handled(fail) as texts:
        locks = make_locks(evicting.urls)
        for _ in range(3):
            pair_of(locks)
    (text,) = texts
    assert "evicts" in text
    printed = capsys.readouterr().err
    assert "ValueError: from the handler" in printed if prints else printed == ""
