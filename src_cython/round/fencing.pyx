# The number of a grant, its fence: it grows with every grant of a resource, so that a
# storage can refuse the late write of a holder that was paused. Pure.
#
# Theory of operation. Each master keeps the last number of each resource. An ACQUIRE
# brings a proposal, p, to a script. A master where the key is free raises the number,
# to p or to one more than it has, whichever is larger, and then sets the key. It
# answers with the number: f. F is the largest f of the masters that granted when they
# were a quorum first.
#
#   a quorum answered F itself    the round is won, and F is its number: no second write
#   else                          F is written to those that answered less, where our
#                                 key still exists (write_fence). Their cells are
#                                 PENDING again, and the round is open until a quorum
#                                 has F: for as long again, inside its validity (judge)
#
# So a quorum has F, or more, while our key exists there: `known` is what a master is
# known to have. The quorum of every later grant shares a master with it, which sets
# that key after ours has gone, and counts on from the number there: what it answers is
# more than F. The number comes before the key: where it is refused, no key is set.
#
# A master that answers later is written to then. Only those that granted are, and only
# where the token is: a number that was written elsewhere would be behind the key of a
# round that is under way there, and would prove nothing. A connection that is lost
# meanwhile is no matter: the repeated script brings F as its proposal.

cdef enum:
    FENCE_LIFE_MS = 90_000_000       # a day and an hour, beyond the ttl

cdef int64_t FENCE_MOST = 9_007_199_254_740_991      # of Lua's numbers: 2^53 - 1

cdef str NOT_WRITTEN = "granted, and did not confirm its number (fence)"


@cython.final
@cython.internal
@cython.freelist(16)
cdef class Fencing:
    cdef int64_t proposed        # p
    cdef int64_t fence           # F; 0: there is no quorum yet
    cdef int64_t life_ms         # for how long a number is kept from now on
    cdef uint64_t asked          # the masters that were sent F
    cdef bint is_reported        # in the engine's list, as one to be written
    cdef bytearray memory        # of `known`
    cdef int64_t *known          # the numbers of the masters; 0: nothing yet


cdef Fencing fencing_new(int master_count, int64_t proposed, int64_t ttl_ms):
    cdef Fencing self = Fencing.__new__(Fencing)
    self.memory = PyByteArray_FromStringAndSize(NULL, master_count * sizeof(int64_t))
    self.known = <int64_t *>PyByteArray_AS_STRING(self.memory)
    memset(self.known, 0, master_count * sizeof(int64_t))
    self.proposed = proposed
    self.life_ms = ttl_ms + FENCE_LIFE_MS
    return self


cdef tuple fencing_proposal(Fencing self):
    # The number that a master sets at the least, and its life in ms: the last arguments
    # of the scripts.
    return decimal_bytes(self.fence or self.proposed), decimal_bytes(self.life_ms)


cdef void fencing_on_granted(
    Round round, int master, bint is_written, object reply
) noexcept:
    # Take the number before the vote: from a script's reply, or after the second write.
    cdef Fencing self = round.fencing
    if is_written:
        self.known[master] = self.fence
    else:
        self.known[master] = reply[1] if type(reply) is list else reply


cdef bint fencing_is_short(Round round, int master) noexcept:
    # Return whether the master has granted an open round under less than its number.
    cdef Fencing self = round.fencing
    return round.verdict_code == VERDICT_OPEN and 0 < self.known[master] < self.fence


cdef bint fencing_begins(Round round) except -1:
    # Return whether a second write begins, now that a quorum has granted.
    cdef Fencing self = round.fencing
    cdef uint64_t having = 0
    cdef int i, count = round.electorate.count
    if self.fence or round_is_refused(round) or (
        not electorate_wins(round.electorate, round.granted)
    ):
        return False
    for i in range(count):
        if set_has(round.granted, i):
            self.fence = max(self.fence, self.known[i])
    for i in range(count):
        if set_has(round.granted, i) and self.known[i] == self.fence:
            having |= set_of(i)
    return not electorate_wins(round.electorate, having)


cdef int fencing_report(Round round) except -1:
    # Report it to the engine, which sends the number behind the replies of this step.
    if round.closed_list is not None and not round.fencing.is_reported:
        round.fencing.is_reported = True
        round.closed_list.append(round)


cdef uint64_t fencing_left(Round round) noexcept:
    # The masters that are still to be sent its number.
    cdef Fencing self = round.fencing
    cdef uint64_t left = 0
    cdef int i
    self.is_reported = False
    for i in range(round.electorate.count):
        if fencing_is_short(round, i):
            left |= set_of(i) & ~self.asked
    self.asked |= left
    return left


# --- fences ---------------------------------------------------------------------------
# The numbers of all grants of an engine: what is proposed. Pure.
#
# A proposal is the time: the wall clock, in us. It never goes back in one engine, and
# is above the last number of the resource that this engine was granted. So it is above
# all numbers of before where masters come back empty, or a number has expired: unless
# the clock of this machine is behind those of all others by more than that took. No
# decision about a validity depends on it.
#
# Remembered are the numbers that are ahead of our proposals alone: there are some where
# another machine's clock is ahead of ours. Where that is by no more than clocks that
# are set by a network differ, it is added to all further proposals: each that is behind
# another's would cost a second write.

cdef enum:
    FENCES_MOST = 1024
    AHEAD_MOST_US = 100_000

cdef int64_t WALL_MOST_US = 4_503_599_627_370_496      # 2112; a clock beyond is wrong


@cython.final
@cython.internal
cdef class Fences:
    cdef int64_t proposed        # last
    cdef int64_t ahead_us        # of the clock, by so much are numbers
    cdef dict ahead              # resource: its last number, ahead of our proposals

    def __cinit__(self):
        self.ahead = {}


cdef int fences_propose(Fences self, Round round, int64_t wall_us) except -1:
    cdef int64_t proposed
    wall_us += self.ahead_us
    self.proposed += 1
    if self.proposed < wall_us <= WALL_MOST_US:
        self.proposed = wall_us
    proposed = self.proposed
    if self.ahead:
        for key in round.keys or (round.resource,):
            proposed = max(proposed, <int64_t>self.ahead.get(key, 0) + 1)
        proposed = min(proposed, FENCE_MOST)      # beyond, the scripts refuse to count
    round.fencing = fencing_new(round.electorate.count, proposed, round.terms.ttl_ms)


cdef int fences_learn(Fences self, Round round, int64_t wall_us) except -1:
    cdef int64_t fence = round.fencing.fence
    if fence <= self.proposed:
        return 0
    if self.ahead_us < fence - wall_us <= AHEAD_MOST_US:
        self.ahead_us = fence - wall_us
    for key in round.keys or (round.resource,):
        self.ahead[key] = fence
    if len(self.ahead) > FENCES_MOST:
        for key, last in list(self.ahead.items()):
            if last <= self.proposed or len(self.ahead) > FENCES_MOST:
                del self.ahead[key]
