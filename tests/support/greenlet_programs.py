"""Programs of greenlets, one after the other.

    python -m tests.support.greenlet_programs

In a process of its own, which gevent patches, with its own LocalMasters.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import gevent
import gevent.monkey

import fastredlock  # before the patch: what it had bound by name would stay unpatched
import fastredlock.compat.redis
from fastredlock import QuorumUnreachableError, ReleaseStatus
from fastredlock._core import calling_thread
from fastredlock.testing import LocalMasters

gevent.monkey.patch_all()
import redis  # noqa: E402 - as patched

spawn, kill, Timeout = gevent.spawn, gevent.kill, gevent.Timeout


def in_hub(call: Callable[[], object]) -> None:
    gevent.get_hub().loop.run_callback(call)


def in_thread(call: Callable[[], object]) -> Any:
    return gevent.get_hub().threadpool.spawn(call).get()


switch = time.sleep  # as patched: it lets the other greenlets run
KEY = "orders:42"
RELEASED = ReleaseStatus.RELEASED


def run_all(calls: list[Callable[[], object]], seconds: float = 20) -> None:
    """Run each in a greenlet until all have ended well."""
    ended: list[int] = []

    def run(i: int, call: Callable[[], object]) -> None:
        call()
        ended.append(i)

    for i, call in enumerate(calls):
        spawn(run, i, call)
    wait_until(lambda: len(ended) == len(calls), seconds)


def wait_until(is_so: Callable[[], object], seconds: float = 5) -> None:
    limit = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < limit
        switch(0.005)


class Ticker:
    """A greenlet that wants to run every 5 ms."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._is_over = False
        spawn(self._tick)
        switch(0.02)

    def _tick(self) -> None:
        last = time.monotonic()
        while not self._is_over:
            switch(0.005)
            last, before = time.monotonic(), last
            self.longest = max(self.longest, last - before)

    def end(self) -> float:
        self._is_over = True
        switch(0.02)
        return self.longest


@contextmanager
def frozen(masters: LocalMasters, count: int = 5) -> Iterator[None]:
    """Let the first masters stand still while the block runs."""
    for i in range(count):
        masters.pause(i)
    yield
    for i in range(count):
        masters.resume(i)


def take_and_give(locks: fastredlock.FastRedlock) -> None:
    with locks.lock(KEY, timeout=5):
        pass


def take_turns(
    enter: Callable[[], Any], callers: int, times: int, in_threads: int = 0
) -> None:
    """Let callers in greenlets, and in native threads, be inside in turn."""
    inside: list[int] = []
    entered = 0

    def work() -> None:
        nonlocal entered
        for _ in range(times):
            with enter():
                inside.append(1)
                entered += 1
                assert len(inside) == 1
                switch(0.0005)
                inside.pop()

    run_all([work] * callers + [lambda: in_thread(work)] * in_threads)
    assert entered == (callers + in_threads) * times


def by_name(masters: LocalMasters) -> list[str]:
    return [url.replace("127.0.0.1", "localhost") for url in masters.urls]


def keys(masters: LocalMasters) -> list[int]:
    """Count the keys on each master."""
    sizes = []
    for port in masters.ports:
        with socket.create_connection(("127.0.0.1", port)) as server:
            server.sendall(b"DBSIZE\r\n")
            sizes.append(int(server.recv(64)[1:]))
    return sizes


def use_all(masters: LocalMasters) -> None:
    """Use the whole blocking interface, masters by name."""
    locks = fastredlock.FastRedlock(by_name(masters))
    locks.connect()
    lease = locks.acquire(KEY, ttl=5)
    assert lease is not None
    assert locks.acquire(KEY, timeout=0.05) is None
    assert lease.extend(9) > 8
    assert lease.release() is RELEASED
    leases = locks.acquire_each([f"{i}" for i in range(500)])
    assert locks.release_each(leases) == [RELEASED] * 500
    with locks.lock(KEY, timeout=1):
        assert sum(vote.vote is fastredlock.Vote.TAKEN for vote in locks.holders(KEY))
    locks.close()
    assert keys(masters) == [0] * 5


