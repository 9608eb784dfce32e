"""One grant of a resource: how long it is ours, whether it is lost, how it ends.

`BaseLease` is the base of the blocking and the awaitable lease: arithmetic on integers
of one clock, and no I/O. It makes the rounds to run, and reads them after a driver has
run them.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, NoReturn

from .._core import LeaseFields, Round, Terms, Verdict
from .._reports.votes import MasterVote, Resource, hash_of, loss, shown, votes_of
from ..errors import LeaseLostError, NotExtendedError
from .driver import BaseDriver, refuse_pickling
from .keeper import keep
from .validity import Extensions, Kept, Watch, extensions_of, kept_of


class ReleaseStatus(Enum):
    """How a release ended."""

    RELEASED = "released"  #: a quorum deleted our key
    GONE = "gone"  #: a quorum answered, too few still had it: expired, or taken
    UNKNOWN = "unknown"  #: fewer than a quorum answered: the key may remain for its ttl


# Reading a member through its class costs more than the rest of a release in Python.
RELEASED, GONE, UNKNOWN = ReleaseStatus


class BaseLease(LeaseFields):
    """Hold one grant; see `Lease`."""

    __slots__ = ()

    resource: Resource
    _driver: BaseDriver  # which its release needs, and nothing else keeps alive
    _round: Round  # that took it
    _status: ReleaseStatus | None  # None until a release was begun
    _unknown = UNKNOWN  # for the core: its ReleaseCall
    _gone = GONE
    _released = RELEASED

    def __reduce__(self) -> NoReturn:
        refuse_pickling(self)

    @property
    def token(self) -> bytes:
        """The value stored on the masters: with it, any process can release."""
        self._round.is_shown = True  # so it is not handed on to another caller
        return self._round.token

    @property
    def token_hash(self) -> str:
        """The hash of the token, as `holders()` shows it: for logs and people."""
        return hash_of(self._round.token)

    @property
    def ttl(self) -> float:
        """The ttl (s) the masters were last asked for."""
        return self._asked().ttl_ms / 1000

    def _asked(self) -> Terms:
        made = self._extensions()
        return self._round.terms if made is None else made.terms

    def _extensions(self) -> Extensions | None:
        made: Extensions | Kept | None = self._round.lease_state
        return None if made is None else made.extensions

    @property
    def fence(self) -> int:
        """The number of this grant, with `fencing=True`; it grows with each grant.

        A storage that refuses a write with a smaller number than it has seen refuses
        what a paused holder writes late. Raises AttributeError without the option, and
        for a lease that was adopted without its number.
        """
        fence = self._round.fence
        if fence is None:
            raise AttributeError(no_fence_text(self._driver.settings.fencing))
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

        A round ends at a quorum: those that came later count from when they are read.
        """
        return votes_of(self._driver.engine, self._round)

    @property
    def attempts(self) -> int:
        """How many rounds it took to acquire; 0 of an adopted one."""
        return self._round.attempt

    @property
    def waited(self) -> float:
        """The time (s) from the call until a quorum had granted; 0.0 if adopted.

        Connecting, waiting for others and the last round are in it.
        """
        began_ns = self._round.began_ns
        return (self._round.closed_ns - began_ns) / 1e9 if began_ns else 0.0

    # --- validity ---------------------------------------------------------------------

    def remaining(self) -> float:
        """Return the validity left in s, 0.0 when it is over; does not block.

        Sound against every delay of this process, because drift and the time of the
        round are taken off and the clock goes on during suspend. It is no fence: a
        command sent after asking may arrive after it is over.
        """
        if self._round.generation != self._driver.fork_generation():
            return 0.0  # a forked child has none of its parent's leases
        left_ns = self._valid_until_ns - self._driver.now_ns()
        return left_ns / 1e9 if left_ns > 0 else 0.0

    @property
    def _valid_until_ns(self) -> int:
        if self._status is not None:
            return 0
        made: Extensions | Kept | None = self._round.lease_state
        if made is not None:
            return made.valid_until_ns
        return self._round.valid_until_ns

    @property
    def is_valid(self) -> bool:
        """Whether validity is left."""
        return self.remaining() > 0.0

    def _is_adopted(self) -> bool:
        # Taken by another process: nothing is known of its validity. A quorum that
        # still has the token has had it all the time, so an extension is sound.
        return not self._round.is_opened and self._valid_until_ns == 0

    def check(self) -> None:
        """Raise LeaseLostError where the lease is over, by the clock; no I/O."""
        if self.remaining() > 0.0:
            return
        check(self)

    # --- keeping ----------------------------------------------------------------------

    def keep_alive(
        self,
        keep_alive: bool | float = True,
        *,
        on_lost: Callable[[Any, LeaseLostError], object] | None = None,
    ) -> None:
        """Renew it from now on, until it is released or nobody refers to it any more.

        True: without a bound; a number: for so many s at most; False: no longer. It
        does not block. `on_lost(lease, error)` is called once where it is lost; inside
        of an `async with` the task that entered it is cancelled as well. Raises
        LeaseLostError if it is over already, ConfigurationError if its ttl is too short
        to be renewed in time.
        """
        keep(self, keep_alive, on_lost)

    def _watch_body(self, kept: Kept) -> None:
        """Let a loss cancel the body that was entered by it: of an awaitable lease."""

    def _leave_body(self, error: BaseException | None) -> bool:
        """Leave a body; return whether a loss has cancelled it: of an awaitable one."""
        return False

    # --- extending --------------------------------------------------------------------

    def _under_way(self) -> dict[object, list[int]]:
        return extensions_of(self).under_way

    def _begin_extend(self, ttl: float | None, extension: object) -> Round:
        """Return the round to run; the caller takes `extension` out of `under_way`.

        It does so however the call ends, so that object is the caller's own: an
        interrupt in here must not leave one behind, which would bound all later ones.
        It does so by one call into C: an interrupt would come before the first line of
        any other.
        """
        driver = self._driver
        terms = self._asked() if ttl is None else driver.settings.terms(ttl)
        now_ns = driver.now_ns()
        if self._status is not None:
            raise LeaseLostError(self.resource, "not extended: it was released")
        if self._round.generation != driver.fork_generation():
            raise LeaseLostError(self.resource, "not extended: it is the parent's")
        if not (self._is_adopted() or self.is_valid):
            raise LeaseLostError(self.resource, "not extended: its validity is over")
        round = driver.engine.new_extension(self._round, terms)
        extensions_of(self).begin(round, extension, now_ns)
        return round

    def _end_extend(self, round: Round, extension: object) -> float:
        """Take the outcome, while the extension still counts as under way."""
        verdict = round.verdict
        if self._status is not None:
            raise LeaseLostError(self.resource, "not extended: it was released")
        is_in_time = self._is_adopted() or round.closed_ns < self._valid_until_ns
        if verdict is Verdict.WON and is_in_time:
            extensions_of(self).win(round, extension)
            return self.remaining()
        votes = votes_of(self._driver.engine, round)
        if verdict is Verdict.TAKEN:
            extensions_of(self).lose()
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
        if self._round.generation != self._driver.fork_generation():
            return None
        made: Extensions | Kept | None = self._round.lease_state
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

    def _check_exit(self, status: ReleaseStatus, left_ns: int, overrun_ns: int) -> None:
        if left_ns <= 0 or status is GONE:
            raise loss_at_exit(self, overrun_ns)

    def _loss(self) -> LeaseLostError | None:
        return loss_of(self)

    @shown
    def __repr__(self) -> str:
        state = "released" if self._status else f"{self.remaining():.3f} s left"
        return f"<{type(self).__name__} {self.resource!r}, {state}>"


