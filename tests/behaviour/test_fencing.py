"""Leases with a number that grows with every grant, and what its script may come to."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest
import redis

from fastredlock import (
    ConfigurationError,
    FastRedlock,
)
from tests.support.calls import connected, granted
from tests.support.fixtures import MakeLocks, Servers
from tests.support.keys import KEY, set_all, values
from tests.support.threads import in_threads
from tests.support.waiting import wait_until

FENCE = f"fastredlock:fence:{KEY}"
AHEAD = 4_000_000_000_000_000  # of all clocks, and below 2**53


@pytest.fixture
def fenced(make_locks: MakeLocks, urls: list[str]) -> FastRedlock:
    return connected(make_locks(urls, fencing=True))


def set_apart(servers: Sequence[redis.Redis], above: int, key: str = FENCE) -> None:
    """Let each server have another number, all of them above this one."""
    for i, server in enumerate(servers):
        server.zadd(key, {"f": above + 10**12 + i})


def numbers_from(servers: Sequence[redis.Redis], fence: int) -> int:
    return sum((server.zscore(FENCE, "f") or 0) >= fence for server in servers)


# ---- it grows


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
    assert type(fences[-1]) is int
    assert fences == sorted(set(fences))


# ---- the second write


def test_fence_when_masters_differ_then_a_quorum_has_it_before_it_is_told(
    fenced: FastRedlock, servers: Servers
) -> None:
    first = granted(fenced.acquire(KEY))
    first.release()
    set_apart(servers, first.fence)
    lease = granted(fenced.acquire(KEY))
    assert numbers_from(servers, lease.fence) >= 3
    assert lease.fence > first.fence + 10**12


# ---- without it, and of other leases


def test_fence_is_kept_by_an_extended_and_an_adopted_lease(
    fenced: FastRedlock, make_locks: MakeLocks, urls: list[str]
) -> None:
    lease = granted(fenced.acquire(KEY))
    fence = lease.fence
    lease.extend(20)
    assert lease.fence == fence
    other = make_locks(urls, fencing=True)
    with pytest.raises(AttributeError, match=r"fence=lease.fence"):
        _ = other.adopt(KEY, lease.token).fence
    adopted = other.adopt(KEY, lease.token, fence=fence)
    adopted.extend(20)
    assert adopted.fence == fence
    adopted.release()
    assert lease.fence == fence
    with fenced.lock(KEY, keep_alive=True) as lease:
        assert lease.fence > fence


@pytest.mark.parametrize("fence", [0, -1, 2**53, 1.5, "7", True])
def test_adopt_with_what_is_no_fence_is_refused(
    fenced: FastRedlock, fence: object
) -> None:
    with pytest.raises(ConfigurationError, match="fence="):
        fenced.adopt(KEY, b"token", fence=fence)  # type: ignore[arg-type]


def test_fencing_excludes_clients_without_it_and_is_excluded_by_them(
    fenced: FastRedlock, locks: FastRedlock, servers: Servers
) -> None:
    other = granted(locks.acquire(KEY))
    with pytest.raises(AttributeError, match=r"fencing=True"):
        _ = other.fence
    assert not hasattr(other, "fence")
    assert all(server.exists(FENCE) == 0 for server in servers)
    assert fenced.acquire(KEY, timeout=0) is None
    other.release()
    lease = granted(fenced.acquire(KEY))
    assert locks.acquire(KEY, timeout=0) is None
    lease.release()
    assert granted(fenced.acquire(KEY)).fence > lease.fence


# ---- the number is ahead


@pytest.mark.parametrize("is_known", [True, False])
def test_number_when_it_is_ahead_then_is_one_more_at_once(
    fenced: FastRedlock, servers: Servers, is_known: bool
) -> None:
    for server in servers:
        server.zadd(FENCE, {"f": AHEAD})
        if not is_known:  # then the script is sent by its source
            server.script_flush()
    lease = granted(fenced.acquire(KEY))
    assert lease.fence == AHEAD + 1
    lease.release()
    lease = granted(fenced.acquire(KEY))
    assert lease.fence == AHEAD + 2
    assert fenced.stats().fences_written == 0
    assert fenced.acquire(KEY, timeout=0) is None  # its number may stand somewhere
    lease.release()
    assert granted(fenced.acquire(KEY)).fence > lease.fence


# ---- the number is refused


def test_number_when_a_minority_refuses_it_then_the_others_grant_and_all_release(
    fenced: FastRedlock, servers: Servers
) -> None:
    set_all(servers[:2], "of another use", FENCE)
    with granted(fenced.acquire(KEY)) as lease:
        assert lease.fence > 0
        assert wait_until(lambda: values(servers).count(None) == 2)  # and no key there
    assert wait_until(lambda: values(servers) == [None] * 5)
