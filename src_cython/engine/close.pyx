# The end of an engine: the last replies are read (settlement), then its connections are
# closed. close(), a release that comes after it, the end of the interpreter.


cdef int engine_settle(Engine self, Settlement settlement) except -1:
    # Step until it is settled. With the engine to oneself, and not inside another step:
    # that one may be taking the very replies. No connection is given up meanwhile: what
    # is on its way might be dropped with it.
    cdef int64_t now_ns = clock_ns(), limit_ns, before_ns
    self.is_settling = True
    try:
        while True:
            limit_ns = engine_limit_ns(self, settlement, now_ns)
            if limit_ns == 0:
                return 0
            engine_step(
                self, self.master_count, min(limit_ns, now_ns + settlement.slice_ns)
            )
            before_ns, now_ns = now_ns, clock_ns()
            settlement_take_time(settlement, self, now_ns - before_ns)
    finally:
        self.is_settling = False


cdef int engine_settle_undo(Engine self, object work) except -1:
    # The replies to the releases of work that was given up just now.
    cdef int64_t quiet_ns = engine_quiet_ns(self, work_timeout_ns(work))
    if self.leadership.depth > 1:
        return 0
    engine_open_deferred(self, clock_ns())
    return engine_settle(
        self, settlement_of(self, False, quiet_ns, clock_ns() + UNDO_NS)
    )


cdef int engine_settle_all(Engine self, int64_t until_ns) except -1:
    # All commands in flight, at the end of an engine: its caller has it to itself.
    if not (
        engine_open_deferred_at_end(self, clock_ns()) or engine_awaits_replies(self)
    ):
        return 0
    engine_flush(self)
    return engine_settle(self, settlement_of(
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
        if follower.kind == FOLLOWER_WITHDRAW
    ]
    leader_reset(leadership)
    leader_try_enter(leadership)
    leader_put_back(leadership, followers)
    if not is_whole:
        engine_forget_steps(self)
        engine_forget_but_defer(self, "its thread was stopped", now_ns)
    engine_end_acquires(self, "the interpreter ends", now_ns)
    return True
