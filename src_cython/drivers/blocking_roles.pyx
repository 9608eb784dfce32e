# The two roles of a blocking caller: to lead, with the mutex, or to follow.

cdef enum:
    SIGNALS_NS = 100_000_000      # a leader that polls for longer looks for signals


cdef int blocking_lead(Engine self, object work) except -1:
    # With the mutex; gives it back. Returns before the round is finished where a signal
    # came: its handler may take a lock itself, in this thread or in another one. One
    # that comes between two polls, or to another thread, ends none; so also after a
    # while.
    cdef bint is_signal = False
    cdef int64_t now_ns, began_ns = NEVER_NS
    try:
        if self.is_closed and not work_is_release(work):
            raise ClosedError("closed")
        waker_open(&self.leadership.waker)
        if not work_is_submitted(work):
            now_ns = clock_ns()
            if now_ns - self.polled_at_ns > NS_PER_S:
                engine_probe_idle(self)     # idle: has one been cut?
                now_ns = clock_ns()         # (and this may have submitted it)
            engine_submit_work(self, work, None, now_ns)
            # A batch was long in the making: a signal that came then ends no poll.
            is_signal = type(work) is Batch
        elif type(work) is Round:      # where there was no memory to report it
            round_report_closed(<Round>work)
        if self.closed:
            # Nothing to wait for; but take the replies for others, or handshakes
            # and repeated releases get stuck while all rounds end like this one.
            engine_step(self, self.master_count, 0)
        while not (work_is_finished(work) or is_signal):
            is_signal = engine_step(self, blocking_wanted(self, work), NEVER_NS)
            began_ns = min(began_ns, self.polled_at_ns)
            is_signal |= self.polled_at_ns - began_ns > SIGNALS_NS
            if self.is_closed and self.leadership.closing:
                blocking_end_closing(self)
        engine_drain(self)
    finally:
        blocking_leave(self)
    if is_signal:
        PyErr_CheckSignals()
    return 0


cdef int blocking_wanted(Engine self, object work) noexcept:
    # How many masters have to answer, at the least, before the replies are taken.
    if self.leadership.waiting or type(work) is Batch:
        return self.master_count
    return round_wanted(<Round>work)


cdef int blocking_follow(Engine self, object work) except -1:
    cdef Leadership leadership = self.leadership
    cdef Follower follower = Follower(leadership, FOLLOWER_RUN, work)
    cdef bint is_patient = wakeups_are_under_way(leadership.wakeups)
    leadership.waiting.append(follower)
    try:
        if work_is_submitted(work):       # it was the leader until a signal came
            work_set_waiter(work, follower)
        elif not engine_join_stay(self, work, follower, clock_ns()):
            leader_add_follower(leadership, follower)
        while not work_is_finished(work):
            if not is_patient and blocking_try_enter(self):
                follower.is_elected = False      # on leaving it elects another one
                blocking_lead(self, work)
                work_set_waiter(work, follower)     # where it was left to others
            elif follower.is_done:
                raise ClosedError("closed")
            else:
                leader_await(
                    leadership, follower, PATIENCE_US if is_patient else SLICE_US
                )
                is_patient = False
    finally:
        leader_remove_follower(leadership, follower)
        blocking_serve(self)
    return 0


cdef bint blocking_try_enter(Engine self) except -1:
    # Raises ClosedError where the interpreter ends and no thread may enter any more.
    if leader_is_caller(self.leadership):
        self.leadership.depth += 1
        return True
    if leader_try_enter(self.leadership):
        return True
    return interpreter_is_finalizing() and engine_take_over(self)


cdef int blocking_leave(Engine self) except -1:
    if self.generation != current_generation or not leader_is_caller(self.leadership):
        return 0      # a leader's greenlet, copied by a fork
    try:
        if self.is_closed and self.leadership.depth == 1:
            blocking_end_closing(self)
            engine_close_again(self)
    finally:
        leader_leave(self.leadership)
    return blocking_serve(self) if self.leadership.depth == 0 else 0


cdef int blocking_serve(Engine self) except -1:
    # Followers without a waiting thread, queued while the last leader was leaving.
    cdef Leadership leadership = self.leadership
    if self.generation != current_generation:
        return 0
    while (
        leadership.waker.has_followers and not leadership.waiting
        and leader_try_enter(leadership)
    ):
        try:
            blocking_take_followers(self)
            engine_drain(self)
            if self.is_closed:
                blocking_end_closing(self)
                engine_close_again(self)
        finally:
            leader_leave(leadership)
    return 0


cdef int blocking_end_closing(Engine self) except -1:
    # The close() of followers, which has begun in a step.
    cdef Follower follower
    cdef int64_t timeout_ns = 0
    empty = []
    closing, self.leadership.closing = self.leadership.closing, empty
    if not closing:
        return 0
    for follower in closing:
        timeout_ns = max(timeout_ns, follower.timeout_ns)
    try:
        engine_end_close(self, timeout_ns)
    finally:      # a leader's greenlet may be killed in there: closed it is
        for follower in closing:
            wakeups_add(self.leadership.wakeups, follower)
    return 0


cdef int blocking_await_settled(
    Engine self, Follower follower, int64_t until_ns
) except -1:
    # Until another thread, which leads, has taken the follower and read the replies
    # that it needs; or this one does, as soon as that one has gone.
    cdef Settlement settlement = None
    while clock_ns() < until_ns:
        if blocking_try_enter(self):
            try:
                blocking_take_followers(self)
                return engine_settle(self, follower.settlement or settlement_of(
                    self, False, engine_quiet_ns(self, QUIET_NS), until_ns
                ))
            finally:
                blocking_leave(self)
        settlement = follower.settlement
        if settlement is not None and not engine_limit_ns(self, settlement, clock_ns()):
            return 0
        follower_wait(follower, AWAIT_US)
    return 0
