"""Connections: what keeps them, what finds out that one is dead, where they lead."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack, suppress

import pytest

from fastredlock import FastRedlock, ReleaseStatus
from fastredlock.testing import LocalMasters
from tests.support import by_hand as hand
from tests.support.calls import granted, take_and_release
from tests.support.fixtures import MakeLocks, Servers, blocking
from tests.support.keys import KEY
from tests.support.proxy import Proxy

# what a middlebox that forgets idle flows is met with: link.pyx says why
SOCKET_OPTIONS = {
    "no delay": (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    "keepalive": (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    "first probe after": (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    "next probe after": (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 3),
    "probes": (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    "unacknowledged for": (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 10_000),
}


def sockets() -> dict[str, int]:
    """List the sockets of this process, by inode: a number is soon used again."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            found[os.readlink(f"/proc/self/fd/{name}")] = int(name)
    return {link: fd for link, fd in found.items() if link.startswith("socket:")}


def test_sockets_when_opened_then_probe_their_peers_and_give_up_mute_ones(
    make_locks: MakeLocks, urls: list[str]
) -> None:
    before = sockets()
    locks = make_locks(urls)
    locks.connect()
    opened = [fd for link, fd in sockets().items() if link not in before]
    assert len(opened) == 5
    wanted = {name: value for name, (_, _, value) in SOCKET_OPTIONS.items()}
    with ExitStack() as closing:
        for fd in opened:
            ours = closing.enter_context(socket.socket(fileno=os.dup(fd)))
            found = {
                name: ours.getsockopt(level, option)
                for name, (level, option, _) in SOCKET_OPTIONS.items()
            }
            assert found == wanted


def test_address_when_another_server_stands_behind_the_name_then_is_found(
    shared_masters: LocalMasters,
    servers: Servers,
    make_locks: MakeLocks,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = str(tmp_path_factory.mktemp("name") / "s")
    locks = make_locks([f"unix://{path}"])
    with Proxy(shared_masters.urls[0], path):
        take_and_release(locks)
    # The name is the path: what answers there now is another server.
    with Proxy(shared_masters.urls[1], path):
        lease = granted(locks.acquire(KEY, timeout=2))
        assert [server.exists(KEY) for server in servers[:2]] == [0, 1]
        assert lease.release() is ReleaseStatus.RELEASED


# --- reconnects: jittered, capped, in nobody's way ------------------------------------


MS = 1_000_000


def pauses(locks: FastRedlock, times: int) -> list[int]:
    """Fail to connect again and again; return the ms until each next try is due."""
    engine, now, found = locks._driver.engine, MS, []
    for _ in range(times):
        assert hand.open_due(engine, False, now) == [0]
        hand.lost(engine, 0, "refused", now)
        lost = now
        while not hand.open_due(engine, False, now):
            now += MS
        hand.lost(engine, 0, "refused", now)
        found.append((now - lost) // MS)
        now += 5_000 * MS
    return found


@blocking  # in virtual time
def test_reconnect_when_it_fails_then_pauses_double_up_to_a_second_and_differ(
    make_locks: MakeLocks,
) -> None:
    many = [pauses(make_locks(["redis://127.0.0.1:1"]), 8) for _ in range(10)]
    for found in many:
        # Two failures are counted per entry: 50 ms, 200 ms, 800 ms, then the cap.
        for pause, longest in zip(found, [50, 200, 800, *[1000] * 5], strict=True):
            assert longest // 2 <= pause <= longest + 1
    assert len({tuple(found) for found in many}) > 1
