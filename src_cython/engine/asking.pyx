# What a gate is asked, by rounds that go to it alone: to enter the queue, for our place
# in it, to leave it.

cdef enum:
    ASK_AGAIN_BEHIND_NS = 500_000_000       # by one that is neither first nor second
    TURN_NS = 52_000_000                    # the one that was notified has 50 ms
    NOBODY_NOTIFIED_NS = 10_000_000
    NEAR_PLACE = 4
    PLACES_MOST = 100
    PLACE_NS = 100_000                      # of each, behind the expiry of a slot
    AFTER_EXPIRY_NS = 1_500_000             # a server expires keys by whole ms
    CONTENDED_NS = 1_000_000_000

cdef int64_t POLLED_NS = 10_000_000_000
cdef int64_t FREE_NS = 1_000_000_000

cdef enum:                   # a turn, in the reply of ask_turn
    TURN_REFUSED = -1        # of several that are asked about together
    TURN_OURS = 1
    TURN_OTHER = 2           # that was notified
    TURN_OTHER_NOW = 3       # ...by this question: whoever asked it looks again in time
    TURN_MOVED = 4           # nobody's here: the queue is at the next master

cdef bytes SAME_ENTRY = b"0"
cdef bytes NEW_ENTRY = b"1"
cdef bytes FIRST_QUESTION = b"2"       # of a connection: it asks for the rights, too
cdef bytes PAUSED_ENTRY = b"3"         # its turn was lost often: it wants none

cdef str QUEUE_OF_ANOTHER = (
    ": is there another use of its key fastredlock:queue:...?"
)


cdef int engine_ask(Engine self, WaitQueue queue, int64_t now_ns) except -1:
    # Enter its queue, or ask for our place in it.
    cdef Round head, ask
    cdef Turn turn, of_head
    cdef int gate = engine_gate(self, queue.resource, now_ns)
    engine_open_due(self, False, now_ns)      # who waits for long has no other call
    if gate < 0:
        return engine_stop_waiting(self, queue, now_ns)
    head = wait_queue_head(queue)
    if head is None:      # a finalizer has opened it meanwhile
        return engine_leave_if_empty(self, queue, now_ns)
    of_head = <Turn>head.turn      # it has none once it was handed a lease
    turn = turn_new(of_head.since_ns, False)
    turn.queue = queue
    turn.next_number = of_head.number
    turn.arguments = engine_question_arguments(
        self, queue, head, of_head, gate, now_ns
    )
    ask = engine_question(self, OPERATION_ASK_TURN, queue.resource, turn, head.terms)
    engine_note_asked(self, queue, head, gate, now_ns)
    master_subscribe(<Master>self.masters[gate], self.queues.waiter, now_ns)
    return engine_send_to_gate(self, ask, gate, False, now_ns)


cdef int engine_ask_in_stay(Engine self, WaitQueue queue, int64_t now_ns) except -1:
    # Our first is not known at the gate. In a stay the release asks; or the time does.
    if now_ns >= queue.stay_until_ns:
        return engine_ask(self, queue, now_ns)
    if queue.due_ns <= queue.stay_until_ns:
        return 0
    return engine_set_due(self, queue, queue.stay_until_ns)


cdef int engine_end_stay(Engine self, Round release, int64_t now_ns) except -1:
    # Before a release that is sent: those who came in the stay enter the queue there.
    cdef WaitQueue queue
    if release.keys is not None or not self.queues.by_resource:
        return 0
    queue = self.queues.by_resource.get(round_queue(release))
    if queue is None or queue.stay_until_ns == 0:
        return 0
    queue.stay_until_ns = 0
    if queue.rounds and queue.opened is None and not wait_queue_is_noted(queue):
        return engine_ask(self, queue, now_ns)
    return 0


cdef tuple engine_question_arguments(
    Engine self, WaitQueue queue, Round head, Turn turn, int gate, int64_t now_ns
):
    cdef bint is_new = queue.noted is not head or queue.gate != gate
    cdef bytes how = (
        FIRST_QUESTION if not (<Master>self.masters[gate]).is_subscribed
        else MOVING if engine_may_mark(self, gate)
        else PAUSED_ENTRY if turn_is_paused(turn)
        else NEW_ENTRY if is_new else SAME_ENTRY
    )
    if head.permits:
        how += b"#" + decimal_bytes(head.permits)
    return turn_waited_us(turn.since_ns, now_ns), how


cdef int engine_note_asked(
    Engine self, WaitQueue queue, Round head, int gate, int64_t now_ns
) except -1:
    if queue.noted is not head or queue.gate != gate:
        queue.is_first = False
    queue.noted = head if head.turn is not None else None
    engine_set_queue_gate(self, queue, gate, now_ns)
    queue.is_entered = queue.is_unanswered = True
    engine_mark_again(self, queue, now_ns)
    return engine_set_due(self, queue, now_ns + ASK_AGAIN_NS)


