"""Play the demo: several processes increment one counter, without and with the lock.

Theory of operation.  The workers are a pool of spawned processes.  With the demo they
share one array: whether they are to end, the counter, how many increments each has
done.  An increment reads the counter, waits, and writes it: another worker between
these steps loses its update.  The array has no name, so that no file is left behind.

The demo waits in `Demo._run` alone.  The signals that end it are blocked, and looked
for there, so that none comes between two steps.  The workers inherit that: Ctrl-C
reaches them, too, and the demo ends them in order.  Where it was killed, they end
by themselves.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Collection, MutableSequence, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass, field
from multiprocessing import active_children, get_context, parent_process
from multiprocessing.resource_tracker import ensure_running
from secrets import token_hex
from typing import Any, NamedTuple

from .. import AcquireError, ConfigurationError, FastRedlock, Lease
from .._cli import CommandError
from ..testing import LocalMasters

OK, LOST_UPDATES, CANNOT_RUN, UNREACHABLE, WORKER_DIED = range(5)  # exit statuses
LOCAL_MASTERS = 5
STOPPED, PAUSED = 1, 3  # which of them; three are left: a quorum
HANGS = "paused (SIGSTOP): it accepts, but never answers"
FAULTS = (  # the share of the phase that is over, the master, what happens to it
    (0.25, STOPPED, LocalMasters.stop, "stopped", "stopped: it refuses connections"),
    (0.50, PAUSED, LocalMasters.pause, "paused", HANGS),
)
TTL = 2.0  # s; a key stays no longer than this, if the machine goes down
TICK = 0.05  # s between two looks at signals, counters and the screen
CHECK_SECONDS = 3.0
SIDE_SECONDS = 2.0  # longer shows no more: the time goes to the phase with the lock
OVERTIME = 15.0  # s; a worker that is so late will not answer any more
GRACE = 0.8  # s for workers to release and end, then they are killed
TRY_TIMEOUT = 0.5  # s; so soon a worker that waits for the lock sees it should end
FAILURE_DELAY = 0.05  # s; masters that are gone come back no sooner for being asked
MOST_VOTES = 1000  # different ones; a text can hold a number, and be new every time
STOP, COUNTER, DONE = 0, 1, 2  # in the array; from DONE on one number of each worker


# ---- the workers


class Job(NamedTuple):
    """Give one worker, counted from 0, the masters and the time of one phase."""

    worker: int
    masters: Sequence[str]
    resource: str
    seconds: float
    pause: float  # s between reading and writing the counter


@dataclass(slots=True)
class Outcome:
    """Count the results of a job."""

    failure: str = ""  # the last one's message
    # leases, taken, expired, failures
    counts: Counter[str] = field(default_factory=Counter)
    # By number and name of the master, and name and text of its vote.
    votes: Counter[tuple[int, str, str, str]] = field(default_factory=Counter)
    acquire_us: Counter[int] = field(default_factory=Counter)
    release_us: Counter[int] = field(default_factory=Counter)

    def add(self, other: Outcome) -> None:
        self.failure = other.failure or self.failure
        for name in ("counts", "votes", "acquire_us", "release_us"):
            getattr(self, name).update(getattr(other, name))

    def count_votes(self, voted: Lease | AcquireError) -> None:
        for number, each in enumerate(voted.votes, 1):
            text = each.text if each.text and len(self.votes) < MOST_VOTES else ""
            self.votes[number, each.master, each.vote.name, text] += 1

    def masters(self) -> dict[tuple[int, str], str]:
        """Return the most frequent text, or "", of each master's number and name."""
        names = sorted({vote[:2] for vote in self.votes})
        texts = {
            vote[:2]: vote[3] for vote, _ in self.votes.most_common()[::-1] if vote[3]
        }
        return {each: texts.get(each, "") for each in names}


shared: MutableSequence[int]  # the array, in a worker


def start_worker(array: MutableSequence[int]) -> None:
    """Prepare this process for jobs; the pool calls it."""
    global shared
    shared = array
    threading.Thread(target=_end_with_demo, daemon=True).start()
    # By this one the pool ends its processes where one of them has died.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])


def _end_with_demo() -> None:
    if (demo := parent_process()) is not None:
        demo.join()
    os._exit(1)


def check(job: Job) -> Outcome:
    """Wait until all workers are there; the first then takes a lease."""
    outcome = Outcome()
    shared[DONE + job.worker] = 1
    while not all(shared[DONE:]) and not shared[STOP]:
        time.sleep(0.005)  # an interpreter takes 0.1 s to start, and notifies nobody
    if job.worker == 0:
        with FastRedlock(job.masters, job.resource, ttl=TTL) as locks:
            with locks.lock(timeout=job.seconds) as lease:
                pass
            outcome.count_votes(lease)
    return outcome


