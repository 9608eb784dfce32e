"""Cron: many hosts have the same crontab, and one of them runs the job.

FASTREDLOCK_MASTERS=redis://a:6379,redis://b:6379,redis://c:6379
*/5 * * * *  python cron.py JOURNAL
"""

from __future__ import annotations

import os
import sys
import time

from fastredlock import AcquireError, FastRedlock, LeaseLostError, ResourceTakenError

TTL = 2.0  # s; after so long another run may begin where this one was killed
LONGEST = 3600.0  # s; a run that takes longer hangs: it is not kept any more, and stops
SKEW = 2.0  # s; by which the clocks of the hosts may differ


def invoice(customer: int, journal: str) -> None:
    """Do a part of the job."""
    with open(journal, "a") as lines:
        lines.write(f"{time.monotonic_ns()} {os.getpid()} {customer}\n")
    time.sleep(0.05)


def run(journal: str) -> str:
    """Run the job, or leave it to another host; return what cron is to mail."""
    locks = FastRedlock.from_env(ttl=TTL)
    try:
        with locks.lock("cron:invoices", timeout=0, keep_alive=LONGEST) as lease:
            for customer in range(60):
                lease.check()  # LeaseLostError: stop, another run may have begun
                invoice(customer, journal)
            lease.lost.wait(SKEW)  # for hosts whose clocks are behind it is taken yet
    except ResourceTakenError:
        return ""  # another host runs it
    except (AcquireError, LeaseLostError) as error:
        return str(error)
    return ""


if __name__ == "__main__":
    sys.exit(run(*sys.argv[1:]) or 0)
