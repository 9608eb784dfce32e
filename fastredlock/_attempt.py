"""An attempt is a round, its roll-back and a delay: one generator, for every driver.

The driver is given what to do next and does it: a `Round` is run until it is closed (a
lost one is rolled back by the engine before anything else), a float is slept (s). The
generator sees no clock and no socket: the times it needs stand in the closed round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ._core import Engine, Operation, Round, Terms, Verdict, draw_fraction
from .errors import QuorumUnreachableError, TokenReusedError, ValidityExhaustedError
from .retry import Retry, delay_of
from .votes import Resource, votes_of

ACQUIRE = int(Operation.ACQUIRE)
INSPECT = int(Operation.INSPECT)
LAST_ROUND_NS = 50_000_000  # a server that is there answers by then (Redlock page)


def attempts(
    engine: Engine,
    resource: Resource,
    key: bytes | tuple[bytes, ...],
    terms: Terms,
    new_token: Callable[[], bytes],
    retry: Retry,
    timeout_ns: int | None,
    began_ns: int,
) -> Iterator[Round | float]:
    """Yield rounds to run and delays to sleep, until one is won or time is up.

    The last round yielded is the outcome: won, or taken at the end of the timeout.
    Raises QuorumUnreachableError after `retry.unreachable_tries` unreachable rounds in
    a row or when the timeout ends in that state, ValidityExhaustedError at once, and
    TokenReusedError where nothing was sent because a given token's use is not settled.
    """
    tries = unreachable = 0
    is_inspected = False
    left_ns = timeout_ns
    while True:
        tries += 1
        # A fresh token for every round: the late release of one round must never meet
        # the key of the next.
        round = engine.new_round(ACQUIRE, key, new_token(), terms)
        round.attempt = tries
        round.left_ns = time_for_round(engine, terms, timeout_ns, left_ns)
        yield round
        if round.is_won:
            return
        elapsed_ns = round.closed_ns - began_ns
        if timeout_ns is not None:
            left_ns = max(0, timeout_ns - elapsed_ns)
        is_over = left_ns == 0
        verdict = round.verdict
        if verdict is Verdict.TAKEN:
            if is_over:
                return
            unreachable = 0
            delay = retry.after_taken(
                tries, engine.round_trip_ns / 1e9, draw_fraction()
            )
        elif verdict is Verdict.UNREACHABLE:
            if round.is_withheld and unreachable == 0:
                if is_inspected or not round.may_settle:
                    raise TokenReusedError(resource)
                is_inspected = True
                yield inspection(engine, round)
                continue
            unreachable += 1
            if is_over or unreachable >= retry.unreachable_tries:
                votes = votes_of(engine, round)
                hint = round_timeout_hint(engine, terms)
                raise QuorumUnreachableError(
                    resource, votes, tries, elapsed_ns / 1e9, hint
                )
            delay = retry.after_unreachable(draw_fraction())
        else:
            votes = votes_of(engine, round)
            raise ValidityExhaustedError(resource, votes, tries, elapsed_ns / 1e9)
        delay = delay_of(retry, delay)
        if left_ns is not None:
            # Never past the end of the timeout: the last try is made at it, not before.
            delay = min(delay, left_ns / 1e9)
            left_ns -= int(delay * 1e9)  # slept, it is no time to connect any more
        del round  # rolled back by now: thousands may wait here, and none needs it
        yield delay


def time_for_round(
    engine: Engine, terms: Terms, timeout_ns: int | None, left_ns: int | None
) -> int:
    """Return what a round may take (ns): -1 no limit of its caller's, 0 a single try.

    A round ends with the caller's timeout. The last one begins at the end of it, and
    gets the time in which a master that is there will answer.
    """
    if left_ns is None:
        return -1
    if timeout_ns == 0:
        return 0
    least_ns = max(LAST_ROUND_NS, 3 * engine.round_trip_ns)
    return max(left_ns, min(least_ns, terms.timeout_ns))


def inspection(engine: Engine, withheld: Round) -> Round:
    """Return a question that is answered behind the releases a round was withheld for.

    So a release that is merely on its way is no reason to refuse its token.
    """
    round = engine.new_round(INSPECT, withheld.resource, b"-", withheld.terms)
    round.left_ns = withheld.left_ns
    return round


def round_timeout_hint(engine: Engine, terms: Terms) -> str:
    """Say so where the masters do answer, but later than a round waits; or close()."""
    if engine.is_closed:
        return "this FastRedlock was closed meanwhile"
    slowest_us = max(engine.late_us)
    if slowest_us * 1000 <= terms.timeout_ns:
        return ""
    return (
        f"replies took up to {slowest_us / 1e3:.0f} ms, a round waits "
        f"{terms.timeout_ns / 1e6:.0f} ms: give a larger round_timeout or ttl"
    )
