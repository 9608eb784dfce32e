# Waiting in turn: the rounds of this process that wait, the questions to their gates,
# and what opens them.
#
# A round that waits (turn) is opened
#
#   by its gate        a push says that it is our turn, or the answer to ASK_TURN does;
#   by a release here  the gate had said that nobody waits longer than our first: the
#                      release and its SET leave in one write, in that order, and the
#                      order of a connection makes it safe;
#   by its timeout     a last try, as every acquire makes one;
#   where no queue is  no master can be a gate, or this one refuses: as without a queue.
#
# The first of each queue is the one that the gate knows. It asks again from time to
# time, and when the key should have expired: so releases by other clients, lost
# messages, and dead gates are found. A process that is told and does not answer is
# dropped from the queue by the next that asks (protocol in _options/scripts).
#
# Nothing here decides who holds the lock: the round does, by a quorum.

cimport cython
from libc.stdint cimport int64_t

from heapq import heapify, heappop, heappush

cdef enum:
    ASK_AGAIN_NS = 250_000_000
    ASK_AGAIN_BEHIND_NS = 1_000_000_000     # by one that is neither first nor second
    ASK_AGAIN_TOLD_NS = 52_000_000          # another was told, which has 50 ms
    AFTER_EXPIRY_NS = 1_500_000             # a server expires keys by whole ms
    SOON_NS = 1_000_000
    AT_LEAST_NS = 100_000
    LAST_TRY_NS = 50_000_000        # a server that is there answers by then
    CONTENDED_NS = 1_000_000_000
    POLLED_NS = 10_000_000_000
    REMEMBERED_MOST = 1024


@cython.final
@cython.internal
cdef class WaitQueues:
    """The queues of one engine, by resource."""

    cdef bytes waiter            # the name of this process, at every gate
    cdef dict by_resource
    cdef list due                # a heap of (ns, number, a WaitQueue or a Round)
    cdef int64_t number
    cdef Py_ssize_t entries      # of it that count, at the least
    cdef dict contended_ns       # resource: until when a first try joins the queue
    cdef dict polled_ns          # resource: until when no queue is asked for it


cdef WaitQueues wait_queues_new(bytes waiter):
    self = WaitQueues()
    self.waiter = waiter
    self.by_resource = {}
    self.due = []
    self.contended_ns = {}
    self.polled_ns = {}
    return self


cdef bint wait_queues_may_ask(WaitQueues self, bytes resource, int64_t now_ns) except -1:
    until_ns = self.polled_ns.get(resource) if self.polled_ns else None
    return until_ns is None or now_ns >= <int64_t>until_ns


cdef int wait_queues_remember(dict until_ns, bytes resource, int64_t at_ns) except -1:
    if len(until_ns) >= REMEMBERED_MOST:
        until_ns.clear()
    until_ns[resource] = at_ns
    return 0


# --- a round begins to wait, and is opened ----------------------------------------

cdef int engine_wait(Engine self, Round round, int64_t now_ns) except -1:
    cdef Turn turn = <Turn>round.turn
    cdef WaitQueue queue
    if engine_gate(self, round.resource, now_ns) < 0 or (
        not wait_queues_may_ask(self.queues, round.resource, now_ns)
    ):
        round.turn = None
        return engine_start(self, round, now_ns)
    queue = self.queues.by_resource.get(round.resource)
    if queue is None:
        queue = wait_queue_new(round.resource)
        self.queues.by_resource[round.resource] = queue
    turn.queue = queue
    wait_queue_add(queue, round)
    self.counters.waits += 1
    if round.left_ns >= 0:
        turn.until_ns = now_ns + round.left_ns
        engine_add_due(self, turn.until_ns, round)
    if turn.is_kept:
        queue.noted = round
        engine_add_due(
            self, now_ns + max(self.round_trip_ns, <int64_t>AT_LEAST_NS), round
        )
    elif queue.opened is None and not wait_queue_is_noted(queue):
        engine_ask(self, queue, now_ns)
    return 0


