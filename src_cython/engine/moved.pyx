# The queue of a resource whose gate is slow: it is at the next master.
#
# A slow gate sets the pace of all hand-overs. How far a master is, each client sees
# differently, so the gate itself keeps the agreement, for one resource: who has found
# it slow (slowness) marks the queue there as moved, for 10 s, and again while it waits.
# From then on the scripts of that gate answer so, who was entered is called, and all go
# to the next master from there on. What is remembered here (queues.moved) is what the
# gate has replied, never what was measured. A mark that is wrong, or lost, costs order,
# and up to 0.25 s until a release is found; where all masters have one, callers poll.

cdef enum:
    MOVED_LEAST_MS = 1_000
    MOVED_MOST_MS = 10_000

cdef int64_t MOVED_NS = 2_000_000_000    # where the gate has not answered for how long
cdef int64_t MARK_AGAIN_NS = 5_000_000_000       # before it ends

cdef bytes MOVING = b"4"


cdef inline bint engine_may_mark(Engine self, int gate) noexcept:
    # Of two masters none is slower than a quorum. Who waits for many is in no hurry.
    return (
        (<Master>self.masters[gate]).slowness.is_slow and self.master_count > 2
        and len(self.queues.by_resource) <= MARKED_MOST
    )


cdef int engine_mark_again(Engine self, WaitQueue queue, int64_t now_ns) except -1:
    # Its queue is not at its first gate, which is slow still: before the mark there
    # ends. The answer is how long the mark lasts now.
    cdef Round ask
    cdef Turn turn
    cdef int first
    if not self.queues.moved or (
        wait_queues_moved(self.queues, queue.resource, now_ns + MARK_AGAIN_NS)
    ):
        return 0
    first = engine_gate_but(self, queue.resource, 0, now_ns)
    if first < 0 or first == queue.gate or not engine_may_mark(self, first):
        return 0
    wait_queues_on_moved(
        self.queues, queue.resource, first, now_ns + MARK_AGAIN_NS + NS_PER_S, now_ns
    )
    turn = turn_new(now_ns, False)
    turn.queue = queue
    turn.arguments = (b"0", MOVING)
    ask = engine_question(self, OPERATION_ASK_TURN, queue.resource, turn, LEAVE_TERMS)
    return engine_send_to_gate(self, ask, first, False, now_ns)
