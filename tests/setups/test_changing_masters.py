"""The list of masters changes: clients with the old list, with both, with the new one.

`FastRedlock(old, changing_to=new)` wins a round by a majority of each list.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from fastredlock import (
    FastRedlock,
    Lease,
    LeaseLostError,
    QuorumUnreachableError,
    ReleaseStatus,
)
from fastredlock._core import are_neighbours
from fastredlock._options.masters import lists_told
from tests.support.calls import QUICK, connected, granted
from tests.support.fixtures import MakeLocks, Servers
from tests.support.keys import KEY, settled_values
from tests.support.settings import MASTERS, new_settings
from tests.support.threads import beside
from tests.support.waiting import wait_until

OLD, NEW, ALL_NEW = (0, 1, 2), (0, 1, 3), (0, 3, 4)
FENCE = f"fastredlock:fence:{KEY}"
AHEAD = 4_000_000_000_000_000  # of all clocks, and below 2**53
NOBODY = "redis://127.0.0.1:1"
List = tuple[int, ...]
Make = Callable[..., FastRedlock]


@pytest.fixture
def make(make_locks: MakeLocks, urls: list[str]) -> Make:
    """Return what makes a client of one list of the five masters, or of two."""

    def connected_one(
        old: List, new: List | None = None, **options: Any
    ) -> FastRedlock:
        if new is not None:
            options["changing_to"] = [urls[each] for each in new]
        return connected(make_locks([urls[each] for each in old], **options))

    return connected_one


def take_on(
    locks: FastRedlock, servers: Servers, without: int, *others: int
) -> Lease | None:
    """Try once, while these servers seem to be held by somebody else."""
    taken = [servers[each] for each in (without, *others)]
    held = [server for server in taken if server.set(KEY, "somebody", nx=True)]
    lease = locks.acquire(KEY, timeout=0)
    for server in held:
        server.delete(KEY)
    return lease


# ---- one holder


@pytest.mark.parametrize(
    ("first", "second", "is_one"),
    [
        ((OLD, None), (NEW, None), False),
        ((OLD, None), (OLD, NEW), True),
        ((OLD, NEW), (OLD, None), True),
        ((OLD, NEW), (NEW, None), True),
        ((NEW, None), (OLD, NEW), True),
        ((OLD, NEW), (OLD, NEW), True),
    ],
)
def test_lock_when_the_list_is_swapped_then_two_hold_it_and_by_both_lists_one(
    first: Any, second: Any, is_one: bool, make: Make, servers: Servers
) -> None:
    a, b = make(*first), make(*second)
    assert (held := take_on(a, servers, without=1)) is not None
    other = take_on(b, servers, 0)
    assert (other is None) is is_one
    assert held.is_valid


def test_lease_of_both_lists_is_written_to_all_extended_and_released_there(
    make: Make, servers: Servers
) -> None:
    locks = make(OLD, ALL_NEW)
    lease = granted(locks.acquire(KEY, ttl=10))
    assert [vote.only_in for vote in lease.votes] == [None, "old", "old", "new", "new"]
    assert settled_values(servers, [lease.token] * 5) == [lease.token] * 5
    lease.extend(60)
    assert settled_values(servers, [lease.token] * 5) == [lease.token] * 5
    assert wait_until(lambda: all(each.pttl(KEY) > 10_000 for each in servers))
    assert lease.release() is ReleaseStatus.RELEASED
    assert settled_values(servers, [None] * 5) == [None] * 5


def take_all(locks: FastRedlock, name: str) -> Any:
    return locks.acquire_all([name, f"{name}:too"], timeout=0)


def take_each(locks: FastRedlock, name: str) -> Any:
    return locks.acquire_each([name])[0]


def take_slot(locks: FastRedlock, name: str) -> Any:
    return locks.acquire(name, permits=1, timeout=0)


def take_kept(locks: FastRedlock, name: str) -> Any:
    return locks.acquire(name, timeout=0, keep_alive=True)


def take_lingering(locks: FastRedlock, name: str) -> Any:
    return locks.acquire(name, timeout=0, linger=5)


@pytest.mark.parametrize(
    "take", [take_all, take_each, take_slot, take_kept, take_lingering]
)
@pytest.mark.parametrize("beside", [OLD, ALL_NEW])
def test_call_of_each_kind_when_the_list_changes_then_excludes_those_with_one_list(
    take: Callable[[FastRedlock, str], Any], beside: List, make: Make
) -> None:
    joint, plain = make(OLD, ALL_NEW), make(beside)
    for name, first, second in (("a", joint, plain), ("b", plain, joint)):
        lease = take(first, name)
        assert lease is not None
        assert take(second, name) is None
        assert lease.release() is ReleaseStatus.RELEASED
        granted(second.acquire(name, timeout=10)).release()  # asked for, if it lingers


@pytest.mark.parametrize("beside", [OLD, ALL_NEW])
def test_reader_when_the_list_changes_then_is_beside_readers_of_one_list_only(
    beside: List, make: Make
) -> None:
    joint, plain = make(OLD, ALL_NEW), make(beside)
    for name, first, second in (("a", joint, plain), ("b", plain, joint)):
        readers = [granted(each.acquire(name, shared=True)) for each in (joint, plain)]
        assert first.acquire(name, timeout=0) is None
        assert readers[0].extend(20) > readers[1].remaining()
        for reader in readers:
            assert second.acquire(name, timeout=0) is None
            assert reader.release() is ReleaseStatus.RELEASED
        writer = granted(first.acquire(name, timeout=0))
        assert second.acquire(name, shared=True, timeout=0) is None
        assert writer.release() is ReleaseStatus.RELEASED


def waiting_for(locks: FastRedlock, resource: str) -> int:
    return max(vote.waiting or 0 for vote in locks.holders(resource))


def waits_for(locks: FastRedlock, resource: str) -> bool:
    return waiting_for(locks, resource) > 0


def test_lock_when_those_with_the_old_list_wait_then_all_take_it_in_turn(
    make: Make,
) -> None:
    """All ask the same master for their turn: one of the old list."""
    old, new = (2, 3, 4), (0, 1, 4)  # whose own masters come first in any order
    holder, plain, joint = make(old), make(old), make(old, new)

    def take(locks: FastRedlock, resource: str) -> None:
        granted(locks.acquire(resource, timeout=10)).release()

    def are_in_one_queue(resource: str) -> bool:
        return waiting_for(holder, resource) == 2

    for resource in (f"{KEY}:{i}" for i in range(6)):
        held = granted(holder.acquire(resource))
        with beside(*(partial(take, each, resource) for each in (plain, joint))):
            assert wait_until(partial(are_in_one_queue, resource))
            held.release()


def test_lock_when_those_with_the_new_list_wait_then_they_have_it_before_its_ttl(
    make: Make,
) -> None:
    """They may ask another master, so no message comes: they look themselves."""
    joint, plain = make(OLD, ALL_NEW, ttl=60), make(ALL_NEW)
    for resource in (f"{KEY}:{i}" for i in range(4)):
        held = granted(joint.acquire(resource))
        with beside(partial(plain.acquire, resource, timeout=20)) as (waiting,):
            assert wait_until(partial(waits_for, plain, resource))
            held.release()
            granted(waiting.result()).release()


# ---- numbers


@pytest.mark.parametrize("ahead", [(0, 1, 2), (3, 4)])
def test_fence_grows_from_the_old_list_over_both_to_the_new_one(
    ahead: List, make: Make, servers: Servers
) -> None:
    for server in (servers[each] for each in ahead):
        server.zadd(FENCE, {"f": AHEAD})
    fences = []
    for lists, without in (
        *(((OLD, None), 1), ((OLD, ALL_NEW), 0), ((OLD, None), 0)),
        *(((OLD, ALL_NEW), 3), ((ALL_NEW, None), 4), ((OLD, ALL_NEW), 1)),
        ((ALL_NEW, None), 0),
    ):
        lease = granted(take_on(make(*lists, fencing=True), servers, without))
        fences.append(lease.fence or 0)
        lease.release()
    assert fences == sorted({*fences})
    assert fences[-1] > AHEAD


# ---- a majority of one list only


def test_acquire_when_the_new_list_lacks_its_majority_then_says_so_of_each_list(
    make_locks: MakeLocks, urls: list[str]
) -> None:
    new = [urls[0], NOBODY, "redis://127.0.0.1:2"]
    locks = make_locks(urls[:3], changing_to=new, **QUICK)
    with pytest.raises(QuorumUnreachableError) as caught:
        locks.acquire(KEY, timeout=0)
    assert "3 of 3 of the old list, 1 of 3 of the new" in str(caught.value) or (
        "not waited for" in str(caught.value)
    )
    assert not locks.has_quorum
    assert [each.votes for each in locks.ping()] == [True] * 3 + [False] * 2
    with pytest.raises(QuorumUnreachableError):
        locks.connect()


@pytest.mark.parametrize("lost", [(1, 2), (3, 4), (0, 3)])
def test_lease_when_one_list_has_lost_its_key_then_is_lost_and_gone(
    lost: List, make: Make, servers: Servers
) -> None:
    locks = make(OLD, ALL_NEW)
    lease, other = (granted(locks.acquire(name)) for name in (KEY, "another"))
    for name, each in ((KEY, lease), ("another", other)):
        wanted = [each.token] * 5
        assert settled_values(servers, wanted, name) == wanted
        for at in lost:
            servers[at].delete(name)
    with pytest.raises(LeaseLostError):
        lease.extend()
    assert other.release() is ReleaseStatus.GONE


# ---- other lists are seen


def warned(locks: FastRedlock) -> list[bool]:
    return [
        any("another client has the masters" in text for text in each.warnings)
        for each in locks.health()
    ]


@pytest.mark.parametrize(
    ("first", "second", "seen"),
    [
        ((OLD, None), (OLD, None), [False] * 3),
        ((OLD, None), (NEW, None), [True, True, False]),
        ((OLD, None), (OLD, NEW), [False] * 4),
        ((OLD, NEW), (NEW, ALL_NEW), [False] * 4),
        ((OLD, NEW), (ALL_NEW, None), [True, True, False]),
    ],
)
def test_client_when_another_has_no_neighbouring_list_then_warns_where_they_meet(
    first: Any, second: Any, seen: list[bool], make: Make
) -> None:
    make(*first)
    assert warned(make(*second)) == seen


def test_strict_client_when_it_meets_another_list_then_has_no_vote_until_that_leaves(
    make: Make, make_locks: MakeLocks, urls: list[str]
) -> None:
    other = make(NEW)
    strict = make_locks(urls[:3], strict_masters=True)
    with pytest.raises(QuorumUnreachableError, match="another client has the masters"):
        strict.acquire(KEY, timeout=0)
    lease = granted(other.acquire(KEY))
    lease.release()
    other.close()
    granted(strict.acquire(KEY, timeout=10)).release()


def test_list_when_its_service_becomes_a_cluster_then_each_is_a_master_of_its_own() -> (
    None
):
    places = ("sentinel://h:1/orders", "cluster://h:1", "cluster://g:1")
    old, new, other = ([*MASTERS[:2], f"redis+{place}"] for place in places)
    both = new_settings(old, changing_to=new, max_ttl=60)
    assert [each.name for each in both.endpoints[2:]] == [
        *("sentinel:h:1/orders", "cluster:h:1")
    ]
    assert (both.electorate.first, both.electorate.second) == (0b0111, 0b1011)
    settings = [both, *(new_settings(each, max_ttl=60) for each in (old, new, other))]
    told = [
        lists_told(each.endpoints, each.electorate, b"", 0, False).lists
        for each in settings
    ]
    assert told[0] == told[1] + told[2]
    assert not are_neighbours(told[2], told[3])
