"""The validity of an extended lease; most leases are never extended, and have none.

A lease that is kept has a `Kept` in its place, which makes one of these as soon as the
lease is extended by hand.
"""

from __future__ import annotations

from typing import Any

from .._core import LeaseFields, Round, Terms, Vote


def extensions_of(lease: LeaseFields) -> Extensions:
    """Return the lease's Extensions; the first call makes them.

    Threads and signal handlers may make several at the same time: the first to be kept
    is everybody's. (A lock would stay locked in a child forked meanwhile.)
    """
    made: Any = lease._round.lease_state
    if made is None:
        made = Extensions(lease._round.terms, lease._round.valid_until_ns)
        made = lease._round.keep_lease_state(made)
    if isinstance(made, Extensions):
        return made
    extensions: Extensions = made.to_extensions(lease._round.terms)
    return extensions


class Extensions:
    """Hold the times that the masters were asked for since the lease was taken.

    From its first write on an extension may have reached a master, also where no reply
    comes, and those of several threads may arrive in any order: the lease ends with the
    earliest of all that are under way.

    Threads share this without a lock, in single steps that no other thread can divide.
    A validity is a list of bounds, which holds until the earliest: each extension that
    begins adds its bound to every list that counts now or may count soon, and nothing
    is ever taken out of one.
    """

    __slots__ = (
        "end_notices",
        "kept",
        "longest_terms",
        "stays_until_ns",
        "terms",
        "unanswered",
        "under_way",
        "validity_ns",
    )

    def __init__(self, terms: Terms, valid_until_ns: int) -> None:
        self.terms: Terms = terms  # last asked for
        self.longest_terms: Terms = terms  # how long a key can live, confirmed or not
        self.validity_ns: list[int] = [valid_until_ns]  # the bounds that count now
        self.under_way: dict[object, list[int]] = {}  # those that count if it is won
        self.unanswered: set[Round] = set()
        # Taken out by the one call that notifies an observer of the lease's end.
        self.end_notices: list[bool] = [True]
        self.kept: Any = None  # whether, and how, the lease is kept
        self.stays_until_ns: int = 0  # not released before: `at_least` of a lock

    @property
    def extensions(self) -> Extensions:
        """Itself: a Kept that was there first has it as an attribute."""
        return self

    @property
    def valid_until_ns(self) -> int:
        """The end of the validity, whichever of the bounds comes first."""
        return min(self.validity_ns)

    def released(self) -> None:
        """Take note that the release of the lease has begun."""
        if self.kept is not None:
            self.kept.released()

    def ended(self, release: Round, is_gone: bool) -> None:
        """Take the outcome of a release that was not won."""
        if self.kept is not None:
            self.kept.ended(release, is_gone)

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
        self.validity_ns.append(bound_ns)
        if self.kept is not None and round is not self.kept.renewal:
            self.kept.nudge()

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
        self.validity_ns = bounds
        if self.kept is not None and round is not self.kept.renewal:
            self.kept.nudge()

    def lose(self) -> None:
        """Count as lost, by a quorum. Who waits for that is notified at once."""
        self.validity_ns = [0]
        if self.kept is not None:
            self.kept.nudge()


def is_firm(round: Round, shorter: list[Round]) -> bool:
    """Return whether a quorum granted it that owes no reply to a shorter one."""
    awaited = 0
    for old in shorter:
        awaited |= old.may_hold
    votes = round.votes()
    firm = sum(
        vote is Vote.GRANTED and not awaited >> index & 1
        for index, (vote, _, _) in enumerate(votes)
    )
    return firm > len(votes) // 2
