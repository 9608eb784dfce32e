"""Programs that fault tests run in a process of their own.

python -m tests.support.fault_programs NAME URL...
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import resource
import signal
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from typing import Any
from urllib.parse import urlsplit

from fastredlock import (
    FastRedlock,
    LeaseLostError,
    MasterVote,
    QuorumUnreachableError,
    ReleaseStatus,
    Vote,
)
from fastredlock import asyncio as awaitable
from tests.support.ending_programs import server_of
from tests.support.keys import KEY
from tests.support.waiting import wait_until


def run_out_of_descriptors(*urls: str) -> None:
    """Take locks with no descriptor left, then with some again."""
    locks, connected = FastRedlock(urls), FastRedlock(urls)
    connected.connect()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    taken = []
    with suppress(OSError):
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))
    votes: tuple[MasterVote, ...] = ()
    try:
        locks.acquire(KEY, timeout=0)
    except QuorumUnreachableError as error:
        votes = error.votes
    failed = {vote.text for vote in votes if vote.vote is Vote.FAILED}
    assert failed == {"too many open files"}, votes
    with connected.lock(KEY, timeout=0):
        pass  # it needs no other one
    for fd in taken:
        os.close(fd)
    lease = locks.acquire(KEY, timeout=1)
    assert lease is not None
    lease.release()
    locks.close()


class LookUps:
    """The counter and the setting of interposer.c, its variables by their names."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)

    def delay(self, milliseconds: int) -> None:
        """Let each look-up of <anything>.slow.test take so long from now on."""
        ctypes.c_int.in_dll(self._library, "slow_ms").value = milliseconds

    def count(self) -> int:
        return ctypes.c_int.in_dll(self._library, "look_ups").value


def slow_masters(urls: tuple[str, ...]) -> list[tuple[str, int]]:
    """Name the masters so that their look-ups are slow."""
    return [(f"m{i}.slow.test", urlsplit(url).port or 0) for i, url in enumerate(urls)]


def is_locked(locks: FastRedlock, seconds: float) -> bool:
    """Try for so long to take and release a lock."""
    ended = time.monotonic() + seconds
    while time.monotonic() < ended:
        with suppress(QuorumUnreachableError):
            lease = locks.acquire(KEY, timeout=0.1)
            assert lease is not None
            return lease.release() is ReleaseStatus.RELEASED
    return False


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


def look_up_slowly(*urls: str) -> None:
    """Try on and on while each name takes longer than a connection may take."""
    look_ups = LookUps()
    look_ups.delay(1500)
    masters, before = slow_masters(urls), threads()
    locks = FastRedlock(masters, connect_timeout=0.1)
    assert not is_locked(locks, 0.3)
    assert threads() - before <= len(urls)
    assert look_ups.count() == len(urls)  # of many attempts
    look_ups.delay(0)
    assert is_locked(locks, 2)  # by answers that came when nobody waited any more
    assert look_ups.count() == len(urls)
    assert wait_until(lambda: threads() == before)
    for url in urls:
        server_of(url).client_kill_filter(_type="normal", skipme=True)
    looked_up = look_ups.count()  # redis-py has looked up, too
    assert is_locked(locks, 2)
    ended = time.monotonic() + 2
    while locks.stats().connects < 2 * len(urls) and time.monotonic() < ended:
        locks.connect()  # a loaded machine may need more than connect_timeout
    assert look_ups.count() - looked_up >= len(urls)  # at every reconnect


def look_up_in_a_child(*urls: str) -> None:
    """Fork while names are being looked up: the child has no such thread."""
    look_ups = LookUps()
    look_ups.delay(1000)
    locks = FastRedlock(slow_masters(urls), connect_timeout=0.1)
    assert not is_locked(locks, 0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # there are threads
        child = os.fork()
    if child == 0:
        look_ups.delay(0)
        os._exit(not is_locked(locks, 0.8))
    assert os.waitpid(child, 0)[1] == 0
    assert is_locked(locks, 2)


def stand_still(*urls: str) -> None:
    """Stop and go on, several times and for over 1 s, while threads take locks."""
    clients = [FastRedlock(urls, ttl=60, round_timeout=3) for _ in range(6)]
    for locks in clients:
        locks.connect()
    stopper = os.fork()
    if stopper == 0:
        for number in range(3):
            time.sleep(0.1 + number * 0.013)  # somewhere in their rounds
            os.kill(os.getppid(), signal.SIGSTOP)
            time.sleep(1.05)  # for longer than a look at the clock is apart
            os.kill(os.getppid(), signal.SIGCONT)
        os._exit(0)
    is_over = threading.Event()

    def take(locks: FastRedlock, thread: int) -> None:
        for number in count():
            if is_over.is_set():
                return
            lease = locks.acquire(f"{id(locks)} {thread} {number}", timeout=5)
            assert lease is not None
            assert lease.release() is ReleaseStatus.RELEASED

    with ThreadPoolExecutor(24) as pool:
        pairs = [pool.submit(take, clients[i % 6], i) for i in range(24)]
        os.waitpid(stopper, 0)
        is_over.set()
    for pair in pairs:
        pair.result()
    for locks in clients:
        locks.close()


# --- leases that are kept -------------------------------------------------------------


held: list[Any] = []  # until the interpreter clears its modules


def tell_after_a_stop(*urls: str) -> None:
    """Tell what the lease says after each line that is read."""
    lease = FastRedlock(urls, ttl=1).acquire(KEY, keep_alive=True)
    assert lease is not None
    print("holds", flush=True)
    sys.stdin.readline()
    told: list[object] = [lease.lost.is_set(), lease.is_valid, lease.remaining()]
    try:
        lease.check()
    except LeaseLostError:
        told.append("raised")
    print(told, lease.lost.is_set(), flush=True)
    sys.stdin.readline()


def tell_after_a_stop_awaited(*urls: str) -> None:
    """The same in a task; its first line after the pause must not wait."""

    async def main() -> None:
        locks = awaitable.FastRedlock(urls, ttl=1)
        async with locks.lock(KEY, keep_alive=True) as lease:
            print("holds", flush=True)
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, sys.stdin.readline)
            print(lease.lost.is_set(), lease.is_valid, flush=True)

    try:
        asyncio.run(main())
    except LeaseLostError as error:
        print("left by", type(error).__name__, flush=True)


def end_while_kept(ttl: str, *urls: str) -> None:
    locks = FastRedlock(urls, ttl=float(ttl))
    held.extend(locks.acquire(f"k{i}", keep_alive=True) for i in range(20))
    time.sleep(0.3)  # some are renewed, or over
    assert float(ttl) < 0.2 or all(lease.is_valid for lease in held)


def end_while_kept_awaited(ttl: str, *urls: str) -> None:
    """End the loop, and then the interpreter, without a release."""

    async def main() -> None:
        locks = awaitable.FastRedlock(urls, ttl=float(ttl))
        held.extend([await locks.acquire(f"k{i}", keep_alive=True) for i in range(20)])
        await asyncio.sleep(0.3)  # likewise
        assert float(ttl) < 0.2 or all(lease.is_valid for lease in held)

    asyncio.run(main())


def end_by_an_error(ttl: str, *urls: str) -> None:
    """End by an exception inside a with block, in a thread that is a daemon as well."""
    locks = FastRedlock(urls, ttl=float(ttl))
    began = threading.Event()

    def hold() -> None:
        with locks.lock("daemon", keep_alive=True):
            began.set()
            threading.Event().wait()

    threading.Thread(target=hold, daemon=True).start()
    began.wait()
    with locks.lock("main", keep_alive=True):
        sys.exit(3)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
