# Blocking callers: each runs its round as the leader, or waits for the one who leads.

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t


def engine_run(Engine engine not None, work not None):
    """Run a round until it is closed; a lost one is rolled back before this returns.

    Or a batch of them. Blocks, with the GIL released, for connections where a quorum of
    them is missing (as long as `round.left_ns` allows), then up to the round's timeout.
    An exception of a signal handler rolls all back and goes on. Returns how many
    warnings the engine has by now.
    """
    check_work(work)
    engine_check_fork(engine)
    if ending:
        exit_check(work)
    try:
        if not word_is_out(engine.crowd.word) or crowd_is_mine(engine.crowd):
            if engine_try_enter(engine):
                engine_lead(engine, work)
        if not work_is_finished(work):
            engine_follow(engine, work)
        if work_has_validity(work) and work_is_overtaken(work, clock_ns()):
            engine_abandon(engine, work)
    except BaseException:
        engine_abandon(engine, work)
        raise
    if ending:      # nobody comes after us who would read what is still owed
        engine_settle_here(engine, work)
    return len(engine.warnings)


def engine_abandon(Engine engine not None, work not None):
    """Roll back a round, or a batch, whose caller will not get it; releases are sent.

    Blocks until the masters that answer have answered (a second at most), or a process
    that ends now would take back what it has sent. What a batch has to undo may be more
    than the sockets take. Inside a step of the same thread (a signal handler or a
    finalizer) it does not wait for replies.
    """
    cdef Request request
    check_work(work)
    engine_check_fork(engine)
    if engine_try_enter(engine):
        try:
            engine_withdraw_work(engine, work, clock_ns())
            engine_send_off(engine)
            engine_settle_undo(engine, work)
        finally:
            engine_leave(engine)
    else:
        request = Request(engine.crowd, REQUEST_WITHDRAW, work)
        crowd_ask(engine.crowd, request)
        engine_serve(engine)
        engine_await_settled(engine, request, clock_ns() + UNDO_NS)


cdef int engine_settle_here(Engine self, object work) except -1:
    if engine_try_enter(self):
        try:
            engine_settle_undo(self, work)
        finally:
            engine_leave(self)
    return 0


cdef int engine_await_settled(
    Engine self, Request request, int64_t until_ns
) except -1:
    # Until another thread, which leads, has taken the request and read the replies that
    # it needs; or this one does, as soon as that one has gone.
    cdef Settlement settlement = None
    while clock_ns() < until_ns:
        if engine_try_enter(self):
            try:
                engine_take_requests(self)
                return engine_settle(self, request.settlement or settlement_of(
                    self, False, engine_quiet_ns(self, QUIET_NS), until_ns
                ))
            finally:
                engine_leave(self)
        settlement = request.settlement
        if settlement is not None and (
            settlement_limit_ns(settlement, self, clock_ns()) == 0
        ):
            return 0
        request_wait(request, AWAIT_US)
    return 0


cdef int check_work(object work) except -1:
    if type(work) is not Round and type(work) is not Batch:
        raise TypeError("a Round or a Batch")
    return 0


cdef bint engine_try_enter(Engine self) except -1:
    # Raises ClosedError where the interpreter ends and nobody may enter any more.
    if crowd_is_mine(self.crowd):
        self.crowd.depth += 1
        return True
    if crowd_try_enter(self.crowd):
        return True
    return interpreter_is_finalizing() and engine_take_over(self)


cdef int engine_leave(Engine self) except -1:
    if self.generation != current_generation or not crowd_is_mine(self.crowd):
        return 0      # a leader's greenlet, copied by a fork
    try:
        if self.is_closed and self.crowd.depth == 1:
            engine_close_again(self)
    finally:
        crowd_leave(self.crowd)
    return engine_serve(self) if self.crowd.depth == 0 else 0


cdef int engine_serve(Engine self) except -1:
    # Requests that nobody waits for, left while the last leader was going.
    cdef Crowd crowd = self.crowd
    if self.generation != current_generation:
        return 0
    while crowd.bell.requested and not crowd.waiting and crowd_try_enter(crowd):
        try:
            engine_take_requests(self)
            engine_send_off(self)
            if self.is_closed:
                engine_close_again(self)
        finally:
            crowd_leave(crowd)
    return 0


