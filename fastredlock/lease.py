"""One grant of a resource: how long it is ours, and how it is given back.

`BaseLease` is what the blocking and the awaitable lease share: arithmetic on integers
of one clock, and no I/O. It hands out rounds, and reads them once a driver ran them.
"""

from __future__ import annotations

from enum import Enum
from types import TracebackType

from ._core import enter, guard_exit, guard_release
from ._extensions import Extensions, extensions_of
from .errors import LeaseLostError
from .votes import MasterVote, Resource, votes_of

TYPE_CHECKING = False  # as typing's, whose import would be a third of ours
if TYPE_CHECKING:
    from typing import Any

    from ._core import Round
    from .client import FastRedlock


class ReleaseStatus(Enum):
    """How a release ended."""

    RELEASED = "released"  # a quorum deleted our key
    GONE = "gone"  # a quorum answered, too few still had it: expired, or taken
    UNKNOWN = "unknown"  # fewer than a quorum answered: it may stand until its ttl


# Reading a member through its class costs more than the rest of a release in Python.
RELEASED, GONE, UNKNOWN = ReleaseStatus


class BaseLease:
    """Hold one grant; see `Lease`."""

    __slots__ = (
        "__weakref__",
        "_locks",
        "_round",
        "_status",
        "resource",
    )

    resource: Resource
    _unknown = UNKNOWN  # for context.pyx

    def __init__(self, locks: Any, resource: Resource, round: Round) -> None:
        self._locks = locks
        self.resource = resource
        self._round = round
        self._status: ReleaseStatus | None = None

    @property
    def token(self) -> bytes:
        """The value stored on the masters: who knows it can release the lease."""
        return self._round.token

    @property
    def ttl(self) -> float:
        """The ttl (s) the masters were last asked for."""
        return self._asked().terms.ttl_ms / 1000

    def _asked(self) -> Extensions | Round:
        return self._round.lease_state or self._round

    @property
    def votes(self) -> tuple[MasterVote, ...]:
        """What each master said to the acquire, in configured order.

        A round ends at a quorum: those that came later count from when they are read.
        """
        return votes_of(self._locks._engine, self._round)

    def remaining(self) -> float:
        """Return the validity left in s, 0.0 when it is over; does not block.

        Sound against every delay of this process, because drift and the time of the
        round are taken off and the clock goes on during suspend. It is no fence: what
        you send after asking may arrive after it is over.
        """
        if self._round.generation != self._locks._fork_generation():
            return 0.0  # a forked child has none of its parent's leases
        left_ns: int = self._valid_until_ns - self._locks._now_ns()
        return left_ns / 1e9 if left_ns > 0 else 0.0

    @property
    def _valid_until_ns(self) -> int:
        if self._status is not None:
            return 0
        made: Extensions | None = self._round.lease_state
        if made is not None:
            return min(made.validity_ns)
        return self._round.valid_until_ns

    @property
    def is_valid(self) -> bool:
        """Whether validity is left."""
        return self.remaining() > 0.0

    def _begin_extend(self, ttl: float | None, extension: object) -> Round:
        """Return the round to run; the caller takes `extension` out of `under_way`.

        It does so whatever happens, so that object is the caller's own: an interrupt
        in here must not leave one behind, which would bound all later ones. It does so
        by one call into C: an interrupt would come before the first line of any other.
        """
        locks = self._locks
        terms = self._asked().terms if ttl is None else locks._settings.terms(ttl)
        now_ns = locks._now_ns()
        if self._status is not None:
            raise LeaseLostError(self.resource, "not extended: it was released")
        if self._round.generation != locks._fork_generation():
            raise LeaseLostError(self.resource, "not extended: it is the parent's")
        if not (self._is_adopted() or self.is_valid):
            raise LeaseLostError(self.resource, "not extended: its validity is over")
        round: Round = locks._new_extension(self._round, terms)
        extensions_of(self).begin(round, extension, now_ns)
        return round

    def _end_extend(self, round: Round, extension: object) -> float:
        """Take the outcome, while the extension still counts as under way."""
        verdict = round.verdict.name
        if self._status is not None:
            raise LeaseLostError(self.resource, "not extended: it was released")
        is_in_time = self._is_adopted() or round.closed_ns < self._valid_until_ns
        if verdict == "WON" and is_in_time:
            extensions_of(self).win(round, extension)
            return self.remaining()
        votes = votes_of(self._locks._engine, round)
        if verdict == "TAKEN":
            extensions_of(self).validity_ns = [0]
            reason = "lost: expired or taken by another"
        elif verdict == "UNREACHABLE":
            reason = (
                "extension not confirmed by a quorum, "
                f"valid for {self.remaining():.3f} s more"
            )
        else:
            reason = "extended too late: its validity was over"
        raise LeaseLostError(self.resource, reason, votes, self.remaining())

    def _is_adopted(self) -> bool:
        # Taken by another process: nothing is known of its validity. A quorum that
        # still has the token has had it all the time, so an extension is sound.
        return not self._round.is_opened and self._valid_until_ns == 0

    def _begin_release(self) -> Round | None:
        """Count as released from now on; return the round to run, None if none is."""
        if self._status is not None and self._status is not UNKNOWN:
            return None
        if self._round.generation != self._locks._fork_generation():
            return None
        release = self._new_release()
        self._status = UNKNOWN  # until a quorum has confirmed it
        return release

    def _new_release(self) -> Round:
        made: Extensions | None = self._round.lease_state
        terms = self._round.terms if made is None else made.longest_terms
        release: Round = self._locks._engine.new_release(self._round, terms)
        return release

    def _end_release(self, round: Round) -> ReleaseStatus:
        if round.is_won:
            self._status = RELEASED
        elif round.verdict.name == "TAKEN":
            self._status = GONE
        return self._status or UNKNOWN

    def _is_lost_at_exit(self, was_valid: bool, status: ReleaseStatus) -> bool:
        return not was_valid or status is GONE

    def __repr__(self) -> str:
        state = "released" if self._status else f"{self.remaining():.3f} s left"
        return f"<{type(self).__name__} {self.resource!r}, {state}>"


