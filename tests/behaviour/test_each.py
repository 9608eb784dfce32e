"""acquire_each and release_each: many independent locks in one call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import redis

from fastredlock import (
    ConfigurationError,
    FastRedlock,
    FastRedlockError,
    Lease,
    QuorumUnreachableError,
    ReleaseStatus,
    ValidityExhaustedError,
    Vote,
)
from fastredlock.testing import LocalMasters
from tests.support.calls import all_granted, connected, granted
from tests.support.fixtures import MakeLocks, Raw, blocking
from tests.support.interrupts import Interrupt, alarm, interrupt
from tests.support.keys import is_empty, set_all, settled_values, sizes
from tests.support.masters import pause, resume, stop
from tests.support.proxy import Proxy
from tests.support.waiting import stopwatch, wait_until

RELEASED, GONE, UNKNOWN = ReleaseStatus
NAMES = [f"item:{i}" for i in range(100)]
MANY = 10_000


# ---- what is granted


def test_acquire_each_when_all_are_free_then_each_has_a_lease_of_its_own(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    leases = all_granted(locks.acquire_each(NAMES, ttl=20))
    assert [lease.resource for lease in leases] == NAMES
    assert len({lease.token for lease in leases}) == 100
    assert all(19 < lease.remaining() < 20 for lease in leases)
    for lease in leases:
        assert settled_values(servers, [lease.token] * 5, str(lease.resource))


def test_acquire_each_when_some_are_taken_then_those_are_none_in_their_places(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    set_all(servers[:3], b"another", "b")
    set_all(servers[:2], b"another", "c")
    leases = locks.acquire_each(["a", b"b", "c"])
    assert [lease and lease.resource for lease in leases] == ["a", None, "c"]
    wanted = [b"another"] * 3 + [None] * 2
    assert settled_values(servers, wanted, "b") == wanted


def test_acquire_each_when_a_resource_is_named_twice_then_the_second_is_none(
    locks: FastRedlock,
) -> None:
    first, other, second, third = locks.acquire_each(["a", "b", "a", b"a"])
    assert (second, third) == (None, None)
    assert granted(other).is_valid
    assert granted(first).extend(30) > 29


def test_acquire_each_when_others_take_single_locks_then_they_exclude_each_other(
    locks: FastRedlock, make_locks: MakeLocks, urls: list[str]
) -> None:
    other = make_locks(urls)
    assert other.acquire("item:7", timeout=0)
    leases = locks.acquire_each(NAMES)
    assert [name for name, lease in zip(NAMES, leases, strict=True) if not lease] == [
        "item:7"
    ]
    assert other.acquire("item:8", timeout=0) is None
    assert other.acquire_each(NAMES) == [None] * 100


def test_acquire_each_when_nothing_is_named_then_is_empty_and_asks_nothing(
    make_locks: MakeLocks,
) -> None:
    locks = make_locks(["redis://127.0.0.1:1"])
    assert locks.acquire_each([]) == []
    assert locks.release_each([]) == []
    assert locks.stats().rounds == 0


def test_acquire_each_when_given_a_generator_then_takes_what_it_yields(
    locks: FastRedlock,
) -> None:
    leases = all_granted(locks.acquire_each(name for name in ("größe", "b")))
    assert locks.release_each(lease for lease in leases) == [RELEASED] * 2


@blocking
def test_release_each_when_what_it_reads_raises_then_releases_what_came_before(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    """Seen: 10 of 217, where a signal came while a generator was read."""
    first, second = all_granted(locks.acquire_each(["a", "b"], ttl=60))

    def some() -> Iterator[Lease]:
        yield first
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        locks.release_each(some())
    assert (first.is_valid, second.is_valid) == (False, True)
    with pytest.raises(ConfigurationError):
        locks.release_each(iter([second, "b"]))  # type: ignore[arg-type]
    assert second.is_valid
    second.release()
    assert wait_until(lambda: is_empty(servers))


def test_acquire_each_when_new_token_is_given_then_calls_it_once_per_resource(
    make_locks: MakeLocks, urls: list[str]
) -> None:
    tokens = iter(range(100))
    locks = make_locks(urls, new_token=lambda: f"t{next(tokens)}")
    leases = all_granted(locks.acquire_each(["a", "b", "c"]))
    assert [lease.token for lease in leases] == [b"t0", b"t1", b"t2"]
    assert next(tokens) == 3


def test_lease_of_many_when_used_alone_then_is_a_lease_like_any(
    locks: FastRedlock, make_locks: MakeLocks, urls: list[str]
) -> None:
    first, second, third = all_granted(locks.acquire_each(["a", "b", "c"], ttl=5))
    assert first.extend(20) > 19
    assert first.release() is RELEASED
    with second:
        assert [vote.vote for vote in second.votes].count(Vote.GRANTED) >= 3
    assert make_locks(urls).adopt("c", third.token).release() is RELEASED
    assert third.release() is GONE


def test_acquire_each_when_not_connected_yet_then_connects_first(
    make_locks: MakeLocks, masters: LocalMasters
) -> None:
    stop(masters, 2)
    all_granted(make_locks(masters.urls).acquire_each(NAMES))


# ---- what is refused before any I/O


@pytest.mark.parametrize(
    "resources",
    ["orders", b"orders", 7, None, ["a", ""], ["a", 7], ["a", None], ["a", "\ud800"]],
)
def test_acquire_each_when_resources_are_bad_then_is_refused_before_any_io(
    make_locks: MakeLocks, urls: list[str], resources: Any
) -> None:
    locks = make_locks(urls)
    with pytest.raises(ConfigurationError):
        locks.acquire_each(resources)
    assert (locks.stats().rounds, locks.stats().connects) == (0, 0)


@pytest.mark.parametrize("ttl", [0, -1, "5", True, float("nan")])
def test_acquire_each_when_the_ttl_is_bad_then_is_refused_before_any_io(
    make_locks: MakeLocks, urls: list[str], ttl: Any
) -> None:
    locks = make_locks(urls)
    with pytest.raises(ConfigurationError, match="ttl"):
        locks.acquire_each(["a"], ttl=ttl)
    assert locks.stats().rounds == 0


def test_release_each_when_one_is_no_lease_of_ours_then_releases_none(
    locks: FastRedlock, make_locks: MakeLocks, urls: list[str]
) -> None:
    ours = granted(locks.acquire("ours"))
    theirs: Any = granted(make_locks(urls).acquire("theirs"))
    wrong: list[Any] = [theirs, "ours", 7, locks]
    for bad in wrong:
        with pytest.raises(ConfigurationError, match="no lease of this FastRedlock"):
            locks.release_each([ours, bad])
    with pytest.raises(ConfigurationError, match="iterable"):
        locks.release_each(ours)  # type: ignore[arg-type]
    assert ours.is_valid
    assert theirs.is_valid


# ---- all undone when one could not be decided


def test_acquire_each_when_a_quorum_is_down_then_raises_with_the_votes(
    make_locks: MakeLocks, masters: LocalMasters, raw: Raw
) -> None:
    locks = connected(make_locks(masters.urls))
    stop(masters, 3)
    with pytest.raises(QuorumUnreachableError, match="item:") as raised:
        locks.acquire_each(NAMES)
    assert [vote.vote for vote in raised.value.votes[:3]] == [Vote.FAILED] * 3
    assert is_empty([raw(url) for url in masters.urls[3:]])


@pytest.mark.slow
def test_acquire_each_when_nobody_listens_then_waits_for_connections_only_once(
    make_locks: MakeLocks, masters: LocalMasters
) -> None:
    locks = make_locks(masters.urls, connect_timeout=5)
    pause(masters, 3)
    with stopwatch() as elapsed, pytest.raises(QuorumUnreachableError):
        locks.acquire_each([str(i) for i in range(MANY)])
    assert elapsed() < 4


@pytest.mark.slow
def test_acquire_each_when_a_quorum_is_silent_then_leaves_no_key_anywhere(
    make_locks: MakeLocks, masters: LocalMasters, raw: Raw
) -> None:
    locks = connected(make_locks(masters.urls, ttl=60, round_timeout=0.2))
    pause(masters, 3)
    with pytest.raises(QuorumUnreachableError) as raised:
        locks.acquire_each([f"{i:05}" * 10 for i in range(MANY)])
    assert [vote.vote for vote in raised.value.votes[:3]] == [Vote.SILENT] * 3
    assert is_empty([raw(url) for url in masters.urls[3:]])
    resume(masters, 3)
    servers = [raw(url) for url in masters.urls]
    assert wait_until(lambda: locks.holders("x") and sizes(servers) == [0] * 5)


def test_acquire_each_when_the_round_uses_the_validity_up_then_raises_and_undoes(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis]
) -> None:
    with ExitStack() as opened:
        proxies = [opened.enter_context(Proxy(url)) for url in urls]
        locks = connected(make_locks([proxy.url for proxy in proxies], round_timeout=5))
        for proxy in proxies:
            proxy.set(delay=0.03)
        with pytest.raises(ValidityExhaustedError, match="item:0"):
            locks.acquire_each(NAMES, ttl=0.05)
        for proxy in proxies:
            proxy.heal()
        assert is_empty(servers)


def test_acquire_each_when_closed_then_says_so(
    make_locks: MakeLocks, urls: list[str]
) -> None:
    locks = make_locks(urls)
    leases = locks.acquire_each(NAMES)
    locks.close()
    with pytest.raises(FastRedlockError, match="closed"):
        locks.acquire_each(NAMES)
    assert set(locks.release_each(leases)) == {RELEASED}


@pytest.mark.slow
@pytest.mark.usefixtures("no_collector")
def test_acquire_each_when_interrupted_then_leaves_no_key_anywhere(
    make_locks: MakeLocks, masters: LocalMasters, raw: Raw
) -> None:
    locks = connected(make_locks(masters.urls, ttl=60, round_timeout=0.3))
    names = [str(i) for i in range(2000)]
    pause(masters, 3)
    ends = []
    for delay_ms in range(1, 40, 2):
        # Those that are paused for over a second count as lost: on a slow machine.
        with (
            pytest.raises((Interrupt, QuorumUnreachableError)) as ended,
            alarm(delay_ms / 1000, interrupt),
        ):
            locks.acquire_each(names)
        ends.append(ended.type)
    assert Interrupt in ends
    servers = [raw(url) for url in masters.urls]
    assert is_empty(servers[3:])
    resume(masters, 3)
    assert wait_until(lambda: locks.holders("x") and sizes(servers) == [0] * 5)


def test_acquire_each_when_a_signal_handler_takes_another_batch_then_both_are_held(
    make_locks: MakeLocks, masters: LocalMasters
) -> None:
    locks = connected(make_locks(masters.urls, ttl=60, round_timeout=10))
    inner: list[Lease | None] = []
    pause(masters, 3)

    def take_others() -> None:
        resume(masters, 3)
        inner.extend(locks.acquire_each(["x", "y", "item:0"]))

    with alarm(0.05, take_others):
        outer = locks.acquire_each(NAMES)
    assert [lease is not None for lease in inner] == [True, True, False]
    all_granted(outer)
