# close(), and a release that comes after it.

from libc.stdint cimport int64_t


def engine_close(Engine engine not None, int64_t timeout_ns):
    """Close all connections; wait up to timeout_ns for the releases they still owe.

    Rounds of other threads that are under way end UNREACHABLE, "closed".
    """
    cdef Crowd crowd = engine.crowd
    cdef Request request
    engine_check_fork(engine)
    if engine_try_enter(engine):
        try:
            engine_shut(engine, timeout_ns)
        finally:
            engine_leave(engine)
        return
    request = Request(crowd, REQUEST_CLOSE, None)
    request.timeout_ns = timeout_ns
    crowd.waiting.append(request)
    try:
        crowd_ask(crowd, request)
        while not request.is_done:
            if not engine_try_enter(engine):
                crowd_wait(crowd, request, SLICE_US)
                continue
            try:
                engine_take_requests(engine)
            finally:
                engine_leave(engine)
    finally:
        crowd_go(crowd, request)


cdef int engine_shut(Engine self, int64_t timeout_ns) except -1:
    # Silent masters get timeout_ns, or 4 round trips where those take longer; others go
    # on with what they have until it is done.
    cdef int64_t quiet_ns = max(
        timeout_ns, min(4 * self.round_trip_ns, <int64_t>QUIET_MOST_NS)
    )
    if self.is_closed:
        return 0
    self.is_closed = True
    try:
        engine_end_acquires(self, "closed", clock_ns())
        engine_settle(self, settlement_of(
            self, True, quiet_ns, clock_ns() + min(10 * timeout_ns, <int64_t>NS_PER_S)
        ))
    finally:
        engine_part(self)
    return 0


cdef int engine_close_again(Engine self) except -1:
    # A release that comes after close() opens connections of its own, and closes them.
    cdef int64_t now_ns = clock_ns()
    if not engine_is_in_touch(self):
        return 0
    try:
        engine_open_due(self, True, now_ns)
        engine_settle(self, settlement_of(
            self, True, engine_quiet_ns(self, QUIET_MOST_NS), now_ns + OPEN_AGAIN_NS
        ))
    finally:
        engine_part(self)
    return 0


cdef bint engine_is_in_touch(Engine self) noexcept:
    # Whether there are connections, or releases for them.
    cdef Master master
    for master in self.masters:
        if master.link.fd >= 0 or len(master.debts.carried) > 0:
            return True
    return False


cdef int engine_part(Engine self) except -1:
    # Close all connections; what still waits for them has failed.
    cdef Master master
    engine_forget_connections(self, clock_ns())
    engine_admit(self, clock_ns())
    engine_finish(self, clock_ns())
    for master in self.masters:
        master.debts.carried = []
        master.debts.carried_bytes = 0
    crowd_put_bell_away(self.crowd)
    return 0