cdef int engine_take_requests(Engine self) except -1:
    cdef list requests
    if not self.crowd.bell.requested:
        return 0
    requests = crowd_take_requests(self.crowd)
    requests.reverse()
    try:
        while requests:
            engine_take_request(self, <Request>requests.pop())
    finally:
        requests.reverse()
        crowd_put_back(self.crowd, requests)
    return 0


cdef int engine_take_request(Engine self, Request request) except -1:
    if request.kind == REQUEST_CLOSE:
        try:
            engine_shut(self, request.timeout_ns)
        finally:      # a leader's greenlet may be killed in there: closed it is
            word_tell(self.crowd.word, request)
    elif request.kind == REQUEST_WITHDRAW:
        engine_withdraw_work(self, request.work, clock_ns())
        engine_open_carried(self, clock_ns())
        request.settlement = settlement_of(
            self, False, engine_quiet_ns(self, work_timeout_ns(request.work)),
            clock_ns() + UNDO_NS,
        )
    elif request.kind == REQUEST_END:
        engine_end_acquires(self, "the interpreter ends", clock_ns())
        engine_open_carried(self, clock_ns())
        request.settlement = settlement_of(
            self, True, engine_quiet_ns(self, QUIET_NS), clock_ns() + request.timeout_ns
        )
    elif self.is_closed and not work_is_release(request.work):
        word_tell(self.crowd.word, request)
    elif not work_is_submitted(request.work):
        engine_submit_work(self, request.work, request, clock_ns())
    return 0


cdef int engine_lead(Engine self, object work) except -1:
    # With the mutex; gives it back. Returns before the round is finished where a signal
    # came: its handler may take a lock itself, in this thread or let another one do so.
    cdef bint is_signal = False
    cdef int64_t now_ns
    try:
        if self.is_closed and not work_is_release(work):
            raise ClosedError("closed")
        crowd_hang_bell(self.crowd)
        if not work_is_submitted(work):
            now_ns = clock_ns()
            if now_ns - self.polled_at_ns > NS_PER_S:
                engine_look_again(self)     # idle: has one been cut?
                now_ns = clock_ns()         # (and this may have submitted it)
            engine_submit_work(self, work, None, now_ns)
            if self.closed:
                # Nothing to wait for; but take what has come for others, or handshakes
                # and repeated releases stand still while all rounds end like this one.
                engine_step(self, self.master_count, 0)
            # A batch was long in the making: a signal that came then ends no poll.
            is_signal = type(work) is Batch
        while not (work_is_finished(work) or is_signal):
            is_signal = engine_step(self, engine_wanted(self, work), NEVER_NS)
        engine_send_off(self)
    finally:
        engine_leave(self)
    if is_signal:
        PyErr_CheckSignals()
    return 0


cdef int engine_wanted(Engine self, object work) noexcept:
    # How many masters to read from, at the least, before it is worth while to look.
    if self.crowd.waiting or type(work) is Batch:
        return self.master_count
    return round_wanted(<Round>work)


cdef int engine_follow(Engine self, object work) except -1:
    cdef Crowd crowd = self.crowd
    cdef Request request = Request(crowd, REQUEST_RUN, work)
    cdef bint is_patient = word_is_out(crowd.word)
    crowd.waiting.append(request)
    try:
        if work_is_submitted(work):       # it was the leader until a signal came
            work_set_waiter(work, request)
        else:
            crowd_ask(crowd, request)
        while not work_is_finished(work):
            if not is_patient and engine_try_enter(self):
                request.is_called = False      # on leaving it elects another
                engine_lead(self, work)
                work_set_waiter(work, request)     # where it was left to others
            elif request.is_done:
                raise ClosedError("closed")
            else:
                crowd_wait(crowd, request, PATIENCE_US if is_patient else SLICE_US)
                is_patient = False
    finally:
        crowd_go(crowd, request)
        engine_serve(self)
    return 0
