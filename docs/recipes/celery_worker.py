"""Celery: a task of unknown length that runs once at a time for each account.

BROKER=redis://… FASTREDLOCK_MASTERS=redis://…,redis://…,redis://… JOURNAL=… \\
    celery -A celery_worker worker --concurrency 4

The processes of the pool (prefork) share nothing: each has connections and a keeper of
its own, from its first lock on.
"""

from __future__ import annotations

import os
import time
from typing import Any

from celery import Celery
from celery.utils.log import get_task_logger

from fastredlock import AcquireError, FastRedlock, LeaseLostError

log = get_task_logger(__name__)
app = Celery("reports", broker=os.environ["BROKER"])
app.conf.task_acks_late = True  # a task whose process is killed...
app.conf.task_reject_on_worker_lost = True  # ...is delivered again
app.conf.broker_connection_retry_on_startup = True

locks = FastRedlock.from_env(ttl=3)


def write(part: int) -> None:
    """Do a part of the work."""
    with open(os.environ["JOURNAL"], "a") as lines:
        lines.write(f"{time.monotonic_ns()} {os.getpid()} {part}\n")
    time.sleep(0.1)


@app.task(bind=True, soft_time_limit=3600, max_retries=None)
def report(task: Any, account: str, parts: int) -> None:
    """Write a report; SoftTimeLimitExceeded leaves the block, and frees the lock."""
    try:
        with locks.lock(f"report:{account}", timeout=0, keep_alive=True) as lease:
            for part in range(parts):
                lease.check()  # LeaseLostError: stop
                write(part)
    except (AcquireError, LeaseLostError) as error:  # taken, unreachable, or lost
        log.warning("%s", error)  # not exc=error: strangers may read results
        if isinstance(error, LeaseLostError) and error.body_ended:
            return  # the work is done, if late: a retry would do it twice
        raise task.retry(countdown=1) from None  # the pool goes on meanwhile
