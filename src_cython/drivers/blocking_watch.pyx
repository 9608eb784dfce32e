# A thread of a blocking client, while a key rests in it: it reads recalls.
#
# It leads for a moment when a socket has something to read and no other thread leads,
# or has just led: those read it themselves, and an ordinary round should not find the
# mutex taken. With greenlets it waits in the hub.

cdef enum:
    WATCH_NS = 100_000_000       # a key may come to rest for less than another
    BUSY_NS = 1_000_000


def blocking_watch(Engine engine not None):
    """Give keys up that rest here, when they are recalled or their time is over.

    Blocks until none rests.
    """
    cdef int64_t until_ns = NEVER_NS
    try:
        while blocking_rests(engine) and clock_ns() < until_ns:
            blocking_watch_once(engine)
            until_ns = NEVER_NS if engine.rests else min(
                until_ns, clock_ns() + OPEN_AGAIN_NS
            )
    finally:
        engine.watcher = None


cdef bint blocking_rests(Engine self) noexcept:
    # Also where releases of those that rested are not answered yet, or wait for a
    # connection: for a second.
    cdef Master master
    cdef Py_ssize_t owed = len(self.rests)
    for master in self.masters:
        owed += master.in_flight.count + len(master.in_flight.deferred)
    return owed > 0 and not (
        is_exiting or self.is_closed or self.generation != current_generation
    )


cdef int blocking_watch_once(Engine self) except -1:
    cdef int64_t now_ns = clock_ns()
    cdef int64_t until_ns = min(self.counters.due_ns, now_ns + WATCH_NS)
    if now_ns - self.polled_at_ns < BUSY_NS and now_ns < self.counters.due_ns:
        sleep_ns(BUSY_NS)
        return 0
    if greenlet_hub_caller() != 0:
        blocking_watch_in_hub(self, until_ns)
    else:
        blocking_watch_sockets(self, until_ns)
    if not blocking_rests(self):
        return 0
    if not blocking_try_enter(self):
        sleep_ns(BUSY_NS)
        return 0
    try:
        engine_step(self, self.master_count, 0)
        engine_drain(self)
    finally:
        blocking_leave(self)
    return 0


cdef int blocking_watch_in_hub(Engine self, int64_t until_ns) except -1:
    cdef int i
    cdef list readable = []
    for i in range(self.master_count):
        if self.links[i].fd >= 0:
            readable.append(self.links[i].fd)
    greenlet_hub_wait(readable, [], max(until_ns - clock_ns(), <int64_t>BUSY_NS))
    return 0


cdef int blocking_watch_sockets(Engine self, int64_t until_ns) noexcept:
    # Another thread may close one meanwhile: nothing is read here.
    cdef pollfd polled[MAX_MASTERS]
    cdef timespec left
    cdef int64_t left_ns = max(until_ns - clock_ns(), <int64_t>0)
    cdef int i
    for i in range(self.master_count):
        polled[i].fd = self.links[i].fd
        polled[i].events = POLLIN
        if link_wants_to_write(self.links[i]):
            polled[i].events = POLLIN | POLLOUT
    left.tv_sec = left_ns // NS_PER_S
    left.tv_nsec = left_ns % NS_PER_S
    with nogil:
        poll_for(polled, self.master_count, &left)
    return 0
