"""The keeper of the FastRedlock that blocks: one thread, while something is kept.

Only that thread touches its `Keeping`. Others append to a deque, and wake it: each is
one step that no other thread can divide, and nothing stays locked in a forked child,
which has no such thread and keeps nothing. The thread owns the baton while it serves;
whoever gets it, after something was appended, starts the next one.

The thread holds the driver, not the FastRedlock, and leases by weak references.
"""

from __future__ import annotations

import _thread  # by its name: gevent or eventlet may patch it later
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Any
from weakref import ref

from ..._core import (
    Batch,
    ClosedError,
    DriverFields,
    LeaseFields,
    Round,
    blocking_run,
    draw_fraction,
    kept_begin,
    thread_serve,
)
from ..._reports.votes import loss, votes_of
from ...errors import FastRedlockError, LeaseLostError
from ..threads import named
from .foreign_calls import (
    Calls,
    Crew,
    call_on_lost,
    log_error,
    log_warnings,
    note_renewal,
)
from .kept import NEVER_KEPT_NS, Kept
from .renewals import Keeping, end_of

# Timers stop while the machine is suspended, and the validity does not.
LONGEST_SLEEP_NS = 1_000_000_000
# Threads of `on_lost`, where it takes long: a process that needs more has a fault.
MOST_ON_LOST = 1000
RAN_OUT = "lost: its validity is over, and no renewal was confirmed in time"
ENDED = "lost: its validity is over, and it was not renewed any more"


class BaseKeeper:
    """Make the renewals of a `Keeping`, and notify of losses; see `Service`.

    It runs no foreign code: it appends to `_losses` and `_notes`, and `_call` has those
    calls made elsewhere, or later.
    """

    __slots__ = ("_keeping", "_losses", "_notes", "_ref")

    def __init__(self, driver: DriverFields, losses: Calls, notes: Calls) -> None:
        self._ref = ref(driver)
        self._keeping = Keeping(int(draw_fraction() * 65536))
        self._losses = losses
        self._notes = notes  # of renewals, and for logs: less urgent

    @property
    def _driver(self) -> Any:
        """The driver; a keeper that sleeps does not hold it. None: it is gone."""
        return self._ref()

    def _due(self, now_ns: int) -> tuple[list[Kept], list[Round]]:
        """Report what is lost; begin renewals, and return their rounds to run."""
        renewals, taken, lost = self._keeping.due(now_ns)
        if lost:
            self._report([(kept, self._error(kept, now_ns)) for kept in lost])
        if renewals and self._driver.engine.is_closed:
            self._give_up(renewals, now_ns)
            return [], []
        return renewals, self._begin(renewals, taken, now_ns)

    def _begin(
        self, renewals: list[Kept], taken: list[Round], now_ns: int
    ) -> list[Round]:
        time_ns = self._keeping.time_for_renewals(now_ns)
        engine = self._driver.engine
        rounds, others = kept_begin(engine, renewals, taken, time_ns)
        for kept, round in others:
            kept.begin(round, now_ns)
            if kept.watch.on_renewal is not None:
                self._notes.append(note_renewal, kept)
        return rounds

    def _end(self, renewals: list[Kept], rounds: list[Round]) -> None:
        """Take the outcomes of rounds that were run."""
        gone = self._keeping.end(renewals, rounds, self._driver.now_ns())
        self._report([(kept, self._taken(kept, round)) for kept, round in gone])
        observer: Any = self._driver.observer  # an Observing, or hears nothing
        if "extended" in observer.methods:
            for kept, round in zip(renewals, rounds, strict=True):
                if round.is_won:
                    self._notes.append(observer.kept_extended, kept)

    def _give_up(self, renewals: Iterable[Kept], now_ns: int) -> None:
        """Keep these no longer, after close(): their losses are still reported."""
        for kept in renewals:
            kept.until_ns = NEVER_KEPT_NS
            self._keeping.add(kept, now_ns)

    # --- reporting --------------------------------------------------------------------

    def _error(self, kept: Kept, now_ns: int) -> LeaseLostError | None:
        lease = kept()
        if lease is None:
            return None
        if kept.until_ns is not None and now_ns >= kept.until_ns:
            return LeaseLostError(lease.resource, ENDED)
        if end_of(kept) == 0 and not kept.is_lost:  # an extension by hand has found it
            return LeaseLostError(lease.resource, loss())
        failed = None if kept.watch is None else kept.watch.failed
        votes = () if failed is None else votes_of(self._driver.engine, failed)
        return LeaseLostError(lease.resource, RAN_OUT, votes)

    def _taken(self, kept: Kept, round: Round) -> LeaseLostError | None:
        lease = kept()
        if lease is None:
            return None
        votes = votes_of(self._driver.engine, round)
        return LeaseLostError(lease.resource, loss(votes), votes)

    def report(self, kept: Kept, release: Round | None) -> None:
        """Report a loss that a release has seen: by the clock, or by its outcome."""
        now_ns = self._driver.now_ns()
        error = self._taken(kept, release) if release else self._error(kept, now_ns)
        self._report([(kept, error)])

    def _report(self, losses: list[tuple[Kept, LeaseLostError | None]]) -> None:
        """Let all of these count as lost first, and then have foreign code called."""
        counted: list[tuple[LeaseFields, LeaseLostError]] = []
        for kept, error in losses:
            lease = kept()
            if lease is not None and error is not None and kept.lose(error):
                counted.append((lease, error))
        observer: Any = self._driver.observer  # an Observing, or hears nothing
        for lost in counted:
            on_lost = lost[0]._round.lease_state.kept.watched().on_lost
            if on_lost is not None:
                self._losses.append(call_on_lost, (on_lost, *lost))
        if "lost" in observer.methods:
            for lost in counted:
                self._losses.append(observer.kept_lost, lost)
        if self._losses:
            self._call()

    def _call(self) -> None:
        """Have the calls made that wait; returns before any of them begins."""
        raise NotImplementedError


