"""Semaphores: at most k hold a resource, by k slots that are locks; and rates: at most
k begin in any window, by slots that are taken and never released.
"""

from __future__ import annotations

import pickle
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from fastredlock import (
    ConfigurationError,
    FastRedlock,
    LeaseLostError,
    ReentryError,
    ReleaseStatus,
    ResourceTakenError,
)
from fastredlock._reports import log
from tests.support.calls import granted
from tests.support.fixtures import MakeLocks, Servers, blocking
from tests.support.keys import KEY, is_empty, settled_values
from tests.support.processes import Fork
from tests.support.waiting import stopwatch, wait_until

NAME = "llm"


def take(locks: FastRedlock, permits: int = 3, **options: Any) -> Any:
    """Take a slot at once, or fail."""
    return granted(locks.acquire(NAME, permits=permits, timeout=0, **options))


def test_slots_when_taken_by_several_clients_then_are_no_more_than_the_permits(
    locks: FastRedlock, make_locks: MakeLocks, urls: list[str]
) -> None:
    other = make_locks(urls)
    leases = [take(locks), take(other), take(locks)]
    assert sorted(lease.slot for lease in leases) == [0, 1, 2]
    assert other.acquire(NAME, permits=3, timeout=0) is None
    assert locks.acquire(NAME, permits=3, timeout=0.05) is None
    freed = leases.pop(1)
    assert freed.release() is ReleaseStatus.RELEASED
    assert take(locks).slot == freed.slot
    assert not hasattr(granted(locks.acquire("a lock")), "slot")


def test_slot_when_held_then_is_the_key_of_its_number(
    locks: FastRedlock, servers: Servers
) -> None:
    lease = take(locks)
    key = f"{NAME}#{lease.slot}"
    token = lease.token
    assert settled_values(servers, [token] * 5, key) == [token] * 5
    assert lease.resource == NAME
    lease.release()
    assert is_empty(servers)


@pytest.mark.parametrize(("permits", "said"), [(1, "its one slot"), (3, "all 3 slots")])
def test_semaphore_when_it_is_taken_then_raises(
    locks: FastRedlock, make_locks: MakeLocks, urls: list[str], permits: int, said: str
) -> None:
    leases = [take(make_locks(urls), permits) for _ in range(permits)]
    semaphore = locks.semaphore(NAME, permits, timeout=0)
    with pytest.raises(ResourceTakenError, match=NAME) as caught, semaphore:
        pytest.fail("one more holder")
    assert caught.value.hint == said
    leases[0].release()
    with semaphore as lease:
        assert lease.slot == leases[0].slot


@blocking
def test_semaphore_when_it_decorates_then_each_call_has_a_slot(
    locks: FastRedlock, make_locks: MakeLocks, urls: list[str]
) -> None:
    @locks.semaphore(lambda tenant: f"tenant:{tenant}", 1, timeout=0, skip=True)
    def call(tenant: str) -> int:
        with ThreadPoolExecutor() as pool:
            elsewhere = pool.submit(locks.current, f"tenant:{tenant}")
        with pytest.raises(LeaseLostError):  # it is another caller
            elsewhere.result()
        return locks.current(f"tenant:{tenant}").slot

    other = make_locks(urls)
    with other.semaphore("tenant:a", 1, timeout=0):
        assert call("a") is None
        assert call("b") == 0
    assert call("a") == 0


@blocking
def test_blocks_when_nested_then_have_a_slot_each_until_all_are_their_own(
    locks: FastRedlock,
) -> None:
    both = locks.semaphore(NAME, 2, timeout=5)
    with both as outer, both as inner:
        assert {outer.slot, inner.slot} == {0, 1}
        with pytest.raises(ReentryError, match=NAME) as caught, both:
            pytest.fail("three of two")
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.resource, error.permits) == (NAME, 2)
    assert "this caller itself holds 2 of 2 slots" in str(error)
    assert "reentrant" not in str(error)


@blocking
def test_current_when_in_a_block_of_a_semaphore_then_is_the_innermost_slots_lease(
    make_locks: MakeLocks, urls: list[str]
) -> None:
    locks = make_locks(urls[:3], key_prefix="app:")
    semaphore = locks.semaphore(KEY, 3)
    with semaphore as outer:
        with semaphore as inner:
            assert locks.current(KEY) is inner
            assert locks.current(f"{KEY}#{outer.slot}") is outer
        assert locks.current(KEY) is outer
        with locks.lock(KEY) as lock:
            assert locks.current(KEY) is lock
    other = locks.semaphore(f"{KEY}#0", 2)
    with other, locks.lock(f"{KEY}#1"), pytest.raises(LeaseLostError):
        locks.current(KEY)


@blocking
@pytest.mark.parametrize("permits", [0, -1, 1025, 2.0, "3", None, True])
def test_permits_when_bad_then_are_refused_before_any_io(
    make_locks: MakeLocks, permits: Any
) -> None:
    locks = make_locks(["redis://127.0.0.1:1"])
    with pytest.raises(ConfigurationError, match="permits"):
        locks.semaphore(NAME, permits)
    if permits is not None:
        with pytest.raises(ConfigurationError, match="permits"):
            locks.acquire(NAME, permits=permits)


