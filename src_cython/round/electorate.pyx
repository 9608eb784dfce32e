# The electorate: which masters vote, and which sets of them are a quorum. Pure.
#
# A set of masters is a uint64, one bit for each, in configured order. A quorum is more
# than half of the configured masters, never of the reachable ones. So two quorums share
# a master, and that one votes once: therefore two rounds can't win one key.
#
# Nothing else knows the number, neither in the core nor in the shell: whoever wants to
# know whether a round is won, or can be, asks whether a set `wins`. A set can win as
# long as it would with those that are still to come.


@cython.final
cdef class Electorate:
    """The masters that vote, and which sets of them are a quorum."""

    cdef readonly int count
    cdef readonly int quorum         # how many are needed: for people
    cdef readonly uint64_t members

    def __init__(self, int count):
        if not 0 < count <= MAX_MASTERS:
            raise ValueError(f"1 to {MAX_MASTERS} masters, not {count}")
        self.count = count
        self.quorum = count // 2 + 1
        self.members = ~<uint64_t>0 >> (MAX_MASTERS - count)

    def wins(self, uint64_t masters):
        """Return whether a set of masters, a bit for each, is a quorum."""
        return electorate_wins(self, masters)


cdef inline int electorate_lacks(Electorate self, uint64_t masters) noexcept:
    # How many more are needed, at the least; 0: the set is a quorum. Bits of others do
    # not count, so that ~set is the rest.
    return max(0, self.quorum - bit_count(masters & self.members))


cdef inline bint set_has(uint64_t masters, int master) noexcept:
    return (masters >> master) & 1


cdef inline uint64_t set_of(int master) noexcept:
    return <uint64_t>1 << master


cdef inline bint electorate_wins(Electorate self, uint64_t masters) noexcept:
    return electorate_lacks(self, masters) == 0


def has_quorum(voted, Electorate electorate=None):
    """Return whether a quorum did. voted: whether it did, for each of the configured
    masters, in that order. electorate: which masters these are; None: plain ones."""
    cdef uint64_t masters = 0
    cdef int i
    cdef list each = list(voted)
    if not each:
        return False
    if electorate is None:
        electorate = Electorate(len(each))
    for i in range(len(each)):
        masters |= <uint64_t>bool(each[i]) << i
    return electorate_wins(electorate, masters)
