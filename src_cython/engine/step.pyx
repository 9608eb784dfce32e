# HEADER-STEP

from libc.errno cimport EINTR
from libc.stdint cimport int64_t


cdef bint engine_step(Engine self, int wanted, int64_t limit_ns) except -1:
    """Send, wait until something happens or is due or the limit, take what came.

    Reads from as many masters as are `wanted` to answer, not from more. Returns whether
    a signal came first.
    """
    cdef int error
    cdef int64_t until_ns
    cdef bint is_green = leader_is_green(self.leadership)
    engine_take_leftover(self)
    blocking_take_followers(self)
    if self.is_closed and not engine_is_connected_or_deferring(self):
        limit_ns = 0      # just now, by one of these requests: nothing will come
    engine_before_nogil(self)
    until_ns = min(self.next_ns, limit_ns)
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
    elif error != -EINTR:
        raise OSError(-error, "ppoll")
    return error == -EINTR


cdef int engine_wait_in_hub(Engine self, int64_t until_ns) except -1:
    # In place of a poll that sleeps, where one that does not found nothing. The next
    # step reads what has come; until then the leader touches nothing.
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
    if waker.fd >= 0:
        readable.append(waker.fd)
    if left_ns <= 0 or waker_is_set_before_sleep(waker):
        return 0
    try:
        greenlet_hub_wait(readable, writable, left_ns)
    finally:
        waker.is_sleeping = 0
    return 0


cdef int engine_probe_idle(Engine self) except -1:
    # A stream's end stands behind the late replies in it, which nobody has read yet: so
    # poll until there is nothing more. Twice will do, and a flood is left to itself.
    cdef int _i, i
    for _i in range(4):
        for i in range(self.master_count):
            self.links[i].is_unseen = False      # no look before the poll: ask them all
        engine_step(self, self.master_count, 0)
        if links_are_quiet(self.links, self.master_count):
            return 0
    return 0


cdef int engine_take_leftover(Engine self) except -1:
    # What was received and not yet taken: by the outer step of this thread, or by one
    # that ended in an exception. The next receive would overwrite it.
    cdef int i
    for i in range(self.master_count):
        if self.links[i].received and not self.links[i].is_parsing:
            return engine_take_events(self)
    return 0


cdef int engine_flush(Engine self) except -1:
    # Send what is queued and do not wait: the roll-back on its way out.
    cdef int i
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
    # Flush; what a batch queued may be more than the sockets take at once: go on for as
    # long as they take some. A release that nobody waits for would stay here otherwise.
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
