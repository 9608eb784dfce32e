"""Leader election: one of several processes leads, the others stand by.

FASTREDLOCK_MASTERS=redis://a:6379,redis://b:6379,... python leader.py JOURNAL

Ended in order (SIGTERM), the leader hands over within milliseconds. Killed, stopped or
cut off, it is followed when its ttl is over, by the process that has waited longest.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from contextlib import suppress
from itertools import count

from fastredlock import LeaseLostError
from fastredlock.asyncio import FastRedlock

TTL = 2.0  # s; for so long, at most, nobody leads after a crash


def publish(step: int, journal: str) -> None:
    """Do what one process alone may do."""
    with open(journal, "a") as lines:
        lines.write(f"{time.monotonic_ns()} {os.getpid()} {step}\n")


async def stand_by(journal: str) -> None:
    """Lead again and again, and wait for that in between."""
    async with FastRedlock.from_env(ttl=TTL) as locks:
        async for lease in locks.lead("leader"):
            try:
                async with lease:  # what it awaits is cancelled where the lease is lost
                    for step in count():
                        lease.check()  # before each: this process may have stood still
                        publish(step, journal)
                        await asyncio.sleep(0.05)
            except LeaseLostError as error:
                print(error, file=sys.stderr)


async def main() -> None:
    """Stand by until SIGTERM or Ctrl-C: leaving the loop releases the lock."""
    task = asyncio.ensure_future(stand_by(*sys.argv[1:]))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    with suppress(asyncio.CancelledError):
        await task


if __name__ == "__main__":
    asyncio.run(main())
