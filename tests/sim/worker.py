"""What a client's threads do: acquire, hold, extend, release, give up, be interrupted.

Each call is the one that ships (calls.py). A worker is a generator that the world
resumes; at each of its yields it may find its process paused, or an exception thrown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from fastredlock import ReleaseStatus
from fastredlock._core import AcquireCall, Operation, Round, Terms
from fastredlock._locking.slots import Permit, rate_terms
from fastredlock._locking.validity import NEVER_KEPT_NS, validity_of
from fastredlock._options.keys import SHARED, encode_resource, encode_resources
from fastredlock.errors import (
    AcquireError,
    FastRedlockError,
    LeaseLostError,
    NotExtendedError,
    QuorumUnreachableError,
    ResourceTakenError,
    ValidityExhaustedError,
)

from .calls import calls_of
from .driver import is_release
from .process import Process
from .world import CHECKPOINT, MS, MUTEX, SLEEP, WAIT, S

ACQUIRE = int(Operation.ACQUIRE)
SOON_NS = 2 * MS
EXIT_LOOKS = 100  # of 1 ms: how long the end of a process waits for its threads
LONGEST_REST_NS = 10 * S  # for which a lease is held when the time is over


class Cancelled(BaseException):
    """What KeyboardInterrupt and CancelledError are to the code under test."""


class Shared(NamedTuple):
    """A lock that is shared."""

    resource: str


class Slots(NamedTuple):
    """A semaphore; or a rate, where it has a window."""

    resource: str
    permits: int
    per: float = 0.0  # s

    @property
    def name(self) -> bytes:
        """The name of its queue; a slot's key has a number behind it."""
        return self.resource.encode() + b"#"


@dataclass(frozen=True)
class Habits:
    """How the workers of a schedule behave."""

    resources: tuple[str, ...]
    ttls_ms: tuple[int, ...]
    reads: float = 0.0  # a probability: a resource is shared
    takes_several: float = 0.0  # a probability: two or all of them at once
    slots: tuple[Slots, ...] = ()
    takes_slots: float = 0.0  # a probability: one of these, and no resource
    longest_think_ns: int = 50 * MS
    cancels: float = 0.0  # probabilities, per call
    extends: float = 0.0
    leaves: float = 0.0  # a lease is not released
    hurries: float = 0.0  # a lease is held for less than a cohort's stay
    keeps: float = 0.0  # a lease is kept, and held longer than its ttl
    pauses: float = 0.0  # per checkpoint
    longest_pause_ns: int = 3 * S