cdef int engine_take_answer(
    Engine self, WaitQueue queue, int64_t number, list answer, int64_t now_ns
) except -1:
    # Whose turn it is in one queue; its first, when it was asked, had this number.
    cdef int64_t left_ms, again_ns = ASK_AGAIN_NS
    queue.is_unanswered = False
    if queue.opened is not None or not wait_queue_is_noted(queue) or (
        wait_queue_noted_number(queue) != number
    ):
        return 0      # it was for another that was first
    whose, left, place, count = answer
    if whose == TURN_OURS:
        queue.is_alone = count == 1
        if count == 1:      # so the next first try need not ask
            self.queues.contended_ns.pop(queue.resource, None)
        if queue.noted.permits:
            queue.slot = min(max(<object>left, -1), PERMITS_MOST)
        return engine_open_waiting(self, queue, queue.noted, now_ns)
    queue.place = place
    queue.is_first = place == 0
    if turn_is_paused(<Turn>queue.noted.turn):
        if place == 0 and left == -2:
            return 0
        (<Turn>queue.noted.turn).is_kept = False      # the gate knows when
    left_ms = min(max(<object>left, -2), 1_000_000)
    if engine_is_left_free(queue, whose, left_ms, now_ns):
        return engine_try_out_of_turn(self, queue, now_ns)
    if place > 1:
        again_ns = ASK_AGAIN_BEHIND_NS
    elif place == 0 and queue.noted.permits == 0:
        # It may have become so just now, and not have tried for long.
        again_ns = max(<int64_t>0, queue.tried_ns + again_ns - now_ns)
    if left_ms == -2:      # free: another was notified, or a hundred were dropped
        again_ns = TURN_NS
        if whose < TURN_OTHER:
            again_ns = NOBODY_NOTIFIED_NS
        elif whose == TURN_OTHER and place > NEAR_PLACE:
            again_ns = ASK_AGAIN_NS
    elif queue.noted.permits:
        again_ns = min(again_ns, engine_first_slot_ns(queue, count))
        if left_ms >= 0:      # the first slot that is not theirs
            again_ns = min(again_ns, left_ms * NS_PER_MS + AFTER_EXPIRY_NS)
    elif left_ms >= 0:     # those before us, if they are there, come first
        again_ns = min(again_ns, (
            left_ms * NS_PER_MS + AFTER_EXPIRY_NS
            + min(<int64_t>place, <int64_t>PLACES_MOST) * TURN_NS
        ))
    return engine_set_due(self, queue, now_ns + again_ns)


cdef bint engine_is_left_free(
    WaitQueue queue, int whose, int64_t left_ms, int64_t now_ns
) noexcept:
    # Whether those before us leave a free key alone. One that is there takes it in less
    # than a second, and a release notifies it. So it counts only where a second lies
    # between two questions that found nobody notified, and none in between found a key.
    if left_ms != -2:
        queue.free_ns = 0
    elif whose != TURN_OTHER and queue.free_ns == 0:
        queue.free_ns = now_ns
    elif whose != TURN_OTHER:
        return now_ns - queue.free_ns >= FREE_NS
    return False


cdef int64_t engine_first_slot_ns(WaitQueue queue, object first_ms) except -1:
    # In how long the first slot has expired. Mostly the queue has moved on by then, and
    # nobody tells its first when that is. So each one of the queue asks, shortly behind
    # each other: the gate notifies its first. Of a rate all expire, one by one, and
    # each waiter asks for its own.
    cdef int64_t left_ms = min(max(<object>first_ms, 0), 1_000_000)
    if left_ms == 0 or queue.place > PLACES_MOST or queue.noted.terms.is_of_rate:
        return NEVER_NS
    return left_ms * NS_PER_MS + AFTER_EXPIRY_NS + queue.place * PLACE_NS


cdef int engine_on_queue_refused(
    Engine self, WaitQueue queue, Round ask, int64_t now_ns
) except -1:
    # By an ACL, or the queue's key is of another type: its callers poll.
    cdef Master master = <Master>self.masters[ask.gate]
    text = ask.details[ask.gate]
    if text_is_for_good(text):
        master_refuse_queue(master, text)
    else:
        master_add_warnings(master, [
            f"callers cannot wait in turn for a resource here ({text}), and poll "
            "instead" + (QUEUE_OF_ANOTHER if "WRONGTYPE" in text else "")
        ])
        wait_queues_remember(
            self.queues.polled_ns, queue.resource, now_ns + POLLED_NS
        )
    return engine_stop_waiting(self, queue, now_ns)
