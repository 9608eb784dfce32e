"""A release: the keys it deletes, and the status it returns."""

from __future__ import annotations

import pytest
import redis

from fastredlock import FastRedlock, Lease, ReleaseStatus
from fastredlock.testing import LocalMasters
from tests.support.calls import connected, granted
from tests.support.fixtures import MakeLocks, Raw, by_script
from tests.support.keys import KEY, NOBODY, set_all, settled_values, values
from tests.support.masters import pause, resume, stop
from tests.support.proxy import Proxy
from tests.support.threads import in_threads
from tests.support.waiting import stopwatch, wait_until


def test_release_when_held_then_is_released_and_gone_from_every_master(
    lease: Lease, servers: list[redis.Redis]
) -> None:
    assert lease.release() is ReleaseStatus.RELEASED
    assert settled_values(servers, NOBODY) == NOBODY
    assert (lease.remaining(), lease.is_valid) == (0.0, False)


TELLING = (
    b'if redis.call("get",KEYS[1])~=ARGV[1] then return 0 end '
    b'redis.call("lpush","told:"..KEYS[1],1) return redis.call("del",KEYS[1])'
)


def test_release_script_when_given_then_runs_in_the_place_of_ours(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis]
) -> None:
    lease = granted(connected(make_locks(urls, release_script=TELLING)).acquire(KEY))
    assert lease.release() is ReleaseStatus.RELEASED
    assert settled_values(servers, NOBODY) == NOBODY
    assert [server.llen(f"told:{KEY}") for server in servers] == [1] * 5


def test_release_when_done_then_the_next_acquire_succeeds_at_once(
    locks: FastRedlock, lease: Lease
) -> None:
    lease.release()
    assert locks.acquire(KEY, timeout=0)


def test_release_when_done_twice_then_is_gone_and_spares_the_next_holder(
    locks: FastRedlock, lease: Lease, servers: list[redis.Redis]
) -> None:
    assert lease.release() is ReleaseStatus.RELEASED
    heir = granted(locks.acquire(KEY, timeout=0))
    assert lease.release() is ReleaseStatus.GONE
    assert settled_values(servers, [heir.token] * 5) == [heir.token] * 5
    assert heir.release() is ReleaseStatus.RELEASED


