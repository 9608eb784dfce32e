"""Programs that keep a lease, and are stopped, forked or ended meanwhile.

python -m tests.support.keeping_programs NAME URL...
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from typing import Any

from fastredlock import FastRedlock, LeaseLostError
from fastredlock import asyncio as awaitable
from tests.support.keys import KEY

held: list[Any] = []  # until the interpreter clears its modules


def stand_still(*urls: str) -> None:
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


def stand_still_awaited(*urls: str) -> None:
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
    """End without a release."""
    locks = FastRedlock(urls, ttl=float(ttl))
    held.extend(locks.acquire(f"k{i}", keep_alive=True) for i in range(20))
    time.sleep(0.3)
    assert float(ttl) < 0.2 or all(lease.is_valid for lease in held)


def end_while_kept_awaited(ttl: str, *urls: str) -> None:
    """End the loop, and then the interpreter, without a release."""

    async def main() -> None:
        locks = awaitable.FastRedlock(urls, ttl=float(ttl))
        held.extend([await locks.acquire(f"k{i}", keep_alive=True) for i in range(20)])
        await asyncio.sleep(0.3)
        assert float(ttl) < 0.2 or all(lease.is_valid for lease in held)

    asyncio.run(main())


def end_by_an_error(ttl: str, *urls: str) -> None:
    """End by an exception inside a with block, in a thread that is a daemon as well."""
    locks = FastRedlock(urls, ttl=float(ttl))
    began = threading.Event()

    def hold() -> None:
        with locks.lock("daemon", keep_alive=True):
            began.set()
            time.sleep(60)

    threading.Thread(target=hold, daemon=True).start()
    began.wait()
    with locks.lock("main", keep_alive=True):
        time.sleep(0.3)
        sys.exit(3)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
