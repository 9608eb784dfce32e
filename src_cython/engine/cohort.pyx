# A lease is handed on inside of this process (round/local), or its key rests (rests).
#
# A stay is the time from t0 in which the lease may be handed on; the queue knows its
# end. Meanwhile those who come are noted here alone, and the gate is not asked: its
# entry for this process is as old as when the stay began. The release that ends a stay
# is sent behind a question with the true time of our next caller, in the same write, so
# that the gate gives the turn to whoever waits longest anywhere.
#
# To hand on and to join are changes of lists alone. So a thread that has the GIL may do
# both while another one leads, as a finalizer inside of a step may.


cdef inline bint engine_may_need_no_master(Engine self, object work) noexcept:
    # One look, for what is no lock of this process alone.
    return len(self.queues.by_resource) > 0 or len(self.rests) > 0 or (
        type(work) is Round and (<Round>work).terms.linger_ns != 0
    )


cdef bint engine_hand_on(Engine self, object work, int64_t now_ns) except -1:
    # Whether a round needed no master: an acquire of what rests here; a release where
    # the next caller here has its lease, or its key rests.
    cdef Round round
    if type(work) is not Round or self.is_closed:
        return False
    round = <Round>work
    if round.is_submitted:
        return False
    if round.operation_code == OPERATION_ACQUIRE:
        return len(self.rests) > 0 and engine_take_rest(self, round, now_ns)
    if round.operation_code != OPERATION_RELEASE or round.lease_state is None:
        return False
    if is_exiting:      # the next thread may be stopped before it is awake
        return False
    return engine_hand_to_next(self, round, now_ns) or engine_rest(self, round, now_ns)


cdef bint engine_hand_to_next(Engine self, Round release, int64_t now_ns) except -1:
    cdef Round taken, next
    cdef WaitQueue queue
    if self.cohort_ns == 0 or not self.queues.by_resource:
        return False
    queue = self.queues.by_resource.get(round_queue(release))
    if queue is None or not queue.rounds or (
        queue.opened is not None and release.permits == 0
    ):
        return False
    taken = <Round>release.lease_state
    next = wait_queue_head(queue)
    if not round_may_hand_on(taken, next, self.cohort_ns, now_ns):
        return False
    round_open(release, now_ns)
    wait_queue_remove(queue, next)
    round_hand_on(taken, next, now_ns)
    if queue.noted is next:
        queue.noted = None
        queue.is_first = False
    engine_end_here(self, release, now_ns)
    engine_end_here(self, next, now_ns)
    self.counters.handed_on += 1
    if next.waiter is None or type(next.waiter) is Follower and (
        not (<Follower>next.waiter).is_waiting
    ):      # it leads, and sleeps
        engine_rouse(self)
    waiter, next.waiter = next.waiter, None
    waiter_wake(waiter)
    return True


cdef bint engine_join_stay(
    Engine self, object work, object waiter, int64_t now_ns
) except -1:
    # Whether a round waits now for a lease that is handed on here; a leader need not
    # know, but of the times that are due before it looks again.
    cdef Round round
    cdef WaitQueue queue
    cdef int64_t next_ns = self.counters.due_ns
    if type(work) is not Round or self.is_closed:
        return False
    round = <Round>work
    if (
        round.turn is None or (<Turn>round.turn).is_open or (<Turn>round.turn).is_kept
        or round.is_submitted
    ):
        return False
    queue = self.queues.by_resource.get(round_queue(round))
    if queue is None or now_ns >= queue.stay_until_ns:
        return False
    round.waiter = waiter
    round.closed_list = self.closed
    # Where a collection of garbage let the leader end the stay: due, for it to ask.
    engine_enter_queue(self, queue, round, -1)
    round.is_submitted = True
    if self.counters.due_ns < next_ns:
        engine_rouse(self)
    return True


cdef void engine_rouse(Engine self) noexcept:
    # A leader looks at its round, and at what is due, again: in poll, or about to be.
    self.counters.due_ns = 0
    self.leadership.waker.has_followers = 1
    waker_wake(&self.leadership.waker)
