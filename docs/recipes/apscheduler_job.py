"""APScheduler on three hosts: each has the schedule, and one of them runs the job.

FASTREDLOCK_MASTERS=redis://a:6379,redis://b:6379,... JOURNAL=... \\
    python apscheduler_job.py

`at_least` is for how long the lock stays taken after its grant, also if the job is
shorter: give more than the clocks of the hosts may differ. `skip` lets the others go on
without an error.
"""

from __future__ import annotations

import os
import time

from apscheduler.schedulers.blocking import BlockingScheduler

from fastredlock import FastRedlock

locks = FastRedlock.from_env(ttl=60)
scheduler = BlockingScheduler()


@scheduler.scheduled_job("cron", minute="*/5", id="invoices")
@locks.lock("cron:invoices", timeout=0, skip=True, keep_alive=True, at_least=30)
def invoices() -> None:
    """Write the invoices."""
    for step in range(3):
        lease = locks.current("cron:invoices")
        lease.check()  # LeaseLostError: stop, another host may have begun
        with open(os.environ["JOURNAL"], "a") as lines:
            lines.write(f"{time.monotonic_ns()} {os.getpid()} {step}\n")


if __name__ == "__main__":
    scheduler.start()
