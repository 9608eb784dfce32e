"""Be one worker process of the demo; `crew` starts it and calls `main`.

Its stdin is a connection, which brings jobs and takes outcomes (`job`). It ends when
that does, so it never outlives the demo, not even one that was killed with SIGKILL.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue

from .. import AcquireError, ConfigurationError, FastRedlock, Lease
from .job import CounterFile, Job, Outcome, Work

_TRY_TIMEOUT = 0.5  # s; so soon a worker that waits for the lock sees it should end
_GRACE = 1.0  # s; so long a worker may take to release and end once the demo has ended
_FAILURE_DELAY = 0.05  # s; masters that are gone come back no sooner for being asked
_TALLY_EVERY = 32  # pairs between two writes of the progress: the file costs time too

stopping: threading.Event = threading.Event()


class Counters:
    """Hold the counter that all workers increment and the tally of this worker's."""

    def __init__(self, folder: str, number: str) -> None:
        self.shared: CounterFile = CounterFile(Path(folder, "counter"))
        self.mine: CounterFile = CounterFile(Path(folder, f"worker-{number}"))
        self.done: int = 0

    def read_and_pause(self, pause: float) -> int:
        """Return the shared counter as it was `pause` seconds ago."""
        value = self.shared.read()
        time.sleep(pause)
        return value

    def write(self, value: int) -> None:
        """Write the shared counter; then count one increment as done."""
        self.shared.write(value)
        self.tally(1)

    def tally(self, count: int) -> None:
        """Count `count` increments (or pairs) of this worker as done."""
        self.done += count
        self.mine.write(self.done)


def work_without_lock(job: Job, counters: Counters) -> Outcome:
    """Increment the counter as if nobody else did."""
    deadline = time.monotonic() + job.seconds
    while time.monotonic() < deadline and not stopping.is_set():
        counters.write(counters.read_and_pause(job.pause) + 1)
    return Outcome(seconds=job.seconds)


def work_with_lock(job: Job, counters: Counters) -> Outcome:
    """Increment the counter, each time holding the lock."""
    outcome = Outcome()
    with FastRedlock(job.masters, job.resource, ttl=job.ttl) as locks:
        started = time.monotonic()
        while lease := take(locks, started + job.seconds, outcome):
            value = counters.read_and_pause(job.pause)
            if lease.is_valid:
                counters.write(value + 1)
            else:
                outcome.expired += 1
            give_back(lease, outcome)
        outcome.seconds = time.monotonic() - started
        outcome.taken = locks.stats().taken
    return outcome


def work_alone(job: Job, counters: Counters) -> Outcome:
    """Acquire and release a lock that nobody else wants."""
    outcome = Outcome()
    with FastRedlock(job.masters, job.resource, ttl=job.ttl) as locks:
        started = time.monotonic()
        while lease := take(locks, started + job.seconds, outcome):
            give_back(lease, outcome)
            if outcome.leases % _TALLY_EVERY == 0:
                counters.tally(_TALLY_EVERY)
        outcome.seconds = time.monotonic() - started
    return outcome


def check(job: Job, counters: Counters) -> Outcome:
    """Take and release one lease; the outcome has the vote of every master."""
    outcome = Outcome()
    try:
        with FastRedlock(job.masters, job.resource, ttl=job.ttl) as locks:
            if lease := try_to_take(locks, job.seconds, outcome):
                outcome.leases += 1
                give_back(lease, outcome)
    except ConfigurationError as error:
        outcome.misconfigured = True
        outcome.failure = str(error)
    return outcome


def take(locks: FastRedlock, deadline: float, outcome: Outcome) -> Lease | None:
    """Acquire the default resource and time it; None if the deadline comes first."""
    started_ns = time.perf_counter_ns()
    while time.monotonic() < deadline and not stopping.is_set():
        if lease := try_to_take(locks, _TRY_TIMEOUT, outcome):
            waited_us = (time.perf_counter_ns() - started_ns) // 1000
            outcome.acquire_us[waited_us] += 1
            outcome.leases += 1
            return lease
    return None


def try_to_take(locks: FastRedlock, timeout: float, outcome: Outcome) -> Lease | None:
    """Acquire the default resource; None if others held it or masters were missing."""
    try:
        return locks.acquire(timeout=timeout)
    except AcquireError as error:
        outcome.failures += 1
        outcome.failure = str(error)
        count_votes(error, outcome)
        stopping.wait(_FAILURE_DELAY)
        return None


def give_back(lease: Lease, outcome: Outcome) -> None:
    """Release `lease`, time it, and count the vote of each master for it."""
    started_ns = time.perf_counter_ns()
    lease.release()
    outcome.release_us[(time.perf_counter_ns() - started_ns) // 1000] += 1
    count_votes(lease, outcome)


def count_votes(voted: Lease | AcquireError, outcome: Outcome) -> None:
    """Add the vote of every master to the outcome's tallies."""
    for index, each in enumerate(voted.votes):
        outcome.tally(index, each.master).add(each.vote.name, each.text)


WORKS = {
    Work.CHECK: check,
    Work.WITHOUT_LOCK: work_without_lock,
    Work.WITH_LOCK: work_with_lock,
    Work.ALONE: work_alone,
}


def listen(demo: Connection, jobs: SimpleQueue[Job | None], folder: str) -> None:
    """Put the jobs into `jobs`; where the demo has ended, see to it that we end too."""
    with suppress(EOFError, OSError):
        while True:
            jobs.put(demo.recv())
    stopping.set()
    jobs.put(None)
    time.sleep(_GRACE)
    remove(folder)
    os._exit(1)


def remove(folder: str) -> None:
    """Remove the demo's folder: if it was killed, nobody else does.

    Every worker does so at its end, when it will create no more files: the last wins.
    """
    shutil.rmtree(folder, ignore_errors=True)


def main(number: str, folder: str) -> None:
    """Do jobs until the demo ends; then remove `folder`, the whole demo's."""
    demo = Connection(0)
    jobs: SimpleQueue[Job | None] = SimpleQueue()
    threading.Thread(target=listen, args=(demo, jobs, folder), daemon=True).start()
    with suppress(OSError):  # the demo was killed
        while (job := jobs.get()) is not None:
            demo.send(WORKS[job.work](job, Counters(job.folder, number)))
    remove(folder)
