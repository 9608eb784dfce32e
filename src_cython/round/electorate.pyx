# The electorate: which masters vote, and which sets of them are a quorum. Pure.
#
# A set of masters is a uint64, one bit for each, in configured order. A quorum is more
# than half of the configured masters, never of the reachable ones. So two quorums share
# a master, and that one votes once: therefore two rounds can't win one key.
#
# While the list of masters changes, clients with the old list, with both, and later
# with the new one run at the same time. Those with both need more than half of the old
# list and more than half of the new one (Ongaro's joint consensus, Raft, section 6): so
# their quorums share a master with each quorum of either list. A master of both lists
# votes once, and counts in both. A plain list is both lists at once.
#
# Nothing else knows the number, neither in the core nor in the shell: whoever wants to
# know whether a round is won, or can be, asks whether a set `wins`. A set can win as
# long as it would with those that are still to come.


@cython.final
cdef class Electorate:
    """The masters that vote, and which sets of them are a quorum."""

    cdef readonly int count
    cdef readonly uint64_t members
    cdef readonly uint64_t first     # the masters of the list, or of the old one
    cdef readonly uint64_t second    # ...of the new one; a plain list: the same
    cdef readonly int quorum         # how many of the first are needed...
    cdef int quorum_of_second        # ...and of the second

    def __init__(self, int count, uint64_t first=0, uint64_t second=0):
        if not 0 < count <= MAX_MASTERS:
            raise ValueError(f"1 to {MAX_MASTERS} masters, not {count}")
        self.count = count
        self.members = ~<uint64_t>0 >> (MAX_MASTERS - count)
        self.first = first or self.members
        self.second = second or self.first
        if self.first | self.second != self.members:
            raise ValueError("each master is in one of the lists, and no other")
        self.quorum = majority_of(self.first)
        self.quorum_of_second = majority_of(self.second)

    @property
    def needed(self):
        """How many are needed, for people."""
        if self.first == self.second:
            return str(self.quorum)
        return f"{self.quorum} of the old list and {self.quorum_of_second} of the new"

    def only_in(self, int vote):
        """Return "old" or "new" for a master that is in one of two lists; else None."""
        if not set_has(self.second, vote):
            return "old"
        return None if set_has(self.first, vote) else "new"

    def wins(self, uint64_t masters):
        """Return whether a set of masters, a bit for each, is a quorum."""
        return electorate_wins(self, masters)


cdef inline int majority_of(uint64_t members) noexcept:
    return bit_count(members) // 2 + 1


cdef inline int electorate_lacks(Electorate self, uint64_t masters) noexcept:
    # How many more are needed, at the least; none: the set is a quorum. Bits of others
    # do not count, so that ~set is the rest.
    cdef int lacks = self.quorum - bit_count(masters & self.first)
    if self.second != self.first:
        lacks = max(lacks, self.quorum_of_second - bit_count(masters & self.second))
    return lacks


cdef inline bint set_has(uint64_t masters, int master) noexcept:
    return (masters >> master) & 1


cdef inline uint64_t set_of(int master) noexcept:
    return <uint64_t>1 << master


cdef inline bint electorate_wins(Electorate self, uint64_t masters) noexcept:
    return electorate_lacks(self, masters) <= 0


def has_quorum(voted, Electorate electorate not None):
    """Return whether a quorum did. voted: whether it did, for each of the electorate's
    masters, in that order."""
    cdef uint64_t masters = 0
    cdef int i
    for i, did in enumerate(voted):
        masters |= <uint64_t>bool(did) << i
    return electorate_wins(electorate, masters)