class Keeper:
    """Start the thread that keeps leases, and hand them over to it."""

    __slots__ = (
        *("_waker", "added", "baton", "driver", "generation", "kept", "losses"),
        "notes",
    )

    def __init__(self, generation: int, driver: DriverFields) -> None:
        self.generation = generation
        self.kept: set[Kept] = set()  # added by its thread alone; not yet released
        self.losses = Crew("fastredlock on_lost", MOST_ON_LOST)
        self.notes = Crew("fastredlock observer", 1)
        self.added: deque[Kept] = deque()
        self.baton = _thread.allocate_lock()  # of the thread that serves
        self._waker = _thread.allocate_lock()
        self._waker.acquire()
        self.driver = ref(driver, partial(wake, self._waker))

    def drop(self, kept: Kept) -> None:
        """Take note of a release; the last one ends the thread."""
        self.kept.discard(kept)
        if not self.kept:
            wake(self._waker)

    def keep(self, kept: Kept) -> None:
        """Keep a lease from now on, or look at its times again; any thread may.

        Raises FastRedlockError where no thread can be started.
        """
        self.added.append(kept)
        serve = named(partial(Service.serve, self.driver, self), "fastredlock keeper")
        error = thread_serve(self.baton, self._waker, serve)
        if error is not None:
            raise FastRedlockError(f"not kept: {error}") from error

    def report(self, kept: Kept, release: Round | None) -> None:
        """Report a loss that a release has seen; in its thread, which goes on."""
        lease = kept()
        if lease is not None:
            Service(lease._driver, self).report(kept, release)

    def sleep(self, ns: int) -> None:
        """Sleep until something is handed over, or for so long."""
        self._waker.acquire(timeout=ns / 1e9)


class Service(BaseKeeper):
    """The thread of a `Keeper`: it ends when nothing is kept any more."""

    __slots__ = ("_keeper",)

    def __init__(self, driver: DriverFields, keeper: Keeper) -> None:
        super().__init__(driver, keeper.losses.calls, keeper.notes.calls)
        self._keeper = keeper

    @classmethod
    def serve(cls, reference: ref[DriverFields], keeper: Keeper) -> None:
        """Serve, with the baton."""
        is_mine = True
        while is_mine:
            try:
                driver = reference()
                if driver is None:
                    return
                service = cls(driver, keeper)
                del driver
                service._serve()
            finally:
                keeper.baton.release()
            is_mine = bool(keeper.added) and keeper.baton.acquire(blocking=False)

    def _serve(self) -> None:
        """Do what is due, and sleep until the next; return when nothing is kept."""
        keeper, keeping = self._keeper, self._keeping
        keeper.kept.clear()
        while (driver := self._driver) is not None:
            now_ns = driver.now_ns()
            while keeper.added:
                kept = keeper.added.popleft()
                keeping.add(kept, now_ns)
                lease = kept()
                if lease is not None:  # it has no hash where its lease is gone
                    keeper.kept.add(kept)
                    if lease._status is not None:  # released meanwhile
                        keeper.kept.discard(kept)
                del lease
            renewals, rounds = self._due(now_ns)
            if renewals:
                self._renew(renewals, rounds, now_ns)
            if self._notes:
                self._call()
            next_ns = keeping.next_ns
            if keeper.added:
                continue
            if next_ns is None or not keeper.kept:
                return
            left_ns = min(next_ns - driver.now_ns(), LONGEST_SLEEP_NS)
            del driver, renewals, rounds
            if left_ns > 0:
                keeper.sleep(left_ns)

    def _renew(self, renewals: list[Kept], rounds: list[Round], now_ns: int) -> None:
        driver = self._driver
        try:
            unlogged = blocking_run(driver.engine, Batch(rounds))
        except ClosedError:
            self._give_up(renewals, now_ns)
            return
        except Exception as error:
            self._notes.append(log_error, error)
        else:
            if unlogged:
                self._notes.append(log_warnings, driver)
        self._end(renewals, rounds)

    def _call(self) -> None:
        """Have threads make the calls; in this one where none can be started at all."""
        if not self._keeper.losses.start():
            self._losses.make_all()
        self._keeper.notes.start()  # or later


def wake(waker: _thread.LockType, _: object = None) -> None:
    """Wake the thread that sleeps by this lock, unless it was woken before."""
    with suppress(RuntimeError):
        waker.release()
