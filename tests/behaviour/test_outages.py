"""Masters that are stopped, frozen, cut off or come back: the quorum decides."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from fastredlock import (
    FastRedlock,
    Lease,
    QuorumUnreachableError,
    ReleaseStatus,
    Vote,
)
from fastredlock.testing import LocalMasters
from tests.support.calls import all_granted, connected, granted
from tests.support.fixtures import MakeLocks, Raw, Servers, blocking
from tests.support.keys import (
    KEY,
    NOBODY,
    cut_all,
    flush_scripts,
    set_all,
    settled_values,
    sizes,
)
from tests.support.masters import stop
from tests.support.waiting import stopwatch, wait_until

REFUSED = (Vote.FAILED, "connection refused")


# --- stopped --------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "stopped"), [(1, 0), (2, 0), (3, 1), (4, 1), (5, 2)])
def test_masters_when_one_more_than_the_quorum_allows_stops_then_none_locks(
    masters: LocalMasters, make_locks: MakeLocks, count: int, stopped: int
) -> None:
    locks = connected(make_locks(masters.urls[:count]))
    stop(masters, stopped)
    lease = granted(locks.acquire(KEY, timeout=0))
    assert Vote.GRANTED not in [vote.vote for vote in lease.votes[:stopped]]
    lease = granted(make_locks(masters.urls[:count]).acquire("new", timeout=0))
    told = [(vote.vote, vote.text) for vote in lease.votes[:stopped]]
    assert told == [REFUSED] * stopped
    masters.stop(stopped)
    with pytest.raises(QuorumUnreachableError):
        locks.acquire("more", timeout=0)


@blocking
@pytest.mark.slow
def test_error_when_an_outage_lasts_then_has_its_age_until_it_is_over(
    masters: LocalMasters, make_locks: MakeLocks
) -> None:
    locks = connected(make_locks(masters.urls[:3]))

    def age() -> float:
        with pytest.raises(QuorumUnreachableError) as caught:
            locks.acquire(KEY, timeout=0)
        said = re.search(r" \(no quorum for (\d+) s", str(caught.value))
        return float(said[1]) if said else 0

    masters.stop(0)
    time.sleep(1)  # not yet an outage
    with stopwatch() as lasted:
        masters.stop(1)
        assert wait_until(lambda: age() >= 2)
        assert lasted() > 1.4
    masters.start(0)
    granted(locks.acquire(KEY, timeout=8)).release()
    masters.stop(0)  # another one
    assert age() < 2


@pytest.mark.parametrize("is_connected", [False, True])
@pytest.mark.parametrize("first", [0, 2])
def test_acquire_when_three_of_five_are_stopped_then_names_them_and_leaves_no_key(
    masters: LocalMasters, make_locks: MakeLocks, raw: Raw, first: int,
    is_connected: bool,
) -> None:  # fmt: skip
    locks, stopped = make_locks(masters.urls), [*range(first, first + 3)]
    others = [i for i in range(5) if i not in stopped]
    if is_connected:
        locks.connect()
    for i in stopped:
        masters.stop(i)
    with pytest.raises(QuorumUnreachableError) as raised:
        locks.acquire(KEY, timeout=0)
    told, votes = str(raised.value), raised.value.votes
    assert re.search(r"^'orders:42': fewer than a quorum .* in \d+ ms: ", told)
    assert re.search(r"\b[0-2] of 5 granted, 3 failed", told)
    assert all(f"127.0.0.1:{port} " in told for port in masters.ports)
    if not is_connected:
        assert [(votes[i].vote, votes[i].text) for i in stopped] == [REFUSED] * 3
        assert Vote.FAILED not in [votes[i].vote for i in others]
        assert told.count("FAILED (connection refused)") == 3
    servers = [raw(masters.urls[i]) for i in others]
    assert settled_values(servers, NOBODY[:2]) == NOBODY[:2]


# --- connections that servers cut: the round under way goes on over the next ones -----


@pytest.mark.parametrize(
    "call",
    [
        lambda locks, lease: lease.release() is ReleaseStatus.RELEASED,
        lambda locks, lease: lease.extend(30) > 20,
        lambda locks, lease: {vote.vote for vote in locks.holders(KEY)} == {Vote.TAKEN},
        lambda locks, lease: granted(locks.acquire("other", timeout=0)).is_valid,
    ],
    ids=["release", "extend", "holders", "a single try"],
)
def test_call_when_all_connections_were_cut_then_is_answered(
    locks: FastRedlock, lease: Lease, servers: Servers, call: Any
) -> None:
    """Seen: raised within 0 ms, with five healthy masters."""
    cut_all(servers)
    assert call(locks, lease)


@pytest.mark.parametrize("is_each", [True, False])
def test_several_when_all_connections_were_cut_then_are_granted_and_released(
    locks: FastRedlock, servers: Servers, is_each: bool
) -> None:
    cut_all(servers)
    if is_each:
        leases = all_granted(locks.acquire_each([f"item:{i}" for i in range(200)]))
    else:
        leases = [granted(locks.acquire_all(["from:7", "to:9"], timeout=0))]
    cut_all(servers)
    assert {*locks.release_each(leases)} == {ReleaseStatus.RELEASED}
    # A master that was cut twice has its releases by the next call.
    assert wait_until(lambda: locks.holders() and sizes(servers) == [0] * 5)


def test_orphan_when_scripts_are_flushed_and_nothing_follows_then_is_deleted(
    locks: FastRedlock, servers: Servers
) -> None:
    """Seen: the roll-back met NOSCRIPT, which nobody read before the next call."""
    set_all(servers[:3], b"another")
    flush_scripts(servers)
    assert locks.acquire(KEY, ttl=60, timeout=0) is None
    wanted = [b"another"] * 3 + [None] * 2
    assert settled_values(servers, wanted) == wanted
