"""An attempt is a round, its roll-back and a delay: one generator, for every driver.

The driver does each step that is yielded: a `Round` is run until it is closed (a lost
one is rolled back by the engine before anything else), a float is slept (s). The
generator reads no clock and no socket: the times it needs are in the closed round.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator

from .._core import (
    Engine,
    KeyOfKind,
    Operation,
    Permits,
    Round,
    Terms,
    Verdict,
    draw_fraction,
)
from .._options.retry import Retry, delay_of
from .._reports.votes import Resource, votes_of
from ..errors import (
    QuorumUnreachableError,
    ResourceTakenError,
    TokenReusedError,
    ValidityExhaustedError,
)
from .blocked_loop import before_wait
from .foreign import ForeignKeys

ACQUIRE = int(Operation.ACQUIRE)
LOST_TURNS = 2  # in a row, without a pause
GIVEN_UP = (
    "given up after {} such tries in a row: Retry(unreachable_tries=None) waits until "
    "the timeout"
)
LOOKS_MOST = 4  # at a semaphore, without a delay


def attempts(
    engine: Engine,
    resource: Resource,
    key: bytes | tuple[bytes, ...] | KeyOfKind,
    terms: Terms,
    new_token: Callable[[], bytes],
    retry: Retry,
    timeout_ns: int | None,
    began_ns: int,
    first: Round | None = None,
    refusal: Exception | None = None,
) -> Iterator[Round | float]:
    """Yield rounds to run and delays to sleep, until one is won or time is up.

    `first` is the round of the first attempt where it was run already; `refusal` is
    raised where it would wait. The last round
    yielded is the outcome: won, or taken at the end of the timeout.
    Raises QuorumUnreachableError after `retry.unreachable_tries` unreachable rounds in
    a row (None: never) or when the timeout ends so, ValidityExhaustedError at once,
    ForeignKeyError where the key was taken for a second and proves to be no lock, and
    TokenReusedError where nothing was sent because a given token's use is not settled.
    """
    tries = unreachable_tries = lost_turns = looks = 0
    permits = key if isinstance(key, Permits) else None
    lock_key = key.name if isinstance(key, KeyOfKind) else key
    is_inspected = keeps_turn = False
    has_waited = first is not None and first.has_turn
    pause_ns = 0
    left_ns = timeout_ns
    may_wait = timeout_ns != 0 and retry.waits_in_turn and not isinstance(key, tuple)
    if refusal is not None:
        if first is None and permits is None:
            raise refusal
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
                round.wait_in_turn(began_ns, keeps_turn, until_ns, has_waited, pause_ns)
                has_waited = True
            yield round
        if round.is_won:
            return
        if timeout_ns is not None:
            left_ns = max(0, timeout_ns - (round.closed_ns - began_ns))
        verdict = round.verdict
        if verdict is Verdict.TAKEN:
            foreign = foreign_keys(engine)
            if permits is not None or foreign is None:
                pass  # of the keys of slots any one may be free
            elif foreign.is_due(lock_key, round.closed_ns):
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
                if round.turn_was_notified or (round.was_behind and not round.had_turn):
                    lost_turns = 0
                elif round.had_turn or keeps_turn:
                    lost_turns += 1
                if lost_turns > LOST_TURNS:
                    pause_ns = int(delay_after(engine, round, retry) * 1e9)
                continue
        elif verdict is not Verdict.UNREACHABLE and not terms.is_of_rate:
            raise exhausted(engine, resource, round, tries, began_ns)
        elif round.is_withheld and unreachable_tries == 0:
            if is_inspected:
                raise TokenReusedError(resource)
            is_inspected = True
            yield inspection(engine, round)
            continue
        else:
            unreachable_tries += 1
            if left_ns == 0 or retry._gives_up(unreachable_tries, engine, round):
                if verdict is Verdict.TOO_LATE:
                    raise exhausted(engine, resource, round, tries, began_ns)
                most = retry.unreachable_tries
                hint = "" if left_ns == 0 or most is None else GIVEN_UP.format(most)
                raise unreachable(engine, resource, round, tries, began_ns, hint)
        if refusal is not None:
            raise refusal
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
    look = engine.new_look(permits, tried)
    yield look
    if look.is_won and not engine.has_no_slot(permits, look.closed_ns):
        return True
    yield tried  # the outcome again
    return False


def foreign_keys(engine: Engine) -> ForeignKeys | None:
    """Return what looks for foreign keys; None of an engine that has no driver."""
    if engine.foreign is True:
        engine.foreign = ForeignKeys()
    known: ForeignKeys | None = engine.foreign
    return known


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


def inspection(engine: Engine, withheld: Round) -> Round:
    """Return a round that is answered behind the releases a round was withheld for.

    So a release that is merely on its way is no reason to refuse its token.
    """
    round = engine.new_inspection(withheld)
    round.left_ns = withheld.left_ns
    return round


def delay_after(engine: Engine, lost: Round, retry: Retry) -> float:
    """Return the delay (s) between a round that was lost and the next attempt."""
    if lost.verdict is Verdict.TAKEN:
        round_trip = engine.round_trip_ns / 1e9
        delay = retry.after_taken(lost.attempt, round_trip, draw_fraction())
    else:
        delay = retry.after_unreachable(draw_fraction())
    return delay_of(retry, delay)


def taken(
    engine: Engine, resource: Resource, round: Round, began_ns: int, hint: str = ""
) -> ResourceTakenError:
    """Return the error of an acquire that ended while others held the resource."""
    votes = votes_of(engine, round)
    elapsed = (round.closed_ns - began_ns) / 1e9
    foreign = foreign_keys(engine)
    if foreign is not None:
        hint = hint or foreign.hint(resource)
    return ResourceTakenError(resource, votes, round.attempt, elapsed, hint)


def unreachable(
    engine: Engine,
    resource: Resource,
    round: Round,
    tries: int,
    began_ns: int,
    given_up: str = "",
) -> QuorumUnreachableError:
    """Return the error of a round that fewer than a quorum could answer."""
    votes = votes_of(engine, round)
    elapsed = (round.closed_ns - began_ns) / 1e9
    hint = round_timeout_hint(engine, round.terms) or given_up
    return QuorumUnreachableError(resource, votes, tries, elapsed, hint)


def exhausted(
    engine: Engine, resource: Resource, round: Round, tries: int, began_ns: int
) -> ValidityExhaustedError:
    """Return the error of a round that a quorum granted too late."""
    votes = votes_of(engine, round)
    elapsed = (round.closed_ns - began_ns) / 1e9
    return ValidityExhaustedError(resource, votes, tries, elapsed)


def round_timeout_hint(engine: Engine, terms: Terms) -> str:
    """Name the option to change where masters do answer, but too late for a round."""
    if engine.is_closed:
        return "this FastRedlock was closed meanwhile"
    slowest_us = max(engine.late_us)
    if slowest_us * 1000 <= terms.timeout_ns:
        return ""
    return (
        f"replies took up to {slowest_us / 1e3:.0f} ms, a round waits "
        f"{terms.timeout_ns / 1e6:.0f} ms: give a larger round_timeout or ttl"
    )