def exclude(masters: LocalMasters) -> None:
    """Let 50 greenlets take one lock in turn, also by one object, and with threads."""
    locks = fastredlock.FastRedlock(masters.urls, ttl=20)
    lock = locks.lock(KEY, timeout=20)
    take_turns(lambda: lock, 10, 5)  # each leaves its own lease
    take_turns(lambda: locks.lock(KEY, timeout=20), 50, 5)
    take_turns(lambda: locks.lock(KEY, timeout=20), 5, 20, in_threads=5)
    run_all([lambda: [locks.acquire(f"{i}", timeout=0) for i in range(9)]])
    locks.close(release=True)


def stay_awake(masters: LocalMasters) -> None:
    """Let others run while calls, leader and followers, wait for silent servers."""
    locks = fastredlock.FastRedlock(masters.urls)
    locks.connect()

    def try_in_vain() -> None:
        began = time.monotonic()
        with suppress(QuorumUnreachableError):
            assert locks.acquire(KEY, timeout=0.5) is None
        assert time.monotonic() - began < 1

    gaps: list[float] = []
    with frozen(masters):
        while not gaps or (gaps[-1] > 0.1 and len(gaps) < 3):  # a loaded machine
            ticker = Ticker()
            run_all([try_in_vain] * 3)
            gaps.append(ticker.end())
    assert min(gaps) <= 0.1, gaps
    take_and_give(locks)
    locks.close()


def give_up(masters: LocalMasters) -> None:
    """Kill or time out a greenlet that leads, and one that follows; no key is left."""
    locks = fastredlock.FastRedlock(masters.urls, round_timeout=2)
    locks.connect()
    began: list[int] = []
    outcomes: list[str] = []

    def wait(name: str) -> None:
        began.append(1)
        try:
            locks.acquire(name)
        except BaseException as error:
            outcomes.append(type(error).__name__)

    def time_out() -> None:
        began.append(1)
        with Timeout(0.2, False):
            locks.acquire("timed out")
        outcomes.append("Timeout")

    with frozen(masters):
        greenlets = [spawn(wait, "leader"), spawn(wait, "follower")]
        spawn(time_out)
        wait_until(lambda: len(began) == 3 and outcomes == ["Timeout"])
        for greenlet in greenlets:
            kill(greenlet)
        wait_until(lambda: len(outcomes) == 3)
    assert sorted(outcomes) == ["GreenletExit", "GreenletExit", "Timeout"], outcomes
    take_and_give(locks)
    wait_until(lambda: keys(masters) == [0] * 5)
    locks.close()


def sleep_in_between(masters: LocalMasters) -> None:
    """Sleep behind calls: as long as was asked for, whatever their hub had to tell.

    Seen: of masters that answer at once, the second to fifth ended the next sleep.
    """

    def sleep() -> None:
        began = time.monotonic()
        time.sleep(0.01)  # the subject
        assert time.monotonic() - began > 0.0099

    locks = fastredlock.FastRedlock(masters.urls)
    for _ in range(100):
        with locks.lock(KEY, timeout=5):
            sleep()
    for _ in range(3):
        with fastredlock.FastRedlock(masters.urls) as other:
            other.connect()
            sleep()


def close_while_the_leader_is_killed(masters: LocalMasters) -> None:
    """Kill the greenlet that leads, and closes for another: that one returns."""
    locks = fastredlock.FastRedlock(masters.urls, round_timeout=5)
    locks.connect()
    ended: list[str] = []

    def lead() -> None:
        try:
            locks.acquire(KEY)
        except BaseException as error:
            ended.append(type(error).__name__)

    def close() -> None:
        locks.close()
        ended.append("closed")

    with frozen(masters):
        leader = spawn(lead)
        switch(0.02)
        spawn(close)
        switch(0.02)  # the leader has taken the request, and waits for replies
        kill(leader)
        wait_until(lambda: len(ended) == 2)
        assert "closed" in ended, ended


