"""Locks taken in another process: `with worker(increment, urls, path) as it:`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from fastredlock import FastRedlock
from tests.support.processes import Child, running


def increment(urls: list[str], path: str, times: int) -> None:
    """Read, pause, write: loses updates as soon as two processes overlap."""
    counter = Path(path)
    with FastRedlock(urls, ttl=10) as locks:
        for _ in range(times):
            with locks.lock("counter"):
                value = int(counter.read_text())
                time.sleep(0.001)
                counter.write_text(str(value + 1))


def take(urls: list[str], resource: str, ttl: float) -> None:
    """Take a lock, tell the token, and hold it until standard input ends."""
    with FastRedlock(urls) as locks:
        lease = locks.acquire(resource, ttl=ttl, timeout=0)
        print(lease.token.decode() if lease else "", flush=True)
        sys.stdin.read()


def take_in_turn(urls: list[str], resource: str, path: str, times: int) -> None:
    """Increment a counter under the lock; tell when it was had (ns, monotonic)."""
    counter = Path(path)
    with FastRedlock(urls, ttl=10) as locks:
        locks.connect()
        for _ in range(times):
            with locks.lock(resource, timeout=30):
                print(time.monotonic_ns(), flush=True)
                value = int(counter.read_text())
                time.sleep(0.001)
                counter.write_text(str(value + 1))


def release_adopted(urls: list[str], resource: str, token: str) -> None:
    """Release what another process took; tell just when (ns, monotonic)."""
    with FastRedlock(urls) as locks:
        locks.connect()
        began_ns = time.monotonic_ns()
        locks.adopt(resource, token).release()
        print(began_ns, flush=True)


def worker(
    work: Callable[..., None], *arguments: object
) -> AbstractContextManager[Child]:
    """Run one of the functions above in a process of its own; end it at last."""
    return running(sys.modules[__name__], work.__name__, json.dumps(arguments))


def line_of(process: Child) -> str:
    """Wait for the next line that a worker prints."""
    return process.answer()


if __name__ == "__main__":
    globals()[sys.argv[1]](*json.loads(sys.argv[2]))
