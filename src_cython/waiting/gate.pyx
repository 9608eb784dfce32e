# The gate of a queue: which master keeps it, what that one is asked, and what follows
# from its answers; and which slot is tried.

# --- gate -----------------------------------------------------------------------------
# The gate of a resource: the one master that keeps the queue of those who wait for it.
#
# Every client finds the same one, from the resource's name and the masters in the order
# of their addresses: the first from there on that is READY and may vote. A slow gate is
# passed over, by all alike (moved). Where two clients find different ones, because one
# of them has lost a connection, or knows a server by another name, there are two queues
# for a while: that costs order, nothing else.


cdef int64_t KNOWN_NS = 4_000_000_000      # longer than in contended_ns


cdef int gate_master(Engine self, bytes resource, int64_t now_ns) noexcept:
    # Its vote; -1: no master can be one, or no queue is kept.
    cdef Master master
    cdef Connection connection
    cdef int i, first
    cdef uint64_t moved = 0
    if self.queues.moved:
        moved = wait_queues_moved(self.queues.moved, resource, now_ns)
    if not self.scripts.keeps_queues:
        return -1
    first = <int>(gate_hash(resource) % <uint64_t>self.gate_count)
    for i in range(self.gate_count):
        master = <Master>self.masters[self.gate_order[(first + i) % self.gate_count]]
        connection = master_connection(master, resource)
        if connection.state_code == MASTER_READY and connection.may_queue and (
            now_ns >= connection.restart_guard.until_ns
            and not (moved >> master.vote) & 1
        ):
            return master.vote
    return -1


cdef int gate_rank(Engine self) except -1:
    # The order of the gates, by what all clients see alike. One cluster may have other
    # seeds in each of them, so it is the smallest id of its nodes, replicas too. (Where
    # that node leaves, some have the order of before for a while.) While the list of
    # masters changes, gates are those of the old list: clients of that know no others.
    cdef list ranks = sorted([
        (<Master>master).rank for master in self.masters
        if set_has(self.electorate.first, (<Master>master).vote)
    ])
    for place, (_, _, vote) in enumerate(ranks):
        self.gate_order[place] = vote


cdef inline Connection gate_connection(Engine self, int gate, bytes resource):
    # Where its server is asked about this resource.
    return master_connection(<Master>self.masters[gate], resource)


cdef int gate_first(Engine self, Round round, int wanted) noexcept:
    # The place to begin at, to write and to read: 0, where the same ones are read each
    # time, and old replies wait for the others alone; or that of the connection whose
    # answer a release waits for (turns_hold), where it is not one of these.
    cdef Connection connection
    if round.gate < wanted or round.operation_code != OPERATION_RELEASE:
        return 0
    connection = gate_connection(self, round.gate, round.resource)
    return 0 if connection.native == FORM_SCRIPT else connection.place


cdef uint64_t gate_hash(bytes resource) noexcept:
    # FNV-1a, 64 bits: http://www.isthe.com/chongo/tech/comp/fnv/
    cdef uint64_t hashed = 0xCBF29CE484222325ULL
    cdef const uint8_t *at = <const uint8_t *>PyBytes_AS_STRING(resource)
    cdef Py_ssize_t i
    for i in range(PyBytes_GET_SIZE(resource)):
        hashed = (hashed ^ at[i]) * <uint64_t>0x100000001B3ULL
    return hashed ^ (hashed >> 32)


