# One pass of the engine: what came, what is due, and what follows from it. The stages
# are called here alone, in this order; each leaves lists for those behind it.
#
#   received    bytes become replies, and these the votes of their rounds
#   turns       a push opens a round that waits             (master.turns -> opened)
#   judged      a round with a verdict is confirmed, or rolled back; an answer opens a
#               round that waits; the waiter is woken       (closed -> opened, batches)
#   due         what the time closes, opens, or asks again  (a heap -> opened)
#   admitted    a round is opened, or waits for connections (opened -> bytes)
#
# What is opened is admitted behind the entry that opened it, before the next one: a
# release and the SET that follows it leave in one write, in that order. An entry is
# taken out of its list before anything is done with it, and where that raises it is put
# back, or its round is ended; the next pass goes on with the others.
#
# A signal handler or a finalizer may take a lock in the middle of a pass. Such an inner
# pass finds the bytes that the outer one has received and takes them first, so the
# order of the replies holds; it leaves alone a master whose replies the outer one is
# taking out at this moment. It takes what the lists hold, to the end.
#
# Before 3.12 any new object may collect garbage, and so run a finalizer. So a list is
# taken out in one step, for an empty one that was made before: else what a finalizer
# adds in between would be lost.
#
# `due_ns` is not later than the next time at which something is due: the deadline of
# an open round, the end of a wait for connections, a connection that takes too long, a
# reply that is overdue. It is only ever lowered, until `engine_on_time` finds it anew:
# so a round that closes in time costs nothing here.

cdef enum:
    DUE_PASSES = 64       # of 16 KiB per master: more than can be in flight


cdef int engine_submit_work(
    Engine self, object work, object waiter, int64_t now_ns
) except -1:
    # Once, and not to a closed engine: a step just before this, the probe after an idle
    # time, may have submitted it already, or closed the engine.
    if work_is_finished(work):
        return waiter_wake(waiter)
    if work_is_submitted(work):
        work_set_waiter(work, waiter)
        return 0
    if self.is_closed and not work_is_release(work):
        raise ClosedError("closed")
    if self.rests:
        engine_replace_rests(self, work, now_ns)
    if type(work) is Batch:
        (<Batch>work).is_submitted = True
        (<Batch>work).waiter = waiter
        return engine_admit_batch(self, <Batch>work, now_ns)
    (<Round>work).waiter = waiter
    return engine_submit(self, <Round>work, now_ns)


cdef int engine_take_events(Engine self) except -1:
    # All that has come, then all that is due by now, then wake the waiters.
    cdef int64_t now_ns = clock_ns()
    self.polled_before_ns, self.polled_at_ns = self.polled_at_ns, now_ns
    engine_take_links(self, now_ns)
    if self.admissions or self.opened or self.batches:
        engine_admit(self, now_ns)
    if now_ns >= self.counters.due_ns:
        engine_on_due(self, now_ns)
    if self.has_rested:
        engine_check_rests(self, now_ns)
    if self.closed or self.queue_check_pending:
        return engine_finish(self, clock_ns())
    return 0


cdef int engine_finish(Engine self, int64_t now_ns) except -1:
    # Confirm or roll back the rounds that have closed, and wake their waiters.
    cdef Round round = None
    if self.queue_check_pending:
        engine_take_queue_checked(self, now_ns)
    try:
        while self.closed:
            round = engine_next_of(self.closed, &self.closed_first)
            engine_finish_round(self, round, now_ns)
            round = None
            if self.opened or self.batches:
                engine_admit_left(self, now_ns)
    except BaseException:      # the next step goes on with it
        if round is not None and not round.is_finished:
            self.closed.insert(self.closed_first, round)
        raise
    return 0


cdef int engine_take_links(Engine self, int64_t now_ns) except -1:
    # Bytes and events of the links, into the masters.
    cdef Master master
    for master in self.masters:
        if not master.link.is_parsing:
            engine_take_link(self, master, now_ns)
            if master.in_flight.unanswered:
                engine_send_unanswered(self, master, now_ns)
    return 0


