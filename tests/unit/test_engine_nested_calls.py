"""Calls from inside of a step: from a finalizer that runs while replies are parsed."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import pytest
import redis
from hiredis import Reader, ReplyError

from fastredlock import Lease, ReleaseStatus, _core
from fastredlock._core import (
    Engine,
    MasterState,
    Operation,
    Round,
    Vote,
    by_hand_engine,
    by_hand_finish,
    by_hand_lost,
    by_hand_outgoing,
    by_hand_receive,
    by_hand_submit,
    by_hand_withdraw,
)
from tests.support.by_hand import (
    MS,
    START_NS,
    TERMS,
    S,
    begin,
    info,
    make_ready,
    new_engine,
    said_of,
)
from tests.support.calls import connected, granted
from tests.support.fixtures import MakeLocks
from tests.support.proxy import Proxy

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


@pytest.mark.skipif(
    sys.version_info >= (3, 12), reason="no object collects garbage any more"
)
def test_reply_when_its_connection_is_lost_in_the_making_of_it_then_is_nobodys() -> (
    None
):
    engine = make_ready(new_engine(1), [info(run_id="id0")])
    round = begin(engine, T0, Operation.RELEASE)
    is_armed = [False]

    def lose() -> None:
        if is_armed[0]:
            is_armed[0] = False
            by_hand_lost(engine, 0, "cut", T0 + MS)

    with at_every_collection(lose):
        is_armed[0] = True
        by_hand_receive(engine, 0, b"-NOSCRIPT No matching script.\r\n", T0 + MS)
    assert not is_armed[0]
    assert said_of(round) == (Vote.FAILED, "cut")
    assert engine.states == ((MasterState.BACKOFF, "cut"),)


@pytest.mark.slow
def test_release_when_done_inside_of_another_then_waits_for_no_master_being_read(
    make_locks: MakeLocks,
    urls: list[str],
    servers: list[redis.Redis],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A finalizer releases while a NOSCRIPT is made: that master is not read by it."""
    leases: list[Lease] = []
    elapsed: list[float] = []

    def reply_error(text: str) -> ReplyError:
        if leases:
            lease, begun = leases.pop(), time.monotonic()
            assert lease.release() is ReleaseStatus.RELEASED
            elapsed.append(time.monotonic() - begun)
        return ReplyError(text)

    monkeypatch.setattr(_core, "Reader", partial(Reader, replyError=reply_error))
    with ExitStack() as opened:
        proxies = [opened.enter_context(Proxy(url)) for url in urls]
        locks = connected(make_locks([each.url for each in proxies], round_timeout=5))
        # Of two keys: so by a script, on every server, which is loaded anew.
        inner, outer = (
            granted(locks.acquire_all([name, f"{name}'"])) for name in ("a", "b")
        )
        for server, proxy in zip(servers, proxies, strict=True):
            server.script_flush()
            proxy.set(delay=0.05)
        leases.append(inner)
        assert outer.release() is ReleaseStatus.RELEASED
    assert elapsed[0] < 0.4  # two round trips, not twice as long again


def engine_of_three(*lost: int) -> Engine:
    """Make an engine of three masters that has lost some: their votes are made."""
    engine = make_ready(new_engine(3), [info(run_id=f"id{i}") for i in range(3)])
    by_hand_engine(engine)
    for i in lost:
        by_hand_lost(engine, i, "cut", START_NS)
    return engine


def commands(engine: Engine) -> list[tuple[int, int]]:
    """Count the SETs and the releases that stand in the outgoing buffers."""
    sent = [by_hand_outgoing(engine, i) for i in range(3)]
    return [(each.count(b"SET"), each.count(b"EVAL")) for each in sent]


class Withdrawal:
    """Withdraw a round at the k-th collection."""

    def __init__(self, engine: Engine, round: Round, k: int) -> None:
        self.engine = engine
        self.round = round
        self.left = k
        self.was_opened = False

    def __call__(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.was_opened = self.round.is_opened
            by_hand_withdraw(self.engine, self.round, T0)


@pytest.mark.parametrize("lost", [(1,), (1, 2)])
def test_round_when_withdrawn_in_its_own_opening_then_no_set_is_without_release(
    lost: tuple[int, ...],
) -> None:
    """A finalizer takes the follower by which another thread gives it up."""
    kept: list[list[int]] = [[] for _ in range(200)]  # the next list is made anew
    for k in range(1, 30):
        engine = engine_of_three(*lost)
        round = engine.new_round(0, b"key", b"token", TERMS)
        withdrawal = Withdrawal(engine, round, k)
        with at_every_collection(withdrawal):
            kept.append([])  # so that the next but one begins a collection
            by_hand_submit(engine, round, T0)
        if withdrawal.left > 0:
            break
        by_hand_finish(engine, T0 + 2 * S)
        for sets, releases in commands(engine):
            assert sets <= releases * withdrawal.was_opened, k
    assert k > 1


def test_round_when_withdrawn_before_it_is_taken_in_then_is_sent_once_or_never() -> (
    None
):
    """Its own follower comes after the one that withdraws it."""
    engine = engine_of_three(1)
    taken = engine.new_round(0, b"key", b"token", TERMS)
    by_hand_withdraw(engine, taken, T0)
    by_hand_submit(engine, taken, T0)
    assert commands(engine) == [(0, 0)] * 3
    release = engine.new_release(begin(engine, T0), TERMS)
    commands(engine)
    by_hand_withdraw(engine, release, T0)
    by_hand_submit(engine, release, T0)
    assert commands(engine) == [(0, 1), (0, 0), (0, 1)]
