# The number of a grant, its fence: it grows with every grant of a resource, so that a
# storage can refuse the late write of a holder that was paused. Pure.
#
# Theory of operation. Each master keeps the last number of each resource. An ACQUIRE
# brings a proposal, p. A master that is free sets the key, and then the number, if p is
# more than it has: f, the number that it is known to have, is p then. Where it has p or
# more already, it is asked for one more (next_fence), and f is what it answers. F is
# the largest f of the masters that granted when they were a quorum first.
#
#   a quorum answered F itself    the round is won, and F is its number: no second write
#   else                          F is written to those that answered less, where our
#                                 key still exists (write_fence). Their cells are
#                                 PENDING again, and the round is open until a quorum
#                                 has F: for as long again, inside its validity (judge)
#
# So a quorum has F, or more, while our key exists there: `known` is what a master is
# known to have. The quorum of every later grant shares a master with it, which sets
# that key after ours has gone, and the number after the key: what it is known to have
# is more than F. (tests/model tries all orders.)
#
# Of one key these are plain commands in one write (SET NX PX, ZADD GT CH), which cost a
# server half as much as a script; between them others may be executed. So
#
#   the key comes first      a number from before it may be less than one that was
#                            written meanwhile, behind the key of the holder before us
#   a master counts with     the reply to SET alone proves no number
#   both replies
#   0 of ZADD is no number   it has p or more: p may be that of another's grant
#
# A round that is refused has raised the number all the same: a gap, no more. Where the
# number is an error, the key may exist, and is released as any that may.
#
# A master that answers the SET later is written to then. Only those that granted are,
# and only where the token is: a number that was written elsewhere would be behind
# the SET of a round that is under way there, and would prove nothing. A connection that
# is lost meanwhile is no matter: the repeated SET brings F as its proposal.

cdef enum:
    FENCE_RENEWED_MS = 3_600_000     # an hour, in which a life is not sent again
    FENCE_LIFE_MS = 90_000_000       # a day and that, beyond the ttl of the grant

cdef enum:                   # the further commands of an ACQUIRE with fencing
    FENCE_NONE = 0
    FENCE_WRITE = 1          # the second write
    FENCE_NEXT = 2           # one more than it has

cdef int64_t FENCE_MOST = 9_007_199_254_740_991      # of Lua's numbers: 2^53 - 1

cdef str NOT_WRITTEN = "granted, and did not confirm its number (fence)"


@cython.final
@cython.internal
@cython.freelist(16)
cdef class Fencing:
    """The numbers of one ACQUIRE: proposed, answered by each master, and its own."""

    cdef int64_t proposed        # p
    cdef int64_t fence           # F; 0: there is no quorum yet
    cdef int64_t life_ms         # for how long a number is kept from now on
    cdef bint is_renewing        # which is sent with p, too
    cdef uint64_t asked          # the masters that were sent F
    cdef bint has_more           # commands than the first, and has...
    cdef bint is_extended        # ...more time
    cdef dict refusals           # master: its error text, before its last reply
    cdef bint is_reported        # in the engine's list, as one to be written
    cdef int64_t *known          # `few`, or allocated; 0: nothing yet
    cdef int64_t few[FEW_MASTERS]

    def __dealloc__(self):
        if self.known != self.few:
            free(self.known)


cdef Fencing fencing_new(int master_count, int64_t proposed, int64_t ttl_ms):
    cdef Fencing self = Fencing.__new__(Fencing)
    self.known = self.few
    if master_count > FEW_MASTERS:
        self.known = <int64_t *>calloc(master_count, sizeof(int64_t))
        if self.known == NULL:
            raise MemoryError
    self.proposed = proposed
    self.life_ms = ttl_ms + FENCE_LIFE_MS
    return self


cdef Fencing fencing_of_adopted(int64_t fence):
    cdef Fencing self = Fencing.__new__(Fencing)
    self.known = self.few
    self.fence = fence
    return self


cdef tuple fencing_proposal(Fencing self):
    # The number that a master sets at the least, and its life in ms: the last arguments
    # of the scripts.
    return decimal_bytes(self.fence or self.proposed), decimal_bytes(self.life_ms)


