"""One grant of a resource: how long it is ours, whether it is lost, how it ends.

`BaseLease` is the base of the blocking and the awaitable lease: arithmetic on integers
of one clock, and no I/O. It makes the rounds to run, and reads them after a driver has
run them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from math import inf
from typing import Any, NoReturn

from .._core import ExtendCall, LeaseFields, Round, Terms, Verdict, set_ends, set_first
from .._options.functions import name_methods
from .._options.retry import number_in
from .._options.settings import LONGEST_TTL
from .._reports.votes import MasterVote, Resource, hash_of, loss, shown, votes_of
from ..errors import ConfigurationError, LeaseLostError, NotExtendedError
from .driver import BaseDriver, refuse_pickling
from .keeper import KeepAlive
from .validity import KEPT, NEVER_KEPT_NS, Validity, extended, validity_of


class ReleaseStatus(Enum):
    """How a release ended."""

    RELEASED = "released"  #: a quorum deleted our key
    GONE = "gone"  #: a quorum answered, too few still had it: expired, or taken
    UNKNOWN = "unknown"  #: fewer than a quorum answered: the key may remain for its ttl


# Reading a member through its class costs more than the rest of a release in Python.
RELEASED, GONE, UNKNOWN = ReleaseStatus
set_ends(RELEASED, GONE, UNKNOWN)

NOT_NUMBERED = "fence: not known of an adopted lease; adopt(..., fence=lease.fence)"
NO_NUMBERS = "fence: leases have a number with FastRedlock(..., fencing=True) alone"
WAS_RELEASED = "it was released"
PARENTS = "it is the parent's"
NOT_KNOWN = "not known to be valid: it was adopted, and not extended since"
OVER = "lost: its validity is over"
BEFORE_END = "lost before the end of the with block"
OVERRUN = (
    "lost before the end of the with block: its validity (ttl {:g} s) was overrun by "
    "{:.3f} s"
)
ADVICE = "; give keep_alive=True, or a longer ttl"
KEY_GONE = "lost before the end of the with block: its key is gone: deleted, or taken"


class BaseLease(LeaseFields):
    """Hold one grant; see `Lease`."""

    __slots__ = ()

    resource: Resource
    _driver: BaseDriver  # which its release needs, and nothing else keeps alive
    _round: Round  # that took it
    _status: ReleaseStatus | None  # None until a release was begun

    def __reduce__(self) -> NoReturn:
        refuse_pickling(self)

    @property
    def token(self) -> bytes:
        """The value stored on the masters, a secret: any process can release by it."""
        self._round.is_shown = True  # so it is not handed on to another caller
        return self._round.token

    @property
    def token_hash(self) -> str:
        """The hash of the token, as `holders()` shows it: for logs and people."""
        return hash_of(self._round.token)

    @property
    def ttl(self) -> float:
        """The ttl (s) for which the masters were last asked."""
        return self._asked().ttl_ms / 1000

    def _asked(self) -> Terms:
        made: Validity | None = self._round.lease_state
        return self._round.terms if made is None else made.terms

    @property
    def fence(self) -> int:
        """The number of this grant, with `fencing=True`; it grows with each grant.

        Raises AttributeError without the option, and for a lease that was adopted
        without it.
        """
        fence = self._round.fence
        if fence is None:
            raise AttributeError(
                NOT_NUMBERED if self._driver.settings.fencing else NO_NUMBERS
            )
        return fence

    @property
    def slot(self) -> int:
        """Which slot of a semaphore it is, from 0: for a port, a device, a directory.

        Raises AttributeError for a lease of anything else.
        """
        if self._round.slot < 0:
            raise AttributeError("slot: only a lease of a semaphore has one")
        return self._round.slot

    @property
    def votes(self) -> tuple[MasterVote, ...]:
        """The vote of each master in the acquire, in configured order.

        A round ends at a quorum; later votes are here as soon as they are read.
        """
        return votes_of(self._driver.engine, self._round)

    @property
    def attempts(self) -> int:
        """How many rounds it took to acquire; 0 if it was adopted."""
        return self._round.attempt

    @property
    def waited(self) -> float:
        """The time (s) from the call until a quorum had granted; 0.0 if it was adopted.

        It includes connecting, waiting for others and the last round.
        """
        began_ns = self._round.began_ns
        return (self._round.closed_ns - began_ns) / 1e9 if began_ns else 0.0

    # --- validity ---------------------------------------------------------------------

    def remaining(self) -> float:
        """Return the validity left in s, 0.0 when it is over; does not block.

        Drift and the time of the round are taken off. It is no fence: a command that is
        sent now may arrive when it is over.
        """
        if self._round.generation != self._driver.fork_generation():
            return 0.0  # a forked child has none of its parent's leases
        left_ns = self._valid_until_ns - self._driver.now_ns()
        return left_ns / 1e9 if left_ns > 0 else 0.0

    @property
    def is_valid(self) -> bool:
        """Whether validity is left."""
        return self.remaining() > 0.0

    def _is_parents(self) -> bool:
        return self._round.generation != self._driver.fork_generation()

    def _is_adopted(self) -> bool:
        # Taken by another process: nothing is known of its validity. A quorum that
        # still has the token has had it all the time, so an extension is sound.
        if self._round.is_opened or self._valid_until_ns != 0:
            return False
        made: Validity | None = self._round.lease_state
        return made is None or not made.is_lost

    def check(self) -> None:
        """Raise LeaseLostError if the lease is over, by the clock; no I/O."""
        if self.remaining() <= 0.0:
            raise self._loss() or LeaseLostError(self.resource, self._reason())

    def _check_held(self, prefix: str) -> None:
        if self._status is not None:
            raise LeaseLostError(self.resource, f"{prefix}: {WAS_RELEASED}")
        if self._is_parents():
            raise LeaseLostError(self.resource, f"{prefix}: {PARENTS}")
        if not (self.is_valid or self._is_adopted()):
            raise LeaseLostError(self.resource, f"{prefix}: its validity is over")

    # --- keeping ----------------------------------------------------------------------

    def keep_alive(
        self,
        keep_alive: bool | float = True,
        *,
        on_lost: Callable[[Any, LeaseLostError], object] | None = None,
    ) -> None:
        """Renew it from now on, until it is released or nobody refers to it any more.

        True: without a bound; a number: for so many s at most; False: no longer. It
        does not block. If the lease is lost, `on_lost(lease, error)` is called once.
        Raises LeaseLostError if it is over already, ConfigurationError if its ttl is
        too short to be renewed in time.
        """
        if keep_alive is False and on_lost is None:
            made: Validity | None = self._round.lease_state
            if made is not None:
                made.until_ns = NEVER_KEPT_NS
            return
        asked = KeepAlive(keep_alive, on_lost)
        self._check_held("not kept")
        asked.begin(self)

    def _watch_body(self, validity: Validity) -> None:
        """Let a loss cancel the body that was entered by it: of an awaitable lease."""

    def _leave_body(self, error: BaseException | None) -> bool:
        """Leave a body; return whether a loss has cancelled it: of an awaitable one."""
        return False

    # --- extending --------------------------------------------------------------------

    def _check_not_kept(self) -> None:
        made: Validity | None = self._round.lease_state
        if made is not None and made.is_kept:
            raise ConfigurationError(KEPT)

    def _under_way(self) -> set[object]:
        under_way: set[object] = extended(self).under_way
        return under_way

    def _begin_extend(
        self, ttl: float | None, extension: object, is_by_hand: bool = True
    ) -> Round:
        """Return the round to run; the caller takes `extension` out of `under_way`.

        By one call into C, however the call ends: an interrupt must not leave one
        behind, which would bound all later ones. Not by hand, a kept lease is extended
        as well: by what it is kept for at least.
        """
        driver = self._driver
        terms = self._asked() if ttl is None else driver.settings.terms(ttl)
        now_ns = driver.now_ns()
        self._check_held("not extended")
        if is_by_hand:
            self._check_not_kept()
        validity = extended(self)
        if validity.is_kept:
            terms = max(terms, validity.terms, key=lambda each: each.ttl_ms)
        round = driver.engine.new_extension(self._round, terms)
        validity.begin(round, extension, now_ns)
        return round

    def _prolong(self, ttl: float | None) -> Any:
        """Extend it, though it is kept: for a block inside of its own, and drop-ins."""
        call = ExtendCall(self, ttl, is_by_hand=False)
        return call.run() if self._driver.blocks else call

    def _end_extend(self, round: Round) -> float:
        """Take the outcome, while the extension still counts as under way."""
        verdict = round.verdict
        if self._status is not None:
            raise LeaseLostError(self.resource, f"not extended: {WAS_RELEASED}")
        is_in_time = self._is_adopted() or round.closed_ns < self._valid_until_ns
        if verdict is Verdict.WON and is_in_time:
            extended(self).win(round)
            return self.remaining()
        votes = votes_of(self._driver.engine, round)
        if verdict is Verdict.TAKEN:
            validity = extended(self)
            validity.end_now()
            validity.nudge()
            reason = loss(votes)
        elif verdict is Verdict.UNREACHABLE:
            left = self.remaining()
            if left > 0.0 or self._is_adopted():
                reason = "extension not confirmed by a quorum"
                raise NotExtendedError(self.resource, reason, votes, left)
            reason = "extension not confirmed by a quorum, and its validity is over"
        else:
            reason = "extended too late: its validity was over"
        raise LeaseLostError(self.resource, reason, votes)

    # --- releasing --------------------------------------------------------------------

    def _begin_release(self) -> Round | None:
        """Count as released from now on; return the round to run, None if none is."""
        if self._status is not None and self._status is not UNKNOWN:
            return None
        if self._is_parents():
            return None
        made: Validity | None = self._round.lease_state
        release = self._new_release()
        is_first, self._status = self._status is None, UNKNOWN
        if is_first and made is not None:
            made.released()
        return release

    def _end_release(self, round: Round) -> ReleaseStatus:
        if round.is_won:
            self._status = RELEASED
            return RELEASED
        if round.verdict is Verdict.TAKEN:
            self._status = GONE
        if self._round.lease_state is not None:
            self._round.lease_state.ended(round, self._status is GONE)
        return self._status or UNKNOWN

    # --- its loss ---------------------------------------------------------------------

    def _is_lost(self) -> bool:
        """Return whether it ended otherwise than by a release; once so, it stays so.

        An adopted lease of which nothing is known yet is not.
        """
        made: Validity | None = self._round.lease_state
        if made is not None and made.is_lost:
            return True
        if self._status is not None:
            return self._status is GONE
        if self.is_valid or (self._is_adopted() and not self._is_parents()):
            return False
        if made is not None and made.was_kept:
            made.is_lost = True
        return True

    def _loss(self) -> LeaseLostError | None:
        """Return, anew, the error by which a loss was reported; None where none was."""
        made: Validity | None = self._round.lease_state
        if made is None or made.error is None:
            return None
        return LeaseLostError(*made.error.args)

    def _reason(self) -> str:
        if self._is_parents():
            return PARENTS
        if self._is_lost():
            return OVER
        return NOT_KNOWN if self._status is None else WAS_RELEASED

    def _check_exit(self, status: ReleaseStatus, left_ns: int, overrun_ns: int) -> None:
        """Raise the loss of a body that ended by so much too late; 0: not known."""
        if left_ns <= 0 or status is GONE:
            raise self._loss_at_exit(overrun_ns)

    def _loss_at_exit(self, overrun_ns: int) -> LeaseLostError:
        reason = self._reason_at_exit(overrun_ns)
        loss = self._loss() or LeaseLostError(self.resource, reason)
        known = self.resource, loss.reason, loss.votes, loss.remaining
        return LeaseLostError(*known, body_ended=True)

    def _reason_at_exit(self, overrun_ns: int) -> str:
        if self._is_parents():
            return f"{BEFORE_END}: {PARENTS}"
        if overrun_ns > 0:
            made: Validity | None = self._round.lease_state
            advice = ADVICE if made is None or not made.was_kept else ""
            return OVERRUN.format(self.ttl, overrun_ns / 1e9) + advice
        if self._status is not GONE and self._is_adopted():
            return f"{BEFORE_END}: {NOT_KNOWN}"
        return KEY_GONE

    @shown
    def __repr__(self) -> str:
        state = "released" if self._status else f"{self.remaining():.3f} s left"
        return f"<{type(self).__name__} {self.resource!r}, {state}>"


name_methods(BaseLease, "Lease")

# --- its loss -------------------------------------------------------------------------

SLICE_NS = 1_000_000_000  # timers stop while the machine is suspended


class BaseLost:
    """The reading half of an event: a lease is lost; see `Lost`."""

    __slots__ = ("_lease",)

    def __init__(self, lease: BaseLease) -> None:
        self._lease = lease

    def is_set(self) -> bool:
        """Return whether the lease is lost, by the clock; does not block.

        False for one that was released while it was valid.
        """
        return self._lease._is_lost()

    def _is_over(self) -> bool:
        return self._lease._status is not None or self._lease._is_lost()

    def _waits(self, timeout: float | None) -> Iterator[int]:
        """Yield how long (ns) to wait before looking again, until its end or `timeout`.

        It needs no keeper: it looks at the end of the validity itself.
        """
        until_ns = None
        if timeout is not None:
            seconds = number_in("timeout", timeout, -inf, inf, "None, or a number of s")
            limit_ns = int(max(0, min(seconds, LONGEST_TTL)) * 1e9)
            until_ns = self._lease._driver.now_ns() + limit_ns
        while not self._is_over():
            now_ns = self._lease._driver.now_ns()
            left_ns = SLICE_NS if until_ns is None else min(SLICE_NS, until_ns - now_ns)
            if left_ns <= 0:
                return
            if end_ns := self._lease._valid_until_ns:
                left_ns = min(left_ns, max(end_ns - now_ns, 1))
            yield left_ns

    def _waiters(self) -> list[Callable[[], object]]:
        return set_first(validity_of(self._lease), "waiters", [])

    @shown
    def __repr__(self) -> str:
        state = "set" if self.is_set() else "unset"
        return f"<{type(self).__name__} of {self._lease.resource!r}: {state}>"
