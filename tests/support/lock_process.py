"""Locks taken in another process: `with worker(take, urls, key, ttl) as it:`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from fastredlock import FastRedlock
from tests.support.library_process import count_up
from tests.support.processes import Child, running


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
                count_up(counter)


def worker(
    work: Callable[..., None], *arguments: object
) -> AbstractContextManager[Child]:
    """Run one of the functions above in a process of its own; end it at last."""
    return running(sys.modules[__name__], work.__name__, json.dumps(arguments))


def line_of(process: Child) -> str:
    return process.answer()


if __name__ == "__main__":
    globals()[sys.argv[1]](*json.loads(sys.argv[2]))
