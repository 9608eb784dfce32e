"""To keep leases: what may be asked for, who renews them, who is notified of a loss.

A keeper asks `Keeping` (renewals.py) what is due, runs the renewals and reports losses:
`BaseKeeper`. That of a FastRedlock that blocks does so in a thread, while something is
kept, that of an awaitable one by a timer of its loop. (The one of masters in memory is
in testing/.) Each holds the driver and leases by weak references.

Foreign code (`on_lost`, an observer, the handlers of logs) may take any time, and raise
anything, SystemExit included. So a keeper calls none of it: it appends the call to
`Calls`, after every lease of that pass counts as lost, and others make it: threads of a
`Crew`, or the event loop after the keeper's timer. A call is a function of ours with
one argument. It logs what foreign code raises, and raises it again. A function that
already waits with the same argument is not appended again, so what waits is bounded by
the number of kept leases, however slow a call is.
"""

from __future__ import annotations

import _thread  # by its name: gevent may patch it later
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any
from weakref import ref

from .._core import (
    AsyncioDriver,
    Batch,
    ClosedError,
    DriverFields,
    LeaseFields,
    Round,
    StateError,
    Terms,
    blocking_run,
    draw_fraction,
    fork_generation,
    kept_begin,
    now_ns,
    thread_serve,
)
from .._options.retry import refused
from .._options.settings import positive_ns
from .._reports.log import WARNING, print_error, warn
from .._reports.votes import MasterVote, loss, votes_of
from ..errors import ConfigurationError, FastRedlockError, LeaseLostError
from .renewals import Keeping, end_of
from .validity import FOREVER_NS, NEVER_KEPT_NS, Validity, validity_of

# --- what may be asked for ------------------------------------------------------------

ROUND_TRIPS = 3  # that a renewal may need: a connection, a script that is loaded
LEAST_ROUND_TRIP_NS = 5_000_000  # below that, a busy scheduler is a lost lease
IS_COROUTINE = 0x80  # CO_COROUTINE of `inspect`


class KeepAlive:
    """What `keep_alive`, `on_lost` and `at_least` ask for; checked before any I/O.

    The ttl is as long as `at_least`, so the key is there for that time whatever fails:
    released before, it is left, with an extension that shortens its ttl to what is
    missing.
    """

    __slots__ = ("_at_least_ns", "_for_ns", "_is_kept", "_on_lost")

    def __init__(
        self,
        keep_alive: bool | float,
        on_lost: Callable[[Any, LeaseLostError], object] | None,
        at_least: float | None = None,
    ) -> None:
        if on_lost is not None:
            check_callable(on_lost)
        self._is_kept = at_least is None or bool(keep_alive) or on_lost is not None
        if self._is_kept and keep_alive is False:
            raise ConfigurationError("on_lost needs keep_alive: no keeper calls it")
        self._for_ns = None
        if self._is_kept and keep_alive is not True:
            self._for_ns = positive_ns("keep_alive", keep_alive)
        self._at_least_ns = 0
        if at_least is not None:
            self._at_least_ns = positive_ns("at_least", at_least)
        self._on_lost = on_lost

    def check(self, driver: DriverFields, ttl: float | None) -> None:
        """Raise ConfigurationError where a lease of this ttl cannot be kept or stay."""
        terms = driver.settings.terms(ttl)
        if self._at_least_ns > terms.ttl_ms * 1_000_000:
            raise ConfigurationError(
                f"at_least={self._at_least_ns / 1e9:g}: allowed is up to the ttl "
                f"({terms.ttl_ms / 1000:g} s), which counts where its holder dies"
            )
        if self._at_least_ns and terms.linger_ns:
            raise ConfigurationError("at_least beside linger: give one of them")
        if self._is_kept:
            check_terms(driver, terms)

    def begin(self, lease: Any) -> None:
        """Keep a lease that was taken just now, and let it stay."""
        if self._at_least_ns:
            validity = validity_of(lease)
            stays_until_ns = lease._round.closed_ns + self._at_least_ns
            validity.stays_until_ns = max(validity.stays_until_ns, stays_until_ns)
        if self._is_kept:
            self._keep(lease)

    def _keep(self, lease: Any) -> None:
        driver = lease._driver
        check_terms(driver, lease._asked())
        kept = validity_of(lease)
        now_ns = driver.now_ns()
        kept.was_kept = True
        kept.until_ns = FOREVER_NS if self._for_ns is None else now_ns + self._for_ns
        if self._on_lost is not None:
            kept.on_lost = self._on_lost
        if lease._is_adopted():
            terms = kept.terms
            until_ns = now_ns + terms.ttl_ms * 1_000_000 - terms.drift_ns
            kept.unknown_until_ns = until_ns
        driver.observer.begin_kept(lease)
        driver.keep(kept)
        lease._watch_body(kept)


