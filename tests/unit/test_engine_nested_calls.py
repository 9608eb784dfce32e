"""Calls from a finalizer: never in the middle of a pass."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from threading import current_thread
from threading import enumerate as enumerate_threads

import pytest

from fastredlock import FastRedlock, FastRedlockError, Lease, ReleaseStatus
from fastredlock._core import Engine
from fastredlock.testing import LocalMasters
from tests.support import by_hand as hand
from tests.support.by_hand import START_NS, TERMS, S, begin
from tests.support.calls import connected, granted
from tests.support.fixtures import MakeLocks, Servers
from tests.support.processes import Fork
from tests.support.waiting import wait_until

T0 = START_NS + S
RECALLS = "fastredlock recalls"  # the thread that ends idle keys


@contextmanager
def at_every_collection(do: Callable[[], None]) -> Iterator[None]:
    """Call it, in the place of finalizers, wherever an object is made in the block."""

    def on_collection(phase: str, _: dict[str, int]) -> None:
        if phase == "stop":
            do()

    thresholds = gc.get_threshold()
    gc.collect()
    gc.callbacks.append(on_collection)
    gc.set_threshold(1, 1, 1)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(on_collection)


def test_pass_when_each_object_would_collect_garbage_then_calls_find_it_whole(
    make_locks: MakeLocks, urls: list[str]
) -> None:
    """Calls of a finalizer are calls between two passes."""
    locks = connected(make_locks(urls))
    inner: list[bool] = []

    def call() -> None:
        if len(inner) < 200:
            inner.append(False)
            lease = granted(locks.acquire(f"inner {len(inner)}"))
            inner[-1] = lease.release() is ReleaseStatus.RELEASED

    with at_every_collection(call):
        for i in range(20):
            lease = granted(locks.acquire(f"outer {i}"))
            assert lease.release() is ReleaseStatus.RELEASED
    assert inner
    assert all(inner)


@pytest.mark.slow
def test_idle_keys_when_a_finalizer_takes_them_as_they_end_then_none_is_released(
    make_locks: MakeLocks, urls: list[str], servers: Servers
) -> None:
    """Seen: a lease was valid, and its key was gone from all masters."""
    locks = connected(make_locks(urls, linger=30))
    keys = [f"idle {i}" for i in range(10)]
    taken: list[Lease] = []

    def take() -> None:
        lingered = locks.stats().lingered
        while current_thread().name == RECALLS and len(taken) < len(keys):
            taken.append(granted(locks.acquire(keys[len(taken)])))
            if locks.stats().lingered > lingered:
                return  # it was idle, or is about to end

    for key in ("warm", *keys):
        granted(locks.acquire(key)).release()
    held = [locks.acquire(f"held {i}") for i in range(100)]  # no Round is used again
    ours = [each["id"] for each in servers[0].client_list() if each["name"]]
    with at_every_collection(take):
        for each in ours:
            servers[0].client_kill_filter(_id=each)
        wait_until(lambda: RECALLS not in [each.name for each in enumerate_threads()])
    for lease in (*taken, *map(granted, held)):
        assert lease.release() is ReleaseStatus.RELEASED


def test_forked_child_when_a_finalizer_calls_in_its_first_call_then_leaves_our_sockets(
    make_locks: MakeLocks, urls: list[str]
) -> None:
    """Seen: it was granted a lock by the replies to its parent's connections."""
    locks = connected(make_locks(urls))
    connects: list[int] = []

    def call() -> None:
        if next(counted) == 0:
            granted(locks.acquire(f"inner {nth}"))
            connects.append(locks.stats().connects)

    def take() -> list[int]:
        with at_every_collection(call):
            granted(locks.acquire(f"outer {nth}"))
        return connects

    held = [locks.acquire(f"held {i}") for i in range(100)]  # no object is used again
    ours = locks.stats().connects
    for nth in range(1, 5):
        counted = count(1 - nth)
        theirs = Fork(take).result()
        assert min(theirs, default=ours + 1) > ours
    assert all(held)


class Worker:
    """Told of a loss; its end, as that of any object, may take a lock."""

    def __init__(self, locks: FastRedlock, ended: list[bool]) -> None:
        self.locks = locks
        self.ended = ended

    def lost(self, lease: object, error: object) -> None:
        pass

    def __del__(self) -> None:
        self.ended.append(gc.isenabled() and bool(self.locks.acquire("inner")))


@pytest.mark.slow
def test_pass_when_a_late_reply_drops_the_last_reference_then_that_ends_behind_it() -> (
    None
):
    ended: list[bool] = []
    with LocalMasters(3) as masters:
        locks = FastRedlock(masters.urls, ttl=0.3, round_timeout=5)
        granted(locks.acquire("warm")).release()
        masters.pause(0)
        worker = Worker(locks, ended)
        lease = granted(locks.acquire("a", keep_alive=0.05, on_lost=worker.lost))
        del worker, lease
        time.sleep(0.6)  # its keeper has given it up
        masters.resume(0)
        until = time.monotonic() + 5
        while not ended and time.monotonic() < until:
            granted(locks.acquire("other")).release()
        locks.close()
    assert ended == [True]


@pytest.mark.parametrize("is_on", [True, False])
def test_pass_when_it_is_over_then_garbage_is_collected_as_before(
    make_locks: MakeLocks, urls: list[str], is_on: bool
) -> None:
    locks = make_locks(urls)
    set_collecting = gc.enable if is_on else gc.disable
    set_collecting()
    try:
        granted(locks.acquire("a")).release()
        locks.close()
        with pytest.raises(FastRedlockError):
            locks.acquire("a")
        assert gc.isenabled() is is_on
    finally:
        gc.enable()


def engine_of_three(*lost: int) -> Engine:
    """Make an engine of three masters that has lost some: their votes are made."""
    engine = hand.ready_engine(3)
    hand.by_hand(engine)
    for i in lost:
        hand.lost(engine, i, "cut", START_NS)
    return engine


def commands(engine: Engine) -> list[tuple[int, int]]:
    """Count the SETs and the releases that stand in the outgoing buffers."""
    sent = [hand.outgoing(engine, i) for i in range(3)]
    return [(each.count(b"SET"), each.count(b"EVAL")) for each in sent]


def test_round_when_withdrawn_before_it_is_taken_in_then_is_sent_once_or_never() -> (
    None
):
    """Its own follower comes after the one that withdraws it."""
    engine = engine_of_three(1)
    taken = engine.new_round(0, b"key", b"token", TERMS)
    hand.withdraw(engine, taken, T0)
    hand.submit(engine, taken, T0)
    assert commands(engine) == [(0, 0)] * 3
    release = engine.new_release(begin(engine, T0), TERMS)
    commands(engine)
    hand.withdraw(engine, release, T0)
    hand.submit(engine, release, T0)
    assert commands(engine) == [(0, 1), (0, 0), (0, 1)]
