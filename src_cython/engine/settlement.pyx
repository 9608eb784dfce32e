# Settlements: the replies that are waited for before something ends.
#
# A process that exits, or closes a connection, with replies that it has not read resets
# the connection; the server then drops whatever it has received and not yet executed,
# the releases among it. So an undo, close() and the end of the interpreter wait until
# the replies are in. They wait for masters that answer: not for one that has said
# nothing, although it was asked, for longer than `quiet_ns`, and never beyond
# `until_ns`, which is later where much is owed. A release to such a master is only as
# sure as its connection.
#
# Time in which we stood still is nobody's silence (a paused process, a container out of
# its share of the CPU, a thread that waited for the GIL): the servers on this machine
# stood still as well. So silence is counted in slices in which we looked.

cimport cython
from libc.stdint cimport int32_t, int64_t, uint32_t

cdef enum:
    # Or 4 round trips, where those take longer. A server that shares two busy cores
    # with six others was seen to stand still for more than 20 ms.
    QUIET_NS = 100_000_000
    QUIET_MOST_NS = 1_000_000_000
    UNDO_NS = 1_000_000_000          # for what was interrupted, has failed, is dropped
    SHUT_NS = 100_000_000            # in a loop's turn: its close() was interrupted
    OPEN_AGAIN_NS = 1_000_000_000    # for a release after close()
    # More for each reply: a server takes some 2 us for one, a busy machine far more.
    REPLY_NS = 50_000
    SLICES = 32


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
    cdef bint is_of_all                  # also what is asked meanwhile


cdef int64_t engine_quiet_ns(Engine self, int64_t unknown_ns) noexcept:
    # unknown_ns: where no round trip was seen yet.
    if self.round_trip_ns == 0:
        return max(<int64_t>QUIET_NS, min(unknown_ns, <int64_t>QUIET_MOST_NS))
    return max(<int64_t>QUIET_NS, min(4 * self.round_trip_ns, <int64_t>QUIET_MOST_NS))


cdef Settlement settlement_of(
    Engine engine, bint is_of_all, int64_t quiet_ns, int64_t until_ns
):
    # Of what is owed now; made by whoever may touch the engine.
    cdef Settlement self = Settlement()
    cdef Debts debts
    cdef int i
    cdef int64_t now_ns = clock_ns()
    self.began_ns = now_ns
    self.quiet_ns = quiet_ns
    self.slice_ns = max(quiet_ns // SLICES, <int64_t>NS_PER_MS)
    self.until_ns = until_ns
    self.is_of_all = is_of_all
    for i in range(engine.master_count):
        debts = (<Master>engine.masters[i]).debts
        self.wanted[i] = debts.link.answered + debts.count + (
            <uint32_t>len(debts.carried)
        )
        self.until_ns += replies_ns(debts.count)
        self.asked_ns[i] = now_ns - min(
            debts_silence_ns(debts, engine.polled_at_ns), quiet_ns - self.slice_ns
        )
    return self


cdef int64_t replies_ns(uint32_t count) noexcept:
    return min(count * <int64_t>REPLY_NS, <int64_t>QUIET_MOST_NS)


cdef int64_t debts_silence_ns(Debts self, int64_t looked_at_ns) noexcept:
    # For how long the master had been silent when its socket was last looked at. What
    # has come since nobody knows.
    if self.count == 0:
        return 0
    asked_ns = max(self.owed[self.first].sent_ns, self.link.heard_ns)
    return max(<int64_t>0, looked_at_ns - asked_ns)


cdef bint settlement_wants(Settlement self, int i, Link *link) noexcept:
    if link.phase != LINK_OPEN or link.owed == 0:
        return False
    return self.is_of_all or <int32_t>(self.wanted[i] - link.answered) > 0


cdef int64_t settlement_limit_ns(
    Settlement self, Engine engine, int64_t now_ns
) noexcept:
    # Until when to wait for the next reply; 0: there is nothing to wait for. Any thread
    # may ask: it reads single numbers.
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


cdef int engine_settle(Engine self, Settlement settlement) except -1:
    # Step until it is settled. With the engine to oneself, and not inside another step:
    # that one may be taking the very replies.
    cdef int64_t now_ns = clock_ns(), limit_ns, before_ns
    while True:
        limit_ns = settlement_limit_ns(settlement, self, now_ns)
        if limit_ns == 0:
            limit_ns = engine_opening_limit_ns(self, settlement, now_ns)
        if limit_ns == 0:
            return 0
        engine_step(
            self, self.master_count, min(limit_ns, now_ns + settlement.slice_ns)
        )
        before_ns, now_ns = now_ns, clock_ns()
        settlement_take_time(settlement, self, now_ns - before_ns)


cdef void settlement_take_time(
    Settlement self, Engine engine, int64_t passed_ns
) noexcept:
    # Since the last look: what is more than a slice does not count.
    cdef int i
    if passed_ns <= 2 * self.slice_ns:
        return
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
            len(master.debts.carried) > 0
        )
    return limit_ns if is_wanted else 0