def check_callable(on_lost: object) -> None:
    """Raise ConfigurationError where it cannot be called by a keeper."""
    code = getattr(on_lost, "__code__", None)
    if not callable(on_lost) or (code is not None and code.co_flags & IS_COROUTINE):
        allowed = "a function of a lease and an error, which is not awaited"
        raise refused("on_lost", on_lost, allowed)


def check_terms(driver: DriverFields, terms: Terms) -> None:
    """Raise ConfigurationError where renewals would come too late, or be of no use.

    By the shortest round so far: it shows how far away the masters are. A longer one
    shows a bad moment, in which a ttl is not wrong all at once.
    """
    if not terms.has_expiry:
        raise ConfigurationError(
            "keep_alive with NO_EXPIRY: such a key needs no renewal, and nothing would "
            "find its loss: give a ttl"
        )
    round_trip_ns = max(driver.engine.shortest_round_trip_ns, LEAST_ROUND_TRIP_NS)
    least_ns = ROUND_TRIPS * round_trip_ns + terms.drift_ns
    if terms.ttl_ms * 1_000_000 < least_ns:
        raise ConfigurationError(
            f"ttl={terms.ttl_ms / 1000}: keep_alive needs {least_ns / 1e9:.3f} s or "
            f"more, {ROUND_TRIPS} round trips of {round_trip_ns / 1e6:.0f} ms and drift"
        )


# --- threads of ours ------------------------------------------------------------------


def named(run: Callable[[], object], name: str) -> Callable[[], None]:
    """Return what `thread_begin` is given, to run this in a thread of that name."""
    # In the caller's thread: a program that has others has imported it, so no fork
    # comes between. Others need not pay for it, as `fastredlock run`.
    from threading import Thread

    return partial(_run_named, Thread, run, name)


def _run_named(thread: Any, run: Callable[[], object], name: str) -> None:
    try:
        thread(target=run, name=name, daemon=True).start()
    except Exception:  # no other thread can be started: in this one
        run()


# --- calls of foreign code ------------------------------------------------------------

Call = tuple[Callable[[Any], object], Any]  # function and argument


