# The blocking step of the leader: send what is queued, poll, receive what is there (all
# without the GIL), then take it. And the loops of steps that end by themselves.

cdef enum:
    FOLLOWED_NS = 1_000_000_000      # so long after a follower another one may come


cdef bint engine_step(Engine self, int wanted, int64_t limit_ns) except -1:
    """Send, wait for an event, a due time or the limit, and take all that came.

    Reads from as many masters as are `wanted` to answer, not from more. Returns whether
    a signal came first, or may have.
    """
    cdef int error
    cdef int64_t until_ns
    cdef bint is_green = leader_is_green(self.leadership), was_closed = self.is_closed
    engine_take_leftover(self)
    blocking_take_followers(self)
    if self.is_closed and not (was_closed and engine_is_connected_or_deferring(self)):
        limit_ns = 0      # just now, by one of these followers; or nothing will come
    engine_before_write(self)
    self.leadership.waker.is_alone = (
        self.master_count == 1
        and self.started_ns - self.leadership.followed_at_ns > FOLLOWED_NS
        and self.started_ns != self.leadership.waited_for_ns
    )
    engine_before_nogil(self)
    until_ns = min(self.counters.due_ns, limit_ns)
    with nogil:
        error = links_exchange(
            self.send_order, self.polled, self.master_count, wanted,
            0 if is_green else until_ns, &self.leadership.waker,
        )
        atomic_put(&self.leadership.leader_at, LEADER_OUT_OF_SYSTEM)
    self.leadership.leader_at = LEADER_HAS_GIL
    if error == 0:
        if is_green:
            engine_wait_in_hub(self, until_ns)
        engine_take_events(self)
    elif error == -EINTR:
        self.leadership.waited_for_ns = self.started_ns
    else:
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
        if link.is_parsing:
            continue
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


cdef int engine_take_leftover(Engine self) except -1:
    # What an exception has left in the lists. And bytes received and not yet taken: by
    # the outer step of this thread, or by one that ended in an exception. The next
    # receive would overwrite them.
    cdef int i
    if self.opened or self.batches:
        engine_admit_left(self, clock_ns())
    for i in range(self.master_count):
        if self.links[i].received and not self.links[i].is_parsing:
            return engine_take_events(self)
    return 0


cdef int engine_flush(Engine self) except -1:
    # Send all that is queued, a roll-back too, and do not wait.
    cdef int i
    engine_before_write(self)
    for i in range(self.master_count):
        if buffer_length(&self.links[i].outgoing) > 0:
            engine_before_nogil(self)
            with nogil:
                links_send(self.send_order, self.master_count)
                atomic_put(&self.leadership.leader_at, LEADER_OUT_OF_SYSTEM)
            self.leadership.leader_at = LEADER_HAS_GIL
            break
    return 0


cdef enum:
    STALLED_NS = 20_000_000
    DRAIN_NS = 1_000_000_000


cdef int engine_drain(Engine self) except -1:
    # Flush; a batch may have queued more than the sockets take at once: go on for as
    # long as they take some. A release without a waiter would stay here otherwise.
    cdef int64_t now_ns, stop_ns, stalled_ns
    cdef size_t unsent, before = 0
    engine_flush(self)
    if not self.has_batch:
        return 0
    self.has_batch = False
    now_ns = clock_ns()
    stop_ns = stalled_ns = now_ns + DRAIN_NS
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
