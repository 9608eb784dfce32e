# Whether a master is slow: by far slower than a quorum of them, again and again.
#
# A reply shows it where it was still outstanding after `slow_from_ns` when its socket
# was last looked at and empty: a client that does something else, and reads the reply
# with its next call, has seen nothing. It shows the contrary where it came within half
# of that; anything else is neither. So SLOW_REPLIES more of the former, in a second or
# longer, make a master slow, and as many more of the latter end it: one that pauses
# for a moment, with many replies outstanding, is not.
#
# `slow_from_ns` is in `Counters`: the smoothed time of a round, which ends with the
# quorum, 4 times and 3 ms longer.                                                [pure]

cdef enum:
    SLOW_REPLIES = 16
    SLOW_TIMES = 4
    SLOW_AT_LEAST_NS = 3_000_000
    SLOW_FOR_NS = 1_000_000_000

cdef struct Slowness:
    int score                # 0 to SLOW_REPLIES
    int64_t since_ns         # when it was 0
    bint is_slow


cdef inline int64_t slow_from_ns(int64_t round_trip_ns) noexcept:
    return max(SLOW_TIMES * round_trip_ns, round_trip_ns + SLOW_AT_LEAST_NS)


cdef inline void slowness_on_reply(
    Slowness *self, int64_t slow_ns, int64_t at_least_ns, int64_t took_ns,
    int64_t now_ns,
) noexcept:
    # at_least_ns: for so long it was seen to be outstanding. slow_ns 0: not known.
    if slow_ns and at_least_ns > slow_ns:
        if self.score == 0:
            self.since_ns = now_ns
        self.score = min(self.score + 1, SLOW_REPLIES)
        if self.score == SLOW_REPLIES and now_ns - self.since_ns >= SLOW_FOR_NS:
            self.is_slow = True
    elif self.score > 0 and took_ns < slow_ns // 2:
        self.score -= 1
        if self.score == 0:
            self.is_slow = False