cdef int gate_notify(Engine self, Round release, int64_t now_ns) except -1:
    # A release of one key notifies the next in the queue, by its script at the gate.
    # That of a lease notifies whatever key is there, and takes our entry out where
    # nobody waits here: the gate may never have confirmed the entry.
    #
    # Where this process knows of nobody who may wait, a native command deletes the key,
    # and EXISTS asks behind it, in the same write, whether there is a queue. There is,
    # or the answer is late (turns_hold): the script follows, and does all that it does.
    # A client that dies in between has notified nobody: the first that waits finds the
    # key free by its next question, as after a release by any other client. (Under a
    # token that the caller may use again by then, nothing follows.)
    cdef WaitQueue queue = None
    cdef bytes resource
    cdef int gate, our_entry
    if release.keys is not None:
        return 0
    resource = round_queue(release)
    if self.queues.by_resource:      # else its name is hashed in vain
        queue = self.queues.by_resource.get(round_entry(release))
    gate = gate_master(self, resource, now_ns)
    our_entry = OUR_ENTRY_LEAVES
    if queue is not None:
        if queue.rounds or wait_queue_is_trying(queue):
            our_entry = OUR_ENTRY_STAYS
    elif self.token_uses is None and gate >= 0 and (
        now_ns >= gate_connection(self, gate, resource).asks_from_ns
    ) and not (
        self.queues.contended_ns and wait_queues_are_until(
            self.queues.contended_ns, resource, now_ns - KNOWN_NS
        )
    ):
        our_entry = OUR_ENTRY_NONE
    round_set_gate(release, gate, our_entry)


cdef int gate_send(
    Engine self, int operation, bytes resource, bytes waiter, Turn turn, Terms terms,
    int gate, bint by_source, int64_t now_ns,
) except -1:
    # A round that goes to the gate alone. Nobody else can make one.
    cdef Round round = round_new(
        operation, resource, waiter, terms, self.electorate
    )
    turn.is_open = True
    round_wait_in_turn(round, turn)
    round_set_gate(round, gate, OUR_ENTRY_AS_IS)
    round_submit(round, self.closed)
    return round_send(round, self.to_send, set_of(gate), by_source, now_ns)


# --- slots ----------------------------------------------------------------------------
# Which slot of a semaphore a round asks for, and what its end says of it (round/key).


cdef Slots gate_slots(Engine self, bytes name):
    cdef Slots slots = self.queues.slots.get(name)
    if slots is None:
        slots = Slots.__new__(Slots)
        slots.free = []
        slots.taken_ns = {}
        wait_queues_remember(self.queues.slots, name, slots)
    return slots


cdef int gate_set_slot(Engine self, Round round, int slot, int64_t now_ns) except -1:
    # -1: where to try is for us to say. It counts as taken while it is tried.
    cdef bytes name = round_queue(round)
    cdef Slots slots = gate_slots(self, name)
    cdef int start = <int>(gate_hash(round.token) % <uint64_t>round.permits)
    if not 0 <= slot < round.permits:
        slot = slots_choose(slots, round.permits, start, now_ns)
    if slot < 0:
        slot = start
    slots_take(slots, slot, now_ns + round.terms.timeout_ns)
    round.resource = slot_key(name, slot)


cdef int gate_on_slot_closed(Engine self, Round round, int64_t now_ns) except -1:
    cdef Slots slots = gate_slots(self, round_queue(round))
    cdef int slot = round_slot(round)
    cdef bint is_won = round.verdict_code == VERDICT_WON
    if round.operation_code == OPERATION_INSPECT:
        return slots_learn(slots, round, now_ns) if is_won else 0
    if slot < 0:
        return 0
    if round.operation_code == OPERATION_RELEASE:
        if is_won:      # gone, it may be another's by now; unknown, it is as before
            slots.taken_ns.pop(slot, None)
            if slot not in slots.free:
                slots.free.append(slot)
        return 0
    if is_won:
        until_ns = round.opened_ns + round.terms.ttl_ms * NS_PER_MS
        return slots_take(slots, slot, until_ns)
    if round.operation_code == OPERATION_ACQUIRE:
        if round.verdict_code == VERDICT_TAKEN and not round_is_refused(round):
            return slots_take(slots, slot, now_ns + SLOT_SEEN_NS)
        slots.taken_ns.pop(slot, None)


# --- queues ---------------------------------------------------------------------------
# One queue: its first is opened (left in the list `opened`, for the line), its entry at
# the gate is left, it is forgotten.

