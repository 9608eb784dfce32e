"""Faults around a queue: its gate, its first, the holder, the connections.

They may cost order and time, never exclusion: each test ends with `Waiters`, which sees
that no two were inside, and that no update was lost.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import redis

from fastredlock import FastRedlock, QuorumUnreachableError
from fastredlock.testing import LocalMasters
from tests.support.calls import connected, granted
from tests.support.fixtures import MakeLocks, Raw, blocking
from tests.support.keys import KEY, NOBODY, settled_values, values
from tests.support.lock_process import line_of, take, take_in_turn, worker
from tests.support.proxy import Proxy
from tests.support.waiters import (
    FALL_BACK,
    Waiters,
    gate_of,
    hand_over,
    is_over,
    queue_key,
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


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["stopped", "paused"])
def test_gate_when_it_is_back_then_callers_queue_there_again(
    masters: LocalMasters, make_locks: MakeLocks, raw: Raw, kind: str
) -> None:
    servers = [raw(url) for url in masters.urls]
    holder, *others = [connected(make_locks(masters.urls)) for _ in range(3)]
    trouble_at(masters, GATE, kind)
    with Waiters() as waiters:
        lease = granted(holder.acquire(KEY, ttl=30))
        waiters.come("first", others[0])
        waiters.come("second", others[1])
        end_of_trouble_at(masters, GATE, kind)
        lease.release()
        waiters.end()

    def is_queued_there() -> bool:
        with Waiters() as again:
            lease = granted(holder.acquire(KEY, ttl=30))
            again.come("first", others[0])
            is_there = wait_until(lambda: queued([servers[GATE]]) == 1, 0.5)
            lease.release()
        return is_there

    assert wait_until(is_queued_there)
    assert is_over(servers)


@pytest.mark.slow
def test_masters_when_each_restarts_in_turn_under_load_then_no_update_is_lost(
    masters: LocalMasters, make_locks: MakeLocks
) -> None:
    """With max_ttl, so that none votes before what it forgot is over."""
    clients = [make_locks(masters.urls, ttl=0.3, max_ttl=0.3) for _ in range(3)]
    ends = time.monotonic() + 3
    with Waiters() as waiters:

        def work(i: int) -> None:
            while time.monotonic() < ends:
                with suppress(QuorumUnreachableError):
                    waiters.take(f"{i}", clients[i % 3], timeout=5, hold=0.002)

        for i in range(6):
            waiters.start(lambda i=i: work(i))
        for i in (GATE, (GATE + 1) % 5):
            time.sleep(0.4)  # under load before, and without it
            masters.stop(i)
            time.sleep(0.2)
            masters.start(i)
    assert len(waiters.served) > 20
    assert {*waiters.served[-20:]} != {waiters.served[-1]}


# --- the first of the queue -----------------------------------------------------------


@pytest.mark.slow
@blocking
@pytest.mark.parametrize("name", ["SIGKILL", "SIGSTOP"])
@pytest.mark.parametrize("held", ["everywhere", "but not at the gate", "by another"])
def test_first_process_when_it_is_no_more_then_the_next_has_its_turn(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis],
    tmp_path: Path, held: str, name: str,
) -> None:  # fmt: skip
    """Where the gate has no key of the holder, the first tries and pauses.

    "By another": its key is left at the gate. Only the first of all tried on all
    masters, and others stood for that key's ttl.
    """
    counted = tmp_path / "counter"
    counted.write_text("0")
    holder, locks = [connected(make_locks(urls)) for _ in range(2)]

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


def held_so(
    holder: FastRedlock, servers: list[redis.Redis], held: str
) -> Callable[[], object]:
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


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["swallows", "holds_down"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_first_client_when_its_network_is_a_black_hole_then_the_next_has_its_turn(
    proxies: list[Proxy], proxied: Callable[..., FastRedlock], make_locks: MakeLocks,
    urls: list[str], servers: list[redis.Redis], fault: str, when: str,
) -> None:  # fmt: skip
    first, holder, locks = proxied(), *[connected(make_locks(urls)) for _ in range(2)]
    with Waiters() as waiters:
        lease = granted(holder.acquire(KEY, ttl=30))
        waiters.come("first", first, timeout=20, ttl=2)
        assert wait_until(lambda: queued(servers) == 1)
        waiters.come("next", locks)
        assert wait_until(lambda: queued(servers) == 2)
        if when == "after":
            lease.release()
        for proxy in proxies:
            proxy.set(**{fault: True})
        began = time.monotonic()
        if when == "before":
            lease.release()
        # It may have got it before; then its ttl has to end, or its release to come.
        time.sleep(0.6)  # the network is away for longer than two questions
        for proxy in proxies:
            proxy.heal()
            if fault == "swallows":
                proxy.reset()
        waiters.end()
    assert sorted(waiters.served) == ["first", "next"]
    if waiters.served[0] == "next":
        assert waiters.at["next"] - began < SOON
    assert is_over(servers)


# --- the holder -----------------------------------------------------------------------


@pytest.mark.slow
def test_holder_when_killed_then_the_waiter_has_it_when_its_key_expires(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis]
) -> None:
    locks = connected(make_locks(urls))

    def trial() -> float:
        with worker(take, urls, KEY, 1.0) as holder, Waiters() as waiters:
            assert line_of(holder)
            left = max(server.pttl(KEY) for server in servers) / 1000
            expires = time.monotonic() + left
            waiters.come("waiter", locks)
            holder.kill()
            waiters.end()
        assert waiters.at["waiter"] > expires - 0.1
        return waiters.at["waiter"] - expires

    assert any(trial() < FALL_BACK / 4 for _ in range(4))
    assert is_over(servers)


def test_releaser_when_killed_half_way_then_the_waiter_has_it_soon(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis]
) -> None:
    """A quorum has got its release, in any order; the rest never does."""
    for first in range(5):
        holder, locks = [connected(make_locks(urls)) for _ in range(2)]
        with Waiters() as waiters:
            granted(holder.acquire(KEY, ttl=30))
            waiters.come("waiter", locks)
            assert wait_until(lambda: queued(servers) == 1)
            began = time.monotonic()
            for i in range(3):
                servers[(first + i) % 5].delete(KEY)
            waiters.end()
        assert waiters.at["waiter"] - began < SOON
        for server in servers:
            server.delete(KEY)
        assert is_over(servers)


@pytest.mark.slow
def test_gate_when_a_key_was_left_there_alone_then_all_have_their_share(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis]
) -> None:
    """Seen: a release that found another's key told nobody, and its holder was next."""
    servers[GATE].set(KEY, "left", px=60_000)
    clients = [connected(make_locks(urls)) for _ in range(3)]
    ends, grants = time.monotonic() + 2, [0] * 3
    with Waiters() as waiters:

        def work(i: int) -> None:
            while time.monotonic() < ends:
                assert waiters.take(f"{i}", clients[i], timeout=20, hold=0.004)
                grants[i] += 1

        for i in range(3):
            waiters.start(lambda i=i: work(i))
    assert min(grants) > 10, grants
    assert min(grants) > 0.4 * max(grants), grants