def no_fence_text(is_fencing: bool) -> str:
    """Return why a lease has no number."""
    if is_fencing:
        return "fence: not known of an adopted lease; adopt(..., fence=lease.fence)"
    return "fence: leases have a number with FastRedlock(..., fencing=True) alone"


def end_releases(
    leases: list[BaseLease | None], rounds: list[Round | None]
) -> list[ReleaseStatus]:
    """Take the outcome of many releases: `_end_release` of each."""
    statuses: list[ReleaseStatus] = []
    for lease, round in zip(leases, rounds, strict=True):
        if lease is None or round is None:
            statuses.append(GONE)
        elif round.is_won:
            lease._status = RELEASED
            statuses.append(RELEASED)
        else:
            statuses.append(lease._end_release(round))
    return statuses


# --- whether it is lost ---------------------------------------------------------------

SLICE_NS = 1_000_000_000  # timers stop while the machine is suspended
WAS_RELEASED = "it was released"
IS_PARENTS = "it is the parent's"
NOT_KNOWN = "not known to be valid: it was adopted, and not extended since"
OVER = "lost: its validity is over"
BEFORE_END = "lost before the end of the with block"
OVERRUN = (
    "lost before the end of the with block: its validity (ttl {:g} s) was overrun by "
    "{:.3f} s"
)
ADVICE = "; give keep_alive=True, or a longer ttl"
KEY_GONE = "lost before the end of the with block: its key is gone: deleted, or taken"


