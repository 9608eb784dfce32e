# Whose turn it is: what opens a round that waits, and what follows its verdict.
#
# Such a round (turn) is opened
#
#   by its gate        a push, or the answer to ASK_TURN, notifies us of our turn;
#   by a release here  the gate had reported that our first waits longest: the
#                      release and its SET leave in one write, in that order, and the
#                      order of a connection makes it safe;
#   by its timeout     a last try, as every acquire makes one;
#   where no queue is  no master can be a gate, or this one refuses: as without a queue.
#
# Nothing here decides who holds the lock: the round does, by a quorum.

cdef enum:
    MISSED_MOST = 16         # turns that are passed on in the time of one
    SLOT_STAY_NS = 2_000_000


cdef int engine_on_turn_closed(Engine self, Round round, int64_t now_ns) except -1:
    # A round that waited has its verdict. Lost, its caller mostly comes back at once.
    cdef Turn turn = <Turn>round.turn
    cdef WaitQueue queue = turn.queue
    if queue is None or not turn.is_open:
        return 0
    turn.arguments = None
    if queue.opened is round:
        queue.opened = None
    if round.verdict_code == VERDICT_WON:
        # Its script has put the next in our place; by now that one may have left.
        queue.is_entered = turn.next_number != 0
        if turn.gate_reply == GATE_TAKEN or round.gate < 0:
            # By a quorum without it, or out of turn: we are queued.
            queue.is_entered = True
            queue.noted = None
        if round.permits == 0 or not queue.is_alone:
            wait_queues_remember(
                self.queues.contended_ns, queue.resource, now_ns + CONTENDED_NS
            )
        queue.stay_until_ns = round.opened_ns + engine_stay_ns(self, round)
        if round.permits and queue.rounds and queue.opened is None:
            return engine_after_slot(self, queue, round, now_ns)
        if queue.rounds and not wait_queue_is_noted(queue) and queue.opened is None:
            return engine_ask_in_stay(self, queue, now_ns)      # they came meanwhile
        if not queue.rounds and queue.is_entered:
            return engine_leave_if_empty(self, queue, now_ns)
    else:
        if wait_queue_noted_number(queue) == turn.next_number:
            queue.noted = None
            queue.is_first = False
        if round.verdict_code != VERDICT_TAKEN or (
            now_ns >= turn.until_ns - LAST_ROUND_NS
        ):
            return engine_leave_if_empty(self, queue, now_ns)
        engine_set_due(self, queue, now_ns + SOON_NS)
    return engine_forget_queue(self, queue)


cdef inline int64_t engine_stay_ns(Engine self, Round won) noexcept:
    # For how long the gate is not asked for those who come. Beside a slot there are
    # others, which other processes release meanwhile.
    return min(self.cohort_ns, SLOT_STAY_NS) if won.permits else self.cohort_ns


cdef int engine_after_slot(
    Engine self, WaitQueue queue, Round won, int64_t now_ns
) except -1:
    # Another slot may be free by now, or will expire: of a rate nobody is notified.
    cdef list freed = queue.freed
    queue.freed = []
    if freed and queue.is_first:      # else the gate has notified another
        return engine_open_slot(self, queue, <int>freed[-1], now_ns)
    if won.terms.is_of_rate:
        return engine_ask(self, queue, now_ns)
    if not wait_queue_is_noted(queue):
        return engine_ask_in_stay(self, queue, now_ns)      # they came meanwhile
    return 0


cdef int engine_take_notified(Engine self, Master master, int64_t now_ns) except -1:
    # A gate has notified another process of its turn, at our release, mostly after the
    # quorum: so our next caller queues.
    empty = []
    notified, master.notified = master.notified, empty
    for resource in notified:
        wait_queues_remember(
            self.queues.contended_ns, resource, now_ns + CONTENDED_NS
        )
    return 0


cdef int engine_take_turn(Engine self, Master master, int64_t now_ns) except -1:
    # A gate has notified this process of its turn: the first that was not taken.
    cdef bytes resource = master.turns.pop(0)
    cdef int slot = -1
    cdef WaitQueue queue = self.queues.by_resource.get(resource)
    if queue is None and slot_of_key(resource) >= 0:      # or a lock of such a name
        name = slots_name(resource)
        if name in self.queues.by_resource or name in self.queues.slots:
            slot = slot_of_key(resource)
            resource = name
            queue = self.queues.by_resource.get(name)
    if queue is not None and queue.opened is not None:
        (<Turn>queue.opened.turn).is_notified = True  # lost, it tries again
        if slot >= 0 and slot != round_slot(queue.opened):
            queue.freed.append(slot)
        return 0
    if queue is None and engine_is_called(self, resource, now_ns):
        return 0
    if queue is None or not queue.rounds:
        self.counters.turns_missed += 1
        return engine_pass_on(self, resource, master, now_ns)
    self.counters.turns_told += 1
    queue.is_alone = False
    (<Turn>wait_queue_head(queue).turn).is_notified = True
    if wait_queue_head(queue).permits:
        return engine_open_slot(self, queue, slot, now_ns)
    return engine_open_waiting(self, queue, wait_queue_head(queue), now_ns)


