"""In which order the masters are written to."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from itertools import count

import pytest

from fastredlock import FastRedlock
from fastredlock.testing import LocalMasters
from tests.support.calls import connected, granted
from tests.support.fixtures import Raw, linux_calls
from tests.support.waiters import gate_of
from tests.support.waiting import wait_until

AS_CONFIGURED = (0, 1, 2, 3, 4)
CORES = sorted(os.sched_getaffinity(0))
SO_INCOMING_CPU = 49  # asm-generic/socket.h; socket has it from Python 3.11 on


@pytest.fixture
def masters() -> Iterator[LocalMasters]:
    """Start five masters; afterwards this thread may run on every core again."""
    try:
        with LocalMasters(5) as masters:
            yield masters
    finally:
        os.sched_setaffinity(0, CORES)


def are_cores_told() -> bool:
    """Whether the kernel says on which core a packet over loopback was taken in."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as ours,
        listener.accept()[0] as theirs,
    ):
        theirs.sendall(b"x")
        ours.recv(1)
        try:
            return ours.getsockopt(socket.SOL_SOCKET, SO_INCOMING_CPU) in CORES
        except OSError:
            return False


def key_of_gate(gate: int) -> str:
    return next(f"order{i}" for i in count() if gate_of(5, f"order{i}") == gate)


def do_rounds(locks: FastRedlock, rounds: int, gate: int) -> None:
    # At the master that is the first anyhow: a pause of this machine changes nothing.
    for _ in range(rounds // 2):
        with locks.lock(key_of_gate(gate)):
            pass


@linux_calls
@pytest.mark.skipif(len(CORES) < 2, reason="a single core has no others")
@pytest.mark.skipif(not are_cores_told(), reason="this kernel does not tell cores")
def test_turns_when_servers_are_on_the_core_of_the_client_then_they_come_last(
    masters: LocalMasters,
) -> None:
    os.sched_setaffinity(0, CORES[:1])
    for i in range(5):
        core = CORES[0] if i in (0, 3) else CORES[-1]
        os.sched_setaffinity(masters.pid(i), {core})
    with FastRedlock(masters.urls) as locks:
        do_rounds(locks, 68, 1)
        assert locks._driver.engine.send_order == (1, 2, 4, 0, 3)
        os.sched_setaffinity(masters.pid(3), CORES[-1:])
        do_rounds(locks, 64, 1)
        assert locks._driver.engine.send_order == (1, 2, 3, 4, 0)


def test_turns_when_all_are_on_one_core_then_are_as_configured_but_for_detours(
    masters: LocalMasters,
) -> None:
    os.sched_setaffinity(0, CORES[:1])
    for i in range(5):
        os.sched_setaffinity(masters.pid(i), CORES[:1])
    with FastRedlock(masters.urls) as locks:
        seen = [locks._driver.engine.send_order]
        for pair in range(1, 3 * 32 + 1):
            detour, other = divmod(pair, 32)
            do_rounds(locks, 2, 0 if other else detour)
            seen.append(locks._driver.engine.send_order)
    detours = [order for order in seen if order != AS_CONFIGURED]
    assert detours == [(1, 2, 3, 4, 0), (2, 3, 4, 0, 1), (3, 4, 0, 1, 2)]
    assert seen[-1] == (3, 4, 0, 1, 2)


@pytest.mark.parametrize("gate", range(5))
def test_release_when_the_last_round_is_long_ago_then_goes_to_its_gate_first(
    masters: LocalMasters, gate: int
) -> None:
    with FastRedlock(masters.urls) as locks:
        lease = granted(connected(locks).acquire(key_of_gate(gate)))
        time.sleep(0.01)
        lease.release()
        first, *others = locks._driver.engine.send_order
        assert first == gate
        assert {*others} == {*AS_CONFIGURED} - {gate}


def test_release_when_somebody_waits_then_goes_to_its_gate_first(
    masters: LocalMasters,
) -> None:
    key = key_of_gate(4)
    with FastRedlock(masters.urls) as locks, FastRedlock(masters.urls) as others:
        lease = granted(locks.acquire(key))
        waiter = threading.Thread(target=lambda: granted(others.acquire(key)).release())
        waiter.start()
        assert wait_until(lambda: others.stats().waits == 1)
        lease.release()
        granted(locks.acquire(key)).release()  # right after one that was told
        assert locks._driver.engine.send_order[0] == 4
        waiter.join()


def test_release_when_the_last_round_was_just_now_then_keeps_the_order_or_checks_first(
    masters: LocalMasters, raw: Raw
) -> None:
    """A native release asks its gate for a queue, and waits for it: so it is first."""
    found = raw(masters.urls[0]).execute_command("COMMAND INFO", "DELIFEQ", "DELEX")
    with FastRedlock(masters.urls) as locks:
        do_rounds(locks, 10, 0)
        seen = set()
        for _ in range(10):  # in some of which this machine may stand still
            time.sleep(0.002)
            do_rounds(locks, 4, 0)
            do_rounds(locks, 2, 4)
            seen.add(locks._driver.engine.send_order[0] == 4)
    assert seen == {True} if any(found) else False in seen
