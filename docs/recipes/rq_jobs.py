"""RQ: a job of unknown length that runs once at a time for each account.

FASTREDLOCK_MASTERS=redis://…,redis://…,redis://… JOURNAL=… rq worker reports

    queue.enqueue(report, "orders", 20, retry=Retry(max=60, interval=1))

A job that finds its account locked fails, and RQ runs it again after the interval
(`rq worker --with-scheduler`); the worker does other jobs meanwhile. RQ forks a process
for each job: it opens connections of its own.
"""

from __future__ import annotations

import os
import time

from fastredlock import FastRedlock, LeaseLostError

locks = FastRedlock.from_env(ttl=10)


def write(part: int) -> None:
    """Do a part of the work."""
    with open(os.environ["JOURNAL"], "a") as lines:
        lines.write(f"{time.monotonic_ns()} {os.getpid()} {part}\n")
    time.sleep(0.05)


def report(account: str, parts: int) -> int:
    """Write a report; an error of the lock lets RQ try again."""
    try:
        with locks.lock(f"report:{account}", timeout=0.2, keep_alive=True) as lease:
            for part in range(parts):
                lease.check()  # LeaseLostError: stop
                write(part)
    except LeaseLostError as error:
        if not error.body_ended:  # else the work is done, if late: not twice
            raise
    return parts