cdef enum:
    ASK_AGAIN_NS = 250_000_000
    SOON_NS = 1_000_000
    TRY_BEHIND_NS = 400_000_000             # times one's place
    TRY_SLOT_NS = 1_000_000_000
    TRY_AMONG_NS = 1_000_000_000

cdef Terms LEAVE_TERMS = Terms(0, 0, OVERDUE_AT_LEAST_NS)


cdef int gate_on_queue(
    Engine self, WaitQueue queue, int event, int64_t now_ns
) except -1:
    return gate_do(self, queue, wait_queue_on(queue, event), now_ns)


cdef int gate_do(Engine self, WaitQueue queue, int action, int64_t now_ns) except -1:
    # What a cell of the queue's table demands.
    if action == DO_ASK:
        return gate_ask(self, queue, now_ns)
    if action == DO_ENTER:
        return gate_ask_in_stay(self, queue, now_ns)
    if action == DO_OPEN:
        return gate_open_waiting(self, wait_queue_head(queue), now_ns)
    if action == DO_TRY:
        return gate_try(self, queue, now_ns)
    if action == DO_LEAVE:
        return gate_leave_queue(self, queue.entry, queue.gate, now_ns)
    if action == DO_LOOK_SOON:
        return gate_set_due(self, queue, now_ns + SOON_NS)
    if action == DO_LOOK_LATER:
        return gate_set_due(self, queue, now_ns + ASK_AGAIN_NS)


cdef int gate_open_waiting(Engine self, Round round, int64_t now_ns) except -1:
    # It is its turn, or the end of its time.
    cdef Turn turn = round.turn
    cdef WaitQueue queue = turn.queue
    cdef int gate = gate_master(self, queue.resource, now_ns)
    cdef Round next = None
    if round.turn.places is None:      # else its entry stays: no command goes there
        next = wait_queue_behind(queue, round)
    if round_wants_slot(round):
        gate_set_slot(self, round, queue.slot, now_ns)
    queue.slot = -1
    queue.freed = []      # what the gate notified us of before
    if gate >= 0:
        turn_set_arguments(turn, round, next, queue.waiter, now_ns)
    gate_set(self, queue, gate, now_ns)
    gate_set_due(self, queue, now_ns + ASK_AGAIN_NS)
    gate_opened(self, round, now_ns)
    return wait_queue_open(queue, round, next, gate, now_ns)


cdef int gate_opened(Engine self, Round round, int64_t now_ns) except -1:
    # One of several places opens the round of all keys, once. The others wait until
    # that has its verdict: as if they were tried, where they come first in here.
    cdef Places places = round.turn.places
    cdef Round other
    if places is not None:
        if not round.turn.is_probe:
            places.had_ns = places.had_ns if places.had else now_ns
            places.had.add(round.resource)
        round.turn.is_open = True
        if places.round.turn.is_open:
            return 0
        round = places.round
        round.turn.is_open = True
        for other in places.each:
            if not other.turn.is_open and wait_queue_head(other.turn.queue) is other:
                wait_queue_open(other.turn.queue, other, None, -1, now_ns)
            elif not other.turn.is_open:
                other.turn.is_open = wait_queue_remove(other.turn.queue, other)
    self.opened.append(round)
    round_spend_wait(round, self.round_trip_ns, now_ns)


cdef int gate_stop_waiting(Engine self, WaitQueue queue, int64_t now_ns) except -1:
    # There is no queue: all try once, and poll. Where the connections are gone, too,
    # they wait for the next ones first, as other rounds do.
    cdef Round round
    cdef list rounds = wait_queue_take_rounds(queue)
    wait_queue_on(queue, EVENT_NO_GATE)
    for round in rounds:
        gate_opened(self, round, now_ns)
        if round.turn.places is None:
            round_poll(round)
    return gate_forget_queue(self, queue)


cdef int gate_end_waiting(Engine self, str reason, int64_t now_ns) except -1:
    # End all waits: at close(), a fork, the end of the loop or the interpreter.
    cdef WaitQueue queue
    cdef Round round
    for queue in list(self.queues.by_resource.values()):
        for round in wait_queue_take_rounds(queue):
            if round.turn.places is not None:
                round = round.turn.places.round
            round_give_up(round, reason, now_ns)
        gate_leave_if_empty(self, queue, now_ns)


