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

**Blocks that were entered and not left**: an acquire in there would wait for itself.
The core notes for each key who entered a block by which lease, and in which frame
(`DriverFields.entered`). It is read where a first try was not won, or where an acquire
is to join the block. A copied context would prove nothing: child tasks have it too.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from types import FrameType
from typing import Any, NamedTuple

from .._core import (
    DEFAULT_RESOURCE,
    AcquireCall,
    DriverFields,
    Engine,
    LeaseFields,
    Operation,
    Permits,
    Round,
    Terms,
    Verdict,
    Vote,
    draw_fraction,
    has_quorum,
    running_loop,
)
from .._options.keys import MOST_PERMITS, encode_resource
from .._options.retry import Retry, delay_of
from .._options.settings import timeout_to_ns
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
    LeaseLostError,
    QuorumUnreachableError,
    ReentryError,
    ResourceTakenError,
    TokenReusedError,
    ValidityExhaustedError,
)

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
        refused = refusal(driver, resource, key, call.timeout is not None)
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
        hint = round_timeout_hint(engine, round.terms) or hint
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
            if not has_quorum((not is_foreign(vote) for vote in votes), voting):
                self._due_ns[key] = 0  # the next caller gets the error at once
                elapsed = (round.closed_ns - began_ns) / 1e9
                raise ForeignKeyError(resource, votes, taken.attempt, elapsed)
            stays = [vote.remaining_ms == NO_EXPIRY_MS for vote in votes]
            if taken.terms.has_expiry and has_quorum(stays, voting):
                warn_once(STAYS, printable(resource))


def is_foreign(vote: MasterVote) -> bool:
    """Return whether the key on this master is no lock."""
    if vote.vote is Vote.FAILED:
        return (vote.text or "").startswith("WRONGTYPE")
    return vote.vote is Vote.TAKEN and (vote.token_hash is None or vote.text == EMPTY)


# --- blocks that were entered ---------------------------------------------------------

Key = bytes | tuple[bytes, ...] | Permits
NOT_IN_BLOCK = (
    "this caller is in no block of it, or another one entered it since, or it was not "
    "entered by a with statement here: use the lease that entering it gave"
)
REFUSED = (
    "a FastRedlock that blocks is entered by several tasks of one event loop: those "
    "that would wait are refused, for the loop would stand still; await "
    "fastredlock.asyncio.FastRedlock, or call it by asyncio.to_thread()"
)
OPEN = (
    "%s: waits without a timeout, while a block of it is open that the same thread has "
    "entered, not by a with statement that is still running (a generator, an "
    "ExitStack): where that is this caller's own, the wait has no end; give a timeout"
)


# Who entered a block. THREADS: the thread that calls, and nobody knows for whom, for it
# may be suspended. TASKS: another task of the loop that runs here.
OTHERS, THREADS, TASKS, OURS = range(4)
CO_COROUTINE = 0x80


class Entered(NamedTuple):
    """A block of a valid lease that was not left."""

    whose: int
    lease: Any
    frame: FrameType | None


def block_of(driver: DriverFields, key: bytes) -> Entered | None:
    """Return the block that was entered last by this key of the masters, if any."""
    caller, found, frame = driver.entered.get(key, (None, None, None))
    lease = None if found is None else found()
    if lease is None:
        return None
    return Entered(whose_of(driver, caller, frame), lease, frame)


def whose_of(driver: DriverFields, caller: Any, frame: FrameType | None) -> int:
    """Return who entered a block.

    It is ours only where that is sure: by the same task, or by a frame that is on this
    stack. A thread of a pool may have entered it for a request that waits elsewhere.
    """
    here: Any = driver.caller()
    if caller is None or here is None:
        return OTHERS
    is_task = isinstance(here, tuple)
    if caller == here and (is_task or not driver.blocks or is_on_stack(frame)):
        return OURS
    thread = caller[0] if isinstance(caller, tuple) else caller  # of a task, its own
    if not driver.blocks or thread != (here[0] if is_task else here):
        return OTHERS
    is_coroutine = frame is not None and frame.f_code.co_flags & CO_COROUTINE
    if is_coroutine or running_loop() is not None:
        return TASKS
    return THREADS


def is_on_stack(frame: FrameType | None) -> bool:
    """Return whether a frame has called this, however indirectly."""
    at: FrameType | None = None if frame is None else sys._getframe()
    while at is not None and at is not frame:
        at = at.f_back
    return at is not None


def entered_block(driver: DriverFields, key: Key) -> Entered | None:
    """Return the block over any of the keys that concerns the caller most.

    Ours come first: to wait for another's would be to wait for ours as well. Those of a
    semaphore are ours where the caller has entered all of its slots; of fewer it may
    have one more.
    """
    prefix = driver.settings.key_prefix
    if isinstance(key, Permits):
        keys = slots_entered(driver, prefix + key.name, key.count)
    else:
        keys = [prefix + one for one in (key if isinstance(key, tuple) else (key,))]
    found = [block_of(driver, one) for one in keys]
    blocks = [block for block in found if block is not None and block.lease.is_valid]
    if isinstance(key, Permits):
        ours = [block for block in blocks if block.whose is OURS]
        if len(ours) == key.count:
            return ours[-1]
        blocks = [block for block in blocks if block.whose in (THREADS, TASKS)]
    return max(blocks, key=lambda block: block.whose, default=None)


def slots_entered(driver: DriverFields, name: bytes, count: int) -> list[bytes]:
    """List the keys of slots of which a block was entered."""
    return [
        key
        for key in [*driver.entered]
        if key.startswith(name)
        and key[len(name) :].isdigit()
        and int(key[len(name) :]) < count
    ]


def current_lease(driver: DriverFields, resource: str | bytes) -> Any:
    """Return the lease of the caller's block, lost or not; LeaseLostError: of none."""
    if resource is DEFAULT_RESOURCE:
        resource = driver.settings.resource
    key = driver.settings.key_prefix + encode_resource(resource)
    slots = slots_entered(driver, key + b"#", MOST_PERMITS)
    for each in (key, *reversed(slots)):
        block = block_of(driver, each)
        if block is None or block.whose is not OURS:
            continue
        if each is key or block.lease._round.slot >= 0:
            return block.lease
    raise LeaseLostError(resource, NOT_IN_BLOCK)


def held_for(lease: LeaseFields) -> float:
    """Return for how long a lease has been held (s)."""
    held_ns: int = lease._driver.now_ns() - lease._round.closed_ns
    return held_ns / 1e9


def refusal(
    driver: DriverFields, resource: Resource, key: Any, has_limit: bool
) -> ReentryError | None:
    """Return what an acquire raises where it would wait for its own thread, or None."""
    block = entered_block(driver, key)
    if block is None or block.whose is OTHERS:
        return None
    if block.whose is THREADS:
        if not has_limit:
            warn_once(OPEN, printable(resource))
        return None
    is_task = block.whose is TASKS
    if is_task:
        warn_once(REFUSED)
    permits = key.count if isinstance(key, Permits) else 0
    return ReentryError(resource, held_for(block.lease), permits, is_task)


def holder_here(driver: DriverFields, key: Key) -> str:
    """Return who in this process holds the resource, for a message; or ""."""
    block = entered_block(driver, key)
    if block is None:
        return ""
    held = f"in this process has held it for {held_for(block.lease):.3f} s"
    if block.whose is OURS:
        return f"this caller itself {held}"
    if block.whose is OTHERS:
        return f"another caller {held}"
    by = "" if block.frame is None else f" in {block.frame.f_code.co_qualname}()"
    return f"another caller {held}: a block that this thread entered{by} is still open"


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
