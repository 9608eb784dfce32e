"""Faults around a queue: its gate, its first, the holder, the connections.

They may cost order and time, never exclusion: each test ends with `Waiters`, which sees
that no two were inside, and that no update was lost."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
import redis

from fastredlock import FastRedlock, Lease
from fastredlock._options import scripts
from fastredlock.testing import LocalMasters
from tests.support.calls import connected, granted
from tests.support.fixtures import MakeLocks, Raw, Servers, blocking
from tests.support.keys import KEY, NOBODY, values
from tests.support.lock_process import line_of, take_in_turn, worker
from tests.support.waiters import (
    FALL_BACK,
    Waiters,
    gate_of,
    hand_over,
    is_over,
    queued,
    queued_at,
)
from tests.support.waiting import wait_until

GATE = gate_of(5)
SOON = 6 * FALL_BACK  # s; a few questions, on a machine that is loaded

# --- the gate -------------------------------------------------------------------------


def trouble_at(masters: LocalMasters, gate: int, kind: str) -> None:
    (masters.pause if kind == "paused" else masters.stop)(gate)
    if kind == "restarted":
        masters.start(gate)


def end_of_trouble_at(masters: LocalMasters, gate: int, kind: str) -> None:
    (masters.resume if kind == "paused" else masters.start)(gate)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["stopped", "paused", "restarted"])
def test_gate_when_lost_with_waiters_then_all_are_served(
    masters: LocalMasters, make_locks: MakeLocks, raw: Raw, kind: str
) -> None:
    servers = [raw(url) for url in masters.urls]
    holder, *others = [connected(make_locks(masters.urls)) for _ in range(3)]
    with Waiters() as waiters:
        lease = granted(holder.acquire(KEY, ttl=30))
        for i in range(6):
            waiters.come(f"{i}", others[i % 2])
        assert wait_until(lambda: queued(servers) == 2)
        trouble_at(masters, GATE, kind)
        began = time.monotonic()
        time.sleep(0.1)  # some find out before the release, and some behind it
        lease.release()
        waiters.end()
        assert len(waiters.served) == 6
        assert max(waiters.at.values()) - began < 5
    end_of_trouble_at(masters, GATE, kind)

    def is_free_and_queued_for() -> bool:
        for each in (holder, *others):
            each.holders(KEY)  # sends what is deferred
        return values(servers) == NOBODY

    assert wait_until(is_free_and_queued_for)
    # Entries that were left there are in nobody's way.
    assert hand_over(holder, others[:1]) < SOON


# --- the first of the queue -----------------------------------------------------------


@pytest.mark.slow
@blocking
@pytest.mark.parametrize("name", ["SIGKILL", "SIGSTOP"])
@pytest.mark.parametrize("held", ["everywhere", "but not at the gate", "by another"])
def test_first_process_when_it_is_no_more_then_the_next_has_its_turn(
    holder: FastRedlock, locks: FastRedlock, urls: list[str], servers: Servers,
    tmp_path: Path, held: str, name: str,
) -> None:  # fmt: skip
    """Where the gate has no key of the holder, the first tries and pauses.

    "By another": its key is left at the gate. Only the first of all tried on all
    masters, and others stood for that key's ttl.
    """
    counted = tmp_path / "counter"
    counted.write_text("0")

    def trial() -> float:
        give_back = held_so(holder, servers, held)
        with (
            worker(take_in_turn, urls, KEY, str(counted), 1) as first,
            Waiters() as waiters,
        ):
            assert wait_until(lambda: queued(servers) == 1)
            waiters.come("next", locks)
            assert wait_until(lambda: queued(servers) == 2)
            os.kill(first.pid, getattr(signal, name))
            if name == "SIGKILL":
                first.wait(10)  # then its connections have ended, too
            began = time.monotonic()
            give_back()
            waiters.end()
            if name == "SIGSTOP":  # it goes on, and queues again
                os.kill(first.pid, signal.SIGCONT)
                servers[GATE].delete(KEY)
                line_of(first)
                assert first.wait(10) == 0
        servers[GATE].delete(KEY)
        return waiters.at["next"] - began

    # The kernel ends the connections of a dead one; of a frozen one only time tells.
    limit = {"SIGKILL": 0.8 * FALL_BACK, "SIGSTOP": 2 * FALL_BACK}[name]
    limit = limit if held == "everywhere" else SOON
    assert any(trial() < limit for _ in range(4))
    assert is_over(servers)


def held_so(holder: FastRedlock, servers: Servers, held: str) -> Callable[[], object]:
    """Let the lock be held; return what gives it back."""
    if held == "by another":
        for server in servers:
            server.set(KEY, "another's", px=60_000)
        others = [server for i, server in enumerate(servers) if i != GATE]
        return lambda: [server.delete(KEY) for server in others]
    lease = granted(holder.acquire(KEY, ttl=30))
    if held == "but not at the gate":
        servers[GATE].delete(KEY)
    return lease.release


# --- those who wait where a quorum is held, and not the gate --------------------------


TURN_KEY = f"fastredlock:turn:{KEY}"


def held_elsewhere(locks: FastRedlock, servers: Servers) -> Lease:
    """Take the lock; its key is not at the gate."""
    lease = granted(locks.acquire(KEY, ttl=30))
    servers[GATE].delete(KEY)
    return lease


def pauses(servers: Servers) -> bool:
    """Whether the first of the gate's queue pauses, and the gate knows."""
    first = queued_at(servers[GATE])[:1]
    noted = servers[GATE].zrange(TURN_KEY, 0, 0)
    return first != [] and noted == [b"~" + first[0]]