class Calls:
    """Calls that wait to be made, in order; a keeper appends."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: OrderedDict[tuple[Any, int], Call] = OrderedDict()

    def __len__(self) -> int:
        return len(self._waiting)

    def append(self, function: Callable[[Any], object], argument: object) -> None:
        """Append a call, unless the same one waits."""
        key = (function, id(argument))  # which lives as long as it waits
        self._waiting.setdefault(key, (function, argument))

    def take(self) -> Call:
        """Take out the call that waits longest."""
        return self._waiting.popitem(last=False)[1]

    def make_all(self) -> BaseException | None:
        """Make all calls that wait; return what should end the program, if any."""
        ending = None
        while self:
            ending = make(self.take()) or ending
        return ending


def make(call: Call) -> BaseException | None:
    """Make a call; return the SystemExit or KeyboardInterrupt that it raised, or None.

    Everything that it raises was logged by it, and stops no other call.
    """
    function, argument = call
    try:
        function(argument)
    except BaseException as raised:
        return raised if isinstance(raised, SystemExit | KeyboardInterrupt) else None
    return None


class Crew(Calls):
    """Calls, and daemon threads that make them, so many at once; none where none waits.

    At most one of them is a spare, which has no call yet. A thread that takes a call
    starts a spare first where others wait: so a call that takes long delays no other,
    and quick calls need few threads. No foreign code runs while the lock is held.
    """

    __slots__ = ("_generation", "_has_spare", "_lock", "_most", "_name", "_size")

    def __init__(self, name: str, most: int) -> None:
        super().__init__()
        self._generation = fork_generation()
        self._name = name
        self._most = most
        # Of the next two, and of the end of the calls.
        self._lock = _thread.allocate_lock()
        self._size = 0
        self._has_spare = False

    def start(self) -> bool:
        """Have all calls made; False: no thread could be started, and there is none."""
        with self._lock:
            if not self or self._has_spare or self._size == self._most:
                return True
            self._has_spare = True
            self._size += 1
        try:
            from threading import Thread  # as `named`, which came before

            Thread(target=self._run, name=self._name, daemon=True).start()
        except RuntimeError:
            with self._lock:
                self._has_spare = False
                self._size -= 1
                return self._size > 0
        return True

    def _run(self) -> None:
        with self._lock:
            self._has_spare = False
        while (call := self._take()) is not None:
            self.start()
            make(call)
            if fork_generation() != self._generation:
                return  # the call has forked: the child makes none of the others

    def _take(self) -> Call | None:
        with self._lock:
            if self:
                return self.take()
            self._size -= 1
            return None


def call_on_lost(lost: tuple[Any, LeaseFields, LeaseLostError]) -> None:
    """Call the `on_lost` of a lease; what it raises is logged."""
    on_lost, lease, error = lost
    try:
        on_lost(lease, error)
    except BaseException as raised:
        log("%r: on_lost raised %r", lease.resource, raised)
        raise


def log_warnings(driver: DriverFields) -> None:
    """Log what an engine has to report, each line whatever the handlers raise."""
    for level, name, text in driver.engine.take_unlogged():
        log("%s: %s", name, text, level=level)


def log_error(error: Exception) -> None:
    log("a renewal raised %r", error)


def log(text: str, *values: object, level: int = WARNING) -> None:
    """Log a warning; whatever a handler raises is printed, SystemExit as well."""
    try:
        warn(text, *values, level=level)
    except BaseException:
        print_error()


# --- the keeper -----------------------------------------------------------------------

# Timers stop while the machine is suspended, and the validity does not.
LONGEST_SLEEP_NS = 1_000_000_000
# Threads of `on_lost`, where it takes long: a process that needs more has a fault.
MOST_ON_LOST = 1000
RAN_OUT = "lost: its validity is over, and no renewal was confirmed in time"
ENDED = "lost: its validity is over, and it was not renewed any more"


class BaseKeeper:
    """Make the renewals of a `Keeping`, and notify of losses.

    It runs no foreign code: it appends to `_losses` and `_notes`, and `_call` has those
    calls made elsewhere, or later.
    """

    __slots__ = ("_keeping", "_kept", "_losses", "_notes", "_ref", "generation")

    def __init__(
        self, reference: ref[DriverFields], losses: Calls, notes: Calls
    ) -> None:
        self._ref = reference
        self.generation = fork_generation()
        self._keeping = Keeping(int(draw_fraction() * 65536))
        self._kept: set[Validity] = set()  # and not yet released
        self._losses = losses
        self._notes = notes  # of renewals, and for logs: less urgent

    @property
    def _driver(self) -> Any:
        """The driver; a keeper that sleeps does not hold it. None: it is gone."""
        return self._ref()

    def _add(self, kept: Validity, now_ns: int) -> None:
        self._keeping.add(kept, now_ns)
        lease = kept()
        if lease is not None:  # it has no hash where its lease is gone
            self._kept.add(kept)
            if lease._status is not None:  # released meanwhile
                self._kept.discard(kept)

    def _step(self, now_ns: int) -> None:
        """Report what is lost, and renew what is due."""
        engine = self._driver.engine
        renewals, grants, lost = self._keeping.due(now_ns)
        if lost:
            self._report([(kept, None) for kept in lost], now_ns)
        if not renewals:
            return
        if not engine.is_closed:
            time_ns = self._keeping.time_for_renewals(now_ns)
            rounds, others = kept_begin(engine, renewals, grants, time_ns)
            for kept, round in others:
                kept.begin_renewal(round, now_ns)
            with suppress(ClosedError, StateError):  # closed, or another loop's
                self._run(Batch(rounds), partial(self._end, renewals, rounds))
                return
        for kept in renewals:  # no longer; their losses are still reported
            kept.until_ns = NEVER_KEPT_NS
            self._keeping.add(kept, now_ns)

    def _run(self, batch: Batch, on_end: Callable[[], None]) -> None:
        """Run renewals, and call back at their end; raise ClosedError after close()."""
        raise NotImplementedError

    def _end(self, renewals: list[Validity], rounds: list[Round]) -> None:
        now_ns = self._driver.now_ns()
        self._report(self._keeping.end(renewals, rounds, now_ns), now_ns)
        observer: Any = self._driver.observer  # an Observing, or hears nothing
        if "extended" in observer.methods:
            for kept, round in zip(renewals, rounds, strict=True):
                if round.is_won:
                    self._notes.append(observer.kept_extended, kept)

    # --- reporting --------------------------------------------------------------------

    def report(self, kept: Validity, release: Round | None) -> None:
        """Report a loss that a release has seen: by the clock, or by its outcome."""
        self._report([(kept, release)], self._driver.now_ns())

    def _report(
        self, losses: Sequence[tuple[Validity, Round | None]], now_ns: int
    ) -> None:
        """Let all of these count as lost first, and then have foreign code called.

        Each with the round that has found it; None: it is over by the clock.
        """
        counted: list[tuple[LeaseFields, LeaseLostError]] = []
        for kept, round in losses:
            lease = kept()
            if lease is not None:
                reason, votes = self._reason(kept, round, now_ns)
                error = LeaseLostError(lease.resource, reason, votes)
                if kept.lose(error):
                    counted.append((lease, error))
        observer: Any = self._driver.observer  # an Observing, or hears nothing
        for lost in counted:
            on_lost = lost[0]._round.lease_state.on_lost
            if on_lost is not None:
                self._losses.append(call_on_lost, (on_lost, *lost))
        if "lost" in observer.methods:
            for lost in counted:
                self._losses.append(observer.kept_lost, lost)
        if self._losses:
            self._call()

    def _reason(
        self, kept: Validity, round: Round | None, now_ns: int
    ) -> tuple[str, tuple[MasterVote, ...]]:
        engine, failed = self._driver.engine, kept.failed
        if round is not None:
            votes = votes_of(engine, round)
            return loss(votes), votes
        if now_ns >= kept.until_ns:
            return ENDED, ()
        if end_of(kept) == 0 and not kept.is_lost:  # an extension by hand has found it
            return loss(), ()
        return RAN_OUT, () if failed is None else votes_of(engine, failed)

    def _call(self) -> None:
        """Have the calls made that wait; returns before any of them begins."""
        raise NotImplementedError


# --- a thread -------------------------------------------------------------------------


class Keeper(BaseKeeper):
    """Renew in a thread, which lives while something is kept.

    Only that thread touches its `Keeping`. Others append to `added`, and wake it: each
    is one step that no other thread can divide, and nothing stays locked in a forked
    child, which has no such thread and keeps nothing. The thread owns the baton while
    it serves; whoever gets it, after something was appended, starts the next one.
    """

    __slots__ = ("_waker", "added", "baton")

    _losses: Crew
    _notes: Crew

    def __init__(self, driver: DriverFields) -> None:
        self.added: deque[Validity] = deque()
        self.baton = _thread.allocate_lock()  # of the thread that serves
        self._waker = _thread.allocate_lock()
        self._waker.acquire()
        reference = ref(driver, partial(wake, self._waker))
        on_lost = Crew("fastredlock on_lost", MOST_ON_LOST)
        super().__init__(reference, on_lost, Crew("fastredlock observer", 1))

    def keep(self, kept: Validity) -> None:
        """Keep a lease from now on, or look at its times again; any thread may.

        Raises FastRedlockError where no thread can be started.
        """
        self.added.append(kept)
        serve = named(self._serve, "fastredlock keeper")
        error = thread_serve(self.baton, self._waker, serve)
        if error is not None:
            raise FastRedlockError(f"not kept: {error}") from error

    def drop(self, kept: Validity) -> None:
        """Take note of a release; the last one ends the thread."""
        self._kept.discard(kept)
        if not self._kept:
            wake(self._waker)

    def _serve(self) -> None:
        is_mine = True
        while is_mine:
            try:
                self._keep_all()
            finally:
                self.baton.release()
            has_more = bool(self.added) and self._driver is not None
            is_mine = has_more and self.baton.acquire(blocking=False)

    def _keep_all(self) -> None:
        """Do what is due, and sleep until the next; return when nothing is kept."""
        self._keeping = keeping = Keeping(int(draw_fraction() * 65536))
        self._kept.clear()
        while (driver := self._driver) is not None:
            now_ns = driver.now_ns()
            while self.added:
                self._add(self.added.popleft(), now_ns)
            self._step(now_ns)
            if self._notes:
                self._call()
            next_ns = keeping.next_ns
            if self.added:
                continue
            if next_ns is None or not self._kept:
                return
            left_ns = min(next_ns - driver.now_ns(), LONGEST_SLEEP_NS)
            del driver
            if left_ns > 0:
                self._waker.acquire(timeout=left_ns / 1e9)

    def _run(self, batch: Batch, on_end: Callable[[], None]) -> None:
        driver = self._driver
        try:
            unlogged = blocking_run(driver.engine, batch)
        except ClosedError:
            raise
        except Exception as error:
            self._notes.append(log_error, error)
        else:
            if unlogged:
                self._notes.append(log_warnings, driver)
        on_end()

    def _call(self) -> None:
        """Have threads make the calls; in this one where none can be started at all."""
        if not self._losses.start():
            self._losses.make_all()
        self._notes.start()  # or later


def wake(waker: _thread.LockType, _: object = None) -> None:
    """Wake the thread that sleeps by this lock, unless it was woken before."""
    with suppress(RuntimeError):
        waker.release()


# --- a timer of a loop ----------------------------------------------------------------

CALLS_NS = 1_000_000  # of calls to foreign code, and then the loop has its turn


class LoopKeeper(BaseKeeper):
    """Renew in callbacks of one loop, and in the loop's thread alone.

    A loop that is closed runs no timer: what it kept runs out. In a forked child, and
    where another loop has taken the driver over, a timer that goes off does nothing.
    The driver refers to it only while something is kept.
    """

    __slots__ = (
        *("_armed_ns", "_is_calling", "_is_pausing", "_timer", "_under_way", "here"),
    )

    def __init__(self, driver: DriverFields, here: AsyncioDriver) -> None:
        super().__init__(ref(driver), Calls(), Calls())
        self.here = here
        self._timer: Any = None
        self._armed_ns = 0
        self._under_way = 0  # batches
        self._is_calling = False
        self._is_pausing = False  # from notes, not from losses

    def keep(self, kept: Validity) -> None:
        self._add(kept, self._driver.now_ns())
        self._arm()

    def drop(self, kept: Validity) -> None:
        """Take note of a release; the last one ends the keeper, and its timer."""
        self._kept.discard(kept)
        if self._kept or self._under_way:
            return
        if self._timer is not None:
            self._timer.cancel()
        if self._driver.keeper is self:
            self._driver.keeper = None

    def _arm(self) -> None:
        next_ns = self._keeping.next_ns
        if next_ns is None:
            if self._under_way == 0 and self._driver.keeper is self:
                self._driver.keeper = None
            return
        now_ns = self._driver.now_ns()
        next_ns = min(next_ns, now_ns + LONGEST_SLEEP_NS)
        if self._timer is not None:
            if self._armed_ns <= next_ns:
                return
            self._timer.cancel()
        delay = max(next_ns - now_ns, 0) / 1e9
        self._timer = self.here.loop.call_later(delay, self._on_timer)
        self._armed_ns = next_ns

    def _on_timer(self) -> None:
        driver = self._driver
        self._timer = None
        if (
            driver is None
            or self.generation != driver.fork_generation()
            or driver.keeper is not self
        ):
            return
        now_ns = driver.now_ns()
        while (next_ns := self._keeping.next_ns) is not None and next_ns <= now_ns:
            self._step(now_ns)
        self._arm()
        if self._notes:
            self._call()

    def _run(self, batch: Batch, on_end: Callable[[], None]) -> None:
        future = self.here.submit(batch)
        ended = partial(self._on_ended, on_end)
        self._under_way += 1
        if future.done():
            self.here.loop.call_soon(ended, future)
        else:
            future.add_done_callback(ended)

    def _on_ended(self, on_end: Callable[[], None], _: object) -> None:
        driver = self._driver
        self._under_way -= 1
        if driver is None:
            return
        try:
            on_end()
            self._arm()
        except Exception as error:  # an exception would end in the loop's own code
            self._notes.append(log_error, error)
        if driver.engine.unlogged:
            self._notes.append(log_warnings, driver)
        if self._notes:
            self._call()

    def _call(self) -> None:
        """Have the loop make the calls, after all that is ready now."""
        if not self._is_calling and (self._losses or not self._is_pausing):
            self._is_calling = True
            self.here.loop.call_soon(self._make_calls)

    def _make_calls(self) -> None:
        """Make calls for a short time, at least one: the loop goes on in between.

        What should end the program does, once `on_lost` was called of every loss.
        """
        self._is_calling = False
        if self.generation != fork_generation():
            return
        began_ns, took_ns, ending = now_ns(), 0, None
        while (
            ending is None
            and took_ns < CALLS_NS
            and (calls := self._losses or self._notes)
        ):
            ending = make(calls.take())
            took_ns = now_ns() - began_ns
        if ending is not None:
            self._losses.make_all()
        if self._losses:
            self._call()
        elif self._notes and not self._is_pausing:
            self._is_pausing = True
            self.here.loop.call_later(took_ns / 1e9, self._end_pause)
        if ending is not None:
            raise ending

    def _end_pause(self) -> None:
        """Go on with notes, after as much time for renewals as the last ones took."""
        self._is_pausing = False
        self._make_calls()