cdef int engine_open_slot(
    Engine self, WaitQueue queue, int slot, int64_t now_ns
) except -1:
    # The first here has its turn for this slot; where it may not have that one, or
    # none is known, the gate says which.
    cdef Round head = wait_queue_head(queue)
    if slot < 0 or not round_may_have_slot(head, slot):
        return engine_ask(self, queue, now_ns)
    queue.slot = slot
    return engine_open_waiting(self, queue, head, now_ns)


cdef int engine_take_moved(Engine self, Master master, int64_t now_ns) except -1:
    # By scripts of the gate that have set or released a key there. The next gate
    # notifies who waits for a release; not under a token that the caller may use again
    # by now.
    cdef Round round
    cdef int gate
    empty = []
    moved, master.moved = master.moved, empty
    for round in moved:
        engine_on_moved(
            self, round_queue(round), master.index, now_ns + MOVED_NS, now_ns
        )
        gate = engine_gate(self, round_queue(round), now_ns)
        if round.operation_code == OPERATION_RELEASE and gate >= 0 and (
            self.token_uses is None
        ):
            wait_queues_remember(
                self.queues.contended_ns, round_queue(round), now_ns + CONTENDED_NS
            )
            engine_notify_late(self, round, <Master>self.masters[gate], now_ns)
    return 0


cdef int engine_pass_on(
    Engine self, bytes resource, Master master, int64_t now_ns
) except -1:
    # A turn that nobody waits for goes to the next at once. A gate that sends thousands
    # would have an answer to each, and behind that thousands more: so beyond a few they
    # pass by themselves, as those of a frozen process.
    if now_ns - master.missed_ns >= TURN_NS:
        master.missed_ns = now_ns
        master.missed = 0
    master.missed += 1
    if master.missed > MISSED_MOST:
        return 0
    return engine_leave_queue(self, resource, master.index, now_ns)


cdef bint engine_is_called(Engine self, bytes push, int64_t now_ns) except -1:
    # No turn: somebody wants a key that may rest here ("!", rests). Or
    # the gate has doubts whether those before us are alive. It asks us to
    # reply at once ("~"); or to look whether they came, when their time is over ("?").
    # Who also waits for a resource of such a name is notified of that one, and finds
    # this by its next question.
    cdef WaitQueue queue
    if engine_is_recalled(self, push, now_ns):
        return True
    queue = self.queues.by_resource.get(push[1:])
    if queue is None or push[:1] not in (b"~", b"?"):
        return False
    queue.tried_ns = now_ns      # so the question is asked, and not a try made
    if queue.opened is not None or not queue.rounds or queue.is_unanswered:
        return True
    if push[:1] == b"~":
        engine_ask(self, queue, now_ns)
    else:
        engine_set_due(self, queue, min(queue.due_ns, now_ns + TURN_NS))
    return True


cdef bint engine_is_handing_over(Engine self, Round release, int64_t now_ns) except -1:
    # Whether our first waits longest of all, so that it may follow this release.
    cdef WaitQueue queue
    if release.keys is not None or not self.queues.by_resource:
        return False
    queue = self.queues.by_resource.get(round_queue(release))
    return (
        queue is not None and wait_queue_is_next(queue)
        and queue.gate == engine_gate(self, round_queue(release), now_ns)
        and round_may_have_slot(wait_queue_head(queue), round_slot(release))
    )


cdef int engine_hand_over(Engine self, Round release, int64_t now_ns) except -1:
    # Behind a release, in the same write. A finalizer may have been here before us.
    cdef bytes resource = round_queue(release)
    cdef WaitQueue queue = self.queues.by_resource.get(resource)
    if queue is None or not wait_queue_is_next(queue):
        return 0
    self.counters.handed_over += 1
    queue.slot = round_slot(release)
    wait_queues_remember(self.queues.contended_ns, resource, now_ns + CONTENDED_NS)
    return engine_open_waiting(self, queue, wait_queue_head(queue), now_ns)
