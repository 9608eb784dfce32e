# What must be in before something ends: the replies that are awaited, the rounds and
# connections that are ended, the steps of a leader that bring them in, and close().

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
    SHUT_NS = 100_000_000            # inside a task: the loop's close() was interrupted
    OPEN_AGAIN_NS = 1_000_000_000    # for a release after close()
    # More for each reply: a server takes some 2 us for one, a busy machine far more.
    REPLY_NS = 50_000
    SLICES = 32
    # Less fits into the limits; and who shares the GIL with many waits long, too.
    PAUSED_NS = 750_000_000


@cython.final
@cython.internal
cdef class Drain:
    """The replies that something waits for before it ends."""

    cdef uint32_t wanted[MAX_MASTERS]    # links' `answered`, once all are in
    cdef int64_t asked_ns[MAX_MASTERS]   # from when on silence counts
    cdef int64_t quiet_ns
    cdef int64_t slice_ns                # in which silence is counted
    cdef int64_t began_ns
    cdef int64_t until_ns
    cdef bint is_of_all                  # also of commands sent meanwhile


cdef int64_t engine_quiet_ns(Engine self, int64_t unknown_ns) noexcept:
    # unknown_ns: where no round trip was seen yet.
    return max(
        <int64_t>QUIET_NS,
        min(4 * self.round_trip_ns or unknown_ns, <int64_t>QUIET_MOST_NS),
    )


cdef Drain drain_of(
    Engine engine, bint is_of_all, int64_t quiet_ns, int64_t until_ns
):
    # Of the commands in flight now; any thread may call it, for it has the GIL.
    cdef Drain self = Drain.__new__(Drain)
    cdef InFlight in_flight
    cdef int i
    cdef int64_t now_ns = clock_ns(), silent_ns
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
    return self


