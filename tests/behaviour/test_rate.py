"""Rates: at most k begin in any window, by slots that are taken and never released."""

from __future__ import annotations

import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis

from fastredlock import ConfigurationError, FastRedlock, ResourceTakenError
from fastredlock.testing import MemoryLocks
from tests.support.calls import granted
from tests.support.fixtures import MakeLocks, blocking
from tests.support.processes import Fork
from tests.support.waiting import stopwatch, wait_until

NAME = "api"


def most_in(window: float, times: list[float]) -> int:
    """Return how many at most began in any window."""
    return max(sum(begun <= each < begun + window for each in times) for begun in times)


def test_rate_when_used_up_then_lets_the_next_begin_after_its_window(
    locks: FastRedlock,
) -> None:
    rate, times = locks.rate(NAME, 5, per=0.3, timeout=5), []
    for _ in range(15):
        with rate:
            times.append(time.monotonic())
    assert most_in(0.3, times) <= 5
    assert times[-1] - times[0] < 2 * (0.3 + 0.25)


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
    """Seen: it asked about both each 0.25 s, and had a permit as often."""

    def work(name: str) -> float:
        began = time.monotonic()
        for _ in range(10):
            with locks.rate(name, 1, per=0.05, timeout=5):
                pass
        return time.monotonic() - began

    with ThreadPoolExecutor() as pool:
        assert max(pool.map(work, [NAME, "other"])) < 1.8


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
    locks: FastRedlock, servers: list[redis.Redis]
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


@blocking
def test_rate_when_it_decorates_then_each_call_takes_a_permit(
    locks: FastRedlock,
) -> None:
    @locks.rate(lambda tenant: f"api:{tenant}", 2, per=5, timeout=0)
    def call(tenant: str) -> str:
        return tenant

    assert [call("a"), call("a"), call("b")] == ["a", "a", "b"]
    with pytest.raises(ResourceTakenError, match="api:a"):
        call("a")


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


def test_rate_in_memory_then_is_one() -> None:
    locks = MemoryLocks()
    rate = locks.rate(NAME, 2, per=1, timeout=0)
    for _ in range(3):
        for _ in range(2):
            with rate:
                pass
        with pytest.raises(ResourceTakenError), rate:
            pytest.fail("three in one window")
        locks.advance(1.1)
