"""What a lease was extended by: made at its first extend, for most leases never."""

from __future__ import annotations

TYPE_CHECKING = False  # as typing's, whose import would be a third of ours
if TYPE_CHECKING:
    from ._core import Round, Terms
    from .lease import BaseLease


def extensions_of(lease: BaseLease) -> Extensions:
    """Return the lease's Extensions; the first call makes them.

    Threads and signal handlers may make several at the same time: the first to be kept
    is everybody's. (A lock would stay locked in a child forked meanwhile.)
    """
    made: Extensions | None = lease._round.lease_state
    if made is None:
        made = Extensions(lease._round.terms, lease._round.valid_until_ns)
        made = lease._round.keep_lease_state(made)
    return made


class Extensions:
    """Hold the times that the masters were asked for since the lease was taken.

    From its first write on an extension may have reached a master, also where we never
    hear of it, and those of several threads may arrive in any order: the lease ends
    with the earliest of all that are under way.

    Threads share this without a lock, in single steps that no other thread can divide.
    A validity is a list of bounds, which holds until the earliest: those who begin an
    extension add theirs to every list that counts now or may count soon, and nothing
    is ever taken out of one.
    """

    __slots__ = ("_unanswered", "longest_terms", "terms", "under_way", "validity_ns")

    def __init__(self, terms: Terms, valid_until_ns: int) -> None:
        self.terms = terms  # last asked for
        self.longest_terms = terms  # how long a key can live, confirmed or not
        self.validity_ns = [valid_until_ns]  # what counts now
        self.under_way: dict[object, list[int]] = {}  # what counts if that one is won
        self._unanswered: set[Round] = set()

    def begin(self, round: Round, extension: object, now_ns: int) -> None:
        """Count a round that is about to be run."""
        terms = round.terms
        bound_ns = now_ns + terms.ttl_ms * 1_000_000 - terms.drift_ns
        self.terms = terms
        if terms.ttl_ms > self.longest_terms.ttl_ms:
            self.longest_terms = terms
        for old in tuple(self._unanswered):
            if old.is_opened and not old.may_hold:
                self._unanswered.discard(old)
        self._unanswered.add(round)
        # In the table before it looks at the others: of two, one sees the other. What
        # counts comes last: who is not in the table any more has written that.
        bounds = self.under_way[extension] = [bound_ns]
        for others in tuple(self.under_way.values()):
            if others is not bounds:
                others.append(bound_ns)
                bounds.append(others[0])
        self.validity_ns.append(bound_ns)

    def win(self, round: Round, extension: object) -> None:
        """Let a won round count, whatever of others still arrives.

        A connection that was given up may deliver late what it was given, after what
        its successor delivered: a shorter extension would then have the last word. It
        counts where a quorum cannot be made of masters that owe no answer to one.
        """
        bounds = self.under_way[extension]
        shorter = [
            old
            for old in tuple(self._unanswered)
            if old.may_hold and old.terms.ttl_ms < round.terms.ttl_ms
        ]
        if shorter and not is_firm(round, shorter):
            terms = min((old.terms for old in shorter), key=lambda terms: terms.ttl_ms)
            ttl_ns = terms.ttl_ms * 1_000_000 - terms.drift_ns
            bounds.append(round.opened_ns + ttl_ns)
        self.validity_ns = bounds


def is_firm(round: Round, shorter: list[Round]) -> bool:
    """Return whether a quorum that granted it owes no answer to a shorter one."""
    owing = 0
    for old in shorter:
        owing |= old.may_hold
    votes = round.votes()
    firm = sum(
        vote.name == "GRANTED" and not owing >> index & 1
        for index, (vote, _, _) in enumerate(votes)
    )
    return firm > len(votes) // 2
