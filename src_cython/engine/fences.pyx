# The numbers of grants: what is proposed, and the second write (rules: round/fencing).
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
# another's would cost a further command.
#
# The life of a number goes with a proposal, unless this engine has sent it within the
# hour to all masters, and none of them has connected since, withheld its vote, or
# refused a number: life_epoch (Counters) counts those.

cdef enum:
    FENCES_MOST = 1024
    RENEWED_MOST = 8192
    AHEAD_MOST_US = 100_000

cdef int64_t WALL_MOST_US = 4_503_599_627_370_496      # 2112; a clock beyond is wrong


@cython.final
@cython.internal
cdef class Fences:
    """What one engine knows of numbers."""

    cdef int64_t proposed        # last
    cdef int64_t ahead_us        # of the clock, by so much are numbers
    cdef dict ahead              # resource: its last number, ahead of our proposals
    cdef dict renewed            # resource: when its number's life was sent...
    cdef int64_t renewed_epoch   # ...since the masters' last life_epoch

    def __cinit__(self):
        self.ahead = {}
        self.renewed = {}


cdef int64_t engine_wall_us(Engine self, int64_t now_ns) noexcept:
    if self.by_hand is not None:
        return (now_ns + self.wall_offset_ns) // 1000
    return wall_ns() // 1000


cdef int engine_propose_fence(Engine self, Round round, int64_t now_ns) except -1:
    cdef Fences fences = self.fences
    cdef int64_t wall_us = engine_wall_us(self, now_ns) + fences.ahead_us, proposed
    fences.proposed += 1
    if fences.proposed < wall_us <= WALL_MOST_US:
        fences.proposed = wall_us
    proposed = fences.proposed
    if fences.ahead:
        for key in round.keys or (round.resource,):
            proposed = max(proposed, <int64_t>fences.ahead.get(key, 0) + 1)
        proposed = min(proposed, FENCE_MOST)      # beyond, the scripts refuse to count
    round.fencing = fencing_new(self.master_count, proposed, round.terms.ttl_ms)
    (<Fencing>round.fencing).is_renewing = engine_renews_fence(self, round, now_ns)
    return 0


cdef bint engine_renews_fence(Engine self, Round round, int64_t now_ns) except -1:
    # Whether the number's life has to be sent: so that it lives a day longer than the
    # keys of this round. (A shorter ttl that another client asks for later, granted or
    # refused, shortens it again.)
    cdef Fences fences = self.fences
    if fences.renewed_epoch != self.counters.life_epoch:
        fences.renewed_epoch = self.counters.life_epoch
        fences.renewed.clear()
    sent_ns = fences.renewed.get(round.resource)
    return sent_ns is None or (
        now_ns + round.terms.ttl_ms * NS_PER_MS
        > <int64_t>sent_ns + FENCE_RENEWED_MS * <int64_t>NS_PER_MS
    )


cdef int engine_note_renewed(Engine self, Round round) except -1:
    # It was sent to all masters that are connected. (Not to a gate, whose script may
    # refuse, and not to a master that is left out because of a given token.)
    cdef Fences fences = self.fences
    if round.gate >= 0 or self.token_uses is not None:
        return 0
    if not fencing_is_plain(round, False, False):
        return 0
    if len(fences.renewed) >= RENEWED_MOST:
        fences.renewed.clear()
    fences.renewed[round.resource] = round.opened_ns
    return 0


cdef bint engine_write_fence(Engine self, Round round, int64_t now_ns) except -1:
    # The second write of a round that is open, to those that need it; whether it is.
    cdef Fencing fencing = <Fencing>round.fencing
    cdef Master master
    cdef InFlightEntry entry = in_flight_entry(NEVER_NS, False)
    cdef uint64_t bit
    fencing.is_reported = False
    if round.verdict_code != VERDICT_OPEN:
        return False
    if round.is_rolled_back:      # its caller has left
        return True
    self.counters.fences_written += fencing_is_first(fencing)
    entry.fence = FENCE_WRITE
    for master in self.masters:
        bit = <uint64_t>1 << master.index
        if fencing.asked & bit or not fencing_is_short(round, master.index):
            continue
        fencing.asked |= bit
        master_send_again(master, round, entry, now_ns)
    engine_note_time(self, round.deadline_ns)      # it had nothing in flight until now
    return True


cdef int engine_learn_fence(Engine self, Round round, int64_t now_ns) except -1:
    cdef Fences fences = self.fences
    cdef int64_t fence = (<Fencing>round.fencing).fence, ahead_us
    if fence <= fences.proposed:
        return 0
    ahead_us = fence - engine_wall_us(self, now_ns)
    if fences.ahead_us < ahead_us <= AHEAD_MOST_US:
        fences.ahead_us = ahead_us
    for key in round.keys or (round.resource,):
        fences.ahead[key] = fence
    if len(fences.ahead) > FENCES_MOST:
        for key, last in list(fences.ahead.items()):
            if last <= fences.proposed or len(fences.ahead) > FENCES_MOST:
                del fences.ahead[key]
    return 0
