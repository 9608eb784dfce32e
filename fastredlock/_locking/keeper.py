"""To keep leases: what may be asked for, who renews them, who is notified of a loss.

A keeper asks `Keeping` (renewals.py) what is due, runs the renewals and reports losses:
`BaseKeeper`. That of a FastRedlock that blocks does so in a thread, while something is
kept, that of an awaitable one by a timer of its loop. Each holds the driver and leases
by weak references.

Foreign code (`on_lost`, an observer, the handlers of logs) may take any time, and raise
anything. So a keeper calls none of it: it appends the call to `Calls`, after every
lease of that pass counts as lost, and others make it (docs/keeping.md). A function that
already waits with the same argument is not appended again, so what waits is bounded by
the number of kept leases.
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
        for_ns = self._for_ns
        kept.begin_keeping(FOREVER_NS if for_ns is None else now_ns + for_ns)
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

    def make(self) -> BaseException | None:
        """Make the call that waits longest; return what should end the program, if any.

        Everything that it raises was logged by it, and stops no other call.
        """
        try:
            function, argument = self._waiting.popitem(last=False)[1]
            function(argument)
        except (SystemExit, KeyboardInterrupt) as ending:
            return ending
        except BaseException:
            pass
        return None

    def make_all(self) -> BaseException | None:
        """Make all calls that wait; return what should end the program, if any."""
        ending = None
        while self:
            ending = self.make() or ending
        return ending


class CallsByThread(Calls):
    """Calls, and a daemon thread that makes them, while some wait."""

    __slots__ = ("_baton", "_generation", "_name", "_waker")

    def __init__(self, name: str) -> None:
        super().__init__()
        self._baton = _thread.allocate_lock()  # of the thread that makes them
        self._waker = _thread.allocate_lock()  # it does not sleep
        self._generation = fork_generation()
        self._name = name

    def start(self) -> bool:
        """Have all calls made; False: no thread could be started."""
        run = named(self._run, self._name)
        return not self or thread_serve(self._baton, self._waker, run) is None

    def _run(self) -> None:
        is_mine = True
        while is_mine:
            while self:
                self.make()
                if fork_generation() != self._generation:
                    return  # the call has forked: the child makes none of the others
            self._baton.release()
            is_mine = bool(self) and self._baton.acquire(blocking=False)


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
RAN_OUT = "lost: its validity is over, and no renewal was confirmed in time"
ENDED = "lost: its validity is over, and it was not renewed any more"


class BaseKeeper:
    """Make the renewals of a `Keeping`, and notify of losses.

    It runs no foreign code: it appends to `_losses` and `_notes`, and `_call` has those
    calls made elsewhere, or later.
    """

    __slots__ = ("_ended", "_keeping", "_losses", "_notes", "_ref", "generation")

    def __init__(
        self, reference: ref[DriverFields], losses: Calls, notes: Calls
    ) -> None:
        self._ref = reference
        self.generation = fork_generation()
        self._keeping = Keeping(int(draw_fraction() * 65536))
        self._ended: list[tuple[Validity, Round]] = []
        self._losses = losses
        self._notes = notes  # of renewals, and for logs: less urgent

    @property
    def _driver(self) -> Any:
        """The driver; a keeper that sleeps does not hold it. None: it is gone."""
        return self._ref()

    def _step(self, now_ns: int) -> None:
        """Report what is lost, and renew what is due."""
        engine = self._driver.engine
        renewals, time_ns, lost = self._keeping.due(now_ns)
        if lost:
            self._report([(kept, None) for kept in lost], now_ns)
        if not renewals:
            return
        if not engine.is_closed:
            begun: list[Validity] = []
            rounds: list[Round] = []
            for kept in renewals:
                if (round := kept.renew(engine, now_ns, time_ns)) is None:
                    self._keeping.add(kept, now_ns)
                else:
                    begun.append(kept)
                    rounds.append(round)
            with suppress(ClosedError, StateError):  # closed, or another loop's
                self._run(Batch(rounds), partial(self._end, begun, rounds))
                return
        for kept in renewals:  # no longer; their losses are still reported
            kept.until_ns = NEVER_KEPT_NS
            self._keeping.add(kept, now_ns)

    def _run(self, batch: Batch, on_end: Callable[[], None]) -> None:
        """Run renewals, and call back at their end; raise ClosedError after close()."""
        raise NotImplementedError

    def _end(self, renewals: list[Validity], rounds: list[Round]) -> None:
        # Of those before, most are answered by all masters by now. (Who blocks reads
        # what comes behind a quorum's replies with those of the next renewals.)
        for kept, round in self._ended:
            kept.let_go(round)
        self._ended = list(zip(renewals, rounds, strict=True))
        now_ns = self._driver.now_ns()
        self._report(self._keeping.end(renewals, rounds, now_ns), now_ns)
        observer: Any = self._driver.observer  # an Observing, or hears nothing
        if "extended" in observer.methods:
            for kept, round in self._ended:
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

    _losses: CallsByThread
    _notes: CallsByThread

    def __init__(self, driver: DriverFields) -> None:
        self.added: deque[Validity] = deque()
        self.baton = _thread.allocate_lock()  # of the thread that serves
        self._waker = _thread.allocate_lock()
        self._waker.acquire()
        reference = ref(driver, partial(wake, self._waker))
        losses = CallsByThread("fastredlock on_lost")
        super().__init__(reference, losses, CallsByThread("fastredlock observer"))

    def keep(self, kept: Validity) -> None:
        """Keep a lease from now on, or look at its times again; any thread may.

        Raises FastRedlockError where no thread can be started.
        """
        self.added.append(kept)
        serve = named(self._serve, "fastredlock keeper")
        error = thread_serve(self.baton, self._waker, serve)
        if error is not None:
            raise FastRedlockError(f"not kept: {error}") from error

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
        while (driver := self._driver) is not None:
            now_ns = driver.now_ns()
            while self.added:
                keeping.add(self.added.popleft(), now_ns)
            self._step(now_ns)
            if self._notes:
                self._call()
            next_ns = keeping.next_ns
            if self.added:
                continue
            if next_ns is None:
                return
            left_ns = min(next_ns - driver.now_ns(), LONGEST_SLEEP_NS)
            del driver
            is_woken = left_ns <= 0 or self._waker.acquire(timeout=left_ns / 1e9)
            if not (is_woken or keeping.has_held()):
                return

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


class LoopKeeper(BaseKeeper):
    """Renew in callbacks of one loop, and in the loop's thread alone.

    A loop that is closed runs no timer: what it kept runs out. In a forked child, and
    where another loop has taken the driver over, a timer that goes off does nothing.
    """

    __slots__ = ("_armed_ns", "_calling", "_timer", "here")

    def __init__(self, driver: DriverFields, here: AsyncioDriver) -> None:
        super().__init__(ref(driver), Calls(), Calls())
        self.here = here
        self._timer: Any = None
        self._armed_ns = 0
        self._calling: Any = None  # the handle of the next call

    def keep(self, kept: Validity) -> None:
        self._keeping.add(kept, self._driver.now_ns())
        self._arm(kept.due_ns)

    def _arm(self, next_ns: int | None) -> None:
        if next_ns is None:
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
        self._arm(self._keeping.next_ns)
        if self._notes:
            self._call()

    def _run(self, batch: Batch, on_end: Callable[[], None]) -> None:
        future = self.here.submit(batch)
        ended = partial(self._on_ended, on_end)
        if future.done():
            self.here.loop.call_soon(ended, future)
        else:
            future.add_done_callback(ended)

    def _on_ended(self, on_end: Callable[[], None], _: object) -> None:
        driver = self._driver
        if driver is None:
            return
        try:
            on_end()
            self._arm(self._keeping.next_ns)
        except Exception as error:  # an exception would end in the loop's own code
            self._notes.append(log_error, error)
        if driver.engine.unlogged:
            self._notes.append(log_warnings, driver)
        if self._notes:
            self._call()

    def _call(self) -> None:
        """Have the loop make the calls, after all that is ready now."""
        if self._calling is None:
            self._calling = self.here.loop.call_soon(self._make_call)

    def _make_call(self) -> None:
        """Make one call: the loop goes on between two of them.

        What should end the program does, once `on_lost` was called of every loss.
        """
        self._calling = None
        if self.generation != fork_generation():
            return
        ending = (self._losses or self._notes).make()
        if ending is not None:
            self._losses.make_all()
        if self._losses or self._notes:
            self._call()
        if ending is not None:
            raise ending
