"""A program that becomes a daemon, between two uses of one client.

    python -m tests.support.daemon_programs ORDER CLIENT FIRST URL...

It closes all descriptors above 2, opens others under their numbers, rests, and forks,
in any order. Then it uses the client, or drops it, and looks at what it has opened.
"""

from __future__ import annotations

import asyncio
import gc
import os
import select
import socket
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fastredlock import FastRedlock
from fastredlock.asyncio import FastRedlock as AwaitableFastRedlock
from fastredlock.testing import LocalMasters

OPENED = 48  # more than the client had
CALLERS = 8


class File:
    def __init__(self) -> None:
        self.file: Any = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        self.file.write(b"ours")

    def is_untouched(self) -> bool:
        was_at = self.file.tell()
        self.file.seek(0)
        return (was_at, self.file.read()) == (4, b"ours")


class Socket:
    """What is sent to it comes back to it, and waits to be read."""

    def __init__(self) -> None:
        self.file: Any = socket.socket(type=socket.SOCK_DGRAM)
        self.file.bind(("127.0.0.1", 0))
        self.file.connect(self.file.getsockname())
        self.file.send(b"ours")

    def is_untouched(self) -> bool:
        self.file.send(b"last")
        return self.file.recv(100) == b"ours" and bool(self.file.recv(100) == b"last")


class Event:
    def __init__(self) -> None:
        self.number = os.eventfd(7)

    def is_untouched(self) -> bool:
        return os.eventfd_read(self.number) == 7


class Epoll:
    def __init__(self) -> None:
        self.file, self.watched = select.epoll(), Socket()
        self.file.register(self.watched.file, select.EPOLLIN)

    def is_untouched(self) -> bool:
        self.file.unregister(self.watched.file)  # raises if another took its number
        return True


KINDS: list[type[Any]] = [File, Socket, Event, Epoll]


def use(locks: FastRedlock) -> None:
    def take(i: int) -> bool:
        lease = locks.acquire(f"{i}", timeout=5)
        return lease is not None and lease.release().name == "RELEASED"

    with ThreadPoolExecutor(CALLERS) as pool:
        assert all(pool.map(take, range(4 * CALLERS)))


def use_awaited(locks: AwaitableFastRedlock) -> None:
    async def take(i: int) -> bool:
        lease = await locks.acquire(f"{i}", timeout=5)
        return lease is not None and (await lease.release()).name == "RELEASED"

    async def take_all() -> None:
        assert all(await asyncio.gather(*map(take, range(CALLERS))))

    asyncio.run(take_all())


def fork() -> None:
    child = os.fork()
    if child:
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def main(order: str, client: str, first: str, *urls: str) -> None:
    masters = LocalMasters(1)  # is held by a descriptor
    if client == "blocking":
        locks, again = FastRedlock(urls), use
    else:
        locks, again = AwaitableFastRedlock(urls), use_awaited  # type: ignore[assignment]
    again(locks)
    opened: list[Any] = []
    for step in order.split("-"):
        if step == "fork":
            fork()
        elif step == "close":
            os.closerange(3, 4096)
            opened = [KINDS[(int(first) + i) % len(KINDS)]() for i in range(OPENED)]
        elif step == "rest":
            time.sleep(1.1)
    if "drop" not in order:
        again(locks)
    del locks
    gc.collect()
    masters.close()
    assert [each for each in opened if not each.is_untouched()] == []


if __name__ == "__main__":
    main(*sys.argv[1:])
    sys.stdout.flush()
    os._exit(0)  # its servers' end, and that of what it has closed, is another subject