def is_lost(lease: BaseLease) -> bool:
    """Return whether it ended otherwise than by a release; once so, it stays so.

    An adopted lease of which nothing is known yet is not.
    """
    made = lease._round.lease_state
    kept: Kept | None = None if made is None else made.kept
    if kept is not None and kept.is_lost:
        return True
    if lease._status is not None:
        return lease._status is lease._gone
    if lease.is_valid:
        return False
    if (
        lease._is_adopted()
        and lease._round.generation == lease._driver.fork_generation()
    ):
        return False
    if kept is not None:
        kept.count_lost()
    return True


def check(lease: BaseLease) -> None:
    """Raise LeaseLostError where the lease is over; no I/O."""
    if not lease.is_valid:
        raise loss_of(lease) or LeaseLostError(lease.resource, reason_of(lease))


def loss_of(lease: BaseLease) -> LeaseLostError | None:
    """Return, anew, the error by which a loss was reported; None where none was."""
    made = lease._round.lease_state
    kept: Kept | None = None if made is None else made.kept
    if kept is None or kept.watch is None or kept.watch.error is None:
        return None
    return LeaseLostError(*kept.watch.error.args)


def reason_of(lease: BaseLease) -> str:
    """Return why a lease is not valid."""
    if lease._round.generation != lease._driver.fork_generation():
        return IS_PARENTS
    if is_lost(lease):
        return OVER
    return NOT_KNOWN if lease._status is None else WAS_RELEASED


def loss_at_exit(lease: BaseLease, overrun_ns: int) -> LeaseLostError:
    """Return the error of a body that ended by so much too late; 0: not known."""
    reason = reason_at_exit(lease, overrun_ns)
    return loss_of(lease) or LeaseLostError(lease.resource, reason)


def reason_at_exit(lease: BaseLease, overrun_ns: int) -> str:
    """Return why a lease was not valid any more at the end of its body."""
    if lease._round.generation != lease._driver.fork_generation():
        return f"{BEFORE_END}: {IS_PARENTS}"
    if overrun_ns > 0:
        made = lease._round.lease_state
        advice = ADVICE if made is None or made.kept is None else ""
        return OVERRUN.format(lease.ttl, overrun_ns / 1e9) + advice
    if lease._status is not lease._gone and lease._is_adopted():
        return f"{BEFORE_END}: {NOT_KNOWN}"
    return KEY_GONE


class BaseLost:
    """The reading half of an event: a lease is lost; see `Lost`."""

    __slots__ = ("_lease",)

    def __init__(self, lease: BaseLease) -> None:
        self._lease = lease

    def is_set(self) -> bool:
        """Return whether the lease is lost, by the clock; does not block.

        False for one that was released while it was valid.
        """
        return is_lost(self._lease)

    def _is_over(self) -> bool:
        return self._lease._status is not None or is_lost(self._lease)

    def _left_ns(self, until_ns: int | None, now_ns: int) -> int:
        """Return how long to wait before looking again (ns); 0: time is up."""
        left_ns = SLICE_NS if until_ns is None else min(SLICE_NS, until_ns - now_ns)
        end_ns: int = self._lease._valid_until_ns
        if end_ns:
            left_ns = min(left_ns, max(end_ns - now_ns, 1))
        return max(left_ns, 0)

    def _until_ns(self, timeout: float | None) -> int | None:
        if timeout is None:
            return None
        now_ns: int = self._lease._driver.now_ns()
        return now_ns + int(timeout * 1e9)

    def _watch(self) -> Watch:
        return kept_of(self._lease).watched()

    @shown
    def __repr__(self) -> str:
        state = "set" if self.is_set() else "unset"
        return f"<{type(self).__name__} of {self._lease.resource!r}: {state}>"
