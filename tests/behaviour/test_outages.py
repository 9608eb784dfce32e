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
    Retry,
    Vote,
)
from fastredlock.testing import LocalMasters
from tests.support.calls import all_granted, connected, failed_votes, granted
from tests.support.fixtures import MakeLocks, Raw, Servers, blocking
from tests.support.keys import (
    KEY,
    NOBODY,
    cut_all,
    flush_scripts,
    set_all,
    settled_values,
    sizes,
    values,
)
from tests.support.masters import pause, resume, start, stop
from tests.support.processes import open_files
from tests.support.threads import later
from tests.support.waiting import settled, stopwatch, wait_until

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


@pytest.mark.slow
def test_acquire_when_servers_are_stopped_then_raises_soon_and_blames_no_timeout(
    masters: LocalMasters, make_locks: MakeLocks
) -> None:
    # The two that run answer at once; nobody reads that before the next attempt.
    locks = connected(make_locks(masters.urls, ttl=2, retry=Retry(delay=0.2, jitter=0)))
    stop(masters, 3)
    with stopwatch() as elapsed, pytest.raises(QuorumUnreachableError) as raised:
        locks.acquire(KEY, timeout=30)
    assert elapsed() < 3
    assert raised.value.attempts == 3
    assert "round_timeout" not in str(raised.value)


@pytest.mark.slow
def test_descriptors_when_masters_came_and_went_then_are_as_many_as_before(
    masters: LocalMasters, make_locks: MakeLocks
) -> None:
    def files_when_reconnected() -> int:
        locks.connect()
        return open_files()

    urls = [url.replace("127.0.0.1", "localhost") for url in masters.urls]
    locks = connected(make_locks(urls))
    files = open_files()
    for _ in range(5):
        stop(masters, 2)
        for _ in range(5):
            with locks.lock(KEY, timeout=0):
                pass
        start(masters, 2)
    assert settled(files_when_reconnected, files) == files


# --- frozen ---------------------------------------------------------------------------


@pytest.mark.slow
def test_message_when_replies_came_in_time_since_a_freeze_then_names_no_round_timeout(
    masters: LocalMasters, make_locks: MakeLocks
) -> None:
    retry = Retry(delay=0, unreachable_tries=10_000)
    locks = connected(make_locks(masters.urls, round_timeout=0.05, retry=retry))
    pause(masters, 3)
    with later(0.2, lambda: resume(masters, 3)):
        assert locks.acquire("comes in a later round")
    granted(locks.acquire("in time", timeout=1)).release()
    pause(masters, 3)
    with pytest.raises(QuorumUnreachableError) as raised:
        locks.acquire(KEY, timeout=0)
    told = str(raised.value)
    assert "3 silent" in told
    assert "replies took" not in told
    assert "round_timeout" not in told


def test_first_acquire_when_a_minority_is_paused_then_does_not_wait_for_it(
    masters: LocalMasters, make_locks: MakeLocks
) -> None:
    pause(masters, 2)
    locks = make_locks(masters.urls, ttl=100, connect_timeout=10)
    with stopwatch() as elapsed:
        assert locks.acquire(KEY)
    assert elapsed() < 3


def test_acquire_when_a_majority_is_paused_then_names_the_silent_ones(
    masters: LocalMasters, make_locks: MakeLocks
) -> None:
    locks = connected(make_locks(masters.urls, round_timeout=0.05))
    pause(masters, 3)
    votes = failed_votes(locks)
    assert [vote.vote for vote in votes[:3]] == [Vote.SILENT] * 3
    assert all("no reply within 50 ms" in str(vote.text) for vote in votes[:3])
    fresh = make_locks(masters.urls, connect_timeout=0.3)
    with stopwatch() as elapsed:
        votes = failed_votes(fresh)
    assert 0.2 < elapsed() < 2  # for connect_timeout at most
    assert [vote.vote for vote in votes[:3]] == [Vote.FAILED] * 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("is_late", "options"),
    [(False, {"ttl": 60, "round_timeout": 0.1}), (True, {"ttl": 600})],
)
def test_paused_master_when_it_owes_a_reply_for_long_then_is_reopened_and_cleaned(
    masters: LocalMasters, make_locks: MakeLocks, raw: Raw, is_late: bool, options: Any
) -> None:
    """Seen: a dead master was noticed after 60 s at ttl=600."""
    servers = [raw(url) for url in masters.urls]
    locks = connected(make_locks(masters.urls, **options))
    masters.pause(0)
    lease = granted(locks.acquire(KEY))
    if not is_late:
        assert lease.release() is ReleaseStatus.RELEASED
    assert wait_until(lambda: locks.holders() and locks.stats().losses, within=4)
    if is_late:
        assert lease.release() is ReleaseStatus.RELEASED
    masters.resume(0)
    assert wait_until(lambda: locks.holders()[0].vote is Vote.GRANTED)
    assert settled_values(servers, NOBODY) == NOBODY