class Worker:
    def __init__(self, process: Process, habits: Habits, until_ns: int) -> None:
        self.process = process
        self.world = process.world
        self.habits = habits
        self.until_ns = until_ns
        self.awaits = ""
        self.round: Round | None = None  # which it waits for
        self.tried: Round | None = None  # the last one of its acquire
        self.lease: Any = None  # which it extends or releases
        self.waits_for = b""  # the key of an acquire that is under way
        self.waits_permits = 0  # ...which is a semaphore's name, of so many
        self.waits_for_all: tuple[bytes, ...] = ()  # or these keys
        self.waits_from_ns = self.waits_until_ns = self.round_timeout_ns = 0
        self.is_done = False
        self.is_shielded = False  # an interrupt is for later
        self._turn = 0  # which wake-up is the valid one
        self._deadline_ns = self._shown_ns = 0  # of its wait: true, and by its clock
        self._timer_ns = 0  # when its timer goes off; 0: not set
        self._cancel_in = -1  # so many yields from now
        self._steps: Iterator[tuple[str, int]] = iter(())
        process.workers.append(self)

    def start(self, steps: Iterator[tuple[str, int]]) -> None:
        self._steps = steps
        self.is_done = False
        self.wake_soon()

    def end(self) -> None:
        self.is_done = True
        self._turn += 1
        self.awaits = ""

    def forget(self) -> None:
        """Leave the call that it is in: a greenlet that waits is no garbage."""
        self.process.running = self
        with suppress(Exception):  # of the judge, who has said all
            self._steps.close()  # type: ignore[attr-defined]

    def is_answered(self) -> bool:
        """Whether the round it waits for is finished, by another's step."""
        return self.round is not None and self.round.is_finished

    def wake_soon(self) -> None:
        """Go on as soon as the scheduler lets it."""
        self.awaits = ""
        self._wake_at(self.world.now_ns + self.world.between(0, 100_000))

    def _wake_at(self, when_ns: int) -> None:
        self._turn += 1
        self.world.at(when_ns, self._resume, self._turn)

    def _resume(self, turn: int) -> None:
        if turn != self._turn:
            return
        process, world = self.process, self.world
        if world.now_ns < process.paused_until_ns:
            self._wake_at(process.paused_until_ns)
            return
        self.awaits = ""
        process.running = self
        while True:
            self._cancel_in -= 1
            if self._cancel_in == 0 and self.is_shielded:
                self._cancel_in = 1
            try:
                if self._cancel_in == 0:
                    kind, ns = self._steps.throw(Cancelled())  # type: ignore[attr-defined]
                else:
                    kind, ns = next(self._steps)
            except StopIteration:
                self.end()
                return
            if kind != CHECKPOINT[0]:
                break
            if self._is_held_up():
                return
        if kind == SLEEP:
            self._wake_at(world.now_ns + ns)
            return
        self.awaits = kind
        if kind == WAIT:
            self._set_timer(ns)
        elif kind != MUTEX:
            raise RuntimeError(f"no such step: {kind}")

    def _is_held_up(self) -> bool:
        # Between two lines: the process stands still, or this thread is not scheduled,
        # others go on, and then the process stands still.
        habits, world, process = self.habits, self.world, self.process
        if habits.pauses and world.chance(habits.pauses):
            process.pause(world.between(MS, habits.longest_pause_ns))
            self._wake_at(process.paused_until_ns)
            return True
        if len(process.workers) == 1 or process.is_sharing or world.chance(0.9):
            return False
        until_ns = world.now_ns + world.between(1000, 5 * MS)
        if world.chance(20 * habits.pauses):
            for_ns = world.between(MS, habits.longest_pause_ns)
            world.at(
                world.random.randrange(world.now_ns, until_ns), process.pause, for_ns
            )
        self._wake_at(until_ns)
        return True

    def _set_timer(self, shown_ns: int) -> None:
        # Most waits end early, and the next one has the same end: the timer stays.
        if shown_ns != self._shown_ns:
            self._shown_ns = shown_ns
            self._deadline_ns = self.process.clock.true_at(shown_ns)
        if not self._timer_ns or self._deadline_ns < self._timer_ns:
            self._timer_ns = max(self._deadline_ns, self.world.now_ns)
            self.world.at(self._timer_ns, self._on_timer, self._timer_ns)

    def _on_timer(self, when_ns: int) -> None:
        if when_ns != self._timer_ns:
            return
        self._timer_ns = 0
        if self.awaits != WAIT:
            return
        if self._deadline_ns > when_ns:
            self._set_timer(self._shown_ns)
        else:
            self._turn += 1
            self._resume(self._turn)

    # --- calls ------------------------------------------------------------------------

    def acquire(
        self,
        resources: str | tuple[str, ...] | Slots | Shared,
        ttl_ms: int,
        timeout_ns: int | None,
    ) -> Iterator[Any]:
        """As FastRedlock.acquire, or acquire_all where there are several.

        Of a rate, as entering it: returns a Permit.
        """
        process, judge = self.process, self.process.judge
        key: bytes | tuple[bytes, ...]
        slots = resources if isinstance(resources, Slots) else None
        if slots is not None:
            key = slots.name
            judge.on_asked(slots.name, slots.permits)
        elif isinstance(resources, str):
            key = encode_resource(resources)
        elif isinstance(resources, Shared):
            key = encode_resource(resources.resource)
        else:
            key = encode_resources(resources)
        terms, called_ns = self._terms(slots, ttl_ms), self.world.now_ns
        pauses_before, is_undisturbed = process.paused_until_ns, True
        if timeout_ns:
            if isinstance(resources, Shared):
                pass  # a writer that waits before it is not seen by its key
            elif isinstance(key, bytes):
                self.waits_for = key
            else:
                self.waits_for_all = key
            self.waits_from_ns = called_ns
            self.waits_permits = 0 if slots is None else slots.permits
            self.waits_until_ns = called_ns + timeout_ns
            self.round_timeout_ns = terms.timeout_ns
        self.tried = None
        try:
            try:
                lease = yield from calls_of(
                    process, partial(self._call, resources, ttl_ms / 1000, timeout_ns)
                )
            except ResourceTakenError:  # of a rate: its permits are taken
                lease = None
            if lease is not None:
                judge.on_taken(process, lease._round)
                if slots is not None:
                    judge.on_slot(lease._round, slots.permits)
                if isinstance(lease, Permit):
                    judge.on_permit(process, lease)
                else:
                    judge.on_validity(process, lease)
                    judge.on_granted(lease)
            return lease
        except BaseException as error:
            if self.tried is not None:
                judge.on_ended(
                    process, self.tried.token, "cancelled or failed", is_undone=True
                )
            is_undisturbed = is_undisturbed and isinstance(error, AcquireError)
            raise
        finally:
            self.waits_for, self.waits_for_all = b"", ()
            is_undisturbed = is_undisturbed and pauses_before == process.paused_until_ns
            if is_undisturbed and timeout_ns is not None:
                round_ns = min(terms.timeout_ns, S)  # a ceiling, whatever the ttl
                rounds = 3 if process.settings.fencing else 2
                rounds += 2 * (slots is not None)  # a look, and a try of another slot
                limit_ns = timeout_ns + rounds * round_ns
                judge.on_returned(process, self.world.now_ns - called_ns, limit_ns)

    def _terms(self, slots: Slots | None, ttl_ms: int) -> Terms:
        settings = self.process.settings
        if slots is not None and slots.per:
            return rate_terms(settings, slots.per)
        return settings.terms(ttl_ms / 1000)

    def _call(
        self,
        resources: str | tuple[str, ...] | Slots | Shared,
        ttl: float,
        timeout_ns: int | None,
    ) -> Any:
        locks = self.process.locks
        timeout = None if timeout_ns is None else timeout_ns / 1e9
        if isinstance(resources, Slots):
            name, permits, per = resources
            if per:
                rate = locks.rate(name, permits, per=per, timeout=timeout)
                return (
                    rate.__aenter__() if self.process.is_sharing else rate.__enter__()
                )
            return locks.acquire(name, ttl=ttl, timeout=timeout, permits=permits)
        if isinstance(resources, Shared):  # whose tokens differ, though they are given
            given = locks._driver, locks._new_lease, resources.resource, ttl, timeout
            call = AcquireCall(*given, SHARED)
            return call if self.process.is_sharing else call.run()
        if isinstance(resources, str):
            return locks.acquire(resources, ttl=ttl, timeout=timeout)
        return locks.acquire_all(resources, ttl=ttl, timeout=timeout)

    def on_run(self, operation: int, round: Round) -> None:
        if operation == ACQUIRE:
            self.tried = round
        elif self.lease is not None:
            judge = self.process.judge
            if self.lease._status is None:
                judge.on_validity(self.process, self.lease)
            else:
                judge.on_release_called(self.process, self.lease)

    def extend(self, lease: Any, ttl: float | None = None) -> Iterator[Any]:
        process, judge = self.process, self.process.judge
        self.lease = lease
        try:
            return (yield from calls_of(process, partial(lease._prolong, ttl)))
        except (LeaseLostError, NotExtendedError) as error:
            judge.on_not_extended(lease, error)
            raise
        finally:
            self.lease = None
            judge.on_validity(process, lease)

    def release(self, lease: Any) -> Iterator[Any]:
        status = yield from self._end(lease, lease.release)
        if status is not ReleaseStatus.GONE or lease._status is status:
            self.process.judge.on_released(self.process, lease, status)
        return status

    def leave_body(self, lease: Any, error: Exception | None) -> Iterator[Any]:
        """As the end of a with block by a lease, of one that has raised or not."""
        process, judge = self.process, self.process.judge
        was_valid, was_released = lease.is_valid, lease._status is not None
        leave = lease.__aexit__ if process.is_sharing else lease.__exit__
        kind = None if error is None else type(error)
        is_lost = False
        try:
            yield from self._end(lease, partial(leave, kind, error, None))
        except LeaseLostError:
            is_lost = True
        status = lease._status
        if not was_released:
            judge.on_released(process, lease, status)
        is_over = not was_valid or status is ReleaseStatus.GONE
        must_raise = is_over and error is None and not was_released
        if is_lost != must_raise:
            judge.fail(
                "I9", f"{lease._round.token.decode()}: its body ended, lost: {is_lost}"
            )
        return status

    def _end(self, lease: Any, call: Callable[[], Any]) -> Iterator[Any]:
        self.lease = lease
        try:
            return (yield from calls_of(self.process, call))
        finally:
            self.lease = None
            if lease._status is not None:  # also where no round was run
                self.process.judge.on_release_called(self.process, lease)

    def live(self) -> Iterator[tuple[str, int]]:
        """Take and give back, until the time is over or the client is closed."""
        try:
            yield from self._live()
        except FastRedlockError:
            if not self.process.engine.is_closed:
                raise

    def leave(self, is_orderly: bool) -> Iterator[tuple[str, int]]:
        """End the process as a program does: let the others finish or not, close."""
        serves = (self, self.process.watcher)
        others = [each for each in self.process.workers if each not in serves]
        for worker in others if is_orderly else ():
            worker.until_ns = 0
            while not worker.is_done:
                yield SLEEP, 10 * MS
        for _ in range(0 if is_orderly else 1000):
            yield SLEEP, self.world.between(0, MS)
            rounds = [each.round for each in others if each.round is not None]
            if any(each.is_opened and not each.closed_ns for each in rounds):
                break
        yield from self.process.close()
        # As at the end of the interpreter: releases that others have begun go out
        # (seed 2143177).
        for _ in range(EXIT_LOOKS):
            rounds = [each.round for each in others if each.round is not None]
            if all(each.is_finished or not is_release(each) for each in rounds):
                break
            yield SLEEP, MS
        self.process.exit()

    def _live(self) -> Iterator[tuple[str, int]]:
        habits, world = self.habits, self.world
        while world.now_ns < self.until_ns:
            think_ns = habits.longest_think_ns
            if self.process.watcher is not None and world.chance(0.5):
                think_ns = SOON_NS  # its key may still rest here
            yield SLEEP, world.between(0, think_ns)
            ttl_ms = world.random.choice(habits.ttls_ms)
            timeout_ns = world.random.choice((0, 0, 200 * MS, S, 5 * S))
            self._expect_cancel(60)
            what = self._choose()
            try:
                lease = yield from self.acquire(what, ttl_ms, timeout_ns)
            except (Cancelled, QuorumUnreachableError, ValidityExhaustedError):
                continue
            finally:
                self._cancel_in = -1
            if isinstance(lease, Permit):
                yield from self._begin(lease, what)
            elif lease is not None:
                yield from self._hold(lease)

    def _choose(self) -> Any:
        # A resource, or several, or Slots.
        habits, world = self.habits, self.world
        if habits.slots and world.chance(habits.takes_slots):
            return world.random.choice(habits.slots)
        if habits.reads and world.chance(habits.reads):
            return Shared(world.random.choice(habits.resources))
        if not world.chance(habits.takes_several):
            return world.random.choice(habits.resources)
        count = world.random.randrange(2, len(habits.resources) + 1)
        return tuple(sorted(world.random.sample(habits.resources, count)))

    def _begin(self, permit: Permit, rate: Slots) -> Iterator[tuple[str, int]]:
        # At once, or later, as long as the permit says so.
        if self.world.chance(0.5):
            left_ns = int(permit.remaining() * 1e9)
            yield SLEEP, self.world.random.randrange(0, 1 + left_ns * 3 // 2)
        if permit.remaining() > 0:
            self.process.judge.on_begin(rate.name, int(rate.per * 1e9))

    def _hold(self, lease: Any) -> Iterator[tuple[str, int]]:
        habits, world, keeper = self.habits, self.world, self.process.keeper
        is_kept = keeper is not None and world.chance(habits.keeps)
        if keeper is not None and is_kept:
            keeper.keep(lease)
        while True:
            share = world.random.choice((20, 4, 2, 1))
            for_ns = world.between(0, int(lease.ttl * 1e9) * 3 // 2 // share)
            for_ns *= 3 if is_kept else 1
            if habits.hurries and world.chance(habits.hurries):
                for_ns = world.between(0, MS)
            left_ns = max(0, self.until_ns - world.now_ns)
            yield SLEEP, min(for_ns, left_ns + LONGEST_REST_NS)
            if world.now_ns >= self.until_ns or not world.chance(habits.extends):
                break
            self._expect_cancel(20)
            if is_kept and world.chance(0.5):
                lease.keep_alive(False)  # by hand, and then by its keeper again
            try:
                ttl = world.random.choice(habits.ttls_ms) / 1000
                yield from self.extend(lease, ttl)
                if is_kept and keeper is not None and lease.is_valid:
                    keeper.keep(lease)
            except LeaseLostError:
                break
            except (NotExtendedError, Cancelled):
                pass
            finally:
                self._cancel_in = -1
        if world.chance(habits.leaves):
            if is_kept:
                validity_of(lease).until_ns = NEVER_KEPT_NS  # as one nobody refers to
            return
        for _ in range(2):
            self._expect_cancel(20)
            try:
                if (yield from self._give_back(lease)) is not ReleaseStatus.UNKNOWN:
                    return
            except Cancelled:
                pass
            finally:
                self._cancel_in = -1
            yield SLEEP, world.between(0, 50 * MS)

    def _give_back(self, lease: Any) -> Iterator[Any]:
        draw = self.world.random.randrange(4)
        if draw > 1:
            return self.release(lease)
        return self.leave_body(lease, ValueError("of the body") if draw else None)

    def _expect_cancel(self, within: int) -> None:
        if self.world.chance(self.habits.cancels):
            self._cancel_in = self.world.random.randrange(1, within)
