"""Calls from inside of a step: from a finalizer that runs while replies are parsed."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import redis

from fastredlock import FastRedlock, ReleaseStatus
from fastredlock._core import (
    MasterState,
    Operation,
    Vote,
    engine_on_bytes,
    engine_on_lost,
)

from .wire import (
    MS,
    START_NS,
    S,
    begin,
    info,
    make_ready,
    new_engine,
    said_of,
)

T0 = START_NS + S


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


def test_reply_when_its_connection_is_lost_in_the_making_of_it_then_is_nobodys() -> (
    None
):
    engine = make_ready(new_engine(1), [info(run_id="id0")])
    round = begin(engine, T0, Operation.RELEASE)
    is_armed = [False]

    def lose() -> None:
        if is_armed[0]:
            is_armed[0] = False
            engine_on_lost(engine, 0, "cut", T0 + MS)

    with at_every_collection(lose):
        is_armed[0] = True
        engine_on_bytes(engine, 0, b"-NOSCRIPT No matching script.\r\n", T0 + MS)
    assert not is_armed[0]
    assert said_of(round) == (Vote.FAILED, "cut")
    assert engine.states == ((MasterState.BACKOFF, "cut"),)


def test_release_when_done_inside_of_another_then_does_not_wait_for_its_replies(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    inner = [locks.acquire(f"inner{i}") for i in range(400)]
    elapsed: list[float] = []

    def release() -> None:
        if is_armed[0] and (lease := inner.pop()):
            begun = time.monotonic()
            assert lease.release() is ReleaseStatus.RELEASED
            elapsed.append(time.monotonic() - begun)

    for i in range(10):
        is_armed = [False]
        outer = locks.acquire(f"outer{i}")
        assert outer
        for server in servers:
            server.script_flush()
        with at_every_collection(release):
            is_armed[0] = True
            outer.release()
            is_armed[0] = False
    assert len(elapsed) >= 10
    assert max(elapsed) < 0.4  # the round timeout is 0.5 s
