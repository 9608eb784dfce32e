# The numbers of grants: what is proposed, and the second write (rules: round/fencing).
#
# A proposal is the time: the wall clock, in us. It never goes back in one engine, and
# is above the last number of the resource that this engine was granted. So it is above
# all numbers of before where masters come back empty, or a number has expired: unless
# the clock of this machine is behind those of all others by more than that took. No
# decision about a validity depends on it.
#
# Remembered are the numbers that are ahead of our proposals alone: there are some where
# another machine's clock is ahead of ours.

from libc.stdint cimport int64_t, uint64_t

cdef enum:
    FENCES_MOST = 1024

cdef int64_t WALL_MOST_US = 4_503_599_627_370_496      # 2112; a clock beyond is wrong


cdef int64_t engine_wall_us(Engine self, int64_t now_ns) noexcept:
    if self.by_hand is not None:
        return (now_ns + self.wall_offset_ns) // 1000
    return wall_ns() // 1000


cdef int engine_propose_fence(Engine self, Round round, int64_t now_ns) except -1:
    cdef int64_t wall_us = engine_wall_us(self, now_ns), proposed
    self.proposed += 1
    if self.proposed < wall_us <= WALL_MOST_US:
        self.proposed = wall_us
    proposed = self.proposed
    if self.fences:
        for key in round.keys or (round.resource,):
            proposed = max(proposed, <int64_t>self.fences.get(key, 0) + 1)
    round.fencing = fencing_new(self.master_count, proposed, round.terms.ttl_ms)
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
    self.counters.fences_written += fencing.asked == 0
    entry.is_fence = True
    for master in self.masters:
        bit = <uint64_t>1 << master.index
        if fencing.asked & bit or not fencing_is_short(round, master.index):
            continue
        fencing.asked |= bit
        master_send_again(master, round, entry, now_ns)
    return True


cdef int engine_learn_fence(Engine self, Round round) except -1:
    cdef int64_t fence = (<Fencing>round.fencing).fence
    if fence <= self.proposed:
        return 0
    for key in round.keys or (round.resource,):
        self.fences[key] = fence
    if len(self.fences) > FENCES_MOST:
        for key, last in list(self.fences.items()):
            if last <= self.proposed or len(self.fences) > FENCES_MOST:
                del self.fences[key]
    return 0
