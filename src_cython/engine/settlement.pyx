# Settlements: the replies that are waited for before something ends.
#
# A process that exits, or closes a connection, with replies that it has not read resets
# the connection; the server then drops all that it has received and not yet executed,
# releases too. So an undo, close() and the end of the interpreter wait until the
# replies are in. They wait for masters that answer: not for one that has sent nothing
# for longer than `quiet_ns` although replies are outstanding, and never beyond
# `until_ns`, which is later where many are. A release to such a master is only as sure
# as its connection.
#
# Time in which we were paused is no master's silence (a stopped process, a container
# out of its share of the CPU, a thread that waited for the GIL): the servers on this
# machine were paused as well, and what was on its way still is. So silence is counted
# in slices in which we polled; and no long pause is a part of the limit.

cdef enum:
    # Or 4 round trips, where those take longer. A server that shares two busy cores
    # with six others was seen to pause for more than 20 ms.
    QUIET_NS = 100_000_000
    QUIET_MOST_NS = 1_000_000_000
    UNDO_NS = 1_000_000_000          # for work that was interrupted, failed or dropped
    SHUT_NS = 100_000_000            # inside a task: the loop's close() was interrupted
    OPEN_AGAIN_NS = 1_000_000_000    # for a release after close()
    # More for each reply: a server takes some 2 us for one, a busy machine far more.
    REPLY_NS = 50_000
    SLICES = 32
    # Less fits into the limits; and who shares the GIL with many waits long, too.
    PAUSED_NS = 750_000_000


@cython.final
@cython.internal
cdef class Settlement:
    """The replies that something waits for before it ends."""

    cdef uint32_t wanted[MAX_MASTERS]    # links' `answered`, once all are in
    cdef int64_t asked_ns[MAX_MASTERS]   # from when on silence counts
    cdef int64_t quiet_ns
    cdef int64_t slice_ns
    cdef int64_t began_ns
    cdef int64_t until_ns
    cdef bint is_of_all                  # also of commands sent meanwhile


cdef int64_t engine_quiet_ns(Engine self, int64_t unknown_ns) noexcept:
    # unknown_ns: where no round trip was seen yet.
    if self.round_trip_ns == 0:
        return max(<int64_t>QUIET_NS, min(unknown_ns, <int64_t>QUIET_MOST_NS))
    return max(<int64_t>QUIET_NS, min(4 * self.round_trip_ns, <int64_t>QUIET_MOST_NS))


cdef Settlement settlement_of(
    Engine engine, bint is_of_all, int64_t quiet_ns, int64_t until_ns
):
    # Of the commands in flight now; for callers that may touch the engine.
    cdef Settlement self = Settlement.__new__(Settlement)
    cdef InFlight in_flight
    cdef int i
    cdef int64_t now_ns = clock_ns()
    self.began_ns = now_ns
    self.quiet_ns = quiet_ns
    self.slice_ns = max(quiet_ns // SLICES, <int64_t>NS_PER_MS)
    self.until_ns = until_ns
    self.is_of_all = is_of_all
    for i in range(engine.master_count):
        in_flight = (<Master>engine.masters[i]).in_flight
        self.wanted[i] = in_flight.link.answered + in_flight.count + (
            <uint32_t>len(in_flight.deferred)
        )
        self.until_ns += settlement_replies_ns(in_flight.count)
        self.asked_ns[i] = now_ns - min(
            settlement_silence_ns(in_flight, engine.polled_at_ns),
            quiet_ns - self.slice_ns,
        )
    return self


cdef Settlement settlement_of_running(Engine engine, int64_t until_ns):
    # Of an engine that another thread drives: its entries are not read.
    cdef Settlement self = Settlement.__new__(Settlement)
    cdef int i
    self.began_ns = clock_ns()
    self.quiet_ns = engine_quiet_ns(engine, QUIET_NS)
    self.slice_ns = self.quiet_ns // SLICES
    self.until_ns = until_ns
    self.is_of_all = True
    for i in range(engine.master_count):
        self.asked_ns[i] = self.began_ns
    return self


cdef int64_t settlement_replies_ns(uint32_t count) noexcept:
    return min(count * <int64_t>REPLY_NS, <int64_t>QUIET_MOST_NS)


cdef int64_t settlement_silence_ns(InFlight self, int64_t looked_at_ns) noexcept:
    # For how long the master had been silent when its socket was last polled.
    if self.count == 0:
        return 0
    asked_ns = max(self.entries[self.first].sent_ns, self.link.heard_ns)
    return max(<int64_t>0, looked_at_ns - asked_ns)


cdef bint settlement_wants(Settlement self, int i, Link *link) noexcept:
    if link.phase != LINK_OPEN or link.in_flight == 0:
        return False
    return self.is_of_all or <int32_t>(self.wanted[i] - link.answered) > 0


cdef int64_t settlement_limit_ns(
    Settlement self, Engine engine, int64_t now_ns
) noexcept:
    # Until when to wait for the next reply; 0: there is nothing to wait for. Any thread
    # may call it: it reads single numbers.
    cdef int i
    cdef int64_t quiet_at_ns, limit_ns = 0
    if now_ns >= self.until_ns:
        return 0
    for i in range(engine.master_count):
        if settlement_wants(self, i, engine.links[i]):
            quiet_at_ns = self.quiet_ns + max(
                engine.links[i].heard_ns, self.asked_ns[i]
            )
            if now_ns < quiet_at_ns:
                limit_ns = max(limit_ns, quiet_at_ns)
    return min(limit_ns, self.until_ns)


cdef void settlement_take_time(
    Settlement self, Engine engine, int64_t passed_ns
) noexcept:
    # Since the last poll: time beyond a slice does not count.
    cdef int i
    if passed_ns <= 2 * self.slice_ns:
        return
    if passed_ns > PAUSED_NS:
        self.until_ns += passed_ns - self.slice_ns
    for i in range(engine.master_count):
        self.asked_ns[i] = passed_ns - self.slice_ns + max(
            self.asked_ns[i], engine.links[i].heard_ns
        )


cdef int64_t engine_opening_limit_ns(
    Engine self, Settlement settlement, int64_t now_ns
) noexcept:
    # Releases wait for connections that are on their way: after close() all do.
    cdef Master master
    cdef bint is_wanted = self.is_closed and len(self.admissions) > 0
    cdef int64_t limit_ns = settlement.until_ns
    if not self.is_closed:
        limit_ns = min(limit_ns, settlement.began_ns + settlement.quiet_ns)
    if now_ns >= limit_ns or engine_opening_count(self) == 0:
        return 0
    for master in self.masters:
        is_wanted = is_wanted or master_is_opening(master) and (
            len(master.in_flight.deferred) > 0
        )
    return limit_ns if is_wanted else 0


cdef int64_t engine_limit_ns(
    Engine self, Settlement settlement, int64_t now_ns
) noexcept:
    # Until when to wait for the next reply, or a connection; 0: for nothing any more.
    cdef int64_t limit_ns = settlement_limit_ns(settlement, self, now_ns)
    return limit_ns or engine_opening_limit_ns(self, settlement, now_ns)