def release_in_the_hub(masters: LocalMasters) -> None:
    """Release in a callback of the hub while a greenlet leads, and waits."""
    locks = fastredlock.FastRedlock(masters.urls, round_timeout=5)
    lease = locks.acquire("other")
    assert lease is not None
    for i in range(3):
        masters.pause(i)
    times: list[float] = []
    statuses: list[ReleaseStatus] = []

    def lead() -> None:
        began = time.monotonic()
        with locks.lock(KEY, ttl=60):
            times.append(time.monotonic() - began)

    spawn(lead)
    switch(0.1)
    masters.stop(0)
    for i in range(1, 3):
        masters.resume(i)
    for i in range(3):  # the callback's own round may find the leader's replies
        in_hub(lambda: statuses.append(lease.release()))
        wait_until(lambda i=i: len(statuses) > i)
    wait_until(lambda: times)
    # On a loaded machine they stand still so long that their connections are given up.
    is_late = locks.stats().losses > 1
    assert statuses[0] is RELEASED or is_late, statuses
    assert times[0] < 1 or is_late, times
    locks.close()


def fork_while_waiting(masters: LocalMasters) -> None:
    """Fork in one greenlet while others wait: their copies end with an error."""
    locks = fastredlock.FastRedlock(masters.urls, round_timeout=2)
    locks.connect()
    outcomes: list[str] = []

    def wait(name: str) -> None:
        try:
            lease = locks.acquire(name, timeout=5)
            outcomes.append(f"{lease and lease.release().name}")
        except OSError as error:
            outcomes.append(f"{error.strerror}")

    with frozen(masters):
        for i in range(3):
            spawn(wait, f"{i}")
        switch(0.1)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                wait("child")
                wait_until(lambda: len(outcomes) == 4)
                told = ["RELEASED"] + ["forked while this call waited"] * 3
                assert sorted(outcomes) == sorted(told), outcomes
                status = 0
            finally:
                sys.stderr.flush()
                os._exit(status)
    wait_until(lambda: len(outcomes) == 3)
    assert outcomes == ["RELEASED"] * 3, outcomes
    assert os.waitpid(child, 0)[1] == 0
    take_and_give(locks)
    assert keys(masters) == [0] * 5
    assert locks.stats().losses == 0
    locks.close()


def use_compat(masters: LocalMasters) -> None:
    """Share one Lock of redis-py's kind between greenlets, each with its own token."""
    with redis.Redis.from_url(by_name(masters)[0]) as client:
        lock = client.lock(KEY, timeout=5, lock_class=fastredlock.compat.redis.Lock)
        ticker = Ticker()
        lock.sleep = 0.01
        take_turns(lambda: lock, 10, 3)
        assert ticker.end() < 1
        assert keys(masters)[0] == 0


def keep_leases(masters: LocalMasters) -> None:
    """Keep the leases of many greenlets: their keeper is one more, and wakes them."""
    locks = fastredlock.FastRedlock(by_name(masters), ttl=0.6)
    began, taken = time.monotonic(), list[float]()

    def hold(i: int) -> None:
        with locks.lock(f"{KEY}:{i}", keep_alive=True) as lease:
            taken.append(time.monotonic() - began)
            switch(1.5)
            lease.check()

    ticker = Ticker()
    run_all([lambda i=i: hold(i) for i in range(30)])
    assert max(taken) < 0.5  # else the keeper sleeps in a lock from before the patch
    lease = locks.acquire(KEY, keep_alive=True)
    assert lease is not None
    with frozen(masters, 3):
        assert lease.lost.wait(5)
    assert ticker.end() < 1
    locks.close()


