"""What an acquire does until it is won or its time is up, for every driver.

An attempt is a round, its roll-back and a delay: `attempts` gives a generator, and the
driver does each step that it yields: a `Round` is run until it is closed (a lost one is
rolled back by the engine before anything else), a float is slept (s). It reads no clock
and no socket: the times it needs are in the closed round.

Where it would wait, two things are looked at first. **Keys that are no locks**, another
use of a resource's name, would be taken for ever. So a resource that was found taken is
looked at once a second has passed, at the end of a failed attempt, and again every ten
seconds: a round of INSPECT. **A block of the caller's own** is not waited for, for it
would wait for itself: see `blocks`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any

from .._core import (
    AcquireCall,
    DriverFields,
    Engine,
    Operation,
    Permits,
    Round,
    Terms,
    Verdict,
    Vote,
    draw_fraction,
    has_quorum,
    is_foreign,
    running_loop,
)
from .._options.retry import Retry, delay_of
from .._options.settings import timeout_to_ns
from .._reports.health import outage_of
from .._reports.log import warn_once
from .._reports.votes import (
    EMPTY,
    NO_EXPIRY_MS,
    MasterVote,
    Resource,
    holder_text,
    holders_of,
    printable,
    votes_of,
    with_holders,
)
from ..errors import (
    AcquireError,
    ForeignKeyError,
    QuorumUnreachableError,
    ResourceTakenError,
    TokenReusedError,
    ValidityExhaustedError,
)
from .blocks import refusal

ACQUIRE, INSPECT = int(Operation.ACQUIRE), int(Operation.INSPECT)
LOST_TURNS = 2  # in a row, without a pause
GIVEN_UP = (
    "given up after {} such tries in a row: Retry(unreachable_tries=None) waits until "
    "the timeout"
)
LOOKS_MOST = 4  # at a semaphore, without a delay


def attempts(
    driver: DriverFields, call: AcquireCall, first: Round | None = None
) -> Iterator[Round | float]:
    """Yield rounds to run and delays to sleep, until one is won or time is up.

    `first` is the round of the first attempt where it was run already. The last round
    yielded is the outcome: won, or taken at the end of the timeout. Raises
    QuorumUnreachableError after `retry.unreachable_tries` unreachable rounds in a row
    (None: never, nor while the masters announce that it passes within the timeout) or
    when the timeout ends so, and at once ValidityExhaustedError, ForeignKeyError,
    TokenReusedError (a given token's use is not settled) and ReentryError.
    """
    return Attempts(driver, call, first).steps(first)


class Attempts:
    """The tries of one acquire; see `attempts`. It refers to no round between them."""

    def __init__(
        self, driver: DriverFields, call: AcquireCall, first: Round | None
    ) -> None:
        self._engine, settings = driver.engine, driver.settings
        self._retry: Retry = settings.retry
        self._new_token = settings.new_token
        self._resource, self._began_ns = call.resource, call.began_ns
        self._key: Any = call.encode(call.resource)
        self._permits = self._key if isinstance(self._key, Permits) else None
        self._terms: Terms = settings.terms(call.ttl)
        self._timeout_ns = self._left_ns = timeout_to_ns(call.timeout)
        self._refused = None
        if driver.entered and self._timeout_ns != 0:
            self._refused = refusal(driver, self._resource, self._key)
        if self._refused is not None and first is None and self._permits is None:
            raise self._refused
        self._may_wait = (
            self._timeout_ns != 0
            and self._retry.waits_in_turn
            and self._refused is None  # else of slots another one may be free
        )
        is_contended = self._engine.is_contended(self._key, self._began_ns)
        self._waits = self._may_wait and is_contended
        self._has_waited = first is not None and first.has_turn
        self._tries = self._unreachable_tries = self._lost_turns = self._looks = 0
        self._is_inspected = self._keeps_turn = False
        self._pause_ns = 0
        self._places: object = None

    def steps(self, round: Round | None) -> Generator[Round | float, None, None]:
        """Yield what to run and to sleep; `round`: of the first try, if it was run."""
        while True:
            self._tries += 1
            if round is None:
                round = self._new_round()
                yield round
            if round.is_won:
                return
            if self._timeout_ns is not None:
                elapsed_ns = round.closed_ns - self._began_ns
                self._left_ns = max(0, self._timeout_ns - elapsed_ns)
            is_taken = round.verdict is Verdict.TAKEN
            if (yield from (self._taken if is_taken else self._outage)(round)):
                round = None
                continue
            if self._left_ns == 0:
                return
            if self._refused is not None:
                raise self._refused
            delay = self._delay(round)
            round = None  # rolled back: thousands may wait here, and none needs it
            before_wait(self._engine)
            yield delay

    def _new_round(self) -> Round:
        # A fresh token for every round: the late release of one round must never meet
        # the key of the next.
        round = self._engine.new_round(
            *(ACQUIRE, self._key, self._new_token(), self._terms),
            *(self._tries, self._began_ns),
            time_for_round(self._engine, self._terms, self._timeout_ns, self._left_ns),
        )
        if self._waits:
            before_wait(self._engine)
            until_ns = -1
            if self._timeout_ns is not None:
                until_ns = self._began_ns + self._timeout_ns
            round.wait_in_turn(
                *(self._began_ns, self._keeps_turn, until_ns, self._has_waited),
                *(self._pause_ns, self._places),
            )
            self._has_waited = True
        return round

    def _taken(self, round: Round) -> Generator[Round, None, bool]:
        """Return whether the next try is made at once."""
        engine, permits = self._engine, self._permits
        if permits is None and engine.foreign is not None:  # of slots any may be free
            look = engine.foreign
            if look.is_due(self._key, round.closed_ns):
                yield from look.look(
                    engine, self._resource, self._key, round, self._began_ns
                )
                yield round  # the outcome again: it is over, and so is its run
        self._waits = self._may_wait and engine.may_wait_in_turn(
            self._key, round.closed_ns
        )
        if permits is not None and (self._left_ns == 0 or not self._waits):
            # With slow masters one look is made: it, and the try behind it, are two
            # round timeouts more.
            elapsed_ns = round.closed_ns - self._began_ns - self._terms.timeout_ns
            is_late = self._timeout_ns is not None and elapsed_ns >= self._timeout_ns
            if self._looks < (1 if is_late else LOOKS_MOST):
                self._looks += 1
                if (yield from look_for_slot(engine, permits, round)):
                    return True
            self._looks = 0
        self._unreachable_tries = 0
        if self._left_ns == 0 or not self._waits:
            return False
        # The queue decides when to try again. Where a quorum is held and the gate does
        # not know, that is at once, again and again: so this caller pauses, in its
        # place, and those behind it need not try. (Which slot it may have, the gate
        # says anew.)
        self._keeps_turn, self._pause_ns = round.keeps_turn and permits is None, 0
        self._places = round.places
        self._lost_turns = round.lost_turns(self._lost_turns)
        if self._lost_turns > LOST_TURNS:
            self._pause_ns = int(delay_after(engine, round, self._retry) * 1e9)
        return True

    def _outage(self, round: Round) -> Generator[Round, None, bool]:
        if round.verdict is not Verdict.UNREACHABLE and not self._terms.is_of_rate:
            raise self._failure(round)
        if round.is_withheld and self._unreachable_tries == 0:
            if self._is_inspected:
                raise TokenReusedError(self._resource)
            self._is_inspected = True
            # Answered behind the releases for which the round was withheld: so a
            # release that is merely on its way is no reason to refuse its token.
            inspection = self._engine.new_inspection(round)
            inspection.left_ns = round.left_ns
            yield inspection
            return True
        self._unreachable_tries += not round.lacks_its_gate
        # A move or a failover is waited for, within the timeout.
        gives_up = self._retry._gives_up(self._unreachable_tries, self._engine, round)
        if gives_up and self._left_ns:
            until_ns = round.closed_ns + self._left_ns
            gives_up = not self._engine.may_pass(round, until_ns)
        if self._left_ns == 0 or gives_up:
            most = self._retry.unreachable_tries
            is_over = self._left_ns == 0 or most is None
            raise self._failure(round, "" if is_over else GIVEN_UP.format(most))
        return False

    def _failure(self, round: Round, hint: str = "") -> AcquireError:
        given = self._resource, round, self._tries, self._began_ns
        return failure(self._engine, *given, hint)

    def _delay(self, lost: Round) -> float:
        delay = delay_after(self._engine, lost, self._retry)
        if self._left_ns is not None:
            # Never past the end of the timeout: the last try is made at it, not before.
            delay = min(delay, self._left_ns / 1e9)
            self._left_ns -= int(delay * 1e9)  # slept: no time to connect any more
        return delay


def looks_at(engine: Engine, key: Any, taken: Round) -> list[Round]:
    """Return rounds that look at each key of one that was taken; none at slots."""
    keys = key if isinstance(key, tuple) else (key,)
    left_ns = taken.terms.last_round_ns(engine.round_trip_ns)
    return [
        engine.new_round(INSPECT, each, b"-", taken.terms, left_ns=left_ns)
        for each in keys
        if not isinstance(each, Permits)
    ]


def look_for_slot(
    engine: Engine, permits: Permits, tried: Round
) -> Generator[Round, None, bool]:
    """Look whether another slot may be free than the one that was tried."""
    look = engine.new_round(INSPECT, permits, b"-", tried.terms, left_ns=tried.left_ns)
    yield look
    if look.is_won and not engine.has_no_slot(permits, look.closed_ns):
        return True
    yield tried  # the outcome again
    return False


def time_for_round(
    engine: Engine, terms: Terms, timeout_ns: int | None, left_ns: int | None
) -> int:
    """Return the time for a round (ns): -1 no limit of its caller's, 0 a single try.

    A round ends with the caller's timeout. The last one begins at the end of it, and
    gets the time in which a master that is there will answer.
    """
    if left_ns is None:
        return -1
    if timeout_ns == 0:
        return 0
    return max(left_ns, terms.last_round_ns(engine.round_trip_ns))


def delay_after(engine: Engine, lost: Round, retry: Retry) -> float:
    """Return the delay (s) between a round that was lost and the next attempt."""
    if lost.verdict is Verdict.TAKEN:
        round_trip = engine.round_trip_ns / 1e9
        delay = retry.after_taken(lost.attempt, round_trip, draw_fraction())
    else:
        delay = retry.after_unreachable(draw_fraction())
    return delay_of(retry, delay)


def failure(
    engine: Engine,
    resource: Resource,
    round: Round,
    tries: int,
    began_ns: int,
    hint: str = "",
    looks: Sequence[Round] = (),
) -> AcquireError:
    """Return the error of an acquire that has ended, by its last round.

    `looks`: at its keys, made since then.
    """
    votes = votes_of(engine, round)
    elapsed = (round.closed_ns - began_ns) / 1e9
    if round.verdict is Verdict.TAKEN:
        seen = [each for look in looks for each in holders_of(engine, look)]
        votes = with_holders(votes, seen)
        hint = hint or holder_text(votes)
        return ResourceTakenError(resource, votes, tries, elapsed, hint)
    if round.verdict is Verdict.UNREACHABLE:
        hints = (
            outage_of(engine, round.closed_ns),
            round_timeout_hint(engine, round.terms) or hint,
        )
        hint = "; ".join(filter(None, hints))
        return QuorumUnreachableError(resource, votes, tries, elapsed, hint)
    return ValidityExhaustedError(resource, votes, tries, elapsed)


def round_timeout_hint(engine: Engine, terms: Terms) -> str:
    """Name the option to change where masters do answer, but too late for a round."""
    if engine.is_closed:
        return "this FastRedlock was closed meanwhile"
    slowest_us = max(late_us for late_us, _ in engine.faults)
    if slowest_us * 1000 <= terms.timeout_ns:
        return ""
    return (
        f"replies took up to {slowest_us / 1e3:.0f} ms, a round waits "
        f"{terms.timeout_ns / 1e6:.0f} ms: give a larger round_timeout or ttl"
    )


# --- keys that are no locks -----------------------------------------------------------

INSPECT = int(Operation.INSPECT)
LOOK_AFTER_NS = 1_000_000_000
LOOK_AGAIN_NS = 10_000_000_000
REMEMBERED = 64  # resources; of more, some are looked at later
STAYS = (
    "%s: taken by a key without expiry: if it is no lock (NO_EXPIRY), it stays until "
    "it is deleted"
)


class ForeignKeys:
    """Remember which resources were found taken, and when to look what holds them."""

    __slots__ = ("_due_ns",)

    def __init__(self) -> None:
        self._due_ns: dict[bytes | tuple[bytes, ...], int] = {}

    def is_due(self, key: bytes | tuple[bytes, ...], now_ns: int) -> bool:
        """Note that it was found taken; return whether to look what holds it."""
        due_ns = self._due_ns.get(key)
        if due_ns is None:
            if len(self._due_ns) >= REMEMBERED:
                self._due_ns.clear()
            due_ns = self._due_ns[key] = now_ns + LOOK_AFTER_NS
        if now_ns < due_ns:
            return False
        self._due_ns[key] = now_ns + LOOK_AGAIN_NS
        return True

    def look(
        self,
        engine: Engine,
        resource: Resource,
        key: bytes | tuple[bytes, ...],
        taken: Round,
        began_ns: int,
    ) -> Iterator[Round]:
        """Yield rounds to run; raise ForeignKeyError where the key is no lock.

        That is where too few masters are left for a quorum.
        """
        for round in looks_at(engine, key, taken):
            yield round
            votes = holders_of(engine, round)
            voting = engine.electorate
            if not has_quorum((not has_no_lock(vote) for vote in votes), voting):
                self._due_ns[key] = 0  # the next caller gets the error at once
                elapsed = (round.closed_ns - began_ns) / 1e9
                raise ForeignKeyError(resource, votes, taken.attempt, elapsed)
            stays = [vote.remaining_ms == NO_EXPIRY_MS for vote in votes]
            if taken.terms.has_expiry and has_quorum(stays, voting):
                warn_once(STAYS, printable(resource))


def has_no_lock(vote: MasterVote) -> bool:
    """Return whether the key on this master is no lock."""
    if vote.vote is Vote.FAILED:
        return is_foreign(vote.text or "")
    return vote.vote is Vote.TAKEN and (vote.token_hash is None or vote.text == EMPTY)


# --- a wait inside of an event loop ---------------------------------------------------

BLOCKED_LOOP = (
    "a FastRedlock that blocks waits for a lock inside a running event loop, which "
    "stands still meanwhile: await fastredlock.asyncio.FastRedlock, or call it by "
    "asyncio.to_thread()"
)


def before_wait(engine: Engine) -> None:
    """Warn where no event loop drives the engine, but one runs in this thread."""
    # A closed engine has no driver any more, and the next round ends at once.
    if running_loop() is not None and not engine.is_awaited and not engine.is_closed:
        warn_once(BLOCKED_LOOP)
