"""In which order the masters are written to."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from fastredlock import FastRedlock
from fastredlock.testing import LocalMasters

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


def do_rounds(locks: FastRedlock, count: int) -> None:
    for _ in range(count // 2):
        with locks.lock("turns"):
            pass


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
        do_rounds(locks, 68)
        assert locks._driver.engine.send_order == (1, 2, 4, 0, 3)
        os.sched_setaffinity(masters.pid(3), CORES[-1:])
        do_rounds(locks, 64)
        assert locks._driver.engine.send_order == (1, 2, 3, 4, 0)


def test_turns_when_all_are_on_one_core_then_are_as_configured_but_for_detours(
    masters: LocalMasters,
) -> None:
    os.sched_setaffinity(0, CORES[:1])
    for i in range(5):
        os.sched_setaffinity(masters.pid(i), CORES[:1])
    with FastRedlock(masters.urls) as locks:
        seen = [locks._driver.engine.send_order]
        for _ in range(3 * 32):
            do_rounds(locks, 2)
            seen.append(locks._driver.engine.send_order)
    detours = [order for order in seen if order != AS_CONFIGURED]
    assert detours == [(1, 2, 3, 4, 0), (2, 3, 4, 0, 1), (3, 4, 0, 1, 2)]
    assert seen[-1] == (3, 4, 0, 1, 2)
