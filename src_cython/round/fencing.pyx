# The number of a grant, its fence: it grows with every grant of a resource, so that a
# storage can refuse the late write of a holder that was paused. Pure.
#
# Theory of operation. Each master keeps the last number of each resource. An ACQUIRE
# brings a proposal, p; a master that is free sets the key and answers f, the larger one
# of p and its last number + 1. F is the largest f of the masters that granted when they
# were a quorum first.
#
#   a quorum answered F itself    the round is won, and F is its number: no second write
#   else                          F is written to those that answered less, where our
#                                 key still stands (write_fence). Their cells are
#                                 PENDING again, and the round is open until a quorum
#                                 has F: for as long again, inside its validity (judge)
#
# So a quorum has F, or more, while our key stands there: `told` is what a master is
# known to have. The quorum of every later grant shares a master with it, which sets
# that key after ours has gone, and answers more than F. (tests/model tries all orders.)
#
# A master that answers the SET later is written to then. Only those that granted are,
# and only where the token stands: a number that was written elsewhere would be behind
# the SET of a round that is under way there, and would prove nothing. A connection that
# is lost meanwhile is no matter: the repeated SET brings F as its proposal.
#
# From below: round_note (judge).

cimport cython
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free

cdef enum:
    FENCE_LIFE_MS = 86_400_000       # of a number, beyond the ttl of its grant

cdef int64_t FENCE_MOST = 9_007_199_254_740_991      # of Lua's numbers: 2^53 - 1

cdef str NOT_WRITTEN = "granted, and did not confirm its number (fence)"


@cython.final
@cython.internal
@cython.freelist(16)
cdef class Fencing:
    """The numbers of one ACQUIRE: proposed, told by each master, and its own."""

    cdef tuple proposal          # the number that a master sets at the least, and its
    #                              life in ms: the last arguments of the scripts
    cdef int64_t proposed        # p
    cdef int64_t fence           # F; 0: there is no quorum yet
    cdef uint64_t asked          # the masters that were sent it
    cdef bint is_reported        # in the engine's list, as one to be written
    cdef int64_t *told           # `few`, or allocated; 0: nothing yet
    cdef int64_t few[FEW_MASTERS]

    def __dealloc__(self):
        if self.told != self.few:
            free(self.told)


cdef Fencing fencing_new(int master_count, int64_t proposed, int64_t ttl_ms):
    cdef Fencing self = Fencing()
    self.told = self.few
    if master_count > FEW_MASTERS:
        self.told = <int64_t *>calloc(master_count, sizeof(int64_t))
        if self.told == NULL:
            raise MemoryError
    self.proposed = proposed
    fencing_propose(self, proposed, ttl_ms)
    return self


cdef Fencing fencing_of_adopted(int64_t fence):
    cdef Fencing self = Fencing()
    self.told = self.few
    self.fence = fence
    return self


cdef int fencing_propose(Fencing self, int64_t proposed, int64_t ttl_ms) except -1:
    self.proposal = (b"%d" % proposed, b"%d" % (ttl_ms + FENCE_LIFE_MS))
    return 0


cdef bytes fencing_ttl(Round round):
    return b"%d" % round.terms.ttl_ms if round.terms.has_expiry else b"0"


cdef object fencing_number(Round round):
    if round.fencing is None or (<Fencing>round.fencing).fence == 0:
        return None
    return (<Fencing>round.fencing).fence


cdef void fencing_on_granted(
    Round round, int master, bint is_written, object said
) noexcept:
    # Before its vote: the reply to a SET, at a gate or not, or to the second write.
    cdef Fencing self = <Fencing>round.fencing
    if is_written:
        self.told[master] = self.fence
    elif type(said) is list:
        self.told[master] = said[1]
    else:
        # 1 stands for p. (Sent again by its source, the script was perhaps given F, and
        # has more than we know.)
        self.told[master] = self.proposed if said == 1 else said


cdef bint fencing_is_short(Round round, int master) noexcept:
    # Whether the master has granted a round that is open, under less than its number.
    cdef Fencing self = <Fencing>round.fencing
    return (
        round.verdict_code == VERDICT_OPEN and 0 < self.told[master] < self.fence
    )


cdef bint fencing_begins(Round round, int64_t now_ns) except -1:
    # Whether a second write begins, now that a quorum has granted.
    cdef Fencing self = <Fencing>round.fencing
    cdef int i, having = 0
    if self.fence or round.counts[VOTE_GRANTED] < round.quorum or (
        round_is_refused(round)
    ):
        return False
    for i in range(round.master_count):
        if round.cells[i].vote == VOTE_GRANTED:
            self.fence = max(self.fence, self.told[i])
    for i in range(round.master_count):
        having += round.cells[i].vote == VOTE_GRANTED and self.told[i] == self.fence
    if having >= round.quorum:
        return False
    for i in range(round.master_count):
        if round.cells[i].vote == VOTE_GRANTED and self.told[i] < self.fence:
            round.cells[i].vote = VOTE_PENDING
            round.cells[i].answered_us = 0
            round.counts[VOTE_GRANTED] -= 1
            round.counts[VOTE_PENDING] += 1
            round_note(round, i, NOT_WRITTEN)
    fencing_propose(self, self.fence, round.terms.ttl_ms)
    round.deadline_ns += now_ns - round.opened_ns
    return True


cdef int fencing_report(Round round) except -1:
    # To the engine, which writes it (engine/fences) behind the replies of this step.
    cdef Fencing self = <Fencing>round.fencing
    if round.closed_list is not None and not self.is_reported:
        self.is_reported = True
        round.closed_list.append(round)
    return 0