@pytest.mark.slow
def test_calls_when_a_quorum_is_frozen_then_end_in_their_time_whatever_the_ttl(
    masters: LocalMasters, make_locks: MakeLocks
) -> None:
    """Seen: a round of ttl=400 waited for 20 s."""
    locks = connected(make_locks(masters.urls, ttl=400, round_timeout=20))
    other = connected(make_locks(masters.urls, ttl=400))
    lease = granted(other.acquire("another"))
    pause(masters, 3)
    with stopwatch() as elapsed, pytest.raises(QuorumUnreachableError):
        locks.acquire(KEY, timeout=0.3)
    assert 0.25 < elapsed() < 2.0
    with stopwatch() as elapsed, pytest.raises(QuorumUnreachableError):
        other.acquire(KEY, timeout=0)
    assert elapsed() < 2.5  # a second at most
    with stopwatch() as elapsed:
        assert lease.release() is ReleaseStatus.UNKNOWN
    assert elapsed() < 2.5


@pytest.mark.slow
@blocking
def test_orphan_when_a_server_was_frozen_for_longer_than_the_ttl_then_is_deleted(
    masters: LocalMasters, make_locks: MakeLocks, raw: Raw
) -> None:
    """Seen: rolled-back acquires came back as keys of the full ttl on SIGCONT."""
    servers = [raw(url) for url in masters.urls]
    retry = Retry(unreachable_tries=1)
    locks = connected(make_locks(masters.urls, ttl=1, retry=retry))
    pause(masters, 5)
    for i in range(10):
        with pytest.raises(QuorumUnreachableError):
            locks.acquire(f"lost:{i}", timeout=0)
    time.sleep(2)  # twice the ttl: the servers' own clocks go on
    resume(masters, 5)
    assert wait_until(lambda: locks.acquire(KEY, timeout=0))
    assert wait_until(lambda: all(server.dbsize() <= 1 for server in servers), within=1)


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


def test_with_block_when_all_connections_were_cut_then_deletes_the_keys(
    locks: FastRedlock, servers: Servers
) -> None:
    """Seen: left without an error, with the key on five of five."""
    with locks.lock(KEY, ttl=60):
        cut_all(servers)
    assert values(servers) == NOBODY
    for _ in range(5):
        cut_all(servers)
        granted(locks.acquire(KEY, timeout=0)).release()


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


def test_acquire_when_cut_and_held_by_others_then_is_taken(
    locks: FastRedlock, servers: Servers
) -> None:
    set_all(servers, b"another")
    cut_all(servers)
    with stopwatch() as elapsed:
        assert locks.acquire(KEY, timeout=0) is None
    assert elapsed() < 2
    assert values(servers) == [b"another"] * 5


def test_orphan_when_scripts_are_flushed_and_nothing_follows_then_is_deleted(
    locks: FastRedlock, servers: Servers
) -> None:
    """Seen: the roll-back met NOSCRIPT, which nobody read before the next call."""
    set_all(servers[:3], b"another")
    flush_scripts(servers)
    assert locks.acquire(KEY, ttl=60, timeout=0) is None
    wanted = [b"another"] * 3 + [None] * 2
    assert settled_values(servers, wanted) == wanted


@pytest.mark.slow
def test_lease_when_connections_are_cut_at_random_then_is_never_called_lost(
    locks: FastRedlock, servers: Servers
) -> None:
    """Seen: a release that was executed, its reply lost, and was repeated: GONE."""
    for turn in range(400):
        lease = granted(locks.acquire(KEY, ttl=60, timeout=5))
        if turn % 3 == 0:
            server = servers[turn % 5]
            server.client_kill_filter(_type="normal", skipme=True)
        assert lease.release() is not ReleaseStatus.GONE
