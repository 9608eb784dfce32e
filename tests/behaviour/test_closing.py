"""Making, connecting, closing and entering: no call under way leaves a key, nor does
a client anything else; `close(release=True)` releases what it holds.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from itertools import count
from typing import Any

import pytest
import redis

from fastredlock import (
    FastRedlock,
    FastRedlockError,
    Lease,
    ReleaseStatus,
)
from fastredlock._locking.driver import Driver
from fastredlock._locking.locks import held_leases
from fastredlock.testing import LocalMasters
from tests.support import ending_programs
from tests.support.calls import all_granted, connected, granted
from tests.support.fixtures import MakeLocks, Servers, blocking
from tests.support.keys import (
    KEY,
    NOBODY,
    is_empty,
    settled_values,
)
from tests.support.masters import pause, resume
from tests.support.processes import beside_connections, open_files, run_to_its_end
from tests.support.proxy import Proxy
from tests.support.threads import Interrupt, beside, later
from tests.support.waiting import settled, stopwatch, wait_until

TTL = 60.0  # s; longer than any test waits: what is gone was undone

Work = Callable[[FastRedlock, str], Any]


def pairs(locks: FastRedlock, name: str) -> None:
    leases = locks.acquire_each([f"{name}:{i}" for i in range(300)], ttl=TTL)
    locks.release_each(leases)


def contend(locks: FastRedlock, name: str) -> None:
    with locks.lock(f"{int(name) % 2}", ttl=TTL, timeout=5):
        pass


@pytest.mark.slow
@pytest.mark.parametrize("work", [pairs, contend])
def test_close_when_other_threads_take_locks_then_leaves_no_key(
    make_locks: MakeLocks, urls: list[str], servers: Servers, work: Work
) -> None:
    """Seen: on 5 of 5 masters until the ttl."""
    seed = random.randrange(1 << 32)
    print(f"{seed=}")
    chance = random.Random(seed)
    for _ in range(5):
        locks = connected(make_locks(urls))
        numbers = count()

        def run(locks: FastRedlock = locks, numbers: Any = numbers) -> None:
            with suppress(FastRedlockError):
                while True:
                    work(locks, str(next(numbers)))

        with beside(*[run] * 6):
            time.sleep(chance.uniform(0.002, 0.03))  # at any moment of their calls
            locks.close()
        assert is_empty(servers)


@pytest.mark.parametrize("release", [False, True])
def test_with_block_when_it_ends_after_close_then_releases(
    locks: FastRedlock, servers: Servers, release: bool
) -> None:
    """Seen: the key stood on 5 of 5."""
    with locks.lock(KEY, ttl=TTL) as lease:
        locks.close(release=release)
        assert lease.is_valid is not release
    assert settled_values(servers, NOBODY) == NOBODY


def test_release_when_closed_then_is_confirmed_and_leaves_no_descriptor(
    make_locks: MakeLocks, urls: list[str], servers: Servers
) -> None:
    files = open_files()
    locks = make_locks(urls)
    leases = [granted(locks.acquire(f"{i}", ttl=TTL)) for i in range(3)]
    leases += [granted(each) for each in locks.acquire_each(["a", "b", "c"], ttl=TTL)]
    locks.close()
    assert leases[0].release() is ReleaseStatus.RELEASED
    assert leases[1].release() is ReleaseStatus.RELEASED
    assert locks.release_each(leases[2:]) == [ReleaseStatus.RELEASED] * 4
    assert is_empty(servers)
    assert settled(open_files, files) == files


def test_close_when_a_release_waits_for_a_quorum_then_it_reaches_the_connected(
    make_locks: MakeLocks, urls: list[str], servers: Servers
) -> None:
    """Seen: it was never sent, also where a master was connected and well."""
    with ExitStack() as opened:
        silent = [opened.enter_context(Proxy(url)) for url in urls[:3]]
        locks = make_locks([*(p.url for p in silent), *urls[3:]], connect_timeout=20)
        connected(locks)
        lease = granted(locks.acquire(KEY, ttl=TTL))
        for proxy in silent:
            proxy.set(holds_down=True)
            proxy.reset()
        with pytest.raises(FastRedlockError):  # finds the connections cut
            locks.acquire("other", timeout=0)
        with beside(lease.release):
            time.sleep(0.1)  # until the release waits
            locks.close()
        assert settled_values(servers[3:], NOBODY[3:]) == NOBODY[3:]


@pytest.mark.parametrize(("release", "most"), [(False, 0.9), (True, 4)])
def test_close_when_masters_are_silent_then_is_done_in_time(
    make_locks: MakeLocks, masters: LocalMasters, release: bool, most: float
) -> None:
    locks = connected(make_locks(masters.urls, round_timeout=0.05))
    lease = granted(locks.acquire(KEY, ttl=TTL))
    pause(masters, 3)
    with pytest.raises(FastRedlockError):
        locks.acquire("other", timeout=0)
    with stopwatch() as elapsed:
        locks.close(release=release)
    assert elapsed() < most
    assert lease.is_valid is not release
    resume(masters, 3)


@pytest.mark.parametrize(
    ("call", "silent"),
    [("acquire", 3), ("acquire_all", 3), ("acquire_each", 3), ("acquire", 5)],
)
def test_close_when_a_thread_waits_for_silent_masters_then_undoes_it_on_the_others(
    make_locks: MakeLocks, masters: LocalMasters, raw: Any, call: str, silent: int
) -> None:
    """Seen: the grants of a minority stayed there, and the caller waited on.

    Where all were silent: 1 s; the leader waited on in the step that took the close().
    """
    locks = connected(make_locks(masters.urls, round_timeout=5))
    servers = [raw(url) for url in masters.urls[silent:]]
    pause(masters, silent)
    took: list[float] = []

    def close() -> None:
        with stopwatch() as elapsed:
            locks.close()
        took.append(elapsed())

    with later(0.1, close), pytest.raises(FastRedlockError, match="closed"):
        getattr(locks, call)(KEY if call == "acquire" else [KEY], ttl=TTL)
    assert took[0] < (0.7 if silent == 5 else 1.8)  # 0.25 s
    assert settled_values(servers, NOBODY[silent:]) == NOBODY[silent:]
    resume(masters, silent)


def connection_ids(server: redis.Redis) -> set[str]:
    clients = server.client_list()
    return {each["id"] for each in clients if each["name"].startswith("fastredlock")}


@pytest.mark.parametrize(
    "call",
    [
        lambda locks: locks.acquire(),
        lambda locks: locks.connect(),
        lambda locks: locks.holders(),
        lambda locks: locks.lock().__enter__(),
        lambda locks: locks.adopt(KEY, "token").extend(),
    ],
    ids=["acquire", "connect", "holders", "lock", "extend"],
)
def test_closed_when_used_then_says_that_it_is_closed(
    locks: FastRedlock, call: Callable[[FastRedlock], object]
) -> None:
    assert locks.acquire(KEY)
    locks.close()
    with pytest.raises(FastRedlockError, match="this FastRedlock is closed"):
        call(locks)


def test_client_has_one_connection_to_each_from_connect_to_close_and_none_then(
    make_locks: MakeLocks, urls: list[str], servers: Servers, driver: str
) -> None:
    def mine() -> list[int]:
        now = [connection_ids(server) for server in servers]
        return [len(new - old) for new, old in zip(now, before, strict=True)]

    files = open_files()
    before = [connection_ids(server) for server in servers]  # some are ending
    locks = make_locks(urls)
    locks.connect()
    for _ in range(2):
        assert mine() == [1] * 5
        assert locks.stats().connects == 5
        assert open_files() == files + 5 + beside_connections(driver)
        granted(locks.acquire(KEY)).release()
    locks.close()
    locks.close()
    assert open_files() == files
    assert settled(mine, [0] * 5) == [0] * 5


def keys(servers: Servers) -> set[bytes]:
    return {key for server in servers for key in server.keys()}  # noqa: SIM118


def test_close_with_release_frees_every_lease_of_this_client_and_no_other(
    make_locks: MakeLocks, servers: Servers, urls: list[str]
) -> None:
    locks, other = make_locks(urls), make_locks(urls)
    others = granted(other.acquire("other"))
    each = all_granted(locks.acquire_each([f"each{i}" for i in range(100)]))
    extended = granted(locks.acquire("extended"))
    extended.extend(30)
    held = [
        granted(locks.acquire(KEY, ttl=60)),
        granted(locks.acquire_all(["a", "b"])),
        granted(locks.acquire("kept", keep_alive=True)),
    ]
    locks.close(release=True)
    assert wait_until(lambda: keys(servers) == {b"other"})
    assert not any(lease.is_valid for lease in [*each, extended, *held])
    assert others.is_valid
    assert locks.release_each([]) == []
    assert locks.release_each(each) == [ReleaseStatus.GONE] * 100


def test_close_with_release_leaves_what_was_adopted_or_released_alone(
    make_locks: MakeLocks, servers: Servers, urls: list[str]
) -> None:
    locks, taker = make_locks(urls), make_locks(urls)
    lease = granted(taker.acquire(KEY))
    adopted = locks.adopt(KEY, lease.token)
    granted(locks.acquire("r")).release()
    locks.close(release=True)
    assert settled_values(servers, [lease.token] * 5) == [lease.token] * 5
    assert adopted.release().value == "released"


@blocking
def test_close_with_release_when_interrupted_then_frees_what_was_taken_meanwhile(
    locks: FastRedlock, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = []

    def close(_: Driver) -> None:
        taken.append(granted(locks.acquire(KEY)))  # by another thread
        raise Interrupt

    with monkeypatch.context() as patched:
        patched.setattr(Driver, "close", close)
        with pytest.raises(Interrupt):
            locks.close(release=True)
    assert taken
    assert settled_values(servers, NOBODY) == NOBODY


@blocking
def test_lease_when_the_collector_does_not_see_it_then_is_found_all_the_same(
    make_locks: MakeLocks, urls: list[str]
) -> None:
    """Seen: after gc.freeze() of a program, its keys were left."""
    locks = make_locks(urls)
    lease = granted(locks.acquire(KEY))
    gc.freeze()
    try:
        assert held_leases(locks._driver, Lease) == [lease]
    finally:
        gc.unfreeze()
    locks.close(release=True)
    assert not lease.is_valid


@pytest.mark.slow
def test_close_with_release_when_two_threads_close_then_both_end(
    urls: list[str], servers: Servers
) -> None:
    """Seen: one for ever, with the GIL, as the other one let go of the waker."""
    done = run_to_its_end(ending_programs, "close_by_two_threads", *urls, within=30)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")
    assert keys(servers) == set()
