"""Many locks in one call: each by itself, or all of them or none under one token."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fastredlock import (
    ConfigurationError,
    FastRedlock,
    Lease,
    QuorumUnreachableError,
    ReleaseStatus,
    ResourceTakenError,
    Vote,
)
from fastredlock.testing import LocalMasters
from tests.support.calls import all_granted, connected, granted
from tests.support.fixtures import MakeLocks, Raw, Servers, blocking
from tests.support.keys import (
    NOBODY,
    delete,
    is_empty,
    set_all,
    settled_values,
    sizes,
    values,
)
from tests.support.masters import pause, resume, stop
from tests.support.threads import Interrupt, alarm, interrupt
from tests.support.waiting import wait_until

RELEASED, GONE, _ = ReleaseStatus
NAMES = [f"item:{i}" for i in range(100)]
SEVERAL: dict[str, Any] = {
    "each": lambda locks, *args, **options: locks.acquire_each(*args, **options),
    "all": lambda locks, *args, **options: locks.acquire_all(*args, **options),
    "lock_all": lambda locks, *args, **o: locks.lock_all(*args, **o).__enter__(),
}


# ---- each by itself


def test_each_when_all_are_free_then_has_a_lease_of_its_own_until_its_release(
    locks: FastRedlock, servers: Servers
) -> None:
    leases = all_granted(locks.acquire_each((name for name in NAMES), ttl=20))
    assert [lease.resource for lease in leases] == NAMES
    assert len({lease.token for lease in leases}) == 100
    assert all(19 < lease.remaining() < 20 for lease in leases)
    for lease in leases:
        assert settled_values(servers, [lease.token] * 5, str(lease.resource))
    lefts = locks.extend_each(leases, 100)
    assert all(left is not None and 90 < left < 100 for left in lefts)
    assert all(90 < lease.remaining() < 100 for lease in leases)
    locks.holders()  # answered after every extension
    assert min(server.pttl(name) for server in servers for name in NAMES) > 90_000
    assert locks.release_each(lease for lease in leases) == [RELEASED] * 100
    assert is_empty(servers)
    assert not any(lease.is_valid for lease in leases)


def test_acquire_each_when_some_are_taken_then_those_are_none_in_their_places(
    locks: FastRedlock, make_locks: MakeLocks, urls: list[str], servers: Servers
) -> None:
    set_all(servers[:3], b"another", "b")
    set_all(servers[:2], b"another", "c")
    other = make_locks(urls)
    assert other.acquire("d", timeout=0)
    leases = locks.acquire_each(["a", b"b", "c", "d", "größe", "a", b"a"])
    wanted = ["a", None, "c", None, "größe", None, None]
    assert [lease and lease.resource for lease in leases] == wanted
    rest = [b"another"] * 3 + [None] * 2
    assert settled_values(servers, rest, "b") == rest
    assert other.acquire("a", timeout=0) is None
    assert other.acquire_each(["größe".encode(), "a", "c"]) == [None] * 3
    assert granted(leases[0]).extend(30) > 29


def test_each_when_some_are_lost_then_they_are_told_in_their_places(
    locks: FastRedlock, servers: Servers
) -> None:
    leases = all_granted(locks.acquire_each(["held", "released", "gone", "stolen"]))
    leases[1].release()
    delete(servers, "gone")
    set_all(servers, b"another", "stolen")
    lefts = locks.extend_each([*leases, None], 50)
    assert [left is None for left in lefts] == [False, True, True, True, True]
    locks.holders()  # answered after every extension
    assert values(servers, "gone") == NOBODY
    assert [server.pttl("stolen") for server in servers] == [-1] * 5
    assert [lease.is_valid for lease in leases] == [True, False, False, False]
    told = locks.release_each([*leases, None, leases[0]])
    assert told == [RELEASED, GONE, GONE, GONE, GONE, GONE]
    assert settled_values(servers, [b"another"] * 5, "stolen") == [b"another"] * 5
    assert locks.release_each(leases) == [GONE] * 4


@blocking
def test_release_each_when_what_it_reads_raises_then_releases_what_came_before(
    locks: FastRedlock, servers: Servers
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


# ---- all or none


def test_all_when_free_then_one_lease_holds_each_until_its_release(
    locks: FastRedlock, make_locks: MakeLocks, urls: list[str], servers: Servers
) -> None:
    other = make_locks(urls)
    lock = locks.lock_all(["b", "a", b"c", "a"], ttl=20)
    for _ in range(2):
        with lock as lease:
            assert lease.resource == ("b", "a", b"c")
            assert 19 < lease.remaining() < 20
            for key in ("a", "b", "c"):
                held = settled_values(servers, [lease.token] * 5, key)
                assert held == [lease.token] * 5
            assert other.acquire("a", timeout=0) is None
            assert other.acquire_each(["c", "d", "a"])[::2] == [None, None]
            other_order = other.lock_all(iter(["b", "a"]), timeout=0)
            with pytest.raises(ResourceTakenError):
                other_order.__enter__()
        for key in ("a", "b", "c"):
            assert settled_values(servers, NOBODY, key) == NOBODY
    with other_order:
        pass
    one = granted(locks.acquire_all(["a"]))
    assert locks.acquire("a", timeout=0) is None
    assert one.release() is RELEASED


@pytest.mark.parametrize("held", ["a", "b", "c"])
def test_all_when_one_is_held_then_takes_none(
    locks: FastRedlock, make_locks: MakeLocks, urls: list[str], held: str
) -> None:
    other, several = make_locks(urls), locks.lock_all(["a", "b", "c"], timeout=0)
    assert other.acquire(held, timeout=0)
    assert locks.acquire_all(["a", "b", "c"], timeout=0) is None
    with pytest.raises(ResourceTakenError, match="'a', 'b', 'c'") as raised, several:
        pytest.fail("its body runs")
    assert raised.value.resource == ("a", "b", "c")
    for name in {"a", "b", "c"} - {held}:
        assert other.acquire(name, timeout=2)


@pytest.mark.parametrize("count", [2, 300])
def test_lease_of_all_when_used_then_extends_and_releases_all(
    locks: FastRedlock, servers: Servers, count: int
) -> None:
    names = [f"item:{i}" for i in range(count)]
    lease = granted(locks.acquire_all(names, ttl=5))
    for extend in (lambda: lease.extend(30), lambda: locks.extend_each([lease], 30)[0]):
        assert (extend() or 0) > 29
        locks.holders("x")  # waits for what the slowest do
        assert min(server.pttl(names[-1]) for server in servers) > 20_000
    assert lease.release() is RELEASED
    assert is_empty(servers)
    assert lease.release() is GONE


# ---- refused before any I/O

BAD = ["orders", b"orders", 7, None, ["a", ""], ["a", 7], ["a", None], ["a", "\ud800"]]


@pytest.mark.parametrize(
    ("call", "resources", "options"),
    [
        *((call, bad, {}) for call in ("each", "all", "lock_all") for bad in BAD),
        *((call, [], {}) for call in ("all", "lock_all")),
        *(("each", ["a"], {"ttl": ttl}) for ttl in (0, -1, "5", True, float("nan"))),
    ],
)
def test_several_when_an_argument_is_bad_then_is_refused_before_any_io(
    make_locks: MakeLocks, urls: list[str], call: str, resources: Any, options: Any
) -> None:
    locks = make_locks(urls)
    with pytest.raises(ConfigurationError):
        SEVERAL[call](locks, resources, **options)
    assert (locks.stats().rounds, locks.stats().connects) == (0, 0)


# ---- all undone when one could not be decided


@pytest.mark.parametrize("call", ["each", "all", "lock_all"])
def test_several_when_a_quorum_is_down_then_raise_with_the_votes_and_leave_none(
    make_locks: MakeLocks, masters: LocalMasters, raw: Raw, call: str
) -> None:
    locks = make_locks(masters.urls)
    stop(masters, 2)
    locks.release_each(all_granted(locks.acquire_each(["x"])))
    masters.stop(2)
    options = {} if call == "each" else {"timeout": 0}
    said = "item:" if call == "each" else r"'item:0'.* and 95 more"
    with pytest.raises(QuorumUnreachableError, match=said) as raised:
        SEVERAL[call](locks, NAMES, **options)
    assert [vote.vote for vote in raised.value.votes[:3]] == [Vote.FAILED] * 3
    assert is_empty([raw(url) for url in masters.urls[3:]])


@pytest.mark.slow
@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("call", ["each", "all"])
def test_several_when_interrupted_then_leave_no_key_anywhere(
    make_locks: MakeLocks, masters: LocalMasters, raw: Raw, call: str
) -> None:
    locks = connected(make_locks(masters.urls, ttl=60, round_timeout=0.3))
    names = [str(i) for i in range(2000 if call == "each" else 300)]
    pause(masters, 3)
    ends = []
    for delay_ms in range(1, 40, 2):
        # Those that are paused for over a second count as lost: on a slow machine.
        with (
            pytest.raises((Interrupt, QuorumUnreachableError)) as ended,
            alarm(delay_ms / 1000, interrupt),
        ):
            getattr(locks, f"acquire_{call}")(names)
        ends.append(ended.type)
    assert Interrupt in ends
    servers = [raw(url) for url in masters.urls]
    assert is_empty(servers[3:])
    resume(masters, 3)
    assert wait_until(lambda: locks.holders("x") and sizes(servers) == [0] * 5)
