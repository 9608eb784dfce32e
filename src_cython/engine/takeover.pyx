# An engine that was left in the middle of anything by threads that are no more: begun
# anew in a forked child. (From a leader that the interpreter has stopped: close.)


cdef inline int engine_check_fork(Engine self) except -1:
    return 0 if self.generation == current_generation else engine_reset_after_fork(self)


cdef int engine_reset_after_fork(Engine self) except -1:
    # In a forked child. No step that the parent was in the middle of goes on here: its
    # flags are reset, or a master would be left alone for ever. Where the fork was made
    # inside a step of this thread, the outer frames find other objects than theirs in
    # each master, and every round ended.
    cdef int64_t now_ns = clock_ns()
    self.generation = current_generation
    self.driver = None
    if self.leadership.depth > 0 and self.leadership.greenlet != 0:
        engine_leave_open(self)
    leader_reset(self.leadership)
    engine_forget_steps(self)
    engine_forget_connections(self, now_ns)
    return engine_give_up_rounds(self, now_ns)


cdef void engine_leave_open(Engine self) noexcept:
    # A leader's greenlet was copied, and its hub watches these: libev aborts where a
    # watched descriptor is closed.
    cdef int i
    for i in range(self.master_count):
        self.links[i].fd = -1
    self.leadership.waker.event.fd = -1


cdef int engine_forget_steps(Engine self) except -1:
    # Those of threads that are no more.
    cdef int i
    for i in range(self.master_count):
        self.links[i].is_parsing = False
    self.has_batch = False
    self.counters.due_ns = NEVER_NS
    return 0


cdef int engine_give_up_rounds(Engine self, int64_t now_ns) except -1:
    # The parent's: a frame of ours that waits for one has to end.
    cdef Round round
    self.rests = {}
    self.watcher = None
    for round in list(self.admissions):
        round_give_up(round, "the process forked", now_ns)
    self.admissions = {}
    engine_end_waiting(self, "the process forked", now_ns)
    self.queues = wait_queues_new(draw_token()[:16])      # it is another process
    for master in self.masters:
        (<Master>master).leaving = self.queues.leaving
    for round in self.closed + self.queue_check_pending + self.opened:
        round_give_up(round, "the process forked", now_ns)      # a number to be written
        round.is_finished = True
        if type(round.waiter) is Batch:
            batch_give_up(<Batch>round.waiter, round)
        round.waiter = None
    for batch in self.batches:
        batch_give_up(<Batch>batch, <Round>(<Batch>batch).rounds[0])
    self.batches.clear()
    self.closed.clear()
    self.opened.clear()
    self.closed_first = self.opened_first = 0
    self.queue_check_pending = []
    return 0
