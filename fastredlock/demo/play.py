"""Play the demo: several processes increment one counter, without and with the lock.

The workers are a pool of spawned processes, which share one array: whether they are to
end, the counter, how many increments each has done. An increment reads the counter,
waits, and writes it: another worker between these steps loses its update.

The demo waits in `Demo._run` alone. The signals that end it are blocked, and looked for
there, so that none comes between two steps. The workers inherit that: Ctrl-C reaches
them, too, and the demo ends them in order. Where it was killed, they end by themselves.
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
from dataclasses import dataclass, field, fields
from functools import partial
from multiprocessing import active_children, get_context, parent_process
from multiprocessing.resource_tracker import ensure_running
from secrets import token_hex
from threading import Barrier
from typing import Any, NamedTuple

from .. import AcquireError, FastRedlock, FastRedlockError, Lease
from .._cli import CommandError
from ..testing import LocalMasters

OK, LOST_UPDATES, CANNOT_RUN, UNREACHABLE, WORKER_DIED = range(5)  # exit statuses
LOCAL_MASTERS = 5
STOPPED, PAUSED = 1, 3  # which of them; three are left: a quorum
HANGS = "paused (SIGSTOP): it accepts, but never answers"
FAULTS = (  # the share of the phase that is over, the master, what happens to it
    (0.25, STOPPED, LocalMasters.stop, "stopped: it refuses connections"),
    (0.50, PAUSED, LocalMasters.pause, HANGS),
)
TTL = 2.0  # s; a key stays no longer than this, if the machine goes down
TICK = 0.05  # s between two looks at signals, counters and the screen
FIRST, FIRST_SECONDS = "the workers start, each takes a first lease", 10.0
SIDE_SECONDS = 2.0  # longer shows no more: the time goes to the phase with the lock
GRACE = 0.8  # s for workers to release and end, then they are killed
TRY_TIMEOUT = 0.5  # s; so soon a worker that waits for the lock sees it should end
STOP, COUNTER, DONE = 0, 1, 2  # in the array; from DONE on one number of each worker


@dataclass(slots=True)
class Counts:
    """Count the results of one phase, in a worker and over all of them."""

    tries: Counter[str] = field(default_factory=Counter)  # taken, expired, failed
    votes: Counter[tuple[str, str]] = field(default_factory=Counter)  # by the master
    acquire_us: Counter[int] = field(default_factory=Counter)
    release_us: Counter[int] = field(default_factory=Counter)
    texts: dict[str, str] = field(default_factory=dict)  # last ones; "": of an error

    def add(self, other: Counts) -> None:
        for each in fields(self):
            getattr(self, each.name).update(getattr(other, each.name))

    def add_votes(self, voted: Lease | AcquireError) -> None:
        for number, each in enumerate(voted.votes, 1):
            master = f"{number} ({each.master})"
            self.votes[master, each.vote.name] += 1
            if each.text:
                self.texts[master] = each.text


# ---- the workers


class Worker(NamedTuple):
    """Hold what the jobs of this process use; the number is counted from 0."""

    number: int
    shared: MutableSequence[int]
    masters: Sequence[str]
    resource: str

    def is_to_go_on(self, deadline: float) -> bool:
        return time.monotonic() < deadline and not self.shared[STOP]

    def new_locks(self) -> FastRedlock:
        return FastRedlock(self.masters, self.resource, ttl=TTL)


worker: Worker


def start_worker(
    barrier: Barrier, shared: MutableSequence[int], urls: Sequence[str], resource: str
) -> None:
    """Prepare this process for jobs, and wait for the others; the pool calls it."""
    global worker
    threading.Thread(target=_end_with_demo, daemon=True).start()
    # By this one the pool ends its processes where one of them has died.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    worker = Worker(barrier.wait(), shared, urls, resource)


def _end_with_demo() -> None:
    if (demo := parent_process()) is not None:
        demo.join()
    os._exit(1)


def check(seconds: float, pause: float) -> Counts:
    """Take one lease; raise an error where there is none."""
    counts = Counts()
    with worker.new_locks() as locks:
        with locks.lock(timeout=seconds) as lease:
            pass
        counts.add_votes(lease)
    return counts


def without_lock(seconds: float, pause: float) -> Counts:
    deadline = time.monotonic() + seconds
    while worker.is_to_go_on(deadline):
        _increment(pause)
    return Counts()


def with_lock(seconds: float, pause: float) -> Counts:
    counts, deadline = Counts(), time.monotonic() + seconds
    with worker.new_locks() as locks:
        while lease := _acquire(locks, deadline, counts):
            counts.tries["expired"] += not _increment(pause, lease)
            started_ns = time.perf_counter_ns()
            lease.release()
            counts.release_us[(time.perf_counter_ns() - started_ns) // 1000] += 1
            counts.add_votes(lease)
        counts.tries["taken"] = locks.stats().taken
    return counts


def _increment(pause: float, lease: Lease | None = None) -> bool:
    """Increment the counter; return False where the lease ended too early to write."""
    value = worker.shared[COUNTER]
    time.sleep(pause)
    if lease is not None and not lease.is_valid:
        return False
    worker.shared[COUNTER] = value + 1
    worker.shared[DONE + worker.number] += 1
    return True


def _acquire(locks: FastRedlock, deadline: float, counts: Counts) -> Lease | None:
    """Acquire the default resource; None if the deadline comes first."""
    started_ns = time.perf_counter_ns()
    while worker.is_to_go_on(deadline):
        try:
            if lease := locks.acquire(timeout=TRY_TIMEOUT):
                waited_ns = time.perf_counter_ns() - started_ns
                counts.acquire_us[waited_ns // 1000] += 1
                return lease
        except AcquireError as error:
            counts.tries["failed"] += 1
            counts.texts[""] = str(error)
            counts.add_votes(error)
    return None


# ---- the demo


@dataclass(slots=True)
class Phase:
    """Hold one phase of the demo; `seconds` is how long it is meant to run."""

    name: str
    work: Callable[[float, float], Counts]
    seconds: float
    workers: int
    pause: float  # s between reading and writing the counter
    elapsed: float = 0.0
    increments: int = 0
    counter: int = 0  # read after the increments
    counts: Counts = field(default_factory=Counts)

    @property
    def lost(self) -> int:
        """Increments missing in the counter; while running: at least so many."""
        return max(0, self.increments - self.counter)

    def __str__(self) -> str:
        if not self.increments:
            return self.name
        counted = f"{self.increments:,} increments, counter {self.counter:,}"
        return f"{self.name}: {counted}, {self.lost:,} lost"


class Demo:
    """Run the phases, and hold them for the view."""

    def __init__(
        self,
        asked: Namespace,
        local: LocalMasters | None,  # None: the masters are the user's
        ending: Collection[int],  # the signals that end it
        view: Any,
    ) -> None:
        self.local: LocalMasters | None = local
        self._ending, self._view = ending, view
        workers, pause = asked.workers, asked.pause_ms / 1000
        side = min(SIDE_SECONDS, asked.seconds / 5)
        self.phases: tuple[Phase, Phase, Phase, Phase] = (
            Phase(FIRST, check, FIRST_SECONDS, workers, 0.0),
            Phase("without the lock", without_lock, side, workers, pause),
            Phase("with the lock", with_lock, asked.seconds - 2 * side, workers, pause),
            Phase("one worker alone", with_lock, side, 1, 0.0),
        )
        urls = local.urls if local else asked.masters
        resource = f"fastredlock-demo-{token_hex(8)}"
        context = get_context("spawn")
        self._array = context.RawArray("q", DONE + workers)
        given = (context.Barrier(workers), self._array, urls, resource)
        self._pool = ProcessPoolExecutor(workers, context, start_worker, given)
        self._under_way: list[Future[Counts]] = []

    def run(self) -> int:
        note, (first, unlocked, locked, alone) = self._view.note, self.phases
        self._run(first)
        if self.local is None:
            note("these masters are yours: none is stopped or paused")
        for master, text in first.counts.texts.items():
            note(f"master {master}: {text}")
        self._run(unlocked)
        self._run(locked, [*FAULTS] if self.local else [])
        if not locked.counts.acquire_us:
            failure = locked.counts.texts.get("", "no lease was granted")
            raise CommandError(failure, UNREACHABLE)
        if self.local:  # no lease may be out: a restarted master forgot them
            self.local.start(STOPPED)
            self.local.resume(PAUSED)
            note(f"master {STOPPED + 1} started again, master {PAUSED + 1} resumed")
        self._run(alone)
        return LOST_UPDATES if locked.lost else OK

    def _run(self, phase: Phase, faults: Sequence[Any] = ()) -> None:
        """Let the phase's workers do it, cause the faults meanwhile, and show both."""
        self._array[COUNTER:] = [0] * (len(self._array) - COUNTER)
        self._view.begin(phase)
        started, is_over = time.monotonic(), False
        submit = partial(self._pool.submit, phase.work, phase.seconds, phase.pause)
        self._under_way = [submit() for _ in range(phase.workers)]
        while not is_over:
            is_over = not wait(self._under_way, TICK).not_done
            refuse_signals(self._ending)
            elapsed = time.monotonic() - started
            while faults and elapsed >= faults[0][0] * phase.seconds:
                (_, i, cause, text), *faults = faults
                cause(self.local, i)
                self._view.note(f"master {i + 1} {text}")
            phase.elapsed = phase.seconds if is_over else min(elapsed, phase.seconds)
            phase.increments = sum(self._array[DONE:])
            phase.counter = self._array[COUNTER]
            self._view.show(phase)
        for each in self._under_way:
            phase.counts.add(each.result())
        self._view.note(str(phase))

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
        with new_view(title) as view, ExitStack() as stack:
            local = None
            if not asked.masters:
                local = stack.enter_context(LocalMasters(LOCAL_MASTERS))
            demo = Demo(asked, local, ending, view)
            stack.callback(demo.close)
            status = demo.run()
        view.report(demo)
        return status
    except (FastRedlockError, FileNotFoundError, RuntimeError) as error:
        refuse_signals(ending)  # the workers and the servers got the same one
        if isinstance(error, BrokenProcessPool):
            raise CommandError("a worker process died", WORKER_DIED) from error
        status = UNREACHABLE if isinstance(error, AcquireError) else CANNOT_RUN
        raise CommandError(str(error), status) from error