cdef int gate_leave_if_empty(Engine self, WaitQueue queue, int64_t now_ns) except -1:
    # Leave at once: if nobody waits here, perhaps no thread comes that waits.
    if queue.rounds:
        return gate_set_due(self, queue, now_ns + SOON_NS)
    gate_on_queue(self, queue, EVENT_EMPTY, now_ns)
    return gate_forget_queue(self, queue)


cdef int gate_on_due_queue(Engine self, WaitQueue queue, int64_t now_ns) except -1:
    if not queue.rounds:
        return gate_leave_if_empty(self, queue, now_ns)
    event = EVENT_TRY_DUE if gate_may_try(self, queue, now_ns) else EVENT_DUE
    return gate_on_queue(self, queue, event, now_ns)


cdef int gate_forget_queue(Engine self, WaitQueue queue) except -1:
    # A round that is undone late may name a queue that was forgotten before; by now
    # there may be another one of this resource, with others in it.
    if queue.state == QUEUE_AWAY and len(queue.rounds) == 0:
        queue.due_ns = NEVER_NS
        if self.queues.by_resource.get(queue.entry) is queue:
            del self.queues.by_resource[queue.entry]


cdef int gate_set(
    Engine self, WaitQueue queue, int gate, int64_t now_ns
) except -1:
    # Another gate would notify the entry of a turn that nobody waits for there.
    cdef int left = queue.gate
    if wait_queue_set_gate(queue, gate) == DO_LEAVE:
        gate_leave_queue(self, queue.entry, left, now_ns)


cdef int gate_leave_queue(
    Engine self, bytes entry, int gate, int64_t now_ns, bint by_source=True
) except -1:
    # A turn that was ours is passed on. By source: nobody may read NOSCRIPT.
    cdef bytes resource = entry.removeprefix(READERS)
    if gate >= 0 and gate_connection(self, gate, resource).state_code == MASTER_READY:
        gate_send(
            self, OPERATION_LEAVE_QUEUE, resource,
            wait_queues_waiter(self.queues, entry), turn_new(now_ns, False),
            LEAVE_TERMS, gate, by_source, now_ns,
        )


cdef bint gate_may_try(Engine self, WaitQueue queue, int64_t now_ns) noexcept:
    # The first of all asks every master, as if it had its turn: the key may be at the
    # gate alone (a releaser that died half-way), or has expired just now. So does our
    # first where the gate is silent, for a quorum does without it; and those behind,
    # the less often, the further behind: one before them may be frozen. Of a semaphore
    # one slot of many is tried, so that is not done as often. Of several queues here
    # one after the other does, one per second.
    cdef int64_t count = len(self.queues.by_resource)
    cdef int64_t every_ns = TRY_BEHIND_NS * queue.place
    cdef int64_t permits = wait_queue_head(queue).permits
    if not wait_queue_is_known(queue):
        return False
    if permits:
        every_ns = min(<int64_t>TRY_SLOT_NS, ASK_AGAIN_NS * permits) * (1 + queue.place)
    if queue.state == QUEUE_ASKED:
        every_ns = 0
    if count > 1:
        every_ns = max(every_ns, count * <int64_t>TRY_AMONG_NS)
        if now_ns - self.queues.tried_ns < TRY_AMONG_NS // 2:      # or one has no turn
            return False
    return now_ns - queue.tried_ns >= every_ns


cdef int gate_try(Engine self, WaitQueue queue, int64_t now_ns) except -1:
    # Where the gate is silent, the next follows as soon: its place is not known.
    cdef Round head = wait_queue_head(queue)
    if queue.state == QUEUE_ASKED:
        queue.place = 0
    head.turn.is_probe = True
    self.queues.tried_ns = now_ns
    return gate_open_waiting(self, head, now_ns)