# --- the connections ------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["while held", "at the release"])
def test_connections_when_cut_with_waiters_then_the_turn_is_found_again(
    proxies: list[Proxy], proxied: Callable[..., FastRedlock], make_locks: MakeLocks,
    urls: list[str], servers: list[redis.Redis], moment: str,
) -> None:  # fmt: skip
    locks, holder = proxied(), connected(make_locks(urls))

    def trial() -> float:
        with Waiters() as waiters:
            lease = granted(holder.acquire(KEY, ttl=30))
            for i in range(3):
                waiters.come(f"{i}", locks)
            assert wait_until(lambda: queued(servers) == 1)
            if moment == "at the release":
                proxies[GATE].set(drops_replies=True)
                began = time.monotonic()
                lease.release()
                proxies[GATE].heal()
                proxies[GATE].reset()
            else:
                for proxy in proxies:
                    proxy.reset()
                assert wait_until(lambda: queued(servers) == 1)
                began = time.monotonic()
                lease.release()
            waiters.end()
        assert sorted(waiters.served) == ["0", "1", "2"]
        return max(waiters.at.values()) - began

    # An entry may be left, where the script that removes it was lost with a connection:
    # nobody hears for it, so that the next release drops it.
    assert all(trial() < 4 * SOON for _ in range(3))
    locks.holders(KEY)
    assert settled_values(servers, NOBODY) == NOBODY


def test_push_when_lost_then_the_next_question_finds_the_turn(
    proxies: list[Proxy], proxied: Callable[..., FastRedlock], make_locks: MakeLocks,
    urls: list[str], servers: list[redis.Redis],
) -> None:  # fmt: skip
    locks, holder = proxied(), connected(make_locks(urls))
    with Waiters() as waiters:
        lease = granted(holder.acquire(KEY, ttl=30))
        waiters.come("waiter", locks)
        assert wait_until(lambda: queued(servers) == 1)
        (waiter,) = queued_at(servers[GATE])
        # Nobody hears it: its entry is dropped, and it enters again.
        servers[GATE].zrem(queue_key(), waiter)
        began = time.monotonic()
        lease.release()
        waiters.end()
    assert waiters.at["waiter"] - began < SOON
    assert is_over(servers)