cdef int engine_open_waiting(
    Engine self, WaitQueue queue, Round round, int64_t now_ns
) except -1:
    # It is its turn, or the end of its time.
    cdef Turn turn = <Turn>round.turn
    cdef int gate = engine_gate(self, queue.resource, now_ns)
    wait_queue_remove(queue, round)
    turn.is_open = True
    turn.successor = wait_queue_head(queue)
    if turn.until_ns != NEVER_NS:
        round.left_ns = max(turn.until_ns - now_ns, min(
            round.terms.timeout_ns, max(<int64_t>LAST_TRY_NS, 3 * self.round_trip_ns)
        ))
    if gate >= 0:
        turn_set_arguments(turn, round, self.queues.waiter, now_ns)
        round.gate = gate
    queue.gate = gate
    queue.noted = turn.successor
    queue.is_first = False
    queue.is_entered = gate >= 0
    if queue.opened is None:
        queue.opened = round
    engine_set_due(self, queue, now_ns + ASK_AGAIN_NS)
    return engine_start(self, round, now_ns)


cdef int engine_on_turn_closed(Engine self, Round round, int64_t now_ns) except -1:
    # A round that waited has its verdict. Lost, its caller mostly comes back at once.
    cdef Turn turn = <Turn>round.turn
    cdef WaitQueue queue = turn.queue
    if queue is None or not turn.is_open:
        return 0
    if queue.opened is round:
        queue.opened = None
    if round.verdict_code == VERDICT_WON:
        queue.is_entered = queue.noted is not None
        wait_queues_remember(
            self.queues.contended_ns, queue.resource, now_ns + CONTENDED_NS
        )
        if queue.rounds and not wait_queue_is_noted(queue) and queue.opened is None:
            return engine_ask(self, queue, now_ns)      # they came meanwhile
    else:
        if queue.noted is turn.successor:
            queue.noted = None
            queue.is_first = False
        if round.verdict_code != VERDICT_TAKEN or (
            now_ns >= turn.until_ns - LAST_TRY_NS
        ):
            return engine_pass_on(self, queue, now_ns)
        engine_set_due(self, queue, now_ns + SOON_NS)
    return engine_forget_queue(self, queue)


cdef int engine_pass_on(Engine self, WaitQueue queue, int64_t now_ns) except -1:
    # The caller of the round that was opened does not come back, or after a delay. At
    # once: without a caller, nobody may be there to drive the engine later.
    if queue.opened is not None:
        return 0
    if queue.rounds:
        return 0 if wait_queue_is_noted(queue) else engine_ask(self, queue, now_ns)
    queue.noted = None
    if queue.is_entered:
        queue.is_entered = False
        engine_leave_queue(self, queue.resource, queue.gate, now_ns)
    return engine_forget_queue(self, queue)


cdef int engine_forget_queue(Engine self, WaitQueue queue) except -1:
    if wait_queue_is_over(queue):
        self.queues.by_resource.pop(queue.resource, None)
        queue.due_ns = NEVER_NS
    return 0


# --- the gate ---------------------------------------------------------------------

cdef int engine_ask(Engine self, WaitQueue queue, int64_t now_ns) except -1:
    # Enter its queue, or ask how it stands.
    cdef Round head = wait_queue_head(queue), ask
    cdef Turn turn
    cdef int gate = engine_gate(self, queue.resource, now_ns)
    cdef bint is_new = queue.noted is not head or queue.gate != gate
    if gate < 0:
        return engine_stop_waiting(self, queue, now_ns)
    turn = turn_new((<Turn>head.turn).since_ns, False)
    turn.queue = queue
    turn.successor = head
    turn.is_open = True
    turn.arguments = (
        turn_waited_us(turn.since_ns, now_ns), b"1" if is_new else b"0"
    )
    ask = Round(
        OPERATION_ASK_TURN, queue.resource, self.queues.waiter, head.terms,
        self.master_count,
    )
    ask.turn = turn
    queue.noted = head
    queue.gate = gate
    queue.is_entered = True
    if is_new:
        queue.is_first = False
    engine_set_due(self, queue, now_ns + ASK_AGAIN_NS)
    master_subscribe(<Master>self.masters[gate], self.queues.waiter, now_ns)
    return engine_send_to_gate(self, ask, gate, False, now_ns)


cdef int engine_send_to_gate(
    Engine self, Round round, int gate, bint by_source, int64_t now_ns
) except -1:
    round.gate = gate
    round.is_submitted = True
    round.closed_list = self.closed
    return engine_queue(self, round, <uint64_t>1 << gate, by_source, now_ns)


