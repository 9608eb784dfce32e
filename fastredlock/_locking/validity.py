"""The validity of a lease that was extended or is kept: one record; most have none.

From its first write on an extension may have reached a master, also where no reply
comes, and those of several threads may arrive in any order: the lease ends with the
earliest of all that are under way. So its validity is a list of bounds, which holds
until the earliest: each extension that begins adds its bound to every list that counts
now or may count soon, and nothing is ever taken out of one.

As long as nobody extends a kept lease by hand, all of its renewals ask for the same
ttl, so a later one never shortens an earlier one: the end of the validity is one
number, and there are no bounds. The first extension by hand makes them, and from then
on the renewals count in them like any other.

Threads share this without a lock, in single steps that no other thread can divide (a
lock would stay locked in a child forked meanwhile): a renewal is named in `renewal`
before its keeper looks for bounds, and an extension by hand makes bounds and looks at
`renewal` afterwards; so of two, one sees the other.
"""

from __future__ import annotations

from collections import namedtuple
from contextlib import suppress
from typing import Any

from .._core import LeaseFields, Round, ValidityFields, Vote, has_quorum, set_first
from ..errors import FastRedlockError, LeaseLostError

NEVER_KEPT_NS, FOREVER_NS = 0, (1 << 63) - 1  # of `until_ns`

# Renewals that some masters never answered: they may still be executed there. Fields
# with types would take a millisecond at import.
Past = namedtuple("Past", ("terms", "may_hold", "is_opened"), defaults=(True,))


def validity_of(lease: LeaseFields) -> Validity:
    """Return the record of a lease; the first call makes it, and keeps nothing yet.

    Threads and signal handlers may make several at the same time: the first to be kept
    is everybody's.
    """
    made: Validity | None = lease._round.lease_state
    return made or set_first(lease._round, "lease_state", Validity(lease))


def extended(lease: LeaseFields) -> Validity:
    """Return the record, with bounds, in which a renewal under way counts."""
    validity = validity_of(lease)
    validity.begin_bounds()
    renewal = validity.renewal  # read once: its keeper may let go of it meanwhile
    if renewal is not None:
        validity._count(renewal)
    if validity.awaited:
        validity.unanswered.add(Past(lease._round.terms, validity.awaited))
    return validity


class Validity(ValidityFields):
    """Refer weakly to one lease, by a call, and hold its times.

    Those of renewals are changed by its keeper alone, but for `until_ns`. There are
    thousands of them: so what few need is made when it is used.
    """

    __slots__ = ()

    # As the core has them; a checker of types would infer narrower ones from here.
    validity_ns: int
    until_ns: int
    failed: Round | None
    awaited: int
    is_lost: bool
    on_lost: Any

    # --- extensions -------------------------------------------------------------------

    def begin(self, round: Round, extension: object, now_ns: int) -> None:
        """Count a round that is about to be run."""
        terms = round.terms
        bound_ns = now_ns + terms.ttl_ms * 1_000_000 - terms.drift_ns
        self.terms = terms
        if terms.ttl_ms > self.longest_terms.ttl_ms:
            self.longest_terms = terms
        for old in tuple(self.unanswered):
            if not old.may_hold and (old.is_opened or old.is_finished):
                self.unanswered.discard(old)
        self.unanswered.add(round)
        # In the table before it looks at the others: of two, one sees the other. The
        # bounds that count now come last: an extension that is not in the table any
        # more has written them.
        bounds = self.under_way[extension] = [bound_ns]
        for others in tuple(self.under_way.values()):
            if others is not bounds:
                others.append(bound_ns)
                bounds.append(others[0])
        self.bounds.append(bound_ns)  # type: ignore[union-attr]
        if round is not self.renewal:
            self.nudge()

    def win(self, round: Round, extension: object) -> None:
        """Let a won round count, however late the others arrive.

        A connection that was given up may deliver a command late, after those of its
        successor: a shorter extension would then be the last. It counts where no quorum
        can be made of masters that owe no reply to a shorter one.
        """
        bounds = self.under_way[extension]
        shorter = [
            old
            for old in tuple(self.unanswered)
            if old.may_hold and old.terms.ttl_ms < round.terms.ttl_ms
        ]
        if shorter and not is_firm(round, shorter):
            terms = min((old.terms for old in shorter), key=lambda terms: terms.ttl_ms)
            ttl_ns = terms.ttl_ms * 1_000_000 - terms.drift_ns
            bounds.append(round.opened_ns + ttl_ns)
        self.bounds = bounds
        if round is not self.renewal:
            self.nudge()

    def end_now(self) -> None:
        """End it: an extension by hand has found the lease lost, by a quorum."""
        self.bounds = [0]
        self.nudge()

    def nudge(self) -> None:
        """Let the keeper, and those that wait, look again: it was extended by hand."""
        lease = self()
        is_kept = self.on_lost is not None or self.until_ns != NEVER_KEPT_NS
        if lease is not None and is_kept:
            lease._driver.keep(self)
        self.wake()

    # --- renewals, by the keeper ------------------------------------------------------

    def begin_renewal(self, renewal: Round, at_ns: int) -> None:
        """Count a renewal that is about to be run; in the bounds where there are."""
        before = self.renewal
        if before is not None and before is not renewal:
            self.let_go(before)
        self.renewal = renewal
        if self.bounds is not None:
            self.begin(renewal, renewal, at_ns)

    def _count(self, renewal: Round) -> None:
        """Count a renewal that began before there were bounds."""
        self.unanswered.add(renewal)
        if not renewal.closed_ns:
            bound_ns = renewal.valid_until_ns or self.valid_until_ns
            self.under_way.setdefault(renewal, [bound_ns])
            if renewal.closed_ns:  # its keeper may have looked before
                self.under_way.pop(renewal, None)

    def win_renewal(self, renewal: Round) -> None:
        """Let a renewal that was won in time count."""
        self.failed = None
        if self.bounds is None:
            self.validity_ns = renewal.valid_until_ns
        elif renewal in self.under_way:
            self.win(renewal, renewal)

    def end_renewal(self, renewal: Round) -> None:
        """Count a renewal as ended, however it did."""
        if self.bounds is not None:
            self.under_way.pop(renewal, None)

    def let_go(self, renewal: Round) -> None:
        """Let go of a renewal that ended some time ago."""
        if self.bounds is None or renewal not in self.unanswered:
            self.awaited |= renewal.may_hold
        if self.renewal is renewal:
            self.renewal = None

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
        self.until_ns = NEVER_KEPT_NS
        keeper = None if lease is None else lease._driver.keeper
        if keeper is not None and self.was_kept:
            keeper.drop(self)
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


def is_firm(round: Round, shorter: list[Round]) -> bool:
    """Return whether a quorum granted it that owes no reply to a shorter one."""
    awaited = 0
    for old in shorter:
        awaited |= old.may_hold
    return has_quorum(
        vote is Vote.GRANTED and not awaited >> index & 1
        for index, (vote, _, _) in enumerate(round.votes())
    )