def replace_a_leader(masters: LocalMasters, how: str) -> None:
    """Lead in a native thread that ends, or whose hub does, without unwinding."""
    locks = fastredlock.FastRedlock(masters.urls)
    with fastredlock.FastRedlock(masters.urls) as other:
        held, left, kept = other.acquire(KEY), list[int](), list[object]()
        assert held is not None

        def lead() -> None:
            kept.append(spawn(locks.acquire, KEY, timeout=20))
            switch(0.1)  # until it leads, and waits
            if how == "destroyed":
                gevent.get_hub().destroy(destroy_loop=True)
            left.append(1)
            while how == "destroyed" and len(left) < 2:
                gevent.monkey.get_original("time", "sleep")(0.01)

        gevent.monkey.get_original("_thread", "start_new_thread")(lead, ())
        wait_until(lambda: left)
        switch(0.05)
        assert held.release() is RELEASED
    for name in ("another", KEY):  # its own round was undone
        lease = locks.acquire(name, timeout=2)
        assert lease is not None
        assert lease.release() is RELEASED
    locks.close()
    left.append(2)
    assert keys(masters) == [0] * 5


def replace_leaders(masters: LocalMasters) -> None:
    for how in ("ended", "destroyed"):
        replace_a_leader(masters, how)


def outlive_a_follower(masters: LocalMasters) -> None:
    """Follow in a native thread that ends: its turn comes, and its lock is undone."""
    locks, left = fastredlock.FastRedlock(masters.urls), list[object]()
    with fastredlock.FastRedlock(masters.urls) as other:
        held = other.acquire(KEY)
        assert held is not None
        leader = spawn(locks.acquire, "another's", timeout=0)
        assert leader.get() is not None
        leader = spawn(locks.acquire, KEY, timeout=10)
        switch(0.2)

        def follow() -> None:
            left.extend([spawn(locks.acquire, KEY, timeout=20), switch(0.3)])

        gevent.monkey.get_original("_thread", "start_new_thread")(follow, ())
        wait_until(lambda: left)
        switch(0.2)
        assert held.release() is RELEASED
        lease = leader.get()
        assert lease is not None
        assert lease.release() is RELEASED
        assert (lease := other.acquire(KEY, timeout=2)) is not None
        assert lease.release() is RELEASED
    locks.close()


def call_beside_a_loop(masters: LocalMasters) -> None:
    """Be a caller in each greenlet, while another one of the thread runs a loop.

    Seen: all of them were the one task, and ten were inside of one reentrant block.
    """
    locks = fastredlock.FastRedlock(masters.urls)
    callers: list[object] = []

    async def run() -> None:
        callers.append(calling_thread())
        while len(callers) < 2:
            with locks.lock("a task's", timeout=5):
                switch(0.005)  # it suspends the task in the middle of a step
            await asyncio.sleep(0.005)

    @contextmanager
    def entered_twice() -> Iterator[None]:
        lock = locks.lock(KEY, timeout=10, reentrant=True)
        with lock, lock:
            yield

    def look() -> None:
        with suppress(fastredlock.FastRedlockError):
            assert locks.current("mine") is None

    spawn(lambda: asyncio.run(run()))
    wait_until(lambda: callers)
    take_turns(entered_twice, 10, 3)
    with locks.lock("mine", timeout=5):
        run_all([look])
    callers.append(calling_thread())
    assert isinstance(callers[0], tuple), callers  # the task
    assert not isinstance(callers[1], tuple), callers
    switch(0.05)
    locks.close()


PROGRAMS = [
    *(fork_while_waiting, replace_leaders, outlive_a_follower, call_beside_a_loop),
    *(use_all, exclude, stay_awake, sleep_in_between, give_up),
    *(close_while_the_leader_is_killed, use_compat, keep_leases),
    release_in_the_hub,  # stops a master
]


if __name__ == "__main__":
    with LocalMasters(5) as masters:
        for program in PROGRAMS:
            program(masters)
            masters.flush()
