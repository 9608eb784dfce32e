"""A gate that is far away: the queues of its resources go to the next master."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis

from fastredlock import FastRedlock
from fastredlock._options import scripts
from tests.support.calls import connected, granted
from tests.support.fixtures import MakeLocks
from tests.support.keys import KEY
from tests.support.lock_process import line_of, take_in_turn, worker
from tests.support.proxy import Proxy
from tests.support.waiters import (
    FALL_BACK,
    Waiters,
    gate_of,
    is_over,
    queue_key,
    queued_at,
)
from tests.support.waiting import SLACK, wait_until

MARK = b">"
GATE = gate_of(5)
NEXT = (GATE + 1) % 5
PROCESSES, TIMES = 4, 100
FAR = 0.025  # s, each way: at that pace they make 20 hand-overs in a second


def mark(server: redis.Redis, key: str = KEY) -> None:
    """Do as a process that has found the gate slow."""
    server.eval(scripts.ASK_TURN.decode(), 1, key, "a-process", "0", "4")


def forget(servers: list[redis.Redis], key: str = KEY) -> None:
    for server in servers:
        server.delete(queue_key(key))


@pytest.mark.slow
def test_processes_when_their_gate_is_far_then_hand_over_at_the_pace_of_the_next(
    urls: list[str], servers: list[redis.Redis], tmp_path: Path
) -> None:
    counted = tmp_path / "counter"
    counted.write_text("0")
    with Proxy(urls[-1], address=("127.0.0.2", 0)) as far, ExitStack() as started:
        far.set(delay=FAR)
        key = next(f"far-{i}" for i in range(99) if gate_of(5, f"far-{i}") == 4)
        there = [*urls[:-1], far.url]  # in the order of their addresses
        workers = [
            started.enter_context(worker(take_in_turn, there, key, str(counted), TIMES))
            for _ in range(PROCESSES)
        ]
        had_ns = sorted(int(line_of(each)) for each in workers for _ in range(TIMES))
        assert [each.wait(20) for each in workers] == [0] * PROCESSES
    assert int(counted.read_text()) == PROCESSES * TIMES
    half = had_ns[len(had_ns) // 2 :]
    assert len(half) / (half[-1] - half[0]) * 1e9 > 30  # 300, on an idle machine
    assert queued_at(servers[-1], key) == [MARK]
    forget(servers, key)
    assert is_over(servers, key)


def lose(servers: list[redis.Redis]) -> None:
    servers[GATE].delete(queue_key())


def drop(servers: list[redis.Redis]) -> None:
    servers[GATE].zrem(queue_key(), MARK)  # a version that takes it for a process


def mark_now(servers: list[redis.Redis]) -> None:
    mark(servers[GATE])


def mark_next(servers: list[redis.Redis]) -> None:
    mark(servers[NEXT])


def mark_all(servers: list[redis.Redis]) -> None:
    for server in servers:
        mark(server)
        server.persist(queue_key())


@pytest.mark.parametrize("happens", [lose, drop, mark_now, mark_next, mark_all])
def test_waiters_when_a_mark_comes_or_goes_then_all_have_their_turn(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis],
    happens: Callable[[list[redis.Redis]], None],
) -> None:  # fmt: skip
    clients: list[FastRedlock] = [connected(make_locks(urls)) for _ in range(4)]
    lease = granted(clients[0].acquire(KEY, ttl=30))
    there = GATE if happens is mark_now else NEXT
    if happens is not mark_now:
        mark(servers[GATE])
    with Waiters() as waiters:
        for i, each in enumerate(clients[1:]):
            waiters.come(f"{i}", each)
        assert wait_until(lambda: len(queued_at(servers[there])) == 3)
        happens(servers)
        if happens is mark_now:
            assert wait_until(lambda: len(queued_at(servers[NEXT])) == 3)
            assert queued_at(servers[GATE]) == [MARK]
        waiters.come("late", clients[0])
        began = time.monotonic()
        lease.release()
        waiters.end()
    assert len(waiters.served) == 4
    assert max(waiters.at.values()) - began < 4 * FALL_BACK + SLACK
    forget(servers)
    assert is_over(servers)


def test_holders_when_the_queue_has_moved_then_count_no_mark(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis]
) -> None:
    mark(servers[GATE])
    assert [each.waiting for each in connected(make_locks(urls)).holders(KEY)] == [
        0
    ] * 5
    forget(servers)
