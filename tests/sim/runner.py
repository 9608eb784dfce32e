"""Many schedules in several processes, watched over: none may stand still.

Each process takes some seeds at a time and says what came of them. One that is at the
same seed for too long ends by a timer of its own: a violation like the others.
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
ENDED = {  # by a timer of its own
    -signal.SIGPROF: f"stands still: no end after {LONGEST_S} s of a processor",
    -signal.SIGALRM: f"stands still: no end after {LONGEST_REAL_S} s of real time",
}
SEEDS_AT_ONCE = 64
COLLECT_EVERY = 64  # seeds
PROGRESS_EVERY_S = 10.0


class Plan(NamedTuple):
    first: int
    count: int  # 0: as many as there is time for
    seconds: float  # 0: as many as are counted
    jobs: int
    most_violations: int
    broken: frozenset[str]


class Tally:
    def __init__(self) -> None:
        self.began = time.monotonic()
        self.schedules = self.events = self.leases = self.digest = 0
        self.excuses: Counter[str] = Counter()
        self.violations: list[tuple[int, str]] = []

    def add(self, outcome: Outcome) -> None:
        self.schedules += 1
        self.events += outcome.events
        self.leases += outcome.leases
        self.digest = (self.digest + outcome.digest) % (1 << 64)
        self.excuses.update(dict(outcome.excuses))
        if outcome.violation:
            self.violations.append((outcome.seed, outcome.violation))

    def text(self) -> str:
        took = time.monotonic() - self.began
        return (
            f"{self.schedules} schedules, {len(self.violations)} violations, "
            f"{took:.0f} s"
        )


class Job:
    def __init__(self, broken: frozenset[str]) -> None:
        self.broken = broken
        self.seed = self.end = 0  # where it is, where its share ends
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        given = theirs, self.broken
        self.process = context.Process(target=work, args=given, daemon=True)
        self.process.start()
        theirs.close()

    def give(self, seed: int, end: int) -> None:
        self.seed, self.end = seed, end
        self.pipe.send((seed, end))

    def hear(self) -> Outcome | None:
        """Return what came of its seed; None: it has done its share."""
        try:
            outcome: Outcome | None = self.pipe.recv()
        except EOFError:  # it was ended, or crashed in C: another goes on behind it
            self.process.join()
            code = self.process.exitcode
            text = ENDED.get(code, f"the process ended with exit code {code}")
            outcome = Outcome(self.seed, 0, 0, 0, 0, 0, (), text)
            self.stop()
            self._start()
            self.give(self.seed + 1, self.end)
        else:
            self.seed += outcome is not None
        return outcome

    def stop(self) -> None:
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
            signal.setitimer(signal.ITIMER_PROF, LONGEST_S)
            signal.setitimer(signal.ITIMER_REAL, LONGEST_REAL_S)
            pipe.send(Schedule(seed, broken).run())
            if seed % COLLECT_EVERY == 0:
                gc.collect()
        signal.setitimer(signal.ITIMER_REAL, 0)  # until the next share comes
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
            for job in [job for job in jobs if job.pipe in ready]:
                outcome = job.hear()
                if outcome is None:
                    next_seed = give_share(job, next_seed, end)
                    continue
                total.add(outcome)
                if outcome.violation:
                    show(outcome, plan)
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


def show(outcome: Outcome, plan: Plan) -> None:
    """Print a violation, and how to see it again."""
    again = "".join(f" --break {name}" for name in sorted(plan.broken))
    print(f"seed {outcome.seed}: {outcome.violation}", flush=True)
    print(f"again: python -m tests.sim --seed {outcome.seed}{again}", flush=True)
