# One queue: its first is opened, its entry at the gate is left, it is forgotten.
#
# A round that is opened here is left in the list `opened`, from which it is admitted in
# the same pass (line), before any bytes are written.

cdef enum:
    ASK_AGAIN_NS = 250_000_000
    SOON_NS = 1_000_000
    TRY_BEHIND_NS = 400_000_000             # times one's place

cdef int64_t TRY_SLOT_NS = 1_000_000_000

cdef Terms LEAVE_TERMS = Terms(0, 0, OVERDUE_AT_LEAST_NS)


cdef int engine_open_waiting(
    Engine self, WaitQueue queue, Round round, int64_t now_ns
) except -1:
    # It is its turn, or the end of its time.
    cdef Turn turn = <Turn>round.turn
    cdef int gate = engine_gate(self, queue.resource, now_ns)
    cdef Round next = wait_queue_behind(queue, round)
    # First all that may fail, or collect garbage: between two lists a round is lost.
    if round_wants_slot(round):
        engine_set_slot(self, round, queue.slot, now_ns)
    queue.slot = -1
    if queue.freed:
        queue.freed = []      # what the gate notified us of before
    if gate >= 0:
        turn_set_arguments(turn, round, next, self.queues.waiter, now_ns)
    engine_set_queue_gate(self, queue, gate, now_ns)
    engine_set_due(self, queue, now_ns + ASK_AGAIN_NS)
    if turn.is_open or round.is_finished:      # a finalizer has opened or withdrawn it
        return 0
    self.opened.append(round)
    wait_queue_remove(queue, round)
    turn.is_open = True
    turn.next_number = 0 if next is None else (<Turn>next.turn).number
    turn_spend(turn, round, self.round_trip_ns, now_ns)
    round.gate = gate
    queue.noted = next
    queue.is_first = False
    queue.tried_ns = now_ns
    queue.free_ns = 0
    queue.is_entered = gate >= 0
    if queue.opened is None:
        queue.opened = round
    return 0


cdef int engine_stop_waiting(Engine self, WaitQueue queue, int64_t now_ns) except -1:
    # There is no queue: all try once, and poll. Where the connections are gone, too,
    # they wait for the next ones first, as other rounds do.
    cdef Round round
    cdef list empty = [], rounds = queue.rounds
    self.opened.extend(rounds)
    queue.rounds = empty
    queue.noted = None
    queue.is_entered = queue.is_first = False
    for round in rounds:
        turn_spend(<Turn>round.turn, round, self.round_trip_ns, now_ns)
        round.turn = None
    return engine_forget_queue(self, queue)


cdef int engine_end_waiting(Engine self, str reason, int64_t now_ns) except -1:
    # Of all callers: close(), a fork, the end of the loop or the interpreter.
    cdef WaitQueue queue
    cdef Round round
    for queue in list(self.queues.by_resource.values()):
        empty = []
        rounds, queue.rounds = queue.rounds, empty
        for round in rounds:
            round_give_up(round, reason, now_ns)
        if queue.is_entered and queue.opened is None:
            engine_leave_queue(self, queue.resource, queue.gate, now_ns)
        queue.noted = None
        queue.is_entered = queue.is_first = False
        engine_forget_queue(self, queue)
    return 0


cdef int engine_leave_if_empty(Engine self, WaitQueue queue, int64_t now_ns) except -1:
    # At once: where nobody waits in here, no thread may come that waits for the time.
    if queue.opened is not None or queue.rounds:
        return engine_set_due(self, queue, now_ns + SOON_NS)
    queue.noted = None
    if queue.is_entered:
        queue.is_entered = False
        engine_leave_queue(self, queue.resource, queue.gate, now_ns)
    return engine_forget_queue(self, queue)


cdef int engine_on_idle_queue(Engine self, WaitQueue queue, int64_t now_ns) except -1:
    # It is time, and there is nothing to ask: its first is under way, or there is none.
    if queue.opened is not None:
        return engine_set_due(self, queue, now_ns + ASK_AGAIN_NS)
    return engine_leave_if_empty(self, queue, now_ns)


cdef int engine_forget_queue(Engine self, WaitQueue queue) except -1:
    # A round that is undone late may name a queue that was forgotten before; by now
    # there may be another one of this resource, with others in it.
    if wait_queue_is_over(queue):
        queue.due_ns = NEVER_NS
        if self.queues.by_resource.get(queue.resource) is queue:
            del self.queues.by_resource[queue.resource]
    return 0


cdef int engine_set_queue_gate(
    Engine self, WaitQueue queue, int gate, int64_t now_ns
) except -1:
    # Another gate would notify the entry of a turn that nobody waits for there.
    cdef int left = queue.gate
    queue.gate = gate
    if left == gate:
        return 0
    queue.free_ns = 0
    if not queue.is_entered:
        return 0
    return engine_leave_queue(self, queue.resource, left, now_ns)


cdef int engine_leave_queue(
    Engine self, bytes resource, int gate, int64_t now_ns
) except -1:
    # A turn that was ours is passed on. By source: nobody may read NOSCRIPT.
    cdef Round leave
    cdef Turn turn = turn_new(now_ns, False)
    if gate < 0 or (<Master>self.masters[gate]).state_code != MASTER_READY:
        return 0
    leave = engine_question(self, OPERATION_LEAVE_QUEUE, resource, turn, LEAVE_TERMS)
    return engine_send_to_gate(self, leave, gate, True, now_ns)


cdef bint engine_may_try(WaitQueue queue, int64_t now_ns) noexcept:
    # The first of all asks every master, as if it had its turn: the key may be at
    # the gate alone (a releaser that died half-way), or has expired just now. So does
    # the first in here where the gate is silent: it may be long until that counts as
    # lost, and a quorum does without it. Those behind do so the less often, the further
    # behind they are: before them is perhaps one that is frozen, or one whose entry
    # was left at its gate and which reads that with its next call. Of a semaphore one
    # slot of many is tried, so that is not done as often.
    cdef int64_t permits
    if not wait_queue_is_noted(queue):
        return False
    permits = queue.noted.permits
    if permits:
        return queue.is_unanswered or now_ns - queue.tried_ns >= (
            min(TRY_SLOT_NS, ASK_AGAIN_NS * permits) * (1 + queue.place)
        )
    return (
        queue.is_first or queue.is_unanswered
        or now_ns - queue.tried_ns >= TRY_BEHIND_NS * queue.place
    )


cdef int engine_try(Engine self, WaitQueue queue, int64_t now_ns) except -1:
    (<Turn>queue.noted.turn).is_probe = True
    return engine_open_waiting(self, queue, queue.noted, now_ns)


cdef int engine_try_out_of_turn(
    Engine self, WaitQueue queue, int64_t now_ns
) except -1:
    # As if there were no queue: the gate is sent a SET, as each master is, for its
    # script would refuse. Our entry stays there meanwhile.
    cdef Round round = queue.noted
    engine_try(self, queue, now_ns)
    round.gate = -1
    return 0


cdef int engine_set_due(Engine self, WaitQueue queue, int64_t due_ns) except -1:
    queue.due_ns = due_ns
    return engine_add_due(self, due_ns, queue)


cdef int engine_add_due(Engine self, int64_t due_ns, object work) except -1:
    engine_note_time(self, due_ns)
    return wait_queues_add_due(self.queues, due_ns, work)
