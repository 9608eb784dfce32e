"""Many schedules in several processes, watched over: none may stand still.

Each process takes some seeds at a time and says what came of them. One that is at the
same seed for too long is ended, and that is a violation like the others.
"""

from __future__ import annotations

import gc
import logging
import multiprocessing
import signal
import sys
import time
from collections import Counter
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

from .schedule import Outcome, Schedule

LONGEST_S = 60  # of a processor; a schedule takes some 20 ms
LONGEST_REAL_S = 900  # where it does not even run; the machine may be busy
SEEDS_AT_ONCE = 64
COLLECT_EVERY = 16  # seeds
PROGRESS_EVERY_S = 10.0


class Plan(NamedTuple):
    """Which seeds are run, and when that is over."""

    first: int
    count: int  # 0: as many as there is time for
    seconds: float  # 0: as many as are counted
    jobs: int
    most_violations: int
    broken: frozenset[str]


class Tally:
    """What a run came to so far."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.schedules = self.events = self.leases = self.digest = 0
        self.excuses: Counter[str] = Counter()
        self.violations: list[tuple[int, str]] = []

    def add(self, outcome: Outcome) -> None:
        """Add what a schedule came to."""
        self.schedules += 1
        self.events += outcome.events
        self.leases += outcome.leases
        self.digest = (self.digest + outcome.digest) % (1 << 64)
        self.excuses.update(dict(outcome.excuses))
        if outcome.violation:
            self.violations.append((outcome.seed, outcome.violation))

    def text(self) -> str:
        """Return `N schedules, M violations, T s`."""
        took = time.monotonic() - self.began
        return (
            f"{self.schedules} schedules, {len(self.violations)} violations, "
            f"{took:.0f} s"
        )


class Job:
    """One process that runs schedules."""

    def __init__(self, broken: frozenset[str]) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=work, args=(theirs, broken), daemon=True)
        self.process.start()
        theirs.close()
        self.seed = self.end = 0  # where it is, where its share ends
        self.heard = time.monotonic()

    def give(self, seed: int, end: int) -> None:
        """Hand it its next share."""
        self.seed, self.end, self.heard = seed, end, time.monotonic()
        self.pipe.send((seed, end))

    def stop(self) -> None:
        """End it, wherever it is."""
        self.process.kill()
        self.process.join()
        self.pipe.close()


def work(pipe: Connection, broken: frozenset[str]) -> None:
    """Run shares of seeds until there are no more; the body of a process."""
    logging.disable(logging.WARNING)  # of masters in even numbers
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()  # a tenth of the time; by hand now and then
    gc.freeze()
    while share := pipe.recv():
        for seed in range(*share):
            signal.setitimer(signal.ITIMER_PROF, LONGEST_S)  # SIGPROF ends us
            pipe.send(Schedule(seed, broken).run())
            if seed % COLLECT_EVERY == 0:
                gc.collect()
        pipe.send(None)


def run(plan: Plan) -> Tally:
    """Run a plan; print each violation to stdout as it comes, progress to stderr."""
    total, next_seed, said = Tally(), plan.first, time.monotonic()
    jobs = [Job(plan.broken) for _ in range(plan.jobs)]
    end = plan.first + plan.count if plan.count else sys.maxsize

    def is_over() -> bool:
        is_late = plan.seconds and time.monotonic() - total.began > plan.seconds
        return bool(is_late) or len(total.violations) >= plan.most_violations

    try:
        for job in jobs:
            next_seed = give_share(job, next_seed, end)
        while not is_over() and any(job.end for job in jobs):
            ready: list[Any] = wait([job.pipe for job in jobs if job.end], timeout=1.0)
            for job in jobs:
                if job.pipe in ready and listen(job, total, plan):
                    next_seed = give_share(job, next_seed, end)
            for at, job in enumerate(jobs):
                if job.end and is_stuck(job):
                    jobs[at] = replaced(job, total, plan)
            if time.monotonic() - said > PROGRESS_EVERY_S:
                said = time.monotonic()
                print(f"{total.text()}, at seed {next_seed}", file=sys.stderr)
    finally:
        for job in jobs:
            job.stop()
    return total


def give_share(job: Job, seed: int, end: int) -> int:
    """Hand a job its next seeds, or nothing; return the first that is left."""
    share_end = min(seed + SEEDS_AT_ONCE, end)
    if seed >= end:
        job.end = 0
        return seed
    job.give(seed, share_end)
    return share_end


def listen(job: Job, total: Tally, plan: Plan) -> bool:
    """Take what a job has to say; return whether it has done its share."""
    job.heard = time.monotonic()
    try:
        outcome = job.pipe.recv()
    except EOFError:
        outcome = died(job)
    if outcome is None:
        return True
    total.add(outcome)
    if outcome.violation:
        show(outcome.seed, outcome.violation, plan)
    if job.heard:
        job.seed += 1
    return False


def died(job: Job) -> Outcome:
    """Return the violation of a process that is gone: it crashed in C."""
    job.process.join()
    code = job.process.exitcode
    text = f"the process ended with exit code {code}"
    if code == -signal.SIGPROF:
        text = f"stands still: no end after {LONGEST_S} s of a processor"
    job.heard = 0.0  # replaced like a stuck one, without another word
    return Outcome(job.seed, 0, 0, 0, 0, 0, (), text)


def is_stuck(job: Job) -> bool:
    """Whether a schedule has been running for too long, or its process is gone."""
    return not job.heard or time.monotonic() - job.heard > LONGEST_REAL_S


def replaced(job: Job, total: Tally, plan: Plan) -> Job:
    """End a job that stands still; give the rest of its share to another."""
    if job.heard:
        text = f"stands still: no end after {LONGEST_REAL_S} s of real time"
        total.violations.append((job.seed, text))
        total.schedules += 1
        show(job.seed, text, plan)
    job.stop()
    another = Job(plan.broken)
    another.give(job.seed + 1, max(job.end, job.seed + 1))
    return another


def show(seed: int, violation: str, plan: Plan) -> None:
    """Print a violation, and how to see it again."""
    again = "".join(f" --break {name}" for name in sorted(plan.broken))
    print(f"seed {seed}: {violation}", flush=True)
    print(f"again: python -m tests.sim --seed {seed}{again}", flush=True)
