# The callers of this process that wait in turn: they come, give up, or their time ends.
#
# The first of each queue is the one that the gate knows. It asks again from time to
# time, and the first of all tries on all masters then, and when the key should have
# expired: so releases by other clients, lost messages, and dead gates are found. A
# process that is told and does not answer is dropped from the queue by the next that
# asks or releases (the scripts: _options/scripts).
#
# From below: engine_submit (admission).

from libc.stdint cimport int64_t

cdef enum:
    AT_LEAST_NS = 100_000


cdef int engine_wait(Engine self, Round round, int64_t now_ns) except -1:
    cdef Turn turn = <Turn>round.turn
    cdef WaitQueue queue
    if engine_gate(self, round.resource, now_ns) < 0 or (
        wait_queues_are_until(self.queues.polled_ns, round.resource, now_ns)
    ):
        round.turn = None
        return engine_start(self, round, now_ns)
    queue = self.queues.by_resource.get(round.resource)
    if queue is None:
        queue = self.queues.by_resource.setdefault(
            round.resource, wait_queue_new(round.resource, now_ns)
        )
    turn.queue = queue
    turn.number = wait_queues_number(self.queues)
    if turn.until_ns != NEVER_NS:
        engine_add_due(self, turn.until_ns, round)
    wait_queue_add(queue, round)
    self.counters.waits += not turn.has_waited
    if turn.pause_ns > 0 and wait_queue_head(queue) is not round:
        turn.is_kept = False      # before it stands one that tries
    if turn.is_kept:
        queue.noted = round
        engine_add_due(self, now_ns + max(
            self.round_trip_ns, max(<int64_t>AT_LEAST_NS, turn.pause_ns)
        ), round)
        if turn_is_paused(turn):
            engine_ask(self, queue, now_ns)
    elif queue.opened is None and not wait_queue_is_noted(queue):
        engine_ask(self, queue, now_ns)
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


cdef int engine_leave_if_empty(Engine self, WaitQueue queue, int64_t now_ns) except -1:
    # At once: where nobody waits in here, no thread may come that waits for the time.
    if queue.opened is not None or queue.rounds:
        return engine_set_due(self, queue, now_ns + SOON_NS)
    queue.noted = None
    if queue.is_entered:
        queue.is_entered = False
        engine_leave_queue(self, queue.resource, queue.gate, now_ns)
    return engine_forget_queue(self, queue)


cdef int engine_forget_queue(Engine self, WaitQueue queue) except -1:
    # A round that is undone late may name a queue that was forgotten before; by now
    # there may be another one of this resource, with others in it.
    if wait_queue_is_over(queue):
        queue.due_ns = NEVER_NS
        if self.queues.by_resource.get(queue.resource) is queue:
            del self.queues.by_resource[queue.resource]
    return 0


cdef int engine_stop_waiting(Engine self, WaitQueue queue, int64_t now_ns) except -1:
    # There is no queue: all try once, and poll. Where the connections are gone, too,
    # they wait for the next ones first, as other rounds do.
    cdef Round round
    cdef list empty = [], rounds = queue.rounds
    queue.rounds = empty
    queue.noted = None
    queue.is_entered = queue.is_first = False
    for round in rounds:
        turn_spend(<Turn>round.turn, round, self.round_trip_ns, now_ns)
        round.turn = None
        engine_submit(self, round, now_ns)
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


# --- time --------------------------------------------------------------------------

cdef int engine_set_due(Engine self, WaitQueue queue, int64_t due_ns) except -1:
    queue.due_ns = due_ns
    return engine_add_due(self, due_ns, queue)


cdef int engine_add_due(Engine self, int64_t due_ns, object work) except -1:
    engine_note_time(self, due_ns)
    return wait_queues_add_due(self.queues, due_ns, work)


cdef int engine_take_due(Engine self, int64_t now_ns) except -1:
    # What the time opens, or asks again.
    cdef Round round
    while (work := wait_queues_take_due(self.queues, now_ns)) is not None:
        if type(work) is WaitQueue:
            engine_on_queue_due(self, <WaitQueue>work, now_ns)
            continue
        if type(work) is Questions:
            engine_ask_together(self, <Questions>work, now_ns)
            continue
        round = <Round>work
        if (<Turn>round.turn).is_kept or now_ns >= (<Turn>round.turn).until_ns:
            engine_open_waiting(self, (<Turn>round.turn).queue, round, now_ns)
    return 0


cdef int engine_on_queue_due(Engine self, WaitQueue queue, int64_t now_ns) except -1:
    queue.due_ns = NEVER_NS
    if queue.opened is not None:
        return engine_set_due(self, queue, now_ns + ASK_AGAIN_NS)
    if not queue.rounds:
        return engine_leave_if_empty(self, queue, now_ns)
    if engine_waits_for_many(self):
        return engine_ask_soon(self, queue, now_ns)
    if engine_may_try(queue, now_ns):
        return engine_try(self, queue, now_ns)
    return engine_ask(self, queue, now_ns)


cdef bint engine_may_try(WaitQueue queue, int64_t now_ns) noexcept:
    # The first of all asks every master, as if it had its turn: the key may stand at
    # the gate alone (a releaser that died half-way), or has expired just now. So does
    # the first in here where the gate is silent: it may be long until that counts as
    # lost, and a quorum does without it. Those behind do so the less often, the further
    # behind they are: before them stands perhaps one that is frozen, or one whose entry
    # was left at its gate and which reads that with its next call.
    return wait_queue_is_noted(queue) and (
        queue.is_first or queue.is_unanswered
        or now_ns - queue.tried_ns >= TRY_BEHIND_NS * queue.place
    )


cdef int engine_try(Engine self, WaitQueue queue, int64_t now_ns) except -1:
    (<Turn>queue.noted.turn).is_probe = True
    return engine_open_waiting(self, queue, queue.noted, now_ns)