cdef inline bint fencing_is_plain(
    Round round, bint by_source, bint is_second
) noexcept:
    # Whether its command is not one script, but SET and ZADD, each with its reply.
    return (
        round.keys is None and round.terms.has_expiry and not (by_source or is_second)
    )


cdef inline int fencing_replies(Round round) noexcept:
    # ...and how many replies that has.
    return 3 if (<Fencing>round.fencing).is_renewing else 2


cdef bytes fencing_ttl(Round round):
    return decimal_bytes(round.terms.ttl_ms if round.terms.has_expiry else 0)


cdef void fencing_on_granted(Round round, int master, int fence, object reply) noexcept:
    # Before its vote: the reply of a script, at a gate or not, or to the second write.
    cdef Fencing self = <Fencing>round.fencing
    if fence == FENCE_WRITE:
        self.known[master] = self.fence
    elif type(reply) is list:
        self.known[master] = reply[1]
    else:
        self.known[master] = reply


cdef void fencing_on_numbered(Round round, int master) noexcept:
    # ...or the replies to the plain commands.
    (<Fencing>round.fencing).known[master] = (<Fencing>round.fencing).proposed


cdef int fencing_on_refused(
    Round round, int master, str text, bint is_of_number
) except -1:
    # An error reply; the first of them is shown.
    cdef Fencing self = <Fencing>round.fencing
    if is_of_number:
        text = f"its number, fastredlock:fence:...: {text}"
    if self.refusals is None:
        self.refusals = {}
    self.refusals.setdefault(master, text)
    return 0


cdef void fencing_extend(Round round, int64_t now_ns) noexcept:
    # A further command begins: the round is open for as long again, once. A single try
    # ends in two round timeouts, with its wait for connections.
    cdef Fencing self = <Fencing>round.fencing
    cdef int64_t until_ns = round.deadline_ns + now_ns - round.opened_ns
    if round.left_ns == 0 and round.began_ns > 0:
        until_ns = min(until_ns, round.began_ns + 2 * round.terms.timeout_ns)
    if not self.is_extended:
        self.is_extended = True
        round.deadline_ns = max(round.deadline_ns, until_ns)


cdef bint fencing_is_first(Fencing self) noexcept:
    # Whether no further command was sent yet; one is, now.
    cdef bint is_first = not self.has_more
    self.has_more = True
    return is_first


cdef bint fencing_is_short(Round round, int master) noexcept:
    # Whether the master has granted a round that is open, under less than its number.
    cdef Fencing self = <Fencing>round.fencing
    return (
        round.verdict_code == VERDICT_OPEN and 0 < self.known[master] < self.fence
    )


cdef bint fencing_begins(Round round, int64_t now_ns) except -1:
    # Whether a second write begins, now that a quorum has granted.
    cdef Fencing self = <Fencing>round.fencing
    cdef int i, having = 0
    if self.fence or round.counts[VOTE_GRANTED] < round_quorum(round) or (
        round_is_refused(round)
    ):
        return False
    for i in range(round.master_count):
        if round.cells[i].vote == VOTE_GRANTED:
            self.fence = max(self.fence, self.known[i])
    for i in range(round.master_count):
        having += round.cells[i].vote == VOTE_GRANTED and self.known[i] == self.fence
    if having >= round_quorum(round):
        return False
    for i in range(round.master_count):
        if round.cells[i].vote == VOTE_GRANTED and self.known[i] < self.fence:
            round.cells[i].vote = VOTE_PENDING
            round.cells[i].answered_us = 0
            round.counts[VOTE_GRANTED] -= 1
            round.counts[VOTE_PENDING] += 1
    fencing_extend(round, now_ns)
    return True


cdef int fencing_report(Round round) except -1:
    # To the engine, which writes it (engine/masters) behind the replies of this step.
    cdef Fencing self = <Fencing>round.fencing
    if round.closed_list is not None and not self.is_reported:
        self.is_reported = True
        round.closed_list.append(round)
    return 0