@blocking
@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        (2, 3, "as 3 permits, and as 2 permits"),
        (2, None, "as 2 permits, and as a lock"),
        (2, 2, None),
    ],
)
def test_slots_when_their_name_is_taken_otherwise_too_then_is_warned_of_once(
    locks: FastRedlock, caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch, first: int, second: int | None, text: str | None,
) -> None:  # fmt: skip
    monkeypatch.setattr(log, "logged", set())
    lock = locks.lock(KEY)  # it may have been made before
    with lock if second is None else locks.semaphore(KEY, second):
        pass
    for _ in range(2):
        with locks.semaphore(KEY, first):
            pass
        granted(locks.acquire(KEY, permits=second)).release()
    found = [line for line in caplog.messages if text and text in line]
    assert len(found) == len(caplog.messages) == (text is not None)


# --- rates: at most k begin in any window ---------------------------------------------


def most_in(window: float, times: list[float]) -> int:
    """Return how many at most began in any window."""
    return max(sum(begun <= each < begun + window for each in times) for begun in times)


@blocking
def test_rate_when_several_clients_want_it_then_no_window_has_more(
    make_locks: MakeLocks, urls: list[str]
) -> None:
    clients = [make_locks(urls) for _ in range(4)]

    def work(locks: FastRedlock) -> list[float]:
        times, until = [], time.monotonic() + 1.2
        while time.monotonic() < until:
            with locks.rate(NAME, 10, per=0.25, timeout=5):
                times.append(time.monotonic())
        return times

    with ThreadPoolExecutor() as pool:
        times = sorted(each for begun in pool.map(work, clients) for each in begun)
    assert most_in(0.25, times) <= 10
    assert len(times) > 0.5 * 10 * 1.2 / 0.25


@blocking
def test_rates_when_one_client_waits_for_two_then_each_has_its_pace(
    locks: FastRedlock,
) -> None:
    """Seen: it asked about both each 0.25 s, and had a permit as often: in 2.25 s."""

    def work(name: str) -> float:
        began = time.monotonic()
        for _ in range(10):
            with locks.rate(name, 1, per=0.05, timeout=5):
                pass
        return time.monotonic() - began

    with ThreadPoolExecutor() as pool:
        trials = (max(pool.map(work, [NAME, "other"])) for _ in range(5))
        assert any(seconds < 1.8 for seconds in trials)  # a busy machine may be late


@blocking
def test_rate_when_a_slot_of_its_name_is_released_here_then_is_not_handed_that(
    make_locks: MakeLocks, urls: list[str]
) -> None:
    """Seen: the permit had the semaphore's ttl to begin in, and ended before `per`."""
    locks = make_locks(urls, cohort=1)
    held = granted(locks.acquire(NAME, permits=1, ttl=3, timeout=0))
    with ThreadPoolExecutor() as pool:
        waiter = pool.submit(locks.rate(NAME, 1, per=4, timeout=5).__enter__)
        wait_until(lambda: locks.stats().waits == 1)
        held.release()
        assert waiter.result().remaining() < 0.2


def test_rate_when_used_up_then_raises_within_the_timeout(locks: FastRedlock) -> None:
    with pytest.raises(KeyError), locks.rate(NAME, 1, per=5, timeout=0):
        raise KeyError
    rate = locks.rate(NAME, 1, per=5, timeout=0.1)
    with stopwatch() as elapsed, pytest.raises(ResourceTakenError, match=NAME), rate:
        pytest.fail("two in one window")
    assert elapsed() < 1


def test_permit_then_says_for_how_long_it_lets_begin(
    locks: FastRedlock, servers: Servers
) -> None:
    with locks.rate(NAME, 3, per=2, timeout=0) as permit:
        assert 0 < permit.remaining() <= 0.05 + 0.001
        assert permit.slot in range(3)
        assert permit.waited < 1
        assert permit.resource == NAME
    assert wait_until(lambda: permit.remaining() == 0.0, within=1)
    keys = [key for server in servers for key in server.keys(f"{NAME}#*")]
    assert len(keys) >= 3
    assert NAME in repr(permit)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of what is forgotten: a permit is used
        with locks.rate(NAME, 3, per=2, timeout=0):
            pass


@blocking
def test_permit_when_forked_then_is_none_in_the_child(locks: FastRedlock) -> None:
    with locks.rate(NAME, 1, per=40, timeout=0) as permit:
        assert Fork(permit.remaining).result() == 0.0
        assert permit.remaining() > 0


NONE = r"per=.*0\.005"


@blocking
@pytest.mark.parametrize(
    ("per", "options", "said"),
    [
        *((per, {}, NONE) for per in (0, -1, "1", float("nan"), float("inf"), 1e12)),
        (0.001, {}, NONE),
        (0.1, {"round_timeout": 0.2}, r"per=0\.1: allowed is 0\.2 "),
        (10, {"max_ttl": 10}, "max_ttl"),
    ],
)
def test_window_when_bad_or_too_short_for_a_round_then_is_refused_before_any_io(
    make_locks: MakeLocks, per: Any, options: dict[str, float], said: str
) -> None:
    locks = make_locks(["redis://127.0.0.1:1"], **options)
    with pytest.raises(ConfigurationError, match=said):
        locks.rate(NAME, 1, per=per)
