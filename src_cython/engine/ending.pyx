# What must be in before something ends: the replies that are awaited; and how rounds
# and connections are ended from outside.

# --- drain ----------------------------------------------------------------------------
# Drains: the replies that are waited for before something ends.
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
    DROPPED_NS = 250_000_000         # as close() has: nobody called it
    SHUT_NS = 100_000_000            # inside a task: the loop's close() was interrupted
    OPEN_AGAIN_NS = 1_000_000_000    # for a release after close()
    # Each reply adds this: a server takes some 2 us for one, a busy machine far more.
    REPLY_NS = 50_000
    SLICES = 32
    # A shorter one fits into the limits; to share the GIL takes long, too.
    PAUSED_NS = 750_000_000


@cython.final
@cython.internal
cdef class Drain:
    cdef uint32_t wanted[MAX_MASTERS]    # links' `answered`, once all are in
    cdef int64_t asked_ns[MAX_MASTERS]   # from when on silence counts
    cdef int64_t quiet_ns
    cdef int64_t slice_ns                # in which silence is counted
    cdef int64_t until_ns
    cdef int64_t retry_until_ns          # connections that were refused are tried again
    cdef bint is_of_all                  # also of commands sent meanwhile


cdef int64_t engine_quiet_ns(Engine self, int64_t unknown_ns) noexcept:
    # unknown_ns: where no round trip was seen yet.
    return max(
        <int64_t>QUIET_NS,
        min(4 * self.round_trip_ns or unknown_ns, <int64_t>QUIET_MOST_NS),
    )


