"""Those who wait where a quorum is held, and not the gate: it says "your turn" to all.

So it is after two first tries at the same moment: one wins by the others, the other had
been first at the gate and is undone there. Or since the gate was restarted. Seen: each
waiter tried again at once, or by delays of its own, up to 18,000 commands a second at
the gate, and came 50 ms late after a release.
"""

from __future__ import annotations

import time

import pytest
import redis

from fastredlock import FastRedlock, Lease
from tests.support.calls import connected, granted
from tests.support.fixtures import MakeLocks
from tests.support.keys import KEY
from tests.support.waiters import (
    Waiters,
    gate_of,
    is_over,
    queued,
    queued_at,
)
from tests.support.waiting import wait_until

GATE = gate_of(5)
TURN_KEY = f"fastredlock:turn:{KEY}"


def held_elsewhere(locks: FastRedlock, servers: list[redis.Redis]) -> Lease:
    """Take the lock; its key is not at the gate."""
    lease = granted(locks.acquire(KEY, ttl=30))
    servers[GATE].delete(KEY)
    return lease


def pauses(servers: list[redis.Redis]) -> bool:
    """Whether the first of the gate's queue pauses, and the gate knows."""
    first = queued_at(servers[GATE])[:1]
    noted = servers[GATE].zrange(TURN_KEY, 0, 0)
    return first != [] and noted == [b"~" + first[0]]


@pytest.mark.parametrize("clients", [1, 4])
def test_callers_when_a_quorum_is_held_elsewhere_then_only_the_first_of_each_tries(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis], clients: int
) -> None:
    lease = held_elsewhere(connected(make_locks(urls)), servers)
    many = [connected(make_locks(urls)) for _ in range(clients)]
    with Waiters() as waiters:
        for i in range(20 if clients == 1 else clients):
            waiters.come(f"{i}", many[i % clients])
            if clients > 1:
                time.sleep(0.04)  # a ticket is late by the way of its message
        assert wait_until(lambda: queued(servers) == clients and pauses(servers))
        before = sum(each.stats().rounds for each in many)
        time.sleep(0.5)  # the tries of a while are counted
        tries = sum(each.stats().rounds for each in many) - before
        assert tries < 30 * clients  # 500 were seen
        lease.release()
    assert waiters.served == [f"{i}" for i in range(len(waiters.served))]
    assert is_over(servers)


@pytest.mark.slow
def test_release_when_the_gate_has_no_key_of_it_then_the_next_is_told(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis]
) -> None:
    holder, locks = [connected(make_locks(urls)) for _ in range(2)]

    def trial() -> float:
        lease = held_elsewhere(holder, servers)
        with Waiters() as waiters:
            waiters.come("waiter", locks)
            time.sleep(0.4)  # by now it tries every 0.1 s, which nothing shows
            assert wait_until(lambda: pauses(servers))
            began = time.monotonic()
            lease.release()
            waiters.end()
        return waiters.at["waiter"] - began

    took = sorted(trial() for _ in range(5))
    assert took[2] < 0.02, took
    assert is_over(servers)


def test_lock_with_the_name_of_the_turn_when_one_pauses_then_keeps_its_ttl(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis]
) -> None:
    """Seen: its key was given 300 ms at the gate; with one more vote, two holders."""
    locks = connected(make_locks(urls))
    for server in servers:  # another library's: a client of ours refuses the name
        server.set(TURN_KEY, "theirs", px=30_000)
    lease = held_elsewhere(locks, servers)
    assert connected(make_locks(urls)).acquire(KEY, timeout=0.5) is None
    assert servers[GATE].pttl(TURN_KEY) > 20_000
    lease.release()
    assert is_over(servers)


def test_timeouts_when_a_quorum_is_held_elsewhere_then_none_of_them_spins(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis]
) -> None:
    """Seen: in its last 50 ms each told itself, by its roll-backs: 1,500 to 3,690."""
    lease = held_elsewhere(connected(make_locks(urls)), servers)
    locks = connected(make_locks(urls))
    with Waiters() as waiters:
        for i in range(40):
            timeout = 0.2 + 0.03 * i
            waiters.start(lambda timeout=timeout: locks.acquire(KEY, timeout=timeout))
    assert locks.stats().rounds < 700  # mostly 350
    lease.release()
    assert is_over(servers)


def test_key_when_it_comes_to_the_gate_then_the_first_waits_for_it(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis]
) -> None:
    """From then on the gate knows that it is not free, and nobody needs to try."""
    lease = held_elsewhere(connected(make_locks(urls)), servers)
    locks = connected(make_locks(urls))
    with Waiters() as waiters:
        waiters.come("waiter", locks)
        assert wait_until(lambda: pauses(servers))
        assert wait_until(lambda: servers[GATE].set(KEY, "taken", nx=True))
        time.sleep(0.2)  # a question, and what was under way
        before = locks.stats().rounds
        time.sleep(0.5)  # the tries of a while are counted
        assert locks.stats().rounds - before < 6
        servers[GATE].delete(KEY)
        lease.release()
    assert is_over(servers)