cdef int gate_set_due(Engine self, Due work, int64_t due_ns) except -1:
    work.due_ns = due_ns
    return gate_add_due(self, due_ns, work)


cdef int gate_add_due(Engine self, int64_t due_ns, object work) except -1:
    due_note(self.due, due_ns)
    return wait_queues_add_due(self.queues, due_ns, work)


# --- moved ----------------------------------------------------------------------------
# The queue of a resource whose gate is slow: it is at the next master.
#
# A slow gate sets the pace of all hand-overs. How far a master is, each client sees
# differently, so the gate itself keeps the agreement, for one resource: a client that
# finds it slow (slowness) marks the queue there as moved, for 10 s, by its question.
# Then the scripts of that gate answer so, those entered are called, and all go to the
# next master. What is remembered here (queues.moved) is what the gate replied, never
# what was measured. A mark that is over, wrong or lost costs order, and up to 0.25 s
# until a release is found; where all masters have one, callers poll.

cdef enum:
    MOVED_LEAST_MS = 1_000
    MOVED_MOST_MS = 10_000
    MOVED_NS = 2_000_000_000     # where the gate has not answered for how long

cdef bytes MOVING = b"4"


cdef inline bint gate_may_mark(Engine self, int gate, bytes resource) noexcept:
    # Of two, none is slower than a quorum. A caller that waits for many has no hurry.
    return (
        gate_connection(self, gate, resource).slowness.is_slow and self.gate_count > 2
        and len(self.queues.by_resource) <= MARKED_MOST
    )


# --- asking ---------------------------------------------------------------------------
# What a gate is asked, by rounds that go to it alone: to enter the queue, for our place
# in it, to leave it.

cdef enum:
    ASK_AGAIN_BEHIND_NS = 500_000_000       # by one that is neither first nor second...
    ASK_AMONG_NS = 100_000                  # ...and of many queues, times their number
    TURN_NS = 52_000_000                    # the one that was notified has 50 ms
    NOBODY_NOTIFIED_NS = 10_000_000
    NEAR_PLACE = 4
    PLACES_MOST = 100
    PLACE_NS = 100_000                      # of each, behind the expiry of a slot
    AFTER_EXPIRY_NS = 1_500_000             # a server expires keys by whole ms
    CONTENDED_NS = 1_000_000_000
    FREE_NS = 1_000_000_000

cdef int64_t POLLED_NS = 10_000_000_000

cdef enum:                   # a turn, in the reply of ask_turn
    TURN_OURS = 1
    TURN_OTHER = 2           # that was notified
    TURN_OTHER_NOW = 3       # ...by this question: whoever asked it looks again in time
    TURN_MOVED = 4           # nobody's here: the queue is at the next master

cdef bytes SAME_ENTRY = b"0"
cdef bytes NEW_ENTRY = b"1"
cdef bytes FIRST_QUESTION = b"2"       # of a connection: it asks for the rights, too
cdef bytes PAUSED_ENTRY = b"3"         # its turn was lost often: it wants none

cdef str QUEUE_OF_ANOTHER = ": is there another use of its key fastredlock:queue:...?"


cdef int gate_ask(Engine self, WaitQueue queue, int64_t now_ns) except -1:
    # Enter its queue, or ask for our place in it.
    cdef int gate = gate_master(self, queue.resource, now_ns)
    cdef Round head
    cdef Turn turn
    connections_open_due(self, False, now_ns)      # one that waits has no other call
    if gate < 0:
        return gate_stop_waiting(self, queue, now_ns)
    head, turn = wait_queue_head(queue), turn_new(now_ns, False)
    turn.arguments = gate_question_arguments(self, queue, gate, now_ns)
    turn.asked = (queue, wait_queue_number(queue))
    gate_set(self, queue, gate, now_ns)
    wait_queue_on(queue, EVENT_ASKED)
    gate_set_due(self, queue, now_ns + ASK_AGAIN_NS)
    connection_subscribe(
        gate_connection(self, gate, queue.resource), queue.waiter, now_ns
    )
    return gate_send(
        self, OPERATION_ASK_TURN, queue.resource, queue.waiter, turn, head.terms, gate,
        False, now_ns,
    )