@pytest.mark.parametrize("clients", [1, 4])
def test_callers_when_a_quorum_is_held_elsewhere_then_only_the_first_of_each_tries(
    make_locks: MakeLocks, urls: list[str], servers: Servers, clients: int
) -> None:
    lease = held_elsewhere(connected(make_locks(urls)), servers)
    many = [connected(make_locks(urls)) for _ in range(clients)]
    with Waiters() as waiters:
        for i in range(20 if clients == 1 else clients):
            waiters.come(f"{i}", many[i % clients])
            there = min(i + 1, clients)
            assert wait_until(lambda there=there: queued(servers) == there)
        assert wait_until(lambda: queued(servers) == clients and pauses(servers))
        before = sum(each.stats().rounds for each in many)
        time.sleep(0.5)  # the tries of a while are counted
        tries = sum(each.stats().rounds for each in many) - before
        assert tries < 30 * clients  # 500 were seen
        lease.release()
    # In order, but for a process whose own try came just then: one each half second.
    assert len(waiters.served) == (20 if clients == 1 else clients)
    early = [a for a, b in pairwise(map(int, waiters.served)) if a > b]
    assert len(early) <= (clients > 1), waiters.served
    assert is_over(servers)


def test_timeouts_when_a_quorum_is_held_elsewhere_then_none_of_them_spins(
    holder: FastRedlock, locks: FastRedlock, servers: Servers
) -> None:
    """Seen: in its last 50 ms each told itself, by its roll-backs: 1,500 to 3,690."""
    lease = held_elsewhere(holder, servers)
    with Waiters() as waiters:
        for i in range(40):
            timeout = 0.2 + 0.03 * i
            waiters.start(lambda timeout=timeout: locks.acquire(KEY, timeout=timeout))
    assert locks.stats().rounds < 700  # mostly 350
    lease.release()
    assert is_over(servers)


# --- a gate that is far: its queues go to the next master -----------------------------


PROCESSES, TIMES = 4, 60


def mark(server: redis.Redis, key: str = KEY) -> None:
    """Do as a process that has found the gate slow."""
    server.eval(scripts.ASK_TURN.decode(), 1, key, "a-process", "0", "4")
