"""`close()` beside everything else: no call under way leaves a key."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from itertools import count
from threading import Thread
from typing import Any

import pytest
import redis

from fastredlock import FastRedlock, FastRedlockError, ReleaseStatus
from fastredlock.testing import LocalMasters
from tests.support.calls import connected, granted
from tests.support.fixtures import MakeLocks
from tests.support.keys import KEY, NOBODY, is_empty, settled_values
from tests.support.masters import pause, resume
from tests.support.processes import open_files
from tests.support.proxy import Proxy
from tests.support.threads import later
from tests.support.waiting import settled, stopwatch

TTL = 60.0  # s; longer than any test waits: what is gone was undone

Work = Callable[[FastRedlock, str], Any]


def pair(locks: FastRedlock, name: str) -> None:
    with locks.lock(name, ttl=TTL):
        pass


def pair_of_all(locks: FastRedlock, name: str) -> None:
    lease = granted(locks.acquire_all([name, f"{name}'"], ttl=TTL))
    lease.release()


def pairs(locks: FastRedlock, name: str) -> None:
    leases = locks.acquire_each([f"{name}:{i}" for i in range(300)], ttl=TTL)
    locks.release_each(leases)


def contend(locks: FastRedlock, name: str) -> None:
    with locks.lock(f"{int(name) % 2}", ttl=TTL, timeout=5):
        pass


@pytest.mark.slow
@pytest.mark.parametrize("work", [pair, pair_of_all, pairs, contend])
def test_close_when_other_threads_take_locks_then_leaves_no_key(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis], work: Work
) -> None:
    """Seen: on 5 of 5 masters until the ttl."""
    seed = random.randrange(1 << 32)
    print(f"{seed=}")
    chance = random.Random(seed)
    for _ in range(8):
        locks = connected(make_locks(urls))
        numbers = count()

        def run(locks: FastRedlock = locks, numbers: Any = numbers) -> None:
            with suppress(FastRedlockError):
                while True:
                    work(locks, str(next(numbers)))

        threads = [Thread(target=run) for _ in range(6)]
        for thread in threads:
            thread.start()
        time.sleep(chance.uniform(0.002, 0.03))
        locks.close()
        for thread in threads:
            thread.join()
        assert is_empty(servers)


@pytest.mark.parametrize("at", [0.0, 0.004, 0.008, 0.012, 0.016, 0.02])
def test_close_when_an_acquire_is_under_way_then_it_fails_and_leaves_no_key(
    make_locks: MakeLocks, masters: LocalMasters, raw: Any, at: float
) -> None:
    """Seen: a SET in flight was never rolled back."""
    taken: list[Any] = []

    def take() -> None:
        with suppress(FastRedlockError):
            taken.append(locks.acquire(KEY, ttl=TTL))

    with ExitStack() as opened:
        proxies = [opened.enter_context(Proxy(url)) for url in masters.urls]
        locks = connected(make_locks([proxy.url for proxy in proxies]))
        for proxy in proxies:
            proxy.set(delay=0.01)
        thread = Thread(target=take)
        thread.start()
        time.sleep(at)
        locks.close()
        thread.join()
        for lease in taken:  # it was granted just before
            lease.release()
        assert settled_values([raw(url) for url in masters.urls], NOBODY) == NOBODY


def test_with_block_when_it_ends_after_close_then_releases(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    """Seen: the key stood on 5 of 5."""
    with locks.lock(KEY, ttl=TTL):
        locks.close()
    assert settled_values(servers, NOBODY) == NOBODY


def test_release_when_closed_then_is_confirmed_and_leaves_no_descriptor(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis]
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
    with pytest.raises(FastRedlockError, match="closed"):
        locks.acquire(KEY)


def test_release_when_closed_and_a_minority_is_away_then_reaches_the_others(
    make_locks: MakeLocks, masters: LocalMasters, raw: Any
) -> None:
    locks = connected(make_locks(masters.urls))
    lease = granted(locks.acquire(KEY, ttl=TTL))
    masters.stop(0)
    masters.pause(1)
    locks.close()
    with stopwatch() as elapsed:
        assert lease.release() is ReleaseStatus.RELEASED
    assert elapsed() < 3
    servers = [raw(url) for url in masters.urls[2:]]
    assert settled_values(servers, NOBODY[2:]) == NOBODY[2:]


def test_close_when_a_release_waits_for_a_quorum_then_it_reaches_the_connected(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis]
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
        thread = Thread(target=lease.release)
        thread.start()
        time.sleep(0.1)
        locks.close()
        thread.join()
        assert settled_values(servers[3:], NOBODY[3:]) == NOBODY[3:]


def test_close_when_masters_are_silent_then_is_done_in_time(
    make_locks: MakeLocks, masters: LocalMasters
) -> None:
    locks = connected(make_locks(masters.urls, round_timeout=0.05))
    granted(locks.acquire(KEY, ttl=TTL))
    pause(masters, 3)
    with pytest.raises(FastRedlockError):
        locks.acquire("other", timeout=0)
    with stopwatch() as elapsed:
        locks.close()
    assert elapsed() < 0.9
    resume(masters, 3)


@pytest.mark.parametrize("call", ["acquire", "acquire_all", "acquire_each"])
def test_close_when_a_thread_waits_for_silent_masters_then_undoes_it_on_the_others(
    make_locks: MakeLocks, masters: LocalMasters, raw: Any, call: str
) -> None:
    """Seen: the grants of a minority stayed there, and the caller waited on."""
    locks = connected(make_locks(masters.urls, round_timeout=5))
    servers = [raw(url) for url in masters.urls[3:]]
    pause(masters, 3)
    with stopwatch() as elapsed, later(0.2, locks.close):
        with pytest.raises(FastRedlockError, match="closed"):
            getattr(locks, call)(KEY if call == "acquire" else [KEY], ttl=TTL)
        assert elapsed() < 2
    assert settled_values(servers, NOBODY[3:]) == NOBODY[3:]
    resume(masters, 3)


def test_close_when_a_thread_waits_and_all_masters_are_silent_then_ends_in_its_time(
    make_locks: MakeLocks, masters: LocalMasters
) -> None:
    """Seen: 1 s; the leader waited on in the step in which it took the close()."""
    locks = connected(make_locks(masters.urls, round_timeout=5))
    pause(masters, 5)
    took: list[float] = []

    def close() -> None:
        with stopwatch() as elapsed:
            locks.close()
        took.append(elapsed())

    with later(0.05, close), pytest.raises(FastRedlockError, match="closed"):
        locks.acquire(KEY, ttl=TTL)
    assert took[0] < 0.7  # 0.25 s
    resume(masters, 5)