cdef int gate_ask_in_stay(Engine self, WaitQueue queue, int64_t now_ns) except -1:
    # Our first is not known at the gate. In a stay the release asks; or the time does.
    if not queue.rounds:
        return gate_leave_if_empty(self, queue, now_ns)
    if now_ns >= queue.stay_until_ns:
        return gate_ask(self, queue, now_ns)
    if queue.due_ns <= queue.stay_until_ns:
        return 0
    return gate_set_due(self, queue, queue.stay_until_ns)


cdef WaitQueue gate_end_stay(Engine self, Round release, int64_t now_ns):
    # Before a release is sent, callers that came in the stay enter the queue there.
    cdef WaitQueue queue = self.queues.by_resource.get(round_entry(release))
    if queue is not None and queue.stay_until_ns != 0:
        queue.stay_until_ns = 0
        if queue.rounds:
            gate_on_queue(self, queue, EVENT_WAITING, now_ns)
    return queue


cdef tuple gate_question_arguments(
    Engine self, WaitQueue queue, int gate, int64_t now_ns
):
    cdef Round head = wait_queue_head(queue)
    cdef bytes how = (
        FIRST_QUESTION if not connection_is_subscribed(
            gate_connection(self, gate, queue.resource), queue.waiter
        )
        else MOVING if gate_may_mark(self, gate, queue.resource)
        else PAUSED_ENTRY if turn_is_paused(head.turn)
        else SAME_ENTRY if wait_queue_is_known(queue) and queue.gate == gate
        else NEW_ENTRY
    )
    if head.permits:
        how += b"#" + decimal_bytes(head.permits)
    return turn_waited_us(head.turn.since_ns, now_ns), how


cdef int gate_take_answer(
    Engine self, WaitQueue queue, int64_t number, int gate, list answer, int64_t now_ns
) except -1:
    # Take whose turn it is in one queue; its first, when it was asked, had this number.
    cdef int64_t left_ms
    cdef Round head
    whose, left, place, count = answer
    if whose == TURN_MOVED:
        left_ms = min(max(<object>left, MOVED_LEAST_MS), MOVED_MOST_MS)
        return gate_on_moved(
            self, queue.resource, gate, now_ns + left_ms * NS_PER_MS, now_ns
        )
    if not wait_queue_is_known(queue) or wait_queue_number(queue) != number:
        return 0      # it was for another that was first
    head = wait_queue_head(queue)
    if whose == TURN_OURS:
        queue.is_alone = count == 1
        if count == 1 and head.permits:      # the next first try need not ask
            self.queues.contended_ns.pop(queue.resource, None)
        if head.permits:
            queue.slot = min(max(<object>left, -1), PERMITS_MOST)
        return gate_on_queue(self, queue, EVENT_OURS, now_ns)
    queue.place = place
    wait_queue_on(queue, EVENT_NOBODY if place == 0 else EVENT_OTHERS)
    if turn_is_paused(head.turn):
        if place == 0 and left == -2:
            return 0
        head.turn.is_kept = False      # the gate knows when
    left_ms = min(max(<object>left, -2), 1_000_000)
    if wait_queue_is_left_free(queue, whose, left_ms, now_ns):
        # Try as if there were no queue: the gate is sent a SET, as each master is,
        # because its script would refuse. Our entry stays there meanwhile.
        gate_try(self, queue, now_ns)
        round_set_gate(head, -1, OUR_ENTRY_AS_IS)
        return 0
    return gate_set_due(
        self, queue, now_ns + gate_again_ns(self, queue, whose, left_ms, count, now_ns)
    )


