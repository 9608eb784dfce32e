"""Shared locks: many readers, or one writer, in the key of the lock itself."""

from __future__ import annotations

import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis

from fastredlock import (
    ConfigurationError,
    FastRedlock,
    LeaseLostError,
    ReentryError,
    ReleaseStatus,
    Vote,
)
from fastredlock.testing import MemoryLocks
from tests.support.calls import all_granted, connected, granted
from tests.support.fixtures import MakeLocks, Servers, blocking
from tests.support.keys import KEY, delete, is_empty
from tests.support.waiters import FALL_BACK, queued
from tests.support.waiting import stopwatch, wait_until


def read(locks: FastRedlock, **options: Any) -> Any:
    """Read at once, or fail."""
    return granted(locks.acquire(KEY, shared=True, timeout=0, **options))


def wait_for_end(servers: Servers, lease: Any) -> None:
    """Wait until it is over, also at a server that was slow, and granted it later."""

    def is_over(server: redis.Redis) -> bool:
        (seconds, us), end = server.time(), server.zscore(KEY, lease.token)
        return end is None or bool(end < seconds * 1000 + us // 1000)

    assert wait_until(lambda: not lease.is_valid and all(map(is_over, servers)))


def gives_way(locks: FastRedlock, **options: Any) -> bool:
    """Try to read; whether somebody else waits. A late gate is not waited for."""
    lease = locks.acquire(KEY, shared=True, **options)
    return lease is None or lease.release() is None


def gives_way_in_each(locks: FastRedlock) -> bool:
    leases = locks.acquire_each(["free", KEY], shared=True)
    locks.release_each(leases)
    return [lease and lease.resource for lease in leases] == ["free", None]


def readers_at(servers: Servers) -> list[Any]:
    return [server.zrange(KEY, 0, -1) for server in servers]


def test_readers_when_they_share_a_lock_then_exclude_writers_until_the_last(
    locks: FastRedlock, make_locks: MakeLocks, urls: list[str], servers: Servers
) -> None:
    other = make_locks(urls)
    first, second = read(locks), read(other)
    assert locks.acquire(KEY, timeout=0) is None
    assert first.release() is ReleaseStatus.RELEASED
    assert locks.acquire(KEY, timeout=0) is None
    assert second.release() is ReleaseStatus.RELEASED
    assert is_empty(servers)
    granted(locks.acquire(KEY, timeout=0)).release()


@pytest.mark.parametrize(
    ("member", "until_s"),
    [("later", 60), ("later", 20), ("2" * 27, 60), ("2" * 28 + "@ann", 20)],
)
def test_sorted_set_of_others_when_a_lock_is_shared_then_is_left_alone(
    member: str, until_s: int, locks: FastRedlock, servers: Servers
) -> None:
    """Not even its old members are dropped: their scores may be times as well."""
    until = int(time.time() + until_s) * 1000
    for server in servers:
        server.zadd(KEY, {"job": 1.0, member: until})
        server.pexpireat(KEY, until - (until_s - 20) * 1000)
    assert locks.acquire(KEY, shared=True, timeout=0) is None
    assert [server.zcard(KEY) for server in servers] == [2] * len(servers)
    assert all(0 < server.pttl(KEY) <= 20_000 for server in servers)


def test_reader_when_the_key_was_moved_far_then_comes_beside_the_others(
    locks: FastRedlock, make_locks: MakeLocks, urls: list[str], servers: Servers
) -> None:
    """To a server whose clock is a minute behind, and nobody has changed it since."""
    other = connected(make_locks(urls))
    first = read(locks, ttl=40)
    assert wait_until(lambda: readers_at(servers) == [[first.token]] * 5)
    for server in servers:
        server.zincrby(KEY, 60_000, first.token)
    rows = [row for row in other.holders(KEY) if row.is_shared]
    assert len(rows) == 5
    assert all(30_000 < (row.remaining_ms or 0) <= 40_000 for row in rows)
    second = read(other, ttl=10)
    assert first.extend() > 0
    assert wait_until(lambda: [len(each) for each in readers_at(servers)] == [2] * 5)
    assert second.release() is first.release() is ReleaseStatus.RELEASED


@pytest.mark.slow
def test_dead_reader_when_others_go_on_then_ends_by_its_own_ttl(
    locks: FastRedlock, make_locks: MakeLocks, urls: list[str], servers: Servers
) -> None:
    living, dead = read(locks, ttl=60), read(connected(make_locks(urls)), ttl=1)
    tokens = [living.token, dead.token]
    wait_for_end(servers, dead)
    assert living.extend() > 0
    assert wait_until(lambda: readers_at(servers) == [[tokens[0]]] * 5)
    living.release()
    assert is_empty(servers)


def test_key_when_the_longest_reader_goes_then_lives_as_long_as_the_next(
    locks: FastRedlock, make_locks: MakeLocks, urls: list[str], servers: Servers
) -> None:
    other = connected(make_locks(urls))
    short, long = read(locks, ttl=2), read(other, ttl=30)
    assert wait_until(lambda: all(each.pttl(KEY) > 20_000 for each in servers))
    long.release()
    assert wait_until(lambda: all(each.pttl(KEY) <= 2000 for each in servers))
    assert short.is_valid


@pytest.mark.slow
@pytest.mark.parametrize("ahead_s", [-60, -0.4, 60])
def test_readers_when_moved_to_a_server_of_another_time_then_keep_their_ttls(
    ahead_s: float, locks: FastRedlock, make_locks: MakeLocks, urls: list[str],
    servers: Servers,
) -> None:  # fmt: skip
    """As a slot of a cluster is: a key keeps its ttl, and is given no other values."""
    other = connected(make_locks(urls))
    first, second, short = (
        read(locks, ttl=40),
        read(other, ttl=60),
        read(other, ttl=1),
    )
    assert wait_until(lambda: [len(each) for each in readers_at(servers)] == [3] * 5)
    wait_for_end(servers, short)
    for server, lease in itertools.product(servers, (first, second, short)):
        server.zincrby(KEY, -ahead_s * 1000, lease.token)
    assert second.extend(50) > 0
    both = [[first.token, second.token]] * 5
    assert wait_until(lambda: readers_at(servers) == both)
    assert wait_until(
        lambda: all(40_000 < each.pttl(KEY) <= 50_000 for each in servers)
    )
    assert second.release() is ReleaseStatus.RELEASED
    assert locks.acquire(KEY, timeout=0) is None
    assert wait_until(
        lambda: all(20_000 < each.pttl(KEY) <= 40_000 for each in servers)
    )
    assert first.release() is ReleaseStatus.RELEASED


@pytest.mark.parametrize("was_shared", [False, True])
def test_lease_when_its_lock_is_of_the_other_kind_by_now_then_is_lost_for_good(
    was_shared: bool, locks: FastRedlock, make_locks: MakeLocks, urls: list[str],
    servers: Servers,
) -> None:  # fmt: skip
    """WRONGTYPE was no answer: the key might still have been ours."""
    late = connected(make_locks(urls))
    lease = granted(late.acquire(KEY, shared=was_shared, ttl=10))
    assert wait_until(lambda: all(each.exists(KEY) for each in servers))
    delete(servers)
    other = granted(connected(locks).acquire(KEY, shared=not was_shared, ttl=20))
    assert wait_until(lambda: all(each.exists(KEY) for each in servers))
    before = [server.dump(KEY) for server in servers]
    with pytest.raises(LeaseLostError, match="taken by another"):
        lease.extend()
    assert lease.release() is ReleaseStatus.GONE
    assert [server.dump(KEY) for server in servers] == before
    assert other.extend() > 0


@pytest.mark.slow
@blocking
def test_extension_when_the_reader_has_expired_then_never_brings_it_back(
    locks: FastRedlock, make_locks: MakeLocks, urls: list[str], servers: Servers
) -> None:
    other = connected(make_locks(urls))
    dead, living = read(locks, ttl=1), read(other, ttl=10)
    wait_for_end(servers, dead)
    engine = locks._driver.engine
    extension = engine.new_extension(dead._round, dead._round.terms)
    locks._driver.run(extension)
    assert [vote for vote, _, _ in extension.votes()].count(Vote.GRANTED) == 0
    assert wait_until(lambda: readers_at(servers) == [[living.token]] * 5)
    with pytest.raises(LeaseLostError):
        dead.extend()


def test_writer_when_it_waits_behind_readers_then_has_its_turn_by_the_last(
    locks: FastRedlock, make_locks: MakeLocks, urls: list[str], servers: Servers
) -> None:
    first, second = read(locks), read(make_locks(urls))
    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(make_locks(urls).acquire, KEY, timeout=10)
        assert wait_until(lambda: queued(servers) == 1)
        first.release()
        time.sleep(0.05)
        assert not writer.done()
        with stopwatch() as watch:
            second.release()
            granted(writer.result(5)).release()
    assert watch() < 1


@pytest.mark.parametrize("timeout", [0, 0.2])
def test_reader_when_a_writer_waits_then_does_not_pass_it_by(
    timeout: float, locks: FastRedlock, make_locks: MakeLocks, urls: list[str],
    servers: Servers,
) -> None:  # fmt: skip
    reading = read(locks)
    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(make_locks(urls).acquire, KEY, timeout=10)
        assert wait_until(lambda: queued(servers) == 1)
        late = connected(make_locks(urls))  # also to the gate
        assert wait_until(lambda: gives_way(late, timeout=timeout))
        reading.release()
        granted(writer.result(5)).release()
    granted(late.acquire(KEY, shared=True, timeout=5)).release()


def test_each_when_it_reads_then_each_is_a_reader_of_its_own(
    locks: FastRedlock, make_locks: MakeLocks, urls: list[str], servers: Servers
) -> None:
    other, names = connected(make_locks(urls)), ["a", "b", "c", "a"]
    assert other.acquire("c", timeout=0)
    leases = connected(locks).acquire_each(names, ttl=5, shared=True)
    assert [lease and lease.resource for lease in leases] == ["a", "b", None, "a"]
    assert other.acquire_each(names) == [None] * 4
    beside = all_granted(other.acquire_each(names[:2], shared=True))
    lefts = locks.extend_each(leases, 60)
    assert [left is not None and left > 50 for left in lefts] == [
        True,
        True,
        False,
        True,
    ]
    assert other.release_each(beside) == [ReleaseStatus.RELEASED] * 2
    # At a master that was late, the other's try may have come before the reader's.
    assert wait_until(lambda: sum(each.pttl("a") > 50_000 for each in servers) >= 3)
    assert locks.release_each(leases).count(ReleaseStatus.RELEASED) == 3
    assert wait_until(lambda: not any(each.exists("a", "b") for each in servers))


def test_each_when_a_writer_waits_then_does_not_pass_it_by(
    locks: FastRedlock, make_locks: MakeLocks, urls: list[str], servers: Servers
) -> None:
    reading = read(locks)
    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(make_locks(urls).acquire, KEY, timeout=10)
        assert wait_until(lambda: queued(servers) == 1)
        late = connected(make_locks(urls))  # also to the gate
        assert wait_until(lambda: gives_way_in_each(late))
        reading.release()
        granted(writer.result(5)).release()


def test_row_of_readers_when_the_writer_goes_then_read_together(
    locks: FastRedlock, make_locks: MakeLocks, urls: list[str], servers: Servers
) -> None:
    writing, together = granted(locks.acquire(KEY)), threading.Barrier(4)

    def reads(own: FastRedlock) -> None:
        with own.lock(KEY, shared=True, timeout=10):
            together.wait(10)

    shared = make_locks(urls)  # two of these are of one process
    with ThreadPoolExecutor(4) as pool:
        own = [make_locks(urls), make_locks(urls), shared, shared]
        row = [pool.submit(reads, each) for each in own]
        assert wait_until(lambda: queued(servers) == 3)
        writing.release()
        assert [each.result(10) for each in row] == [None] * 4


@pytest.mark.slow
def test_readers_behind_a_writer_when_it_gives_up_then_are_told(
    locks: FastRedlock, make_locks: MakeLocks, urls: list[str], servers: Servers
) -> None:
    reading, writes, reads = read(locks), make_locks(urls), make_locks(urls)

    def trial(pool: ThreadPoolExecutor) -> float:
        writer = pool.submit(writes.acquire, KEY, timeout=0.3)
        assert wait_until(lambda: queued(servers) == 1)
        reader = pool.submit(reads.acquire, KEY, shared=True, timeout=10)
        assert writer.result(5) is None
        with stopwatch() as watch:
            granted(reader.result(5)).release()
        return watch()

    with ThreadPoolExecutor(2) as pool:
        seconds = [trial(pool) for _ in range(6)]
    # One that asks has half of it; a busy machine is late at some, and not at most.
    assert sorted(seconds)[2] < FALL_BACK / 8, seconds
    assert reading.release() is ReleaseStatus.RELEASED


@pytest.mark.parametrize("ends", [0, 1])
def test_holders_when_several_read_then_have_a_row_for_each_that_still_does(
    ends: int, locks: FastRedlock, make_locks: MakeLocks, urls: list[str]
) -> None:
    """The last one to end has a row as well as the first."""
    each_of = connected(locks), connected(make_locks(urls))
    both = [read(own, ttl=10 + i) for i, own in enumerate(each_of)]
    assert wait_until(lambda: len(locks.holders(KEY)) == 10)
    rows = locks.holders(KEY)
    assert [row.master for row in rows[::2]] == [row.master for row in rows[1::2]]
    assert all(row.is_shared and row.vote is Vote.TAKEN for row in rows)
    assert {row.token_hash for row in rows} == {each.token_hash for each in both}
    both[ends].release()
    assert wait_until(lambda: len(locks.holders(KEY)) == 5)
    (left,) = {row.token_hash for row in locks.holders(KEY)}
    assert left == both[not ends].token_hash


def test_holders_when_a_reader_has_expired_then_have_no_row_of_it(
    locks: FastRedlock, make_locks: MakeLocks, urls: list[str], servers: Servers
) -> None:
    other = connected(make_locks(urls))
    dead, living = read(connected(locks), ttl=0.5), read(other, ttl=10)
    assert wait_until(lambda: all(each.zcard(KEY) == 2 for each in servers))
    assert wait_until(lambda: len(locks.holders(KEY)) == 5)
    assert not dead.is_valid
    assert all(each.zcard(KEY) == 2 for each in servers)  # nobody has dropped it
    assert {row.token_hash for row in locks.holders(KEY)} == {living.token_hash}


def test_break_of_one_reader_then_leaves_the_others(
    locks: FastRedlock, make_locks: MakeLocks, urls: list[str], servers: Servers
) -> None:
    other = connected(make_locks(urls))
    stays, goes = read(connected(locks), ttl=10), read(other, ttl=20)
    assert wait_until(lambda: all(each.zcard(KEY) == 2 for each in servers))
    status = locks.break_(KEY, token_hash=goes.token_hash)
    assert status is ReleaseStatus.RELEASED
    assert wait_until(lambda: readers_at(servers) == [[stays.token]] * 5)
    assert all(each.pttl(KEY) <= 10_000 for each in servers)
    assert locks.break_(KEY, token_hash=goes.token_hash) is ReleaseStatus.GONE
    assert stays.extend() > 0
    with pytest.raises(LeaseLostError):
        goes.extend()


def test_break_of_a_reader_when_more_read_than_are_shown_then_is_not_known(
    locks: FastRedlock, servers: Servers
) -> None:
    soon = read(connected(locks), ttl=10)
    assert wait_until(lambda: readers_at(servers) == [[soon.token]] * 5)
    end = int(time.time() * 1000) + 20_000
    for server in servers:
        server.zadd(KEY, {f"{i:027}": end for i in range(1000)})
        server.pexpireat(KEY, end)
    status = locks.break_(KEY, token_hash=soon.token_hash)
    assert status is ReleaseStatus.UNKNOWN
    assert soon.release() is ReleaseStatus.RELEASED


def test_reader_of_another_process_when_adopted_then_goes_on_beside_others(
    locks: FastRedlock, make_locks: MakeLocks, urls: list[str], servers: Servers
) -> None:
    others = connected(make_locks(urls))
    stays, taken = read(connected(locks), ttl=5), read(others, ttl=5)
    assert wait_until(lambda: [len(each) for each in readers_at(servers)] == [2] * 5)
    adopted = locks.adopt(KEY, taken.token, shared=True, ttl=60)
    assert adopted.extend() > 50
    assert wait_until(lambda: all(each.pttl(KEY) > 50_000 for each in servers))
    assert adopted.release() is ReleaseStatus.RELEASED
    assert wait_until(lambda: readers_at(servers) == [[stays.token]] * 5)
    with pytest.raises(LeaseLostError):
        taken.extend()
    assert locks.adopt(KEY, stays.token).release() is ReleaseStatus.GONE
    assert stays.extend() > 0


def test_readers_when_in_memory_then_have_rows_and_one_may_be_broken_or_adopted() -> (
    None
):
    locks = MemoryLocks()
    one, two, three = (granted(locks.acquire(KEY, shared=True)) for _ in range(3))
    assert len(locks.holders(KEY)) == 3 * len(
        {row.master for row in locks.holders(KEY)}
    )
    status = locks.break_(KEY, token_hash=one.token_hash)
    assert status is ReleaseStatus.RELEASED
    locks.adopt(KEY, two.token, shared=True).release()
    assert {row.token_hash for row in locks.holders(KEY)} == {three.token_hash}
    assert three.release() is ReleaseStatus.RELEASED
    granted(locks.acquire(KEY, timeout=0)).release()
    locks.close()


@blocking
def test_writer_when_it_is_inside_of_its_own_read_then_is_told_so(
    locks: FastRedlock,
) -> None:
    with (
        locks.lock(KEY, shared=True),
        pytest.raises(ReentryError, match="becomes no exclusive one") as raised,
    ):
        locks.acquire(KEY, timeout=1)
    assert raised.value.is_upgrade
    with (
        locks.lock(KEY, shared=True),
        pytest.raises(ReentryError, match="becomes no exclusive one"),
        locks.lock(KEY, reentrant=True),
    ):
        pass


@blocking
def test_reader_when_inside_of_its_own_block_then_joins_that(
    locks: FastRedlock,
) -> None:
    with (
        locks.lock(KEY) as writing,
        locks.lock(KEY, shared=True, reentrant=True) as in_it,
    ):
        assert in_it is writing
    with (
        locks.lock(KEY, shared=True) as reading,
        locks.lock(KEY, shared=True, reentrant=True) as in_it,
    ):
        assert in_it is reading


@pytest.mark.parametrize(
    ("options", "beside"),
    [
        ({"linger": 1.0}, "linger"),
        ({"permits": 2}, "permits"),
        ({"shared": 1}, "shared=1"),
        ({"shared": None}, "shared=None"),
    ],
)
def test_shared_when_beside_what_it_cannot_be_then_is_refused(
    options: dict[str, Any], beside: str, locks: FastRedlock
) -> None:
    with pytest.raises(ConfigurationError, match=beside):
        locks.acquire(KEY, **{"shared": True, **options})


def test_each_when_shared_is_no_flag_then_is_refused(locks: FastRedlock) -> None:
    with pytest.raises(ConfigurationError, match="shared=1: allowed is True or False"):
        locks.acquire_each([KEY], shared=1)  # type: ignore[arg-type]


def test_shared_when_leases_are_numbered_then_is_refused(
    make_locks: MakeLocks, urls: list[str]
) -> None:
    with pytest.raises(ConfigurationError, match="readers have no numbers"):
        make_locks(urls, fencing=True).lock(KEY, shared=True)
