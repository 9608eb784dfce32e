"""An acquire with fencing of one resource: what its script may come to."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest
import redis

from fastredlock import FastRedlock, FastRedlockError, QuorumUnreachableError, Retry
from fastredlock.testing import LocalMasters
from tests.support.calls import connected, granted
from tests.support.fixtures import MakeLocks, Raw
from tests.support.keys import KEY, values
from tests.support.proxy import Proxy
from tests.support.waiting import wait_until

FENCE = f"fastredlock:fence:{KEY}"
AHEAD = 4_000_000_000_000_000  # of all clocks, and below 2**53


@pytest.fixture
def fenced(make_locks: MakeLocks, urls: list[str]) -> FastRedlock:
    return connected(make_locks(urls, fencing=True))


@pytest.fixture
def way(urls: list[str]) -> Iterator[Proxy]:
    """What stands before the first master."""
    with Proxy(urls[0]) as way:
        yield way


def commands_of(server: redis.Redis) -> dict[str, int]:
    stats = server.info("commandstats")
    return {
        name.removeprefix("cmdstat_"): each["calls"] for name, each in stats.items()
    }


# ---- what is sent


def test_pair_whose_number_is_less_than_the_proposal_takes_four_commands(
    make_locks: MakeLocks, servers: list[redis.Redis], urls: list[str]
) -> None:
    locks = connected(make_locks(urls[:1], fencing=True))
    servers[0].config_resetstat()
    for _ in range(10):
        granted(locks.acquire(KEY)).release()
    counts = commands_of(servers[0])
    asked = [counts.get(name, 0) for name in ("exists", "zadd", "pexpire", "set")]
    assert [count >= 10 for count in asked] == [True] * 4
    assert "zscore" not in counts


def test_life_of_a_number_is_sent_again_where_a_master_came_back_empty(
    make_locks: MakeLocks, raw: Raw
) -> None:
    with LocalMasters(1) as masters:
        locks = connected(make_locks(masters.urls, fencing=True))
        granted(locks.acquire(KEY)).release()
        masters.stop(0)
        masters.start(0)
        lease = locks.acquire(KEY, timeout=10)
        assert lease is not None
        assert raw(masters.urls[0]).pttl(FENCE) > 86_400_000


# ---- the number is ahead


def test_number_when_it_is_ahead_then_is_one_more_at_once(
    fenced: FastRedlock, servers: list[redis.Redis]
) -> None:
    for server in servers:
        server.zadd(FENCE, {"f": AHEAD})
    lease = granted(fenced.acquire(KEY))
    assert lease.fence == AHEAD + 1
    lease.release()
    assert granted(fenced.acquire(KEY)).fence == AHEAD + 2
    assert fenced.stats().fences_written == 0


def test_number_when_another_was_refused_then_the_next_is_above(
    make_locks: MakeLocks, fenced: FastRedlock, urls: list[str]
) -> None:
    other = connected(make_locks(urls, fencing=True))
    lease = granted(fenced.acquire(KEY))
    assert other.acquire(KEY, timeout=0) is None
    lease.release()
    assert granted(fenced.acquire(KEY)).fence > lease.fence


def test_number_when_the_script_is_unknown_then_it_is_sent_by_its_source(
    fenced: FastRedlock, servers: list[redis.Redis]
) -> None:
    for server in servers:
        server.zadd(FENCE, {"f": AHEAD})
        server.script_flush()
    assert granted(fenced.acquire(KEY)).fence == AHEAD + 1


# ---- the number is refused


def test_number_when_its_key_is_of_another_type_then_the_master_fails_and_is_undone(
    fenced: FastRedlock, servers: list[redis.Redis]
) -> None:
    for server in servers[:3]:
        server.set(FENCE, "of another use")
    with pytest.raises(QuorumUnreachableError, match="WRONGTYPE"):
        fenced.acquire(KEY, timeout=0)
    assert wait_until(lambda: values(servers) == [None] * 5)
    assert values(servers[:3], FENCE) == [b"of another use"] * 3


def test_number_when_a_minority_refuses_it_then_the_others_grant_and_all_release(
    fenced: FastRedlock, servers: list[redis.Redis]
) -> None:
    for server in servers[:2]:
        server.set(FENCE, "of another use")
    with granted(fenced.acquire(KEY)) as lease:
        assert lease.fence > 0
        assert wait_until(lambda: values(servers).count(None) == 2)  # and no key there
    assert wait_until(lambda: values(servers) == [None] * 5)


def test_number_when_there_is_none_to_count_on_then_the_key_is_undone(
    fenced: FastRedlock, servers: list[redis.Redis]
) -> None:
    for server in servers:
        server.zadd(FENCE, {"f": 2**53 - 1})
    with pytest.raises(QuorumUnreachableError, match="no number to count on"):
        fenced.acquire(KEY, timeout=0)
    assert wait_until(lambda: values(servers) == [None] * 5)


def test_number_below_the_largest_counts_up_to_it_and_no_further(
    fenced: FastRedlock, servers: list[redis.Redis]
) -> None:
    """Seen: 2**53 and more were given, which `adopt` and the scripts refuse."""
    for server in servers:
        server.zadd(FENCE, {"f": 2**53 - 4})
    fences = []
    with pytest.raises(QuorumUnreachableError, match="no number to count on"):  # noqa: PT012
        while True:
            with granted(fenced.acquire(KEY, timeout=0)) as lease:
                fences.append(lease.fence)
    assert fences == [2**53 - 3, 2**53 - 2, 2**53 - 1]


def test_number_when_the_acl_forbids_its_key_then_the_lock_is_undone(
    make_locks: MakeLocks, raw: Raw
) -> None:
    with LocalMasters(1) as masters:
        server = raw(masters.urls[0])
        server.execute_command(*f"ACL SETUSER ann reset on >pw ~{KEY} +@all".split())
        url = masters.urls[0].replace("//", "//ann:pw@")
        locks = make_locks([url], fencing=True)
        with pytest.raises(FastRedlockError, match=r"permissions|NOPERM|can.t access"):
            locks.acquire(KEY, timeout=0)
        assert wait_until(lambda: server.dbsize() == 0)


# ---- the connection ends


@pytest.mark.parametrize("after", [0, 3, 11])
def test_acquire_when_its_connection_is_cut_in_the_reply_then_is_repeated(
    make_locks: MakeLocks, servers: list[redis.Redis], way: Proxy, after: int
) -> None:
    """The server has done all of it, and is asked again."""
    patient = Retry(unreachable_tries=None)
    locks = connected(
        make_locks([way.url], fencing=True, round_timeout=2, retry=patient)
    )
    way.set(cut_down_after=after, at_cut="reset")
    timer = threading.Timer(0.2, way.heal)
    timer.start()
    lease = granted(locks.acquire(KEY, timeout=10))
    timer.join()
    assert lease.fence == servers[0].zscore(FENCE, "f")
    assert servers[0].get(KEY) == lease.token
    lease.release()
    assert granted(locks.acquire(KEY, timeout=10)).fence > lease.fence


def test_fences_grow_while_servers_kill_the_connections(
    make_locks: MakeLocks, servers: list[redis.Redis], urls: list[str]
) -> None:
    locks = connected(make_locks(urls, fencing=True, ttl=2))
    ending, fences = threading.Event(), [0]

    def kill() -> None:
        while not ending.wait(0.003):
            for server in servers[:2]:
                server.client_kill_filter(_type="normal", skipme=True)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        for _ in range(400):
            with suppress(QuorumUnreachableError):
                if lease := locks.acquire(KEY, timeout=5):
                    fences.append(lease.fence)
                    lease.release()
    finally:
        ending.set()
        killer.join()
    assert len(fences) > 100
    assert fences == sorted(set(fences))