cdef int engine_on_asked(Engine self, Round ask, int64_t now_ns) except -1:
    # The gate has answered ASK_TURN, or has not.
    cdef Turn turn = <Turn>ask.turn
    cdef WaitQueue queue = turn.queue
    cdef int64_t left_ms, again_ns = ASK_AGAIN_NS
    if ask.verdict_code != VERDICT_WON:
        if ask.cells[ask.gate].vote == VOTE_FAILED and ask.cells[ask.gate].answered_us:
            engine_on_queue_refused(self, queue, ask, now_ns)
        return 0
    if queue.opened is not None or queue.noted is not turn.successor or (
        not wait_queue_is_noted(queue)
    ):
        return 0      # it was for another that was first
    is_ours, left, place, count = ask.details[ask.gate]
    if is_ours:
        if count == 1:      # so the next first try need not ask
            self.queues.contended_ns.pop(queue.resource, None)
        return engine_open_waiting(self, queue, queue.noted, now_ns)
    queue.is_first = place == 0
    left_ms = min(max(<object>left, -2), 1_000_000)
    if left_ms == -2:
        again_ns = ASK_AGAIN_TOLD_NS
    elif place > 1:
        again_ns = ASK_AGAIN_BEHIND_NS
    elif place == 0 and left_ms >= 0:
        again_ns = min(again_ns, left_ms * NS_PER_MS + AFTER_EXPIRY_NS)
    return engine_set_due(self, queue, now_ns + again_ns)


cdef int engine_on_queue_refused(
    Engine self, WaitQueue queue, Round ask, int64_t now_ns
) except -1:
    # By an ACL, or the queue's key is of another type: its callers poll.
    cdef Master master = <Master>self.masters[ask.gate]
    said = ask.details[ask.gate]
    if text_forbids(said):
        master_refuse_queue(master, said)
    else:
        master_add_warnings(master, [
            f"callers cannot wait in turn for a resource here ({said}), and poll "
            "instead: is there another use of its key fastredlock:queue:...?"
        ])
        wait_queues_remember(
            self.queues.polled_ns, queue.resource, now_ns + POLLED_NS
        )
    return engine_stop_waiting(self, queue, now_ns)


cdef int engine_stop_waiting(Engine self, WaitQueue queue, int64_t now_ns) except -1:
    # There is no queue: all try once, and poll.
    cdef Round round
    cdef list rounds = queue.rounds
    queue.rounds = []
    queue.noted = None
    queue.is_entered = queue.is_first = False
    for round in rounds:
        round.turn = None
        engine_start(self, round, now_ns)
    return engine_forget_queue(self, queue)


cdef int engine_leave_queue(
    Engine self, bytes resource, int gate, int64_t now_ns
) except -1:
    # A turn that was ours is passed on. By source: nobody may read NOSCRIPT.
    cdef Round leave
    if gate < 0 or (<Master>self.masters[gate]).state_code != MASTER_READY:
        return 0
    leave = Round(
        OPERATION_LEAVE_QUEUE, resource, self.queues.waiter,
        Terms(0, 0, OVERDUE_AT_LEAST_NS), self.master_count,
    )
    leave.turn = turn_new(now_ns, False)
    (<Turn>leave.turn).is_open = True
    return engine_send_to_gate(self, leave, gate, True, now_ns)


cdef int engine_take_turns(Engine self, Master master, int64_t now_ns) except -1:
    # A gate has told this process that it is its turn.
    cdef WaitQueue queue
    turns, master.turns = master.turns, []
    for resource in turns:
        queue = self.queues.by_resource.get(resource)
        if queue is not None and queue.opened is not None:
            continue
        if queue is None or not queue.rounds:
            self.counters.turns_missed += 1
            engine_leave_queue(self, resource, master.index, now_ns)
            continue
        self.counters.turns_told += 1
        engine_open_waiting(self, queue, wait_queue_head(queue), now_ns)
    return 0


# --- a release in this process ------------------------------------------------------

cdef bint engine_is_handing_over(Engine self, Round release, int64_t now_ns) except -1:
    # Whether our first waits longest of all, so that it may follow this release.
    cdef WaitQueue queue
    if release.keys is not None or not self.queues.by_resource:
        return False
    queue = self.queues.by_resource.get(release.resource)
    return (
        queue is not None and wait_queue_is_next(queue)
        and queue.gate == engine_gate(self, release.resource, now_ns)
    )