def without_lock(job: Job) -> Outcome:
    deadline = time.monotonic() + job.seconds
    while time.monotonic() < deadline and not shared[STOP]:
        _increment(job)
    return Outcome()


def with_lock(job: Job) -> Outcome:
    return _under_leases(job, _increment)


def alone(job: Job) -> Outcome:
    return _under_leases(job, _count)


def _increment(job: Job, lease: Lease | None = None) -> bool:
    """Increment the counter; return False where the lease ended too early to write."""
    value = shared[COUNTER]
    time.sleep(job.pause)
    if lease is not None and not lease.is_valid:
        return False
    shared[COUNTER] = value + 1
    return _count(job, lease)


def _count(job: Job, lease: Lease | None) -> bool:
    shared[DONE + job.worker] += 1
    return True


def _under_leases(job: Job, work: Callable[[Job, Lease], bool]) -> Outcome:
    outcome = Outcome()
    with FastRedlock(job.masters, job.resource, ttl=TTL) as locks:
        deadline = time.monotonic() + job.seconds
        while lease := _take(locks, deadline, outcome):
            outcome.counts["leases"] += 1
            outcome.counts["expired"] += not work(job, lease)
            started_ns = time.perf_counter_ns()
            lease.release()
            outcome.release_us[(time.perf_counter_ns() - started_ns) // 1000] += 1
            outcome.count_votes(lease)
        outcome.counts["taken"] = locks.stats().taken
    return outcome


def _take(locks: FastRedlock, deadline: float, outcome: Outcome) -> Lease | None:
    """Acquire the default resource; None if the deadline comes first."""
    started_ns = time.perf_counter_ns()
    while time.monotonic() < deadline and not shared[STOP]:
        try:
            if lease := locks.acquire(timeout=TRY_TIMEOUT):
                waited_ns = time.perf_counter_ns() - started_ns
                outcome.acquire_us[waited_ns // 1000] += 1
                return lease
        except AcquireError as error:
            outcome.counts["failures"] += 1
            outcome.failure = str(error)
            outcome.count_votes(error)
            time.sleep(FAILURE_DELAY)
    return None


# ---- the demo


@dataclass(slots=True)
class Phase:
    """Count one phase of the demo; `seconds` is how long it is meant to run."""

    name: str
    work: Callable[[Job], Outcome]
    seconds: float
    elapsed: float = 0.0
    increments: int = 0  # by the workers; of `alone` pairs of acquire and release
    counter: int = 0  # read after the increments
    outcome: Outcome = field(default_factory=Outcome)

    @property
    def lost(self) -> int:
        """Increments missing in the counter; while running: at least so many."""
        return max(0, self.increments - self.counter)

    def __str__(self) -> str:
        if self.work is alone:
            return f"{self.increments:,} times acquired and released"
        counted = f"{self.increments:,} increments, counter {self.counter:,}"
        return f"{counted}, {self.lost:,} lost"


class Demo:
    """Run the phases, and hold their state for `show`."""

    def __init__(
        self,
        asked: Namespace,
        local: LocalMasters | None,  # None: the masters are the user's
        ending: Collection[int],  # the signals that end it
        show: Callable[[Demo], None],
    ) -> None:
        self.workers: int = asked.workers
        self.local: LocalMasters | None = local
        self._ending, self._show = ending, show
        side = min(SIDE_SECONDS, asked.seconds / 5)
        self.phases: tuple[Phase, Phase, Phase] = (
            Phase("without the lock", without_lock, side),
            Phase("with the lock", with_lock, asked.seconds - 2 * side),
            Phase("one worker alone", alone, side),
        )
        self.conditions: list[str] = ["up"] * LOCAL_MASTERS
        self.events: list[tuple[float, str]] = []  # s, what happened
        self._started = time.monotonic()
        urls = local.urls if local else asked.masters
        resource = f"fastredlock-demo-{token_hex(8)}"
        self._job = Job(0, urls, resource, 0, asked.pause_ms / 1000)
        self._under_way: list[Future[Outcome]] = []
        context = get_context("spawn")
        self._array = context.RawArray("q", DONE + asked.workers)
        self._pool = ProcessPoolExecutor(
            asked.workers, context, start_worker, (self._array,)
        )

    def note(self, text: str) -> None:
        self.events.append((time.monotonic() - self._started, text))

    def run(self) -> int:
        checked, (unlocked, locked, last) = Phase("", check, CHECK_SECONDS), self.phases
        self._run(checked, self.workers)
        self.note("the masters are there, a first lease was granted")
        if self.local is None:
            self.note("these masters are yours: none is stopped or paused")
        for (number, name), text in checked.outcome.masters().items():
            if text:
                self.note(f"master {number} ({name}): {text}")
        self._run(unlocked, self.workers)
        self._run(locked, self.workers)
        if not locked.outcome.counts["leases"]:
            failure = locked.outcome.failure or "no lease was granted"
            raise CommandError(failure, UNREACHABLE)
        if self.local:
            self._repair(self.local)
        self._run(last, 1)
        return LOST_UPDATES if locked.lost else OK

    def _run(self, phase: Phase, size: int) -> None:
        """Let so many workers do it."""
        self._array[COUNTER:] = [0] * (1 + self.workers)
        job, started = self._job._replace(seconds=phase.seconds), time.monotonic()
        each_job = (job._replace(worker=number) for number in range(size))
        self._under_way = [self._pool.submit(phase.work, job) for job in each_job]
        is_over = False
        while not is_over:
            is_over = not wait(self._under_way, TICK).not_done
            refuse_signals(self._ending)
            elapsed = time.monotonic() - started
            if elapsed > phase.seconds + OVERTIME:
                raise CommandError("a worker does not answer", WORKER_DIED)
            if phase.work is with_lock and self.local:
                self._cause_faults(self.local, elapsed / phase.seconds)
            phase.elapsed = phase.seconds if is_over else min(elapsed, phase.seconds)
            phase.increments = sum(self._array[DONE:])
            phase.counter = self._array[COUNTER]
            self._show(self)
        for each in self._under_way:
            phase.outcome.add(each.result())
        if phase.name:
            self.note(f"{phase.name}: {phase}")
            self._show(self)

    def _cause_faults(self, local: LocalMasters, share: float) -> None:
        """Stop a master after a quarter of the phase, freeze one after half."""
        for due, i, cause, condition, text in FAULTS:
            if share >= due and self.conditions[i] == "up":
                cause(local, i)
                self.conditions[i] = condition
                self.note(f"master {i + 1} {text}")

    def _repair(self, local: LocalMasters) -> None:
        """Bring both back. No lease may be out: a restarted master forgot them."""
        local.start(STOPPED)
        local.resume(PAUSED)
        self.conditions = ["up"] * LOCAL_MASTERS
        self.note(f"master {STOPPED + 1} started again, master {PAUSED + 1} resumed")

    def close(self) -> None:
        """End the workers: ask all of them, then kill."""
        self._array[STOP] = 1
        if wait(self._under_way, GRACE).not_done:
            for process in active_children():
                process.kill()
        self._pool.shutdown()


def refuse_signals(ending: Collection[int]) -> None:
    """Raise an error with status 128 + number if one of them has come."""
    for number in signal.sigpending().intersection(ending):
        raise CommandError(f"ended by {signal.Signals(number).name}", 128 + number)


def play(
    asked: Namespace, ending: Collection[int], new_view: Callable[[str], Any]
) -> int:
    """Play the demo, return its exit status.

    `ending` are signals, which it blocks; `new_view` makes what shows it, of a title.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, ending)
    ensure_running()  # the tracker of the pool; before Python 3.12 it unblocks signals
    signal.pthread_sigmask(signal.SIG_BLOCK, ending)
    owner = "your own masters" if asked.masters else f"{LOCAL_MASTERS} local masters"
    title = f"fastredlock demo: {asked.workers} processes, one counter, {owner}"
    try:
        with ExitStack() as stack:
            view, local = stack.enter_context(new_view(title)), None
            if not asked.masters:
                local = stack.enter_context(_local_masters(ending))
            demo = Demo(asked, local, ending, view.show)
            stack.callback(demo.close)
            status = demo.run()
            view.report(demo)
        return status
    except BrokenProcessPool as error:
        refuse_signals(ending)  # the workers got the same signal
        raise CommandError("a worker process died", WORKER_DIED) from error
    except ConfigurationError as error:
        raise CommandError(str(error), CANNOT_RUN) from error
    except AcquireError as error:
        raise CommandError(str(error), UNREACHABLE) from error


def _local_masters(ending: Collection[int]) -> LocalMasters:
    try:
        return LocalMasters(LOCAL_MASTERS)
    except (OSError, RuntimeError) as error:
        refuse_signals(ending)  # the servers got the same signal
        raise CommandError(str(error), CANNOT_RUN) from error
