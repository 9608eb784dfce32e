"""What a lease was extended by: made at its first extend, for most leases never."""

from __future__ import annotations

TYPE_CHECKING = False  # as typing's, whose import would be a third of ours
if TYPE_CHECKING:
    from ._core import Round, Terms
    from .lease import BaseLease


def extensions_of(lease: BaseLease) -> Extensions:
    """Return the lease's Extensions; the first call makes them.

    Threads and signal handlers may make several at the same time: the first to be
    appended is everybody's. (A lock would stay locked in a child forked meanwhile.)
    """
    if not lease._extensions:
        lease._extensions.append(Extensions(lease._round.terms))
    return lease._extensions[0]


class Extensions:
    """Hold the times that the masters were asked for since the lease was taken.

    From its first write on an extension may have reached a master, also where we never
    hear of it, and those of several threads may arrive in any order: the lease ends
    with the earliest of all that are under way.
    """

    __slots__ = ("_bound_ns", "_unanswered", "longest_terms", "terms", "under_way")

    def __init__(self, terms: Terms) -> None:
        self.terms = terms  # last asked for
        self.longest_terms = terms  # how long a key can live, confirmed or not
        self.under_way: set[object] = set()
        self._bound_ns = 0
        self._unanswered: tuple[Round, ...] = ()

    def begin(self, round: Round, extension: object, now_ns: int) -> int:
        """Count a round that is about to be run; return when the lease ends by it."""
        terms = round.terms
        bound_ns = now_ns + terms.ttl_ms * 1_000_000 - terms.drift_ns
        self.terms = terms
        self._unanswered = (
            *(old for old in self._unanswered if old.may_hold or not old.is_opened),
            round,
        )
        if terms.ttl_ms > self.longest_terms.ttl_ms:
            self.longest_terms = terms
        if not self.under_way:
            self._bound_ns = bound_ns
        self.under_way.add(extension)
        self._bound_ns = min(self._bound_ns, bound_ns)
        return self._bound_ns

    def valid_until_ns(self, round: Round) -> int:
        """Return until when a won round holds, whatever of others still arrives.

        A connection that was given up may deliver late what it was given, after what
        its successor delivered: a shorter extension would then have the last word. It
        counts where a quorum cannot be made of masters that owe no answer to one.
        """
        shorter = [
            old
            for old in self._unanswered
            if old.may_hold and old.terms.ttl_ms < round.terms.ttl_ms
        ]
        if not shorter:
            return self._bound_ns
        owing = 0
        for old in shorter:
            owing |= old.may_hold
        votes = round.votes()
        firm = sum(
            vote.name == "GRANTED" and not owing >> index & 1
            for index, (vote, _, _) in enumerate(votes)
        )
        if firm > len(votes) // 2:
            return self._bound_ns
        terms = min((old.terms for old in shorter), key=lambda terms: terms.ttl_ms)
        by_shortest_ns = round.opened_ns + terms.ttl_ms * 1_000_000 - terms.drift_ns
        return min(self._bound_ns, by_shortest_ns)
