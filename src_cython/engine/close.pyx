# The end of an engine: close(), and a release that comes after it.

from libc.stdint cimport int64_t


cdef int engine_shut_down(Engine self, int64_t timeout_ns) except -1:
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
        engine_disconnect(self)
    return 0


cdef int engine_close_again(Engine self) except -1:
    # A release that comes after close() opens connections of its own, and closes them.
    cdef int64_t now_ns = clock_ns()
    if not engine_is_connected_or_deferring(self):
        return 0
    try:
        engine_open_due(self, True, now_ns)
        engine_settle(self, settlement_of(
            self, True, engine_quiet_ns(self, QUIET_MOST_NS), now_ns + OPEN_AGAIN_NS
        ))
    finally:
        engine_disconnect(self)
    return 0