cdef bint engine_open_carried(Engine self, int64_t now_ns) except -1:
    # Connect again to those that worked until now: an interrupt in the middle of a
    # reply ends the connection, and its releases are carried to one that nobody else
    # would open. Returns whether there are any.
    cdef Master master
    cdef bint is_any = False
    if self.by_hand is not None:
        return False
    for master in self.masters:
        if len(master.debts.carried) == 0 or self.is_closed:
            continue
        if master.failures == 0 and master_is_due(master, False, now_ns):
            master_open(master, now_ns)
            engine_note_time(self, master.give_up_at_ns)
        is_any = is_any or master_is_opening(master)
    return is_any


cdef bint master_is_opening(Master self) noexcept:
    return (
        self.state_code == MASTER_CONNECTING or self.state_code == MASTER_HANDSHAKE
    )


cdef int engine_settle_undo(Engine self, object work) except -1:
    # The replies to the releases of what was given up just now.
    cdef int64_t quiet_ns = engine_quiet_ns(self, work_timeout_ns(work))
    if self.crowd.depth > 1:
        return 0
    engine_open_carried(self, clock_ns())
    return engine_settle(
        self, settlement_of(self, False, quiet_ns, clock_ns() + UNDO_NS)
    )


cdef int engine_drain(Engine self, int64_t until_ns) except -1:
    # All that is owed, by whoever has the engine to himself: at its end.
    if not (engine_open_carried(self, clock_ns()) or engine_owes_replies(self)):
        return 0
    engine_flush(self)
    return engine_settle(self, settlement_of(
        self, True, engine_quiet_ns(self, QUIET_MOST_NS), until_ns
    ))


cdef bint engine_owes_replies(Engine self) noexcept:
    for master in self.masters:
        if (<Master>master).debts.count:
            return True
    return False


cdef int engine_end_acquires(Engine self, str reason, int64_t now_ns) except -1:
    # End those under way: lost, and rolled back behind their own SETs. Of a batch all,
    # also what it has won, for its caller is told that it failed.
    cdef Admission admission
    cdef Round round
    cdef list ended = engine_open_acquires(self)
    cdef list batches = []
    for admission in list(self.admissions):
        if admission.round.operation_code == OPERATION_ACQUIRE:
            self.admissions.remove(admission)
            ended.append(admission.round)
    for round in ended:
        if type(round.waiter) is Batch and round.waiter not in batches:
            batches.append(round.waiter)
        round_give_up(round, reason, now_ns)
    engine_finish(self, now_ns)
    for batch in batches:
        for each in (<Batch>batch).rounds:
            engine_roll_back(self, <Round>each, now_ns)
    return 0


cdef list engine_open_acquires(Engine self):
    cdef Master master
    cdef Round round
    cdef uint32_t i
    cdef set seen = set()
    cdef list found = []
    for master in self.masters:
        i = 0
        while i < master.debts.count:
            round = debts_at(master.debts, i)
            i += 1
            if (
                round is not None and round.verdict_code == VERDICT_OPEN
                and round.operation_code == OPERATION_ACQUIRE and id(round) not in seen
            ):
                seen.add(id(round))
                found.append(round)
        for round in master.debts.unanswered:
            if round.operation_code == OPERATION_ACQUIRE and id(round) not in seen and (
                round.verdict_code == VERDICT_OPEN
            ):
                seen.add(id(round))
                found.append(round)
    return found