cdef void drain_take_time(
    Drain self, Engine engine, int64_t passed_ns
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


cdef int64_t engine_limit_ns(
    Engine self, Drain drain, int64_t now_ns
) noexcept:
    # Until when to wait for the next reply, or else for a connection; 0: for nothing
    # any more. Any thread may call it.
    cdef Master master
    cdef Link *link
    cdef int64_t quiet_at_ns, limit_ns = 0
    cdef bint is_wanted = self.is_closed and len(self.admissions) > 0
    cdef bint is_opening = False
    if now_ns >= drain.until_ns:
        return 0
    for master in self.masters:
        link = &master.link
        if link.phase == LINK_OPEN and link.in_flight != 0 and (
            drain.is_of_all
            or <int32_t>(drain.wanted[master.index] - link.answered) > 0
        ):
            quiet_at_ns = drain.quiet_ns + max(
                link.heard_ns, drain.asked_ns[master.index]
            )
            if now_ns < quiet_at_ns:
                limit_ns = max(limit_ns, quiet_at_ns)
        is_opening |= master_is_opening(master)
        is_wanted |= master_is_opening(master) and len(master.in_flight.deferred) > 0
    if limit_ns == 0 and is_opening and is_wanted:
        # Releases wait for connections that are on their way: after close() all do.
        limit_ns = drain.until_ns
        if not self.is_closed:
            limit_ns = min(limit_ns, drain.began_ns + drain.quiet_ns)
    return min(limit_ns, drain.until_ns) if now_ns < limit_ns else 0


# --- ending ---------------------------------------------------------------------------
# Rounds and connections that are ended from outside: a caller gives up, close(), the
# end of the interpreter.


cdef int engine_withdraw_work(Engine self, object work, int64_t now_ns) except -1:
    # Its caller has given it up: locks that it took are undone, releases are sent.
    cdef bint collects = pass_begin()
    kept = (<Batch>work).waiter if type(work) is Batch else (<Round>work).waiter
    try:
        if type(work) is Batch:
            batch_withdraw(<Batch>work)
            self.has_batch = True
            for each in (<Batch>work).rounds:
                engine_withdraw(self, <Round>each, now_ns)
        else:
            engine_withdraw(self, <Round>work, now_ns)
        engine_admit_left(self, now_ns)
    finally:
        pass_end(collects)
    del kept      # it may be the last reference to a task
    return 0


cdef int engine_end_acquires(Engine self, str reason, int64_t now_ns) except -1:
    # Idle keys are released. Those under way end: lost, and rolled back behind their
    # own SETs. Of a batch all, those won as well, for its caller gets an error.
    # Releases that wait for a quorum of connections are sent to the masters that are
    # connected: it may never come. Deferred ones get a last connection.
    cdef Round round
    cdef list ended, batches = []
    cdef bint collects = pass_begin()
    try:
        engine_end_idle_keys(self, now_ns)
        ended = engine_open_acquires(self)
        for round in list(self.admissions):
            if round.operation_code == OPERATION_ACQUIRE:
                if self.admissions.pop(round, None) is not None:
                    ended.append(round)
            elif round_is_release(round):
                self.admissions.pop(round, None)
                engine_submit_at_once(self, round, now_ns)
        engine_end_waiting(self, reason, now_ns)
        for round in ended:
            if type(round.waiter) is Batch and round.waiter not in batches:
                batches.append(round.waiter)
            round_give_up(round, reason, now_ns)
        engine_finish(self, now_ns)
        for batch in batches:
            for each in (<Batch>batch).rounds:
                engine_roll_back(self, <Round>each, now_ns)
        engine_open_deferred_at_end(self, now_ns)
    finally:
        pass_end(collects)
    return 0


cdef int engine_begin_close(Engine self) except -1:
    # From here on there are only releases.
    self.is_closed = True
    return engine_end_acquires(self, "closed", clock_ns())


cdef list engine_open_acquires(Engine self):
    # Those in the lists: a number is to be written, or they were left to be admitted.
    cdef Master master
    cdef Round round
    cdef uint32_t i
    cdef list submitted = self.closed + self.opened
    cdef dict found = {}
    for master in self.masters:
        for i in range(master.in_flight.count):
            submitted.append(in_flight_at(master.in_flight, i))
        submitted += master.in_flight.unanswered
    for round in submitted:
        if round is not None and round.verdict_code == VERDICT_OPEN and (
            round.operation_code == OPERATION_ACQUIRE
        ):
            found[round] = None
    return list(found)


cdef int engine_disconnect(Engine self) except -1:
    # Close all connections; rounds that still wait for them have failed.
    cdef Master master
    cdef bint collects = pass_begin()
    try:
        engine_forget_connections(self, clock_ns())
        engine_admit(self, clock_ns())
        engine_finish(self, clock_ns())
        for master in self.masters:
            master.in_flight.deferred = []
            master.in_flight.deferred_bytes = 0
    finally:
        pass_end(collects)
    waker_close(&self.leadership.waker)
    return 0


# --- blocking work --------------------------------------------------------------------
# The followers' work, taken by the leader in its step.


cdef int blocking_take_followers(Engine self) except -1:
    cdef Leadership leadership = self.leadership
    cdef bint collects = pass_begin()
    try:
        while leadership.followers:      # where this raises the next leader takes it
            blocking_take_follower(self, <Follower>leadership.followers[0])
            del leadership.followers[0]
        leadership.waker.has_followers = 0
    finally:
        pass_end(collects)
    return 0


cdef int blocking_take_follower(Engine self, Follower follower) except -1:
    if follower.asks == FOLLOWER_CLOSE and not self.is_closed:
        self.leadership.closing.append(follower)
        engine_begin_close(self)
    elif follower.asks == FOLLOWER_WITHDRAW:
        engine_withdraw_work(self, follower.work, clock_ns())
        engine_open_deferred(self, clock_ns())
        follower.drain = drain_of(
            self, False, engine_quiet_ns(self, work_timeout_ns(follower.work)),
            clock_ns() + UNDO_NS,
        )
    elif follower.asks == FOLLOWER_END:
        engine_end_acquires(self, "the interpreter ends", clock_ns())
        follower.drain = drain_of(
            self, True, engine_quiet_ns(self, QUIET_NS),
            clock_ns() + follower.timeout_ns,
        )
    elif self.is_closed and (
        follower.asks == FOLLOWER_CLOSE or not work_is_release(follower.work)
    ):
        wakeups_add(self.leadership, follower)
    elif not work_is_submitted(follower.work):
        engine_submit_work(self, follower.work, follower, clock_ns())
    return 0


# --- step -----------------------------------------------------------------------------
# The blocking step of the leader: send what is queued, poll, receive what is there (all
# without the GIL), then take it. And the loops of steps that end by themselves.

cdef bint engine_step(Engine self, int wanted, int64_t limit_ns) except -1:
    """Send, wait for an event, a due time or the limit, and take all that came.

    Reads from as many masters as are `wanted` to answer, not from more. Returns whether
    a signal came first, or may have.
    """
    cdef int error
    cdef int64_t until_ns
    cdef bint is_green = leader_is_green(self.leadership), was_closed = self.is_closed
    cdef bint is_kept = len(self.opened) + len(self.batches) > 0
    cdef int i
    for i in range(self.master_count):
        is_kept |= self.links[i].received > 0 or (
            (<Master>self.masters[i]).plain is not None
        )
    if is_kept:      # by an exception: a handler's in TLS, or for want of memory
        engine_take_events(self)
    if self.leadership.waker.has_followers:
        blocking_take_followers(self)
    if self.is_closed and not (was_closed and engine_is_connected_or_deferring(self)):
        limit_ns = 0      # just now, by one of these followers; or nothing will come
    engine_before_write(self)
    engine_before_nogil(self)
    until_ns = min(self.counters.due_ns, limit_ns)
    with nogil:
        error = links_exchange(
            self.links, self.polled, self.master_count, wanted,
            0 if is_green else until_ns, &self.leadership.waker,
        )
        atomic_put(&self.leadership.leader_at, LEADER_OUT_OF_SYSTEM)
    self.leadership.leader_at = LEADER_HAS_GIL
    if error == 0:
        if is_green:
            engine_wait_in_hub(self, until_ns)
        engine_take_events(self)
    elif error != -EINTR:
        raise OSError(-error, "poll")
    return error == -EINTR


cdef int engine_wait_in_hub(Engine self, int64_t until_ns) except -1:
    # In place of a poll that sleeps, where one that does not sleep found nothing. The
    # next step reads the bytes that have come; until then the leader touches nothing.
    cdef Waker *waker = &self.leadership.waker
    cdef int64_t left_ns = min(until_ns - clock_ns(), <int64_t>SLEEP_LIMIT_NS)
    cdef list readable = [], writable = []
    cdef Link *link
    cdef int i
    for i in range(self.master_count):
        link = self.links[i]
        if link.is_ready or link_has_input(link):
            return 0
        if link.fd >= 0:
            (writable if link_wants_to_write(link) else readable).append(link.fd)
    if waker.event.fd >= 0:
        readable.append(waker.event.fd)
    if left_ns <= 0 or waker_is_set_before_sleep(waker):
        return 0
    try:
        greenlet_hub_wait(readable, writable, left_ns)
    finally:
        waker.is_sleeping = 0
    return 0


cdef int engine_probe_idle(Engine self) except -1:
    # After an idle time: has a connection been cut? The end of its bytes follows late
    # replies that are not read yet, so poll until there is nothing more. Twice will do;
    # a master that sends without end is left to the next steps.
    cdef int _i, i
    for _i in range(4):
        for i in range(self.master_count):
            self.links[i].is_unseen = False      # no early read: poll them all
        engine_step(self, self.master_count, 0)
        if links_are_quiet(self.links, self.master_count):
            return 0
    return 0


cdef int engine_flush(Engine self) except -1:
    # Send all that is queued, a roll-back too, and do not wait.
    cdef int i
    engine_before_write(self)
    for i in range(self.master_count):
        if buffer_length(&self.links[i].outgoing) > 0:
            engine_before_nogil(self)
            with nogil:
                links_send(self.links, self.master_count)
                atomic_put(&self.leadership.leader_at, LEADER_OUT_OF_SYSTEM)
            self.leadership.leader_at = LEADER_HAS_GIL
            break
    return 0


cdef enum:
    STALLED_NS = 20_000_000
    FLUSH_NS = 1_000_000_000


cdef int engine_flush_all(Engine self) except -1:
    # Flush; a batch may have queued more than the sockets take at once: go on for as
    # long as they take some. A release without a waiter would stay here otherwise.
    cdef int64_t now_ns, stop_ns, stalled_ns
    cdef size_t unsent, before = 0
    engine_flush(self)
    if not self.has_batch:
        return 0
    self.has_batch = False
    now_ns = clock_ns()
    stop_ns = stalled_ns = now_ns + FLUSH_NS
    unsent = engine_unsent(self)
    while unsent > 0 and now_ns < min(stop_ns, stalled_ns):
        if unsent != before:
            before = unsent
            stalled_ns = now_ns + STALLED_NS
        engine_step(self, self.master_count, min(stop_ns, stalled_ns))
        now_ns = clock_ns()
        unsent = engine_unsent(self)
    return 0


cdef size_t engine_unsent(Engine self) noexcept:
    # Bytes that wait for an open socket to take them.
    cdef size_t unsent = 0
    cdef int i
    for i in range(self.master_count):
        if self.links[i].phase == LINK_OPEN:
            unsent += buffer_length(&self.links[i].outgoing)
    return unsent


# --- close ----------------------------------------------------------------------------
# The end of an engine: the last replies are read (drain), then its connections are
# closed. close(), a release that comes after it, the end of the interpreter.


cdef int engine_drain(Engine self, Drain drain) except -1:
    # Step until it is settled. With the engine to oneself, and not in a handler that
    # runs between two passes of this thread: TLS may be at the very replies. No
    # connection is given up meanwhile: what is on its way might be dropped with it.
    cdef int64_t now_ns = clock_ns(), limit_ns, before_ns
    self.is_draining = True
    try:
        while True:
            limit_ns = engine_limit_ns(self, drain, now_ns)
            if limit_ns == 0:
                return 0
            engine_step(
                self, self.master_count, min(limit_ns, now_ns + drain.slice_ns)
            )
            before_ns, now_ns = now_ns, clock_ns()
            drain_take_time(drain, self, now_ns - before_ns)
    finally:
        self.is_draining = False


cdef int engine_drain_undo(Engine self, object work) except -1:
    # The replies to the releases of work that was given up just now.
    if self.leadership.depth > 1:
        return 0
    engine_open_deferred(self, clock_ns())
    return engine_drain(self, drain_of(
        self, False, engine_quiet_ns(self, work_timeout_ns(work)), clock_ns() + UNDO_NS
    ))


cdef int engine_drain_all(Engine self, int64_t until_ns) except -1:
    # All commands in flight, at the end of an engine: its caller has it to itself.
    if not (
        engine_open_deferred_at_end(self, clock_ns()) or engine_awaits_replies(self)
    ):
        return 0
    engine_flush(self)
    return engine_drain(self, drain_of(
        self, True, engine_quiet_ns(self, QUIET_MOST_NS), until_ns
    ))


cdef int engine_shut_down(Engine self, int64_t timeout_ns) except -1:
    if self.is_closed:
        return 0
    try:
        engine_begin_close(self)
    except BaseException:
        engine_disconnect(self)
        raise
    return engine_end_close(self, timeout_ns)


cdef int engine_end_close(Engine self, int64_t timeout_ns) except -1:
    # Silent masters get timeout_ns, or 4 round trips where those take longer; others go
    # on with what they have until it is done.
    cdef int64_t quiet_ns = max(
        timeout_ns, min(4 * self.round_trip_ns, <int64_t>QUIET_MOST_NS)
    )
    try:
        engine_drain(self, drain_of(
            self, True, quiet_ns, clock_ns() + min(10 * timeout_ns, <int64_t>NS_PER_S)
        ))
    finally:
        engine_disconnect(self)
    return 0


cdef int engine_close_again(Engine self) except -1:
    # A release that comes after close() opens connections of its own, and closes them.
    cdef int64_t now_ns = clock_ns()
    if not engine_is_connected_or_deferring(self):
        return 0
    try:
        engine_open_due(self, True, now_ns)
        engine_drain(self, drain_of(
            self, True, engine_quiet_ns(self, QUIET_MOST_NS), now_ns + OPEN_AGAIN_NS
        ))
    finally:
        engine_disconnect(self)
    return 0


cdef bint engine_take_over(Engine self) except -1:
    # The interpreter ends, and the leader is a daemon thread that it has stopped. If it
    # was stopped between two steps all is as it should be, else as after a fork; but
    # the releases in flight are deferred to the next connections.
    cdef Leadership leadership = self.leadership
    cdef int64_t now_ns = clock_ns()
    cdef Follower follower
    if not leader_was_stopped(leadership):
        raise ClosedError("a thread that the interpreter has stopped is at it")
    is_whole = leadership.leader_at == LEADER_OUT_OF_SYSTEM
    followers = [
        follower for follower in leadership.followers
        if follower.asks == FOLLOWER_WITHDRAW
    ]
    leader_reset(leadership)
    leader_try_enter(leadership)
    leadership.followers = followers
    leadership.waker.has_followers = len(followers) > 0
    if not is_whole:
        self.has_batch = False
        self.counters.due_ns = NEVER_NS
        engine_forget_connections(self, now_ns, "its thread was stopped")
    engine_end_acquires(self, "the interpreter ends", now_ns)
    return True