@pytest.mark.slow
def test_release_when_the_lease_has_ended_then_is_gone(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    lease = granted(locks.acquire(KEY, ttl=0.3))
    assert settled_values(servers, NOBODY) == NOBODY
    assert lease.release() is ReleaseStatus.GONE


def test_release_when_another_took_the_keys_then_is_gone_and_leaves_them(
    locks: FastRedlock, lease: Lease, servers: list[redis.Redis]
) -> None:
    set_all(servers, b"another")
    assert lease.release() is ReleaseStatus.GONE
    locks.holders()  # answered after every release
    assert values(servers) == [b"another"] * 5


def test_release_when_two_masters_lost_the_key_then_is_still_released(
    lease: Lease, servers: list[redis.Redis]
) -> None:
    set_all(servers[:2], b"another")
    wanted = [b"another"] * 2 + [None] * 3
    assert lease.release() is ReleaseStatus.RELEASED
    assert settled_values(servers, wanted) == wanted


def test_release_when_three_masters_lost_the_key_then_is_gone_and_undone_on_the_rest(
    lease: Lease, servers: list[redis.Redis]
) -> None:
    set_all(servers[:3], b"another")
    wanted = [b"another"] * 3 + [None] * 2
    assert lease.release() is ReleaseStatus.GONE
    assert settled_values(servers, wanted) == wanted


def test_release_when_a_list_stands_at_the_resource_then_does_not_touch_it(
    locks: FastRedlock, lease: Lease, servers: list[redis.Redis]
) -> None:
    for server in servers:
        server.delete(KEY)
        server.rpush(KEY, "work")
    assert lease.release() is not ReleaseStatus.RELEASED
    locks.holders("else")  # answered after every release
    assert [server.lrange(KEY, 0, -1) for server in servers] == [[b"work"]] * 5


@by_script
def test_release_when_scripts_were_flushed_everywhere_then_works_in_one_call(
    locks: FastRedlock, lease: Lease, servers: list[redis.Redis]
) -> None:
    for server in servers:
        server.script_flush()
    assert lease.release() is ReleaseStatus.RELEASED
    assert locks.stats().rounds == 2
    locks.holders(KEY)  # reads what a slow one has answered, and sends it the source
    assert wait_until(lambda: values(servers) == NOBODY)
    assert locks.stats().repeated_scripts == 10  # those of holders() as well


@by_script
@pytest.mark.parametrize(
    ("kept", "status"), [(5, ReleaseStatus.RELEASED), (2, ReleaseStatus.GONE)]
)
def test_release_when_scripts_were_flushed_then_the_slowest_master_is_asked_again_too(
    urls: list[str],
    make_locks: MakeLocks,
    servers: list[redis.Redis],
    kept: int,
    status: ReleaseStatus,
) -> None:
    with Proxy(urls[0]) as slow:
        locks = connected(make_locks([slow.url, *urls[1:]]))
        lease = granted(locks.acquire(KEY))
        for server in servers:
            server.script_flush()
        for server in servers[kept:]:
            server.delete(KEY)
        slow.set(delay=0.05)
        assert lease.release() is status
        locks.holders()  # reads NOSCRIPT from the slowest, and waits for what follows
        assert values(servers) == NOBODY


@by_script
def test_release_when_scripts_were_flushed_and_one_is_frozen_then_is_as_quick_as_ever(
    masters: LocalMasters, make_locks: MakeLocks, raw: Raw
) -> None:
    """Seen: the first releases took the time of a round, whatever their gate."""
    locks = connected(make_locks(masters.urls, ttl=20))  # a round would wait for 1 s
    leases = [granted(locks.acquire(f"{KEY}{i}")) for i in range(9)]
    servers = [raw(url) for url in masters.urls]
    masters.pause(0)
    took = []
    for lease in leases:
        for server in servers[1:]:
            server.script_flush()
        with stopwatch() as elapsed:
            assert lease.release() is ReleaseStatus.RELEASED
        took.append(elapsed())
    assert sorted(took)[4] < 0.02, took
    assert locks.stats().round_trip < 0.02  # or the next retry would be long in coming


def test_release_when_another_thread_does_it_then_is_released(lease: Lease) -> None:
    assert in_threads([lease.release]) == [ReleaseStatus.RELEASED]


def test_release_when_many_threads_do_it_then_one_of_them_has_released_it(
    lease: Lease,
) -> None:
    statuses = in_threads([lease.release] * 4)
    assert statuses.count(ReleaseStatus.RELEASED) == 1


def test_release_when_two_of_five_are_stopped_then_is_released(
    masters: LocalMasters, make_locks: MakeLocks
) -> None:
    lease = granted(connected(make_locks(masters.urls)).acquire(KEY))
    masters.stop(0)
    masters.stop(1)
    assert lease.release() is ReleaseStatus.RELEASED


def test_release_when_three_of_five_are_stopped_then_is_unknown_and_ends_validity(
    masters: LocalMasters, make_locks: MakeLocks, raw: Raw
) -> None:
    lease = granted(connected(make_locks(masters.urls)).acquire(KEY))
    stop(masters, 3)
    assert lease.release() is ReleaseStatus.UNKNOWN
    assert not lease.is_valid
    servers = [raw(url) for url in masters.urls[3:]]
    assert settled_values(servers, NOBODY[3:]) == NOBODY[3:]


def test_release_when_three_of_five_are_paused_then_reaches_them_when_they_go_on(
    masters: LocalMasters, make_locks: MakeLocks, raw: Raw
) -> None:
    servers = [raw(url) for url in masters.urls]
    lease = granted(
        connected(make_locks(masters.urls, ttl=60, round_timeout=0.1)).acquire(KEY)
    )
    settled_values(servers, [lease.token] * 5)
    pause(masters, 3)
    assert lease.release() is ReleaseStatus.UNKNOWN
    resume(masters, 3)
    assert settled_values(servers, NOBODY) == NOBODY


def test_release_when_it_was_unknown_then_can_be_asked_again(
    masters: LocalMasters, make_locks: MakeLocks
) -> None:
    lease = granted(
        connected(make_locks(masters.urls, ttl=60, round_timeout=0.1)).acquire(KEY)
    )
    pause(masters, 3)
    assert lease.release() is ReleaseStatus.UNKNOWN
    assert lease.release() is ReleaseStatus.UNKNOWN
    resume(masters, 3)
    # The first release was still queued, so the second one finds nothing.
    again = (ReleaseStatus.RELEASED, ReleaseStatus.GONE)
    assert wait_until(lambda: lease.release() in again)


def test_release_when_connections_were_cut_then_is_sent_again_on_the_next_ones(
    locks: FastRedlock, lease: Lease, servers: list[redis.Redis]
) -> None:
    for server in servers[:2]:
        server.client_kill_filter(_type="normal", skipme=True)
    assert lease.release() is ReleaseStatus.RELEASED
    # Other traffic reopens them.
    assert wait_until(lambda: locks.holders() and values(servers) == NOBODY)


def test_release_when_every_connection_was_cut_before_then_still_frees_all_keys(
    locks: FastRedlock, lease: Lease, servers: list[redis.Redis]
) -> None:
    for server in servers:
        server.client_kill_filter(_type="normal", skipme=True)
    status = lease.release()
    assert wait_until(lambda: locks.holders() and values(servers) == NOBODY)
    assert status is not ReleaseStatus.GONE
