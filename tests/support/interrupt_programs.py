"""Programs that are interrupted at random, run in a process of their own.

python -m tests.support.interrupt_programs NAME URL...
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections import Counter

import redis

from fastredlock import FastRedlock
from tests.support.keys import KEY


def interrupt_at_random(*urls: str) -> None:
    """Take locks under real SIGINTs at all times; no key may be left."""
    locks = FastRedlock(urls)
    locks.connect()
    ended = time.monotonic() + 2
    interrupts = 0
    is_armed = [False]  # not twice: outside of `try` it would be the test's end

    def on_signal(*_: object) -> None:
        if is_armed[0]:
            is_armed[0] = False
            raise KeyboardInterrupt

    def send() -> None:
        delay = 0.0001
        while time.monotonic() < ended:
            time.sleep(delay)
            delay = delay * 1.37 % 0.003
            os.kill(os.getpid(), signal.SIGINT)

    sender = threading.Thread(target=send, daemon=True)
    number = 0
    signal.signal(signal.SIGINT, on_signal)
    sender.start()
    while True:
        # A lease that was returned is ours to release, also where Ctrl-C came between
        # the return and the name: so each gets a resource of its own.
        try:
            is_armed[0] = True
            while time.monotonic() < ended + 0.05:
                number += 1
                with locks.lock(f"r{number}", ttl=60):
                    pass
            break
        except KeyboardInterrupt:
            interrupts += 1
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    locks.close()
    assert interrupts > 50, interrupts
    print(number, interrupts)
    assert left_on_a_quorum(urls) == []


def left_on_a_quorum(urls: tuple[str, ...]) -> list[bytes]:
    """List the keys that still stand on a quorum of the masters."""
    servers = [redis.Redis.from_url(url) for url in urls]
    found = Counter(key for server in servers for key in server.scan_iter(count=1000))
    return [key for key, times in found.items() if times > len(urls) // 2]


def lock_at_once(locks: FastRedlock, name: str) -> None:
    with locks.lock(name):
        pass


def acquire_at_once(locks: FastRedlock, name: str) -> None:
    lease = locks.acquire(name)
    with lease:  # type: ignore[union-attr]  # no timeout: never None
        pass


def acquire_and_release(locks: FastRedlock, name: str) -> None:
    lease = locks.acquire(name)
    try:
        pass
    finally:
        lease.release()  # type: ignore[union-attr]


def interrupt_around_with(*urls: str) -> None:
    """Raise KeyboardInterrupt at every time around a with block; no key may be left."""
    locks = FastRedlock(urls, ttl=600)
    locks.connect()
    began = time.perf_counter()
    for _ in range(100):
        lock_at_once(locks, KEY)
    longest = 1.3 * (time.perf_counter() - began) / 100
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    random.seed(9)
    interrupts = number = 0
    bodies = (lock_at_once, acquire_at_once, acquire_and_release)
    ended = time.monotonic() + 6
    while time.monotonic() < ended:
        number += 1
        try:
            try:
                delay = random.uniform(2e-6, longest)
                signal.setitimer(signal.ITIMER_REAL, delay)
                bodies[number % 3](locks, f"r{number}")
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            interrupts += 1
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    assert interrupts > 500, (number, interrupts)
    assert locks.stats().losses == 0
    locks.close()
    print(number, interrupts)
    assert left_on_a_quorum(urls) == []


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
