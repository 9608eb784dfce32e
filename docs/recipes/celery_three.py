"""Celery: tasks of one kind, three at a time over all workers, however many there are.

BROKER=redis://… FASTREDLOCK_MASTERS=redis://…,redis://…,redis://… JOURNAL=… \\
    celery -A celery_three worker --concurrency 8

A task that finds all slots taken goes back to the broker, and its process does others.
A process that is killed gives its slot back after the ttl.
"""

from __future__ import annotations

import os
import random
import time
from typing import Any

from celery import Celery
from celery.utils.log import get_task_logger

from fastredlock import AcquireError, FastRedlock, LeaseLostError

PERMITS = 3  # the same in all workers
log = get_task_logger(__name__)
app = Celery("exports", broker=os.environ["BROKER"])
app.conf.task_acks_late = True  # a task whose process is killed...
app.conf.task_reject_on_worker_lost = True  # ...is delivered again
app.conf.broker_connection_retry_on_startup = True

locks = FastRedlock.from_env(ttl=3)
exports = locks.semaphore("exports", PERMITS, timeout=0.5, keep_alive=True)


def write(slot: int, what: str) -> None:
    """Note what happens in which slot."""
    with open(os.environ["JOURNAL"], "a") as lines:
        lines.write(f"{time.monotonic_ns()} {slot} {what}\n")


@app.task(bind=True, max_retries=None)
def export(task: Any, parts: int) -> None:
    """Export some parts."""
    try:
        with exports as lease:
            write(lease.slot, "begin")
            for _ in range(parts):
                lease.check()  # LeaseLostError: stop
                time.sleep(0.1)  # the work
            write(lease.slot, "end")
    except (AcquireError, LeaseLostError) as error:  # taken, unreachable, or lost
        log.warning("%s", error)  # not exc=error: strangers may read results
        if isinstance(error, LeaseLostError) and error.body_ended:
            return  # the work is done, if late: a retry would do it twice
        raise task.retry(countdown=random.uniform(0.2, 0.6)) from None
