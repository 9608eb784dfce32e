# An engine that was left in the middle of anything, by its process or by the thread
# that led: in a forked child, and at the end of the interpreter, which stops daemons.

from libc.stdint cimport int64_t


cdef inline int engine_check_fork(Engine self) except -1:
    return 0 if self.generation == current_generation else engine_begin_anew(self)


cdef int engine_begin_anew(Engine self) except -1:
    # In a forked child. Whatever the parent was in the middle of, nobody goes on with
    # it here: what says so is reset, or a master would be left alone for ever. Where
    # the fork was made inside a step of this thread, the outer frames find other
    # objects than theirs in each master, and every round ended.
    cdef int64_t now_ns = clock_ns()
    self.generation = current_generation
    self.driver = None
    if self.crowd.depth > 0 and self.crowd.greenlet != 0:
        engine_leave_open(self)
    crowd_reset(self.crowd)
    engine_forget_steps(self)
    engine_forget_connections(self, now_ns)
    engine_give_up_rounds(self, now_ns)
    return exit_watch(self)


cdef void engine_leave_open(Engine self) noexcept:
    # A leader's greenlet was copied, and its hub watches these: libev aborts where a
    # watched descriptor is closed.
    cdef int i
    for i in range(self.master_count):
        self.links[i].fd = -1
    self.crowd.bell.fd = -1


cdef int engine_forget_steps(Engine self) except -1:
    # Those of threads that are no more.
    cdef int i
    for i in range(self.master_count):
        self.links[i].is_parsing = False
    self.has_batch = False
    self.next_ns = NEVER_NS
    return 0


cdef int engine_give_up_rounds(Engine self, int64_t now_ns) except -1:
    # The parent's: a frame of ours that waits for one has to end.
    cdef Admission admission
    cdef Round round
    for admission in self.admissions:
        round_give_up(admission.round, "the process forked", now_ns)
    self.admissions = []
    for round in self.closed:
        round.is_finished = True
        if type(round.waiter) is Batch:
            batch_give_up(<Batch>round.waiter, round)
        round.waiter = None
    self.closed.clear()
    return 0


cdef bint engine_take_over(Engine self) except -1:
    # The interpreter ends, and the leader is a daemon thread that it has stopped. If it
    # was stopped between two steps all is as it should be, else as after a fork; but
    # the releases that it owed are carried to the next connections.
    cdef Crowd crowd = self.crowd
    cdef int64_t now_ns = clock_ns()
    cdef Request request
    if not crowd_is_left_behind(crowd):
        raise ClosedError("a thread that the interpreter has stopped is at it")
    is_whole = crowd.leader_at == LEADER_BACK
    requests = [
        request for request in crowd.requests if request.kind == REQUEST_WITHDRAW
    ]
    crowd_reset(crowd)
    crowd_try_enter(crowd)
    crowd_put_back(crowd, requests)
    if not is_whole:
        engine_forget_steps(self)
        engine_forget_but_carry(self, "its thread was stopped", now_ns)
    engine_end_acquires(self, "the interpreter ends", now_ns)
    return True
