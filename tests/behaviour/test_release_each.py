"""release_each, and many callers of both it and acquire_each at once."""

from __future__ import annotations

import pytest
import redis

from fastredlock import FastRedlock, FastRedlockError, ReleaseStatus
from fastredlock.testing import LocalMasters
from tests.support.calls import all_granted, connected, granted
from tests.support.fixtures import MakeLocks, Raw
from tests.support.interrupts import Interrupt, alarm, interrupt
from tests.support.keys import is_empty, set_all, settled_values, sizes
from tests.support.masters import pause, resume
from tests.support.processes import Fork
from tests.support.proxy import Proxy
from tests.support.threads import in_threads, later
from tests.support.waiting import settled, stopwatch, wait_until

RELEASED, GONE, UNKNOWN = ReleaseStatus
NAMES = [f"item:{i}" for i in range(100)]
MANY = 10_000


# ---- release


def test_release_each_when_held_then_all_are_released_and_gone(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    leases = locks.acquire_each(NAMES)
    assert locks.release_each(leases) == [RELEASED] * 100
    assert is_empty(servers)
    assert not any(granted(lease).is_valid for lease in leases)


def test_release_each_when_some_have_gone_then_says_so_in_their_places(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    leases = all_granted(locks.acquire_each(["held", "released", "expired", "stolen"]))
    leases[1].release()
    for server in servers:
        server.delete("expired")
    set_all(servers, b"another", "stolen")
    told = locks.release_each([*leases, None, leases[0]])
    assert told == [RELEASED, GONE, GONE, GONE, GONE, GONE]
    assert settled_values(servers, [b"another"] * 5, "stolen") == [b"another"] * 5
    assert locks.release_each(leases) == [GONE] * 4


def test_release_each_when_the_scripts_were_flushed_then_releases_all_the_same(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    leases = locks.acquire_each(NAMES)
    for server in servers:
        server.script_flush()
    assert locks.release_each(leases) == [RELEASED] * 100
    assert sizes(servers) == [0] * 5


@pytest.mark.slow
def test_release_each_when_a_quorum_is_silent_then_is_unknown_and_sent_again(
    make_locks: MakeLocks, masters: LocalMasters, raw: Raw
) -> None:
    locks = connected(make_locks(masters.urls, ttl=60, round_timeout=0.2))
    names = [str(i) for i in range(3000)]
    leases = locks.acquire_each(names)
    servers = [raw(url) for url in masters.urls]
    assert settled(lambda: sizes(servers), [3000] * 5) == [3000] * 5
    pause(masters, 3)
    with stopwatch() as elapsed:
        assert locks.release_each(leases) == [UNKNOWN] * 3000
    assert elapsed() < 3
    assert is_empty(servers[3:])
    resume(masters, 3)
    assert wait_until(lambda: locks.holders("x") and sizes(servers) == [0] * 5)
    assert set(locks.release_each(leases)) == {GONE}


@pytest.mark.slow
@pytest.mark.usefixtures("no_collector")
def test_release_each_when_interrupted_then_sends_all_releases_all_the_same(
    make_locks: MakeLocks, masters: LocalMasters, raw: Raw
) -> None:
    locks = connected(make_locks(masters.urls, ttl=60, round_timeout=3))
    leases = locks.acquire_each([str(i) for i in range(MANY)])
    servers = [raw(url) for url in masters.urls]
    assert settled(lambda: sizes(servers), [MANY] * 5) == [MANY] * 5
    pause(masters, 3)
    with pytest.raises(Interrupt), alarm(0.03, interrupt):
        locks.release_each(leases)
    assert is_empty(servers[3:])
    resume(masters, 3)
    assert wait_until(lambda: locks.holders("x") and sizes(servers) == [0] * 5)


def test_leases_of_many_when_forked_then_are_not_the_childs(
    locks: FastRedlock,
) -> None:
    leases = locks.acquire_each(NAMES)

    def in_child() -> list[bool]:
        return [
            locks.release_each(leases) == [GONE] * 100,
            locks.acquire_each(NAMES) == [None] * 100,
            None not in locks.acquire_each(["x", "y"]),
        ]

    assert Fork(in_child).result() == [True] * 3
    assert locks.release_each(leases) == [RELEASED] * 100


# ---- crowds


@pytest.mark.slow
def test_threads_when_they_want_the_same_in_opposite_order_then_each_has_one_holder(
    locks: FastRedlock,
) -> None:
    names = [str(i) for i in range(500)]

    def take(order: int) -> list[str]:
        leases = locks.acquire_each(names[::order])
        return [str(lease.resource) for lease in leases if lease is not None]

    for _ in range(5):
        takes = [lambda order=order: take(order) for order in (1, -1, 1, -1)]
        held = [name for taken in in_threads(takes) for name in taken]
        assert len(held) == len(set(held))
        adopted = [locks.acquire(name, timeout=0) for name in names[:3]]
        assert all(lease is None for lease in adopted if lease in held)
        for server in locks._driver.settings.endpoints:
            with redis.Redis(host=server.host, port=int(server.port)) as raw:
                raw.flushall()


@pytest.mark.slow
def test_threads_when_single_and_many_are_mixed_then_all_get_theirs(
    locks: FastRedlock,
) -> None:
    def many(thread: int) -> int:
        names = [f"{thread}:{i}" for i in range(300)]
        told = [
            locks.release_each(locks.acquire_each(names)).count(RELEASED)
            for _ in range(10)
        ]
        return sum(told)

    def single(thread: int) -> int:
        told = [granted(locks.acquire(f"{thread}")).release() for _ in range(200)]
        return told.count(RELEASED)

    bodies = [lambda i=i: many(i) for i in range(3)]
    bodies += [lambda i=i: single(i) for i in range(3)]
    assert in_threads(bodies) == [3000] * 3 + [200] * 3


@pytest.mark.slow
def test_followers_when_the_engine_is_closed_then_are_told(
    make_locks: MakeLocks, masters: LocalMasters
) -> None:
    locks = connected(make_locks(masters.urls, ttl=200))
    pause(masters, 3)

    def take(thread: int) -> str:
        with pytest.raises(FastRedlockError) as raised:
            locks.acquire_each([f"{thread}:{name}" for name in NAMES])
        return str(raised.value)

    with later(0.2, locks.close):
        told = in_threads([lambda i=i: take(i) for i in range(3)])
    assert all("closed" in text for text in told)


@pytest.mark.slow
def test_ten_thousand_of_big_keys_when_one_master_is_stalled_and_one_slow_then_go(
    make_locks: MakeLocks, masters: LocalMasters
) -> None:
    names = [f"{i:05}" * 200 for i in range(MANY)]  # 10 MB for each master
    with Proxy(masters.urls[1]) as slow:
        urls = [masters.urls[0], slow.url, *masters.urls[2:]]
        locks = connected(make_locks(urls, ttl=60))
        slow.set(delay=0.005)
        pause(masters, 1)
        leases = locks.acquire_each(names)
        assert None not in leases
        assert locks.release_each(leases) == [RELEASED] * MANY
    resume(masters, 1)


def test_keys_of_a_megabyte_each_when_taken_together_then_are_granted(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    leases = all_granted(locks.acquire_each([f"{i}" * (1 << 20) for i in range(9)]))
    assert locks.release_each(leases) == [RELEASED] * 9
    assert is_empty(servers)
