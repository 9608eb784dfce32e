"""Leases with a number that grows with every grant, on real masters."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest
import redis

from fastredlock import ConfigurationError, FastRedlock
from tests.support.calls import all_granted, connected, granted
from tests.support.fixtures import MakeLocks
from tests.support.keys import KEY
from tests.support.threads import in_threads
from tests.support.waiting import wait_until

FENCE = f"fastredlock:fence:{KEY}"


@pytest.fixture
def fenced(make_locks: MakeLocks, urls: list[str]) -> FastRedlock:
    """Make a FastRedlock with fencing, connected to the five shared masters."""
    return connected(make_locks(urls, fencing=True))


def set_apart(servers: Sequence[redis.Redis], above: int, key: str = FENCE) -> None:
    """Let each server have another number, all of them above this one."""
    for i, server in enumerate(servers):
        server.zadd(key, {"f": above + 10**12 + i})


def numbers_from(servers: Sequence[redis.Redis], fence: int) -> int:
    """Count the servers whose number is this one or a larger one."""
    return sum((server.zscore(FENCE, "f") or 0) >= fence for server in servers)


# ---- it grows


def test_fence_grows_with_every_grant_of_two_clients(
    fenced: FastRedlock, make_locks: MakeLocks, urls: list[str]
) -> None:
    other, fences = make_locks(urls, fencing=True), [0]
    for i in range(60):
        lease = granted((fenced, other)[i % 2].acquire(KEY))
        fences.append(lease.fence)
        lease.release()
    assert fences == sorted(set(fences))
    assert type(fences[-1]) is int


def test_fence_grows_where_callers_wait_in_turn(
    fenced: FastRedlock, make_locks: MakeLocks, urls: list[str]
) -> None:
    """By a push, by a hand-over, by a probe: each way by which a key is given."""
    other, fences = make_locks(urls, fencing=True), []

    def work(number: int) -> None:
        for _ in range(15):
            lease = granted((fenced, other)[number % 2].acquire(KEY, timeout=20))
            fences.append(lease.fence)
            lease.release()

    def seen() -> bool:
        stats = [locks.stats() for locks in (fenced, other)]
        told = [(each.handed_over, each.turns_told) for each in stats]
        return all(sum(counts) for counts in zip(*told, strict=True))

    for _ in range(5):  # on a busy machine a round may see none of one kind
        in_threads([partial(work, number) for number in range(6)])
        if seen():
            break
    assert seen()
    assert len(fences) % 90 == 0
    assert fences == sorted(set(fences))


def test_fence_of_acquire_all_is_above_the_last_of_each_resource(
    fenced: FastRedlock, servers: list[redis.Redis]
) -> None:
    before = granted(fenced.acquire("b"))
    before.release()
    set_apart(servers, before.fence, "fastredlock:fence:b")
    lease = granted(fenced.acquire_all(["a", "b", "c"]))
    assert lease.fence > before.fence + 10**12
    lease.release()
    for key in ("a", "b", "c"):
        assert granted(fenced.acquire(key)).fence > lease.fence


def test_fence_of_acquire_each_is_one_for_each(
    fenced: FastRedlock, servers: list[redis.Redis]
) -> None:
    names = [f"k{i}" for i in range(150)]
    first = all_granted(fenced.acquire_each(names))
    fenced.release_each(first)
    for name in names[::10]:
        set_apart(servers, first[0].fence, f"fastredlock:fence:{name}")
    second = all_granted(fenced.acquire_each(names))
    for before, after in zip(first, second, strict=True):
        assert before.fence < after.fence


def test_fence_of_a_lock_and_of_a_kept_lease_is_there(fenced: FastRedlock) -> None:
    with fenced.lock(KEY) as lease:
        first = lease.fence
    with fenced.lock(KEY, keep_alive=True) as lease:
        assert lease.fence > first


# ---- the second write


def test_fence_when_masters_differ_then_a_quorum_has_it_before_it_is_told(
    fenced: FastRedlock, servers: list[redis.Redis]
) -> None:
    first = granted(fenced.acquire(KEY))
    first.release()
    set_apart(servers, first.fence)
    lease = granted(fenced.acquire(KEY))
    assert numbers_from(servers, lease.fence) >= 3
    assert lease.fence > first.fence + 10**12


def test_fence_when_two_of_three_differ_then_takes_a_second_write(
    make_locks: MakeLocks, servers: list[redis.Redis], urls: list[str]
) -> None:
    locks = connected(make_locks([*urls[:2], "redis://127.0.0.1:1/0"], fencing=True))
    names = [f"k{i}" for i in range(150)]
    leases = [granted(locks.acquire(KEY)), *all_granted(locks.acquire_each(names))]
    assert locks.stats().fences_written == 0
    locks.release_each(leases)
    for name in (KEY, *names[::10]):
        set_apart(servers, leases[0].fence, f"fastredlock:fence:{name}")
    for server in servers:
        server.script_flush()
    leases = [granted(locks.acquire(KEY)), *all_granted(locks.acquire_each(names))]
    assert locks.stats().fences_written == 16
    assert numbers_from(servers[:2], leases[0].fence) == 2


def test_fence_is_kept_a_day_and_an_hour_longer_than_its_key(
    fenced: FastRedlock, servers: list[redis.Redis]
) -> None:
    granted(fenced.acquire(KEY, ttl=20))
    wait_until(lambda: all(server.exists(FENCE) for server in servers))
    for server in servers:
        assert 90_010 < server.pttl(FENCE) / 1000 <= 90_020


def test_fence_when_all_masters_come_back_empty_then_is_larger_by_the_clock(
    fenced: FastRedlock, servers: list[redis.Redis]
) -> None:
    first = granted(fenced.acquire(KEY))
    for server in servers:
        server.flushall()
    assert granted(fenced.acquire(KEY)).fence > first.fence


# ---- without it, and of other leases


def test_fence_without_the_option_is_an_attribute_error_that_names_it(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    lease = granted(locks.acquire(KEY))
    with pytest.raises(AttributeError, match=r"fencing=True"):
        _ = lease.fence
    assert not hasattr(lease, "fence")
    assert all(server.exists(FENCE) == 0 for server in servers)


def test_fence_is_kept_by_an_extended_and_an_adopted_lease(
    fenced: FastRedlock, make_locks: MakeLocks, urls: list[str]
) -> None:
    lease = granted(fenced.acquire(KEY))
    fence = lease.fence
    lease.extend(20)
    assert lease.fence == fence
    other = make_locks(urls, fencing=True)
    adopted = other.adopt(KEY, lease.token, fence=fence)
    adopted.extend(20)
    assert adopted.fence == fence
    adopted.release()
    assert lease.fence == fence
    assert granted(fenced.acquire(KEY)).fence > fence


def test_fence_of_a_lease_adopted_without_it_is_an_attribute_error(
    fenced: FastRedlock,
) -> None:
    lease = granted(fenced.acquire(KEY))
    with pytest.raises(AttributeError, match=r"fence=lease.fence"):
        _ = fenced.adopt(KEY, lease.token).fence


@pytest.mark.parametrize("fence", [0, -1, 2**53, 1.5, "7", True])
def test_adopt_with_what_is_no_fence_is_refused(
    fenced: FastRedlock, fence: object
) -> None:
    with pytest.raises(ConfigurationError, match="fence="):
        fenced.adopt(KEY, b"token", fence=fence)  # type: ignore[arg-type]


def test_fencing_excludes_clients_without_it_and_is_excluded_by_them(
    fenced: FastRedlock, locks: FastRedlock
) -> None:
    lease = granted(fenced.acquire(KEY))
    assert locks.acquire(KEY, timeout=0) is None
    lease.release()
    other = granted(locks.acquire(KEY))
    assert fenced.acquire(KEY, timeout=0) is None
    other.release()
    assert granted(fenced.acquire(KEY)).fence > lease.fence


def test_fence_with_a_key_prefix_is_kept_under_it_too(
    make_locks: MakeLocks, servers: list[redis.Redis], urls: list[str]
) -> None:
    locks = connected(make_locks(urls[:1], fencing=True, key_prefix="app:"))
    first = granted(locks.acquire(KEY))
    first.release()
    assert granted(locks.acquire(KEY)).fence > first.fence
    assert servers[0].exists(f"app:fastredlock:fence:app:{KEY}")
    assert not servers[0].exists(FENCE)
