"""What an acquire does until it is won or its time is up, for every driver.

An attempt is a round, its roll-back and a delay: `attempts` is one generator, and the
driver does each step that it yields: a `Round` is run until it is closed (a lost one is
rolled back by the engine before anything else), a float is slept (s). It reads no clock
and no socket: the times it needs are in the closed round.

Where it would wait, two things are looked at first. **Keys that are no locks**, another
use of a resource's name, would be taken for ever. The reply to a SET that finds a key
has no more, so a resource that was found taken is looked at once a second has passed,
at the end of a failed attempt, and again every ten seconds: a round of INSPECT, which
costs a lock that is merely contended nothing to speak of. A list, a hash, an empty
string and one that is longer than any token are no locks. Any other string may be
another client's token; of one without expiry a warning is logged once.

**A block of the caller's own** is not waited for, for it would wait for itself: see
`blocks`. That is looked at where a first try was not won.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

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
    holders_of,
    printable,
    votes_of,
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

    The arguments of the call are checked before anything is yielded. `first` is the
    round of the first attempt where it was run already. The last round
    yielded is the outcome: won, or taken at the end of the timeout.
    Raises QuorumUnreachableError after `retry.unreachable_tries` unreachable rounds in
    a row (None: never, nor while the masters announce that it passes within the
    timeout) or when the timeout ends so, ValidityExhaustedError at once,
    ForeignKeyError where the key was taken for a second and proves to be no lock,
    TokenReusedError where nothing was sent because a given token's use is not settled,
    and ReentryError where the caller would wait for itself.
    """
    engine, settings = driver.engine, driver.settings
    new_token, retry = settings.new_token, settings.retry
    resource, began_ns = call.resource, call.began_ns
    key = call.encode(resource)
    terms, timeout_ns = settings.terms(call.ttl), timeout_to_ns(call.timeout)
    refused = None
    if driver.entered and timeout_ns != 0:
        refused = refusal(driver, resource, key)
    del call  # which refers to this generator
    tries = unreachable_tries = lost_turns = looks = 0
    permits = key if isinstance(key, Permits) else None
    lock_key = key if permits is None else permits.name
    is_inspected = keeps_turn = False
    has_waited = first is not None and first.has_turn
    pause_ns, places = 0, None
    left_ns = timeout_ns
    may_wait = timeout_ns != 0 and retry.waits_in_turn
    if refused is not None:
        if first is None and permits is None:
            raise refused
        may_wait = False  # of slots another one may be free
    waits = may_wait and engine.is_contended(key, began_ns)
    while True:
        tries += 1
        # A fresh token for every round: the late release of one round must never meet
        # the key of the next.
        if first is not None:
            round, first = first, None
        else:
            round = engine.new_round(
                ACQUIRE,
                key,
                new_token(),
                terms,
                tries,
                began_ns,
                time_for_round(engine, terms, timeout_ns, left_ns),
            )
            if waits:
                before_wait(engine)
                until_ns = -1 if timeout_ns is None else began_ns + timeout_ns
                round.wait_in_turn(
                    *(began_ns, keeps_turn, until_ns, has_waited, pause_ns, places)
                )
                has_waited = True
            yield round
        if round.is_won:
            return
        if timeout_ns is not None:
            left_ns = max(0, timeout_ns - (round.closed_ns - began_ns))
        verdict = round.verdict
        if verdict is Verdict.TAKEN:
            foreign = engine.foreign
            # Of the keys of slots any one may be free.
            is_one = permits is None and foreign is not None
            if is_one and foreign.is_due(lock_key, round.closed_ns):
                yield from foreign.look(engine, resource, lock_key, round, began_ns)
                yield round  # the outcome again: it is over, and so is its run
            waits = may_wait and engine.may_wait_in_turn(key, round.closed_ns)
            if permits is not None and (left_ns == 0 or not waits):
                # With slow masters one look is made: it, and the try behind it, are two
                # round timeouts more.
                elapsed_ns = round.closed_ns - began_ns - terms.timeout_ns
                is_late = timeout_ns is not None and elapsed_ns >= timeout_ns
                if looks < (1 if is_late else LOOKS_MOST):
                    looks += 1
                    if (yield from look_for_slot(engine, permits, round)):
                        continue
                looks = 0
            if left_ns == 0:
                return
            unreachable_tries = 0
            if waits:
                # The queue decides when to try again. Where a quorum is held and the
                # gate does not know, that is at once, again and again: so this caller
                # pauses, in its place, and those behind it need not try.
                # (Which slot it may have, the gate says anew.)
                keeps_turn, pause_ns = round.keeps_turn and permits is None, 0
                places = round.places
                lost_turns = round.lost_turns(lost_turns)
                if lost_turns > LOST_TURNS:
                    pause_ns = int(delay_after(engine, round, retry) * 1e9)
                continue
        elif verdict is not Verdict.UNREACHABLE and not terms.is_of_rate:
            raise failure(engine, resource, round, tries, began_ns)
        elif round.is_withheld and unreachable_tries == 0:
            if is_inspected:
                raise TokenReusedError(resource)
            is_inspected = True
            # Answered behind the releases for which the round was withheld: so a
            # release that is merely on its way is no reason to refuse its token.
            inspection = engine.new_inspection(round)
            inspection.left_ns = round.left_ns
            yield inspection
            continue
        else:
            unreachable_tries += not round.lacks_its_gate
            # A move or a failover is waited for, within the timeout.
            gives_up = retry._gives_up(unreachable_tries, engine, round)
            if gives_up and left_ns:
                gives_up = not engine.may_pass(round, round.closed_ns + left_ns)
            if left_ns == 0 or gives_up:
                most = retry.unreachable_tries
                hint = "" if left_ns == 0 or most is None else GIVEN_UP.format(most)
                raise failure(engine, resource, round, tries, began_ns, hint)
        if refused is not None:
            raise refused
        delay = delay_after(engine, round, retry)
        if left_ns is not None:
            # Never past the end of the timeout: the last try is made at it, not before.
            delay = min(delay, left_ns / 1e9)
            left_ns -= int(delay * 1e9)  # slept, it is no time to connect any more
        del round  # rolled back by now: thousands may wait here, and none needs it
        before_wait(engine)
        yield delay


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
) -> AcquireError:
    """Return the error of an acquire that has ended, by its last round."""
    votes = votes_of(engine, round)
    elapsed = (round.closed_ns - began_ns) / 1e9
    if round.verdict is Verdict.TAKEN:
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
        for each in key if isinstance(key, tuple) else (key,):
            round = engine.new_round(INSPECT, each, b"-", taken.terms)
            round.left_ns = taken.terms.last_round_ns(engine.round_trip_ns)
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
