"""What tests run in a process of its own: `python -m faults.programs NAME URL...`"""

from __future__ import annotations

import gc
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import redis

from fastredlock import FastRedlock, MasterVote, QuorumUnreachableError, Vote

KEY = "orders:42"


class Finalizer:
    """In a cycle, so that only the garbage collector ends it; another one follows."""

    is_wanted = False
    runs = 0

    def __init__(self, work: Callable[[], object]) -> None:
        self.work = work
        self.me = self

    def __del__(self) -> None:
        if Finalizer.is_wanted:
            Finalizer.is_wanted = False  # not within itself
            self.work()
            Finalizer.runs += 1
            Finalizer(self.work)
            Finalizer.is_wanted = True


def collect(*urls: str) -> None:
    """Take locks in a finalizer at every second allocation of taking another one."""
    locks = FastRedlock(urls, round_timeout=0.5)
    servers = [redis.Redis.from_url(url) for url in urls[1:]]  # the first is away
    thresholds = gc.get_threshold()

    def take_another() -> None:
        other = locks.acquire("other", timeout=0)
        assert other is not None
        other.release()

    take_another()
    for _ in range(30):
        Finalizer(take_another)
        Finalizer.is_wanted = True
        gc.set_threshold(1, 1, 1)
        lease = locks.acquire(KEY, timeout=0)
        Finalizer.is_wanted = False
        gc.set_threshold(*thresholds)
        assert lease is not None
        assert sum(server.get(KEY) == lease.token for server in servers) >= 3
        lease.release()
    assert Finalizer.runs > 50
    locks.close()


def leave_open(*urls: str) -> None:
    """End the interpreter with engines, leases and threads in use."""
    locks = FastRedlock(urls)
    globals()["kept"] = locks, locks.acquire(KEY), FastRedlock(urls).acquire("other")
    waiting = threading.Thread(target=locks.acquire, args=(KEY,), daemon=True)
    waiting.start()


def run_out_of_descriptors(*urls: str) -> None:
    """Take locks with no descriptor left, then with some again."""
    locks = FastRedlock(urls)
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
    for fd in taken:
        os.close(fd)
    lease = locks.acquire(KEY, timeout=1)
    assert lease is not None
    lease.release()
    locks.close()


def interrupt_at_random(*urls: str) -> None:
    """Take locks under real SIGINTs at all times; no key may be left."""
    locks = FastRedlock(urls)
    locks.connect()
    ended = time.monotonic() + 2
    interrupts = 0

    def send() -> None:
        delay = 0.0001
        while time.monotonic() < ended:
            time.sleep(delay)
            delay = delay * 1.37 % 0.003
            os.kill(os.getpid(), signal.SIGINT)

    sender = threading.Thread(target=send, daemon=True)
    number = 0
    with suppress(KeyboardInterrupt):
        sender.start()
    while True:
        # A lease that was returned is ours to release, also where Ctrl-C came between
        # the return and the name: so each gets a resource of its own.
        try:
            while time.monotonic() < ended + 0.05:
                number += 1
                with locks.lock(f"r{number}", ttl=60):
                    pass
            break
        except KeyboardInterrupt:
            interrupts += 1
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    locks.close()
    left = [redis.Redis.from_url(url).dbsize() for url in urls]
    assert interrupts > 50, interrupts
    print(number, interrupts, left)
    # Python itself has gaps around `with` (bugs.python.org/issue29988): few of many.
    assert max(left) <= interrupts * 0.02 + 1, (interrupts, left)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