def end_releases(
    leases: list[BaseLease | None], rounds: list[Round | None]
) -> list[ReleaseStatus]:
    """Take the outcome of many releases: `_end_release` of each."""
    told: list[ReleaseStatus] = []
    for lease, round in zip(leases, rounds, strict=True):
        if lease is None or round is None:
            told.append(GONE)
        elif round.is_won:
            lease._status = RELEASED
            told.append(RELEASED)
        else:
            told.append(lease._end_release(round))
    return told


class Lease(BaseLease):
    """Hold one grant of a resource until it is released or its validity is over.

    Any thread may use it, not only the one that took it. As a context manager it is
    released on leaving, with LeaseLostError if it was lost before, unless the body
    raised: then the body's error stands.
    """

    __slots__ = ()

    _locks: FastRedlock

    def extend(self, ttl: float | None = None) -> float:
        """Set the ttl (s, default: as before) anew and return the new validity (s).

        Blocks for one round. Raises LeaseLostError if a quorum does not have our key
        any more (stop the work), or did not confirm in time (the error's `remaining`
        says how long the old validity still stands). Never re-creates a lost key.
        """
        extension, under_way = object(), extensions_of(self).under_way
        try:
            round = self._begin_extend(ttl, extension)
            self._locks._run(round)
            return self._end_extend(round, extension)
        finally:
            under_way.pop(extension, None)

    @guard_release
    def release(self) -> ReleaseStatus:
        """Delete our key on every master, and only ours; return how that ended.

        Blocks for one round. A lease that is gone already is no error: GONE. UNKNOWN
        may be tried again, and is sent by itself to masters that reconnect. Interrupted
        at any point, it is sent all the same.
        """
        round = self._begin_release()
        if round is None:
            return GONE
        self._locks._run(round)
        return self._end_release(round)

    __enter__ = enter

    @guard_exit
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._status is not None:
            return  # the body released it
        was_valid = self.is_valid
        try:
            status = self.release()
        except Exception:
            if error is None:
                raise
            return  # the body's error says more
        if error is None and self._is_lost_at_exit(was_valid, status):
            raise LeaseLostError(
                self.resource,
                "lost before the end of the with block: validity over, or taken",
            )
