# The callers of this process that wait in turn: they come, give up, or their time ends.
#
# The first of each queue is the one that the gate knows. It asks again from time to
# time, and the first of all tries on all masters then, and when the key should have
# expired: so releases by other clients, lost messages, and dead gates are found. A
# process that is notified and does not answer is dropped from the queue by the next
# that asks or releases (the scripts: _options/scripts).

cdef enum:
    AT_LEAST_NS = 100_000


cdef bint engine_wait(Engine self, Round round, int64_t now_ns) except -1:
    # Whether it waits; where no queue is kept it is as a round without a turn.
    cdef WaitQueue queue
    if engine_gate(self, round_queue(round), now_ns) < 0 or (
        wait_queues_are_until(self.queues.polled_ns, round_queue(round), now_ns)
    ):
        round.turn = None
        return False
    queue = self.queues.by_resource.get(round_queue(round))
    if queue is None:
        queue = self.queues.by_resource.setdefault(
            round_queue(round), wait_queue_new(round_queue(round), now_ns)
        )
    engine_enter_queue(self, queue, round, now_ns)
    return True


cdef int engine_enter_queue(
    Engine self, WaitQueue queue, Round round, int64_t now_ns
) except -1:
    cdef Turn turn = <Turn>round.turn
    turn.queue = queue
    turn.number = wait_queues_number(self.queues)
    wait_queue_add(queue, round)
    if turn.until_ns != NEVER_NS:
        engine_add_due(self, turn.until_ns, round)
    self.counters.waits += not turn.has_waited
    if turn.pause_ns > 0 and wait_queue_head(queue) is not round:
        turn.is_kept = False      # an earlier round is being tried
    if turn.is_kept:
        queue.noted = round
        engine_add_due(self, now_ns + max(
            self.round_trip_ns, max(<int64_t>AT_LEAST_NS, turn.pause_ns)
        ), round)
        if turn_is_paused(turn):
            engine_ask(self, queue, now_ns)
    elif queue.opened is None and not wait_queue_is_noted(queue):
        engine_ask_in_stay(self, queue, now_ns)
    return 0


cdef int engine_leave_turn(Engine self, Round round, int64_t now_ns) except -1:
    # Its caller has given it up.
    cdef Turn turn = <Turn>round.turn
    cdef WaitQueue queue = turn.queue
    if queue is None:
        return 0
    if turn.is_open:
        if queue.opened is round:
            queue.opened = None
        return engine_leave_if_empty(self, queue, now_ns)
    if not wait_queue_remove(queue, round) or queue.noted is not round:
        return engine_forget_queue(self, queue)
    queue.is_first = False
    queue.noted = None
    if queue.rounds and queue.opened is None:
        return engine_ask(self, queue, now_ns)
    return engine_leave_if_empty(self, queue, now_ns)


cdef bint engine_take_due(Engine self, int64_t now_ns) except -1:
    # The first that the time opens, or asks again; whether there was one.
    cdef Round round
    work = wait_queues_take_due(self.queues, now_ns)
    if work is None:
        return False
    if type(work) is WaitQueue:
        engine_on_queue_due(self, <WaitQueue>work, now_ns)
    elif type(work) is Questions:
        engine_ask_together(self, <Questions>work, now_ns)
    elif type(work) is Rest:
        engine_on_rest_due(self, <Rest>work, now_ns)
    else:
        round = <Round>work
        if (<Turn>round.turn).is_kept or now_ns >= (<Turn>round.turn).until_ns:
            engine_open_waiting(self, (<Turn>round.turn).queue, round, now_ns)
    return True


cdef int engine_on_queue_due(Engine self, WaitQueue queue, int64_t now_ns) except -1:
    queue.due_ns = NEVER_NS
    if queue.opened is not None or not queue.rounds:
        return engine_on_idle_queue(self, queue, now_ns)
    if engine_waits_for_many(self):
        return engine_ask_soon(self, queue, now_ns)
    if engine_may_try(queue, now_ns):
        return engine_try(self, queue, now_ns)
    return engine_ask(self, queue, now_ns)
