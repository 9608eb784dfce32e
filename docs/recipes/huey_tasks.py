"""Huey: a task of unknown length that runs once at a time for each account.

BROKER=redis://… FASTREDLOCK_MASTERS=redis://…,redis://…,redis://… JOURNAL=… \\
    huey_consumer.py huey_tasks.huey --workers 4

Huey's own `lock_task` is a key of the broker without a ttl: it stays if a worker is
killed, and can be lost if the broker fails over. This lock is free after its ttl.
"""

from __future__ import annotations

import os
import threading
import time

from huey import RedisHuey
from huey.exceptions import RetryTask

from fastredlock import AcquireError, FastRedlock, LeaseLostError

huey = RedisHuey("reports", url=os.environ["BROKER"])
locks = FastRedlock.from_env(ttl=10)


def write(part: int) -> None:
    """Do a part of the work."""
    with open(os.environ["JOURNAL"], "a") as lines:
        thread = threading.get_native_id()
        lines.write(f"{time.monotonic_ns()} {thread} {part}\n")
    time.sleep(0.05)


@huey.task(retries=60, retry_delay=1)
def report(account: str, parts: int) -> None:
    """Write a report, or go back to the broker: the worker does others meanwhile."""
    try:
        with locks.lock(f"report:{account}", timeout=0, keep_alive=True) as lease:
            for part in range(parts):
                lease.check()  # LeaseLostError: stop
                write(part)
    except (AcquireError, LeaseLostError) as error:  # taken, unreachable, or lost
        if isinstance(error, LeaseLostError) and error.body_ended:
            return  # the work is done, if late: a retry would do it twice
        raise RetryTask("try again", delay=1) from None