cdef int engine_take_link(Engine self, Master master, int64_t now_ns) except -1:
    cdef Link *link = &master.link
    cdef bytes data
    if link.phase == LINK_OPEN:
        if link.received:
            data = PyBytes_FromStringAndSize(link.incoming, link.received)
            link.received = 0
            link.heard_ns = now_ns
            engine_take_bytes(self, master, data, now_ns)
        if link.error != 0:
            master_on_cut(master, error_text(link.error), now_ns)
        elif link.is_at_end:
            master_on_cut(master, "the server closed the connection", now_ns)
    elif link.is_ready and link.phase == LINK_CONNECTING:
        link.is_ready = False
        master_on_connect_event(master, now_ns)
    elif link.is_ready and link.phase == LINK_RESOLVING:
        link.is_ready = False
        master_on_resolved(master, now_ns)
    return 0


cdef int engine_take_bytes(
    Engine self, Master master, bytes data, int64_t now_ns
) except -1:
    master_on_received(master, data, now_ns)
    if master.notified:
        engine_take_notified(self, master, now_ns)
    while master.turns:
        engine_take_turn(self, master, now_ns)
        engine_admit_opened(self, now_ns)
    if master.moved:
        engine_take_moved(self, master, now_ns)
    if master.queues_found:
        engine_take_queues_found(self, master, now_ns)
    return engine_review_master(self, master, now_ns) if master.needs_review else 0


cdef int engine_on_due(Engine self, int64_t now_ns) except -1:
    # Replies that wait in a socket are in time: read them before anything is given up.
    # A master that still brings some is not overdue.
    cdef uint64_t quiet = 0
    cdef int i, _pass
    for _pass in range(DUE_PASSES):
        engine_before_nogil(self)
        with nogil:
            links_receive(self.links, self.master_count)
            atomic_put(&self.leadership.leader_at, LEADER_OUT_OF_SYSTEM)
        self.leadership.leader_at = LEADER_HAS_GIL
        quiet = 0
        for i in range(self.master_count):
            if not self.links[i].received:
                quiet |= <uint64_t>1 << i
        engine_take_links(self, now_ns)
        if quiet == ~<uint64_t>0 >> (MAX_MASTERS - self.master_count):
            break
    return engine_on_time(self, now_ns, quiet)


cdef int engine_on_time(Engine self, int64_t now_ns, uint64_t quiet) except -1:
    # Close all that is due; all that had come by `now_ns` has been read. Only the
    # `quiet` masters, which sent nothing, can be overdue.
    cdef Master master
    cdef Admission admission
    if now_ns < self.counters.due_ns:
        return 0
    for master in self.masters:
        in_flight_expire_rounds(master.in_flight, now_ns)
        if (quiet >> master.index) & 1:
            master_check_time(
                master, 0 if self.is_settling else self.polled_before_ns, now_ns
            )
    engine_admit(self, now_ns)
    while engine_take_due(self, now_ns):
        engine_admit_opened(self, now_ns)
    engine_open_deferred(self, now_ns)
    self.counters.due_ns = NEVER_NS
    engine_note_time(self, wait_queues_next_ns(self.queues))
    engine_note_time(self, engine_queue_check_next_ns(self))
    for admission in self.admissions.values():
        engine_note_time(self, admission.limit_ns)
    for master in self.masters:
        engine_note_time(self, master_next_ns(master, now_ns))
    return 0


cdef inline int engine_before_write(Engine self) except -1:
    # Before bytes are written: gathered checks follow all else, and TLS, which
    # runs Python code, encrypts what was queued since the last write.
    if self.queue_check_gathered:
        engine_send_queue_checks(self, clock_ns())
    return engine_encrypt(self, clock_ns()) if self.has_tls else 0


cdef int engine_encrypt(Engine self, int64_t now_ns) except -1:
    cdef Master master
    for master in self.masters:
        if master.tls is not None and master.tls.unencrypted and (
            not master.link.is_parsing      # the outer step encrypts this as well
        ):
            master_encrypt(master, now_ns)
    return 0


cdef inline int engine_before_nogil(Engine self) except -1:
    # Before each section without the GIL; nothing may run in between. A signal handler
    # or a finalizer may have forked since the last check: the sockets are the parent's
    # then. The flag is explained in leader.
    engine_check_fork(self)
    self.leadership.leader_at = LEADER_IN_SYSTEM
    return 0