cdef int engine_hand_over(Engine self, bytes resource, int64_t now_ns) except -1:
    # Behind a release, in the same write. A finalizer may have been here before us.
    cdef WaitQueue queue = self.queues.by_resource.get(resource)
    if queue is None or not wait_queue_is_next(queue):
        return 0
    self.counters.handed_over += 1
    wait_queues_remember(self.queues.contended_ns, resource, now_ns + CONTENDED_NS)
    return engine_open_waiting(self, queue, wait_queue_head(queue), now_ns)


# --- an end -------------------------------------------------------------------------

cdef int engine_leave_turn(Engine self, Round round, int64_t now_ns) except -1:
    # Its caller has given it up.
    cdef Turn turn = <Turn>round.turn
    cdef WaitQueue queue = turn.queue
    if queue is None:
        return 0
    if turn.is_open:
        if queue.opened is round:
            queue.opened = None
            if queue.noted is turn.successor:
                queue.noted = None
                queue.is_first = False
        return engine_pass_on(self, queue, now_ns)
    if not wait_queue_remove(queue, round) or queue.noted is not round:
        return engine_forget_queue(self, queue)
    queue.is_first = False
    if queue.rounds:
        if queue.opened is None:
            return engine_ask(self, queue, now_ns)
        return 0
    queue.noted = None
    if queue.is_entered and queue.opened is None:
        queue.is_entered = False
        engine_leave_queue(self, queue.resource, queue.gate, now_ns)
    return engine_forget_queue(self, queue)


cdef int engine_end_waiting(Engine self, str reason, int64_t now_ns) except -1:
    # Of all callers: close(), a fork, the end of the loop or the interpreter.
    cdef WaitQueue queue
    cdef Round round
    for queue in list(self.queues.by_resource.values()):
        rounds, queue.rounds = queue.rounds, []
        for round in rounds:
            round_give_up(round, reason, now_ns)
        if queue.is_entered and queue.opened is None:
            engine_leave_queue(self, queue.resource, queue.gate, now_ns)
        queue.noted = None
        queue.is_entered = queue.is_first = False
        engine_forget_queue(self, queue)
    return 0


# --- time ---------------------------------------------------------------------------

cdef int engine_set_due(Engine self, WaitQueue queue, int64_t due_ns) except -1:
    queue.due_ns = due_ns
    return engine_add_due(self, due_ns, queue)


cdef int engine_add_due(Engine self, int64_t due_ns, object work) except -1:
    # Entries that do not count any more stay until their time, or until most are such.
    cdef WaitQueues queues = self.queues
    if len(queues.due) > 1024 and len(queues.due) > 4 * queues.entries:
        queues.due = [each for each in queues.due if due_counts(each)]
        heapify(queues.due)
        queues.entries = len(queues.due)
    queues.number += 1
    heappush(queues.due, (due_ns, queues.number, work))
    queues.entries = max(queues.entries, 256)
    engine_note_time(self, due_ns)
    return 0


cdef bint due_counts(tuple entry) except -1:
    cdef Round round
    if type(entry[2]) is WaitQueue:
        return (<WaitQueue>entry[2]).due_ns == <int64_t>entry[0]
    round = <Round>entry[2]
    return round.turn is not None and not round.is_finished and (
        not (<Turn>round.turn).is_open
    )


cdef int engine_take_due(Engine self, int64_t now_ns) except -1:
    # What the time opens, or asks again.
    cdef WaitQueues queues = self.queues
    cdef Round round
    while queues.due and <int64_t>queues.due[0][0] <= now_ns:
        entry = heappop(queues.due)
        if not due_counts(entry):
            continue
        if type(entry[2]) is WaitQueue:
            engine_on_queue_due(self, <WaitQueue>entry[2], now_ns)
            continue
        round = <Round>entry[2]
        if (<Turn>round.turn).is_kept or now_ns >= (<Turn>round.turn).until_ns:
            engine_open_waiting(self, (<Turn>round.turn).queue, round, now_ns)
    return 0


cdef int engine_on_queue_due(Engine self, WaitQueue queue, int64_t now_ns) except -1:
    queue.due_ns = NEVER_NS
    if queue.opened is not None:
        return engine_set_due(self, queue, now_ns + ASK_AGAIN_NS)
    if queue.rounds:
        return engine_ask(self, queue, now_ns)
    if queue.is_entered:
        queue.is_entered = False
        engine_leave_queue(self, queue.resource, queue.gate, now_ns)
    return engine_forget_queue(self, queue)
