"""The validity of a lease that was extended or is kept: one record; most have none.

The rules by which extensions and renewals count are in src_cython/calls/fields.pyx,
for each is one step for all threads. Here is all else: which masters make an extension
firm, what follows from a loss or a release, and who is notified.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from .._core import (
    Engine,
    LeaseFields,
    Round,
    ValidityFields,
    Vote,
    has_quorum,
    is_answered,
    set_first,
)
from ..errors import ConfigurationError, FastRedlockError, LeaseLostError

NEVER_KEPT_NS, FOREVER_NS = 0, (1 << 63) - 1  # of `until_ns`
KEPT = (
    "extend: this lease is kept, so it is renewed by its own ttl; keep_alive(False) "
    "ends that"
)


def validity_of(lease: LeaseFields) -> Validity:
    """Return the record of a lease; the first call makes it, and keeps nothing yet.

    Threads and signal handlers may make several at the same time: the first to be kept
    is everybody's.
    """
    made: Validity | None = lease._round.lease_state
    return made or set_first(lease._round, "lease_state", Validity(lease))


def extended(lease: LeaseFields) -> Validity:
    """Return the record of a lease, with tables of extensions."""
    validity = validity_of(lease)
    validity.begin_tables()
    return validity


class Validity(ValidityFields):
    """Refer weakly to one lease, by a call, and hold its times."""

    __slots__ = ()

    # As the core has them; a checker of types would infer narrower ones from here.
    until_ns: int
    is_lost: bool
    on_lost: Any

    # --- extensions by hand -----------------------------------------------------------

    def begin(self, round: Round, extension: object, now_ns: int) -> None:
        """Count a round that is about to be run."""
        for old in tuple(self.unanswered):
            if is_answered(old):
                self.unanswered.discard(old)
        if not self.begin_extension(round, extension, now_ns):
            raise ConfigurationError(KEPT)
        self.nudge()

    def win(self, round: Round) -> None:
        """Let a won round count, however late the others arrive.

        A connection that was given up may deliver a command late, after those of its
        successor: a shorter extension would then be the last. It counts where no quorum
        can be made of masters that owe no reply to a shorter one.
        """
        owing = [(old.terms, old.may_hold) for old in tuple(self.unanswered)]
        owing.append((self.awaited_terms, self.awaited))
        awaited, most_ns = 0, FOREVER_NS
        for terms, masters in owing:
            if masters and terms.ttl_ms < round.terms.ttl_ms:
                awaited |= masters
                most_ns = min(most_ns, terms.ttl_ms * 1_000_000 - terms.drift_ns)
        if awaited and is_firm(round, awaited):
            most_ns = FOREVER_NS
        self.win_extension(round, most_ns)
        self.nudge()

    def nudge(self) -> None:
        """Let those look again that report its loss, or wait for it."""
        lease = self()
        if lease is not None and (self.on_lost is not None or self.is_kept):
            lease._driver.keep(self)
        self.wake()

    # --- renewals ---------------------------------------------------------------------

    def renew(self, engine: Engine, now_ns: int, time_ns: int) -> Round | None:
        """Return the round of a renewal, to be run at once; None: kept no longer."""
        lease = self()
        if lease is None:
            return None
        round = engine.new_extension(lease._round, self.terms)
        if time_ns < round.terms.timeout_ns:
            round.left_ns = time_ns
        return round if self.begin_renewal(round, now_ns) else None

    # --- its end ----------------------------------------------------------------------

    def lose(self, error: LeaseLostError) -> bool:
        """Count as lost from now on, and wake who waits; False: it was before."""
        if set_first(self, "error", error) is not error:
            return False
        self.is_lost = True
        self.wake()
        lease = self()
        if self.body is not None and lease is not None and lease._status is None:
            self.body.cancel()  # a body that releases it has ended its work itself
        return True

    def released(self) -> None:
        """Take note that its release has begun: no renewal any more.

        No report but of a loss before that, of which nobody was notified.
        """
        lease, until_ns = self(), self.valid_until_ns
        if (
            lease is not None
            and self.was_kept
            and (
                lease._driver.now_ns() >= until_ns
                and (until_ns > 0 or self.is_lost or lease._round.is_opened)
            )
        ):
            self.report(lease)
            self.is_lost = True
        self.end_renewals()
        self.wake()

    def ended(self, release: Round, is_gone: bool) -> None:
        """Take the outcome of a release that was not won: the first one counts."""
        lease = self()
        if is_gone and lease is not None:
            self.report(lease, release)
        self.on_lost = None  # gone later, it was deleted by that release

    def report(self, lease: Any, release: Round | None = None) -> None:
        """Have a loss reported by the keeper: the release has seen it first."""
        if self.on_lost is not None:
            with suppress(FastRedlockError):  # no thread can be started
                lease._driver.keep(self).report(self, release)

    def wake(self) -> None:
        """Wake all that wait for its end."""
        while self.waiters:
            try:
                wake = self.waiters.pop()
            except IndexError:  # another thread was at it
                return
            wake()


def is_firm(round: Round, awaited: int) -> bool:
    """Return whether a quorum granted it that owes no reply to a shorter one."""
    firm = (
        vote is Vote.GRANTED and not awaited >> index & 1
        for index, (vote, _, _) in enumerate(round.votes())
    )
    return has_quorum(firm, round.electorate)