cdef int64_t gate_again_ns(
    Engine self, WaitQueue queue, int whose, int64_t left_ms, object count,
    int64_t now_ns,
) except -1:
    # Return in how long to ask again. A free key is another's that was notified, or a
    # hundred were dropped; else those before us, if they are there, come first.
    cdef Round head = wait_queue_head(queue)
    cdef int64_t queues = len(self.queues.by_resource)
    cdef int64_t again_ns = ASK_AGAIN_NS
    if queue.place > 1 or queues > MARKED_MOST:
        again_ns = max(<int64_t>ASK_AGAIN_BEHIND_NS, queues * ASK_AMONG_NS)
    cdef int64_t expiry_ns = left_ms * NS_PER_MS + AFTER_EXPIRY_NS
    if left_ms == -2 and whose < TURN_OTHER:
        return NOBODY_NOTIFIED_NS
    if left_ms == -2:
        is_far = whose == TURN_OTHER and queue.place > NEAR_PLACE
        return ASK_AGAIN_NS if is_far else TURN_NS
    if head.permits:
        again_ns = min(again_ns, gate_first_slot_ns(queue, count))
        return again_ns if left_ms < 0 else min(again_ns, expiry_ns)
    if queue.place == 0 and queues == 1:      # only just? it has not tried for long
        again_ns = max(<int64_t>0, queue.tried_ns + again_ns - now_ns)
    if left_ms < 0:
        return again_ns
    return min(again_ns, expiry_ns + TURN_NS * min(queue.place, <int64_t>PLACES_MOST))


cdef int64_t gate_first_slot_ns(WaitQueue queue, object first_ms) except -1:
    # Return in how long the first slot has expired. Nobody notifies the first of the
    # queue of that, so each one of it asks then, shortly behind each other, and the
    # gate does. Of a rate all expire, one by one, and each waiter asks for its own.
    cdef int64_t left_ms = min(max(<object>first_ms, 0), 1_000_000)
    if left_ms == 0 or queue.place > PLACES_MOST or (
        wait_queue_head(queue).terms.is_of_rate
    ):
        return NEVER_NS
    return left_ms * NS_PER_MS + AFTER_EXPIRY_NS + queue.place * PLACE_NS


cdef int gate_on_queue_refused(
    Engine self, WaitQueue queue, Round ask, int64_t now_ns
) except -1:
    # An ACL forbids it, or the queue's key is of another type: its callers poll.
    cdef Connection connection = gate_connection(self, ask.gate, queue.resource)
    text = ask.details[ask.gate]
    if text_is_for_good(text):
        connection_refuse_queue(connection, text)
    else:
        if connection.restart_guard.failover_ns == 0 or not text_is_passing(text):
            report_warned(connection.report, [
                f"callers cannot wait in turn for a resource here ({text}), and poll "
                "instead" + (QUEUE_OF_ANOTHER if FOREIGN in text else "")
            ])
        wait_queues_remember(self.queues.polled_ns, queue.resource, now_ns + POLLED_NS)
    return gate_stop_waiting(self, queue, now_ns)


cdef int gate_on_asked(Engine self, Round ask, int64_t now_ns) except -1:
    # The gate has answered ASK_TURN, or has not.
    cdef WaitQueue queue
    queue, number = ask.turn.asked
    if ask.verdict_code == VERDICT_WON:
        gate_take_answer(
            self, queue, number, ask.gate, ask.details[ask.gate], now_ns
        )
    elif set_has(ask.failed, ask.gate) and ask.answered_us[ask.gate] and (
        ask.gate == queue.gate
    ):
        gate_on_queue_refused(self, queue, ask, now_ns)


cdef int gate_on_moved(
    Engine self, bytes resource, int gate, int64_t until_ns, int64_t now_ns
) except -1:
    # The gate has replied that the queue is not there. Nor is our entry: who waits goes
    # to the next; an open turn goes on.
    cdef WaitQueue queue
    wait_queues_on_moved(self.queues, resource, gate, until_ns, now_ns)
    for entry in (resource, READERS + resource):
        queue = self.queues.by_resource.get(entry)
        if queue is None or queue.gate != gate:
            continue
        queue.gate = -1
        if wait_queue_on(queue, EVENT_MOVED) == DO_ASK and queue.rounds:
            gate_ask(self, queue, now_ns)