cdef Drain drain_of(Engine engine, bint is_of_all, int64_t quiet_ns, int64_t until_ns):
    # Make that of the commands in flight now; any thread with the GIL may call it.
    cdef Drain self = Drain.__new__(Drain)
    cdef InFlight in_flight
    cdef int i
    cdef int64_t now_ns = clock_ns(), silent_ns
    self.quiet_ns = quiet_ns
    self.slice_ns = max(quiet_ns // SLICES, <int64_t>NS_PER_MS)
    self.until_ns = until_ns
    self.is_of_all = is_of_all
    for i in range(engine.connection_count):
        in_flight = (<Connection>engine.connections[i]).in_flight
        self.wanted[i] = in_flight.link.answered + in_flight.count + (
            <uint32_t>len(in_flight.deferred)
        )
        silent_ns = 0      # when its socket was last polled
        if in_flight.count > 0:
            self.until_ns += min(
                in_flight.count * <int64_t>REPLY_NS, <int64_t>QUIET_MOST_NS
            )
            silent_ns = engine.polled_at_ns - max(
                in_flight.entries[in_flight.first].sent_ns, in_flight.link.heard_ns
            )
        self.asked_ns[i] = now_ns - min(
            max(<int64_t>0, silent_ns), quiet_ns - self.slice_ns
        )
    self.retry_until_ns = self.until_ns if is_exiting else now_ns + quiet_ns
    return self


cdef Drain drain_until(Engine engine, int64_t until_ns):
    # Make the drain of all commands, at an end that has no more time than this.
    return drain_of(engine, True, engine_quiet_ns(engine, QUIET_MOST_NS), until_ns)


cdef Drain drain_of_close(Engine engine, int64_t timeout_ns):
    # Silent masters, and those that refuse, get timeout_ns, or 4 round trips where
    # those take longer; others go on with what they have until it is done.
    cdef int64_t quiet_ns = max(
        timeout_ns, min(4 * engine.round_trip_ns, <int64_t>QUIET_MOST_NS)
    )
    # Where the interpreter ends, none has more time than its end has.
    return drain_of(engine, True, quiet_ns, min(
        exit_until_ns, clock_ns() + min(10 * timeout_ns, <int64_t>NS_PER_S)
    ))


cdef void drain_take_time(Drain self, Engine engine, int64_t passed_ns) noexcept:
    # Take the time since the last poll; time beyond a slice does not count.
    cdef int i
    if passed_ns <= 2 * self.slice_ns:
        return
    if passed_ns > PAUSED_NS:
        self.until_ns += passed_ns - self.slice_ns
    for i in range(engine.connection_count):
        self.asked_ns[i] = passed_ns - self.slice_ns + max(
            self.asked_ns[i], engine.links[i].heard_ns
        )


cdef int64_t engine_limit_ns(Engine self, Drain drain, int64_t now_ns) noexcept:
    # Return until when to wait for the next reply, or else for a connection; 0: for
    # nothing any more. Any thread may call it.
    cdef Connection connection
    cdef Link *link
    cdef int64_t quiet_at_ns, limit_ns = 0
    cdef bint is_wanted = self.is_closed and len(self.admissions) > 0
    cdef bint is_opening = False
    if now_ns >= drain.until_ns:
        return 0
    for connection in self.connections:
        link = &connection.link
        if link.phase == LINK_OPEN and link.in_flight != 0 and (
            drain.is_of_all
            or <int32_t>(drain.wanted[connection.place] - link.answered) > 0
        ):
            quiet_at_ns = drain.quiet_ns + max(
                link.heard_ns, drain.asked_ns[connection.place]
            )
            if now_ns < quiet_at_ns:
                limit_ns = max(limit_ns, quiet_at_ns)
        if connection_is_opening(connection):
            is_opening = True
            is_wanted |= len(connection.in_flight.deferred) > 0
        if connection_is_to_retry(connection) and now_ns < drain.retry_until_ns:
            limit_ns = max(limit_ns, drain.retry_until_ns)
    if limit_ns == 0 and is_opening and is_wanted:
        # Releases wait for connections that are on their way: after close() all do.
        limit_ns = drain.until_ns if self.is_closed else drain.retry_until_ns
    return min(limit_ns, drain.until_ns) if now_ns < limit_ns else 0


# --- ending ---------------------------------------------------------------------------
# Rounds and connections that are ended from outside: a caller gives up, close(), the
# end of the interpreter.


cdef int engine_withdraw_work(Engine self, object work, int64_t now_ns) except -1:
    # Its caller has given it up: locks that it took are undone, releases are sent.
    cdef bint collects = pass_begin()
    try:
        # It may be the last reference to a task.
        pass_keep((<Batch>work).waiter if type(work) is Batch else (<Round>work).waiter)
        if type(work) is Batch:
            batch_withdraw(<Batch>work)
            self.has_batch = True
            for each in (<Batch>work).rounds:
                engine_withdraw(self, <Round>each, now_ns)
        else:
            engine_withdraw(self, <Round>work, now_ns)
        engine_admit_left(self, now_ns)
        sending_all(self, now_ns)
    finally:
        pass_end(collects)


cdef int engine_end_acquires(Engine self, str reason, int64_t now_ns) except -1:
    # Idle keys are released. Those under way end: lost, and rolled back behind their
    # own SETs. Of a batch all, those won as well, for its caller gets an error.
    # Releases that wait for a quorum of connections are sent to the masters that are
    # connected: it may never come. Deferred ones get a last connection.
    cdef Round round
    cdef list ended, batches = []
    cdef bint collects = pass_begin()
    try:
        idle_end_all(self, now_ns)
        ended = engine_open_acquires(self)
        for round in list(self.admissions):
            if round.operation_code == OPERATION_ACQUIRE:
                if self.admissions.pop(round, None) is not None:
                    ended.append(round)
            elif round_is_release(round):
                self.admissions.pop(round, None)
                engine_start(self, round, now_ns)
        gate_end_waiting(self, reason, now_ns)
        for round in ended:
            if type(round.waiter) is Batch and round.waiter not in batches:
                batches.append(round.waiter)
            round_give_up(round, reason, now_ns)
        engine_finish(self, now_ns)
        for batch in batches:
            for each in (<Batch>batch).rounds:
                engine_roll_back(self, <Round>each, now_ns)
        sending_all(self, now_ns)
        connections_open_at_end(self, now_ns)
    finally:
        pass_end(collects)


cdef int engine_end_idle(Engine self, int64_t now_ns) except -1:
    # The keys that are idle here are released.
    cdef bint collects = pass_begin()
    try:
        idle_end_all(self, now_ns)
        sending_all(self, now_ns)
    finally:
        pass_end(collects)


cdef int engine_begin_close(Engine self) except -1:
    # From here on there are only releases.
    self.is_closed = True
    return engine_end_acquires(self, "closed", clock_ns())


cdef list engine_open_acquires(Engine self):
    # Those in the lists count: a number is to be written, or they are to be admitted.
    cdef Round round
    cdef list submitted = self.closed + self.opened + self.to_send
    cdef dict found = {}
    for connection in self.connections:
        submitted += in_flight_open((<Connection>connection).in_flight)
    for round in submitted:
        if round.verdict_code == VERDICT_OPEN and (
            round.operation_code == OPERATION_ACQUIRE
        ):
            found[round] = None
    return list(found)


cdef int engine_disconnect(Engine self) except -1:
    # Close all connections; rounds that still wait for them have failed.
    cdef Connection connection
    cdef bint collects = pass_begin()
    try:
        connections_forget(self, clock_ns())
        engine_finish(self, clock_ns())
        for connection in self.connections:
            deferred_take(connection.in_flight)
    finally:
        pass_end(collects)
    waker_close(&self.leadership.waker)
