# From one holder to the next: releases that wait for replies, idle keys here,
# rounds whose turn it is, callers that wait for theirs, leases that are handed on.

# --- held -----------------------------------------------------------------------------
# A release that has its verdict, and ends only when further replies are in.

cdef enum:
    HELD_LEAST_NS = 1_000_000
    GATE_LATE_NS = 100_000_000


cdef bint turns_hold(Engine self, Round round, int64_t now_ns) except -1:
    # Whether its caller waits for more: it was repeated at one master, which did not
    # know its script, or whose connection was cut. The others will hardly be better
    # off, and to a master that is not read nothing is sent again. They have twice as
    # long again as the quorum, so a frozen one keeps nobody waiting; one that connects
    # again, as long as the round. A close() waits for the replies itself.
    # Those released natively are a quorum before the gate replies that its scripts were
    # flushed, or that somebody waits. A caller that then rests never reads this: so it
    # waits for its gate. Where that one is late, the script is sent unasked, and for a
    # while no release asks or waits.
    # A reader that a quorum let in waits for its gate as well: if somebody waits there,
    # it gives way, or readers that only try would starve a writer.
    cdef Connection connection, gate = None
    cdef int64_t until_ns
    cdef bint is_asked = round.our_entry == OUR_ENTRY_ASKED
    cdef bint is_release = round.operation_code == OPERATION_RELEASE
    cdef bint is_repeated = is_release and round.is_repeated
    if not is_release and (
        round.kind != KIND_SHARED or round.operation_code != OPERATION_ACQUIRE
        or round.verdict_code != VERDICT_WON
    ):
        return False
    if not is_release and round_is_refused(round):
        round_give_way(round)
        return False
    if self.is_closed or not (is_asked or round_pending(round)):
        return False
    if is_asked or round.gate >= 0 and set_has(round_pending(round), round.gate) and (
        not is_release or native_replaces(round, self.scripts)
    ):
        gate = gate_connection(self, round.gate, round.resource)
        if gate.state_code != MASTER_READY or now_ns < gate.asks_from_ns or (
            is_release and gate.native == FORM_SCRIPT
        ):
            gate = None
    if is_repeated or gate is not None:
        until_ns = min(round.deadline_ns, round.closed_ns + max(
            2 * (round.closed_ns - round.opened_ns), <int64_t>HELD_LEAST_NS
        ))
        for connection in self.connections if is_repeated else ():
            if round in connection.in_flight.unanswered:
                until_ns = round.deadline_ns
        if now_ns < until_ns:
            self.held.append(round)
            due_note(self.due, until_ns)
            return True
        if gate is not None:
            gate.asks_from_ns = now_ns + GATE_LATE_NS
    if is_asked:
        turns_notify(self, round, round.gate, now_ns)
    return False


cdef int turns_notify(
    Engine self, Round release, int gate, int64_t now_ns
) except -1:
    # Notify by the gate's script, behind a release that has notified nobody there.
    # Nobody waits for the reply, so it is sent by source.
    cdef Round notifying
    release.our_entry = OUR_ENTRY_LEAVES
    if gate_connection(self, gate, release.resource).state_code != MASTER_READY:
        return 0
    notifying = round_new_release(release, release.terms, set_of(gate))
    gate_notify(self, notifying, now_ns)
    round_set_gate(notifying, gate, notifying.our_entry)
    self.is_notifying = True
    round_send(notifying, self.to_send, notifying.may_hold, True, now_ns)
    round_follow(notifying, release)


# --- turns ----------------------------------------------------------------------------
# Whose turn it is: what opens a round that waits, and what follows its verdict.
#
# Such a round (turn) is opened
#
#   by its gate        a push, or the answer to ASK_TURN, notifies us of our turn;
#   by a release here  the gate had reported that our first waits longest: the release
#                      and its SET leave in one write, in that order, which is kept;
#   by its timeout     a last try, as every acquire makes one;
#   where no queue is  no master can be a gate, or this one refuses: as without a queue.

cdef enum:
    SLOT_STAY_NS = 2_000_000


cdef int turns_on_closed(Engine self, Round round, int64_t now_ns) except -1:
    # A round that waited has its verdict. Lost, its caller mostly comes back at once.
    # Beside a slot that is won there are others, which other processes release, or
    # which expire: of a rate nobody is notified.
    cdef Turn turn = round.turn
    cdef WaitQueue queue = turn.queue
    cdef list freed
    cdef int action
    if turn.places is not None:      # of several keys
        return turns_on_all_closed(self, round, now_ns)
    if queue is None and round_is_refused(round):      # a reader's first try
        return turns_note_contended(self, round.resource, now_ns)
    if queue is None or not turn.is_open:
        return 0
    turn.arguments = None
    action = wait_queue_close(queue, round)
    if round.verdict_code != VERDICT_WON:
        if round.verdict_code == VERDICT_TAKEN and (
            now_ns < turn.until_ns - LAST_ROUND_NS
        ):
            return gate_do(self, queue, action, now_ns)
        return gate_leave_if_empty(self, queue, now_ns)
    if not queue.is_alone:
        turns_note_contended(self, queue.resource, now_ns)
    if round.kind == KIND_SHARED:      # nothing is handed on: the next may join it
        if queue.state == QUEUE_FIRST and queue.rounds:
            return turns_open_slot(self, queue, -1, now_ns)
        return gate_do(self, queue, action, now_ns)
    queue.stay_until_ns = round.opened_ns + min(
        self.cohort_ns, SLOT_STAY_NS if round.permits else NEVER_NS
    )
    if round.permits and queue.rounds and not wait_queue_is_trying(queue):
        freed = queue.freed
        queue.freed = []
        if freed and queue.state == QUEUE_FIRST:  # else the gate has notified another
            return turns_open_slot(self, queue, <int>freed[-1], now_ns)
        if round.terms.is_of_rate:
            return gate_ask(self, queue, now_ns)
    return gate_do(self, queue, action, now_ns)


cdef int turns_note_contended(Engine self, bytes resource, int64_t now_ns) except -1:
    # Others want it: for a while our next callers queue without a first try.
    return wait_queues_remember(
        self.queues.contended_ns, resource, now_ns + CONTENDED_NS
    )


cdef int turns_take(Engine self, Master master, int64_t now_ns) except -1:
    # A gate has notified this process of its turn: the first that was not granted.
    cdef bytes resource = master.turns.pop(0)
    cdef int slot = -1
    cdef WaitQueue queue = self.queues.by_resource.get(resource)
    if queue is None and slot_of_key(resource) >= 0:      # or a lock of such a name
        name = slots_name(resource)
        if name in self.queues.by_resource or name in self.queues.slots:
            slot = slot_of_key(resource)
            resource = name
            queue = self.queues.by_resource.get(name)
    if queue is not None and wait_queue_on(queue, EVENT_TURN) == DO_NOTE:
        queue.trying.turn.is_notified = True  # lost, it tries again
        if slot >= 0 and slot != round_slot(queue.trying):
            queue.freed.append(slot)
        return 0
    if queue is None and turns_is_called(self, resource, now_ns):
        return 0
    if queue is None or not queue.rounds:
        self.counters.turns_missed += 1
        return turns_pass_on(self, resource, master, now_ns)
    self.counters.turns_told += 1
    queue.is_alone = False
    wait_queue_head(queue).turn.is_notified = True
    return turns_open_slot(self, queue, slot, now_ns)


cdef int turns_open_slot(
    Engine self, WaitQueue queue, int slot, int64_t now_ns
) except -1:
    # The first here has its turn: for a lock, -1, or for this slot. Where it may not
    # have that one, or none is known, the gate replies which.
    cdef Round head = wait_queue_head(queue)
    if not round_may_have_slot(head, slot):
        return gate_ask(self, queue, now_ns)
    queue.slot = slot
    return gate_open_waiting(self, head, now_ns)


cdef int turns_take_moved(Engine self, Master master, int64_t now_ns) except -1:
    # Take the queues that have moved, by replies of scripts that have set or released a
    # key at the gate. The next gate notifies callers that wait for a release, but not
    # under a token that the caller may use again by now.
    cdef Round round
    cdef int gate
    for round in master_take_moved(master):
        resource = round_queue(round)
        gate_on_moved(self, resource, master.vote, now_ns + MOVED_NS, now_ns)
        gate = gate_master(self, resource, now_ns)
        if round.operation_code == OPERATION_RELEASE and gate >= 0 and (
            self.token_uses is None
        ):
            turns_note_contended(self, resource, now_ns)
            turns_notify(self, round, gate, now_ns)


cdef int turns_pass_on(
    Engine self, bytes entry, Master master, int64_t now_ns
) except -1:
    # A turn that nobody waits for goes to the next at once.
    if not master_may_pass_on(master, now_ns):
        return 0
    return gate_leave_queue(self, entry, master.vote, now_ns)


cdef bint turns_is_called(Engine self, bytes push, int64_t now_ns) except -1:
    # No turn. "!": somebody wants an idle key of ours, or one that will not be idle
    # when it is released. Or the gate has doubts whether those before us are alive, and
    # asks us to reply at once ("~"), or to look whether they came, when their time is
    # over ("?"). Who also waits for a resource of such a name is notified of that one,
    # and finds this by its next question.
    cdef WaitQueue queue
    if push.startswith(RECALL):
        resource = push[len(RECALL):]
        turns_note_contended(self, resource, now_ns)
        idle = self.idle.keys.get(resource)
        if idle is not None:
            idle_end(self, <IdleKey>idle, now_ns)
        return True
    queue = self.queues.by_resource.get(push[1:])
    if queue is None or push[:1] not in (b"~", b"?"):
        return False
    queue.tried_ns = now_ns      # so the question is asked, and not a try made
    if not queue.rounds:
        return True
    if push[:1] == b"~":
        gate_on_queue(self, queue, EVENT_CALLED, now_ns)
    elif queue.state != QUEUE_ASKED and not wait_queue_is_trying(queue):
        gate_set_due(self, queue, min(queue.due_ns, now_ns + TURN_NS))
    return True


cdef int turns_before_release(Engine self, Round release, int64_t now_ns) except -1:
    # Callers that came in a stay enter the queue. If our first waits longest of all, it
    # is opened: it follows this release in the same write. Else the gate notifies.
    cdef WaitQueue queue
    if release.keys is None and self.queues.by_resource:
        queue = gate_end_stay(self, release, now_ns)
        if queue is not None and queue.state == QUEUE_FIRST and (
            queue.gate == gate_master(self, queue.resource, now_ns)
            and round_may_have_slot(wait_queue_head(queue), round_slot(release))
        ):
            self.counters.handed_over += 1
            turns_note_contended(self, queue.resource, now_ns)
            return turns_open_slot(self, queue, round_slot(release), now_ns)
    return gate_notify(self, release, now_ns)


# --- waiting --------------------------------------------------------------------------
# The callers of this process that wait in turn: they come, give up, or their time ends.
#
# The gate knows the first of each queue. It asks again from time to time, and the first
# of all tries on all masters then, and when the key should have expired: so releases by
# other clients, lost messages, and dead gates are found. A process that is notified and
# does not answer is dropped from the queue by the next that asks or releases (the
# scripts: _options/queue.lua).

cdef enum:
    AT_LEAST_NS = 100_000


cdef int turns_start_reader(Engine self, Round round, int64_t now_ns) except -1:
    # Each server is sent the scripts before, once: who learns behind a verdict that it
    # does not know one, asks no more. Of a reader that has not waited, its gate may
    # know of somebody who waits.
    cdef Master master
    cdef Connection connection
    cdef int gate = gate_master(self, round.resource, now_ns)
    for master in self.masters:
        connection = master_connection(master, round.resource)
        if connection.state_code == MASTER_READY and not connection.knows_shared:
            connection.knows_shared = True
            for name in SHARED_SCRIPTS:
                script = <Script?>self.scripts.named.get(name)
                words = (b"SCRIPT", b"LOAD", script.source)
                connection_ask(connection, ENTRY_LOAD, words, now_ns)
    if gate >= 0 and round.turn is None:
        round_wait_in_turn(round, turn_of_first_try(round))
        round_set_gate(round, gate, OUR_ENTRY_AS_IS)


cdef bint turns_wait(Engine self, Round round, int64_t now_ns) except -1:
    # Return whether it waits; if no queue is kept, it is as a round without a turn.
    cdef bytes resource = round_queue(round)
    cdef WaitQueue queue
    if round.keys is not None:
        return turns_wait_for_all(self, round, now_ns)
    if gate_master(self, resource, now_ns) < 0 or (
        wait_queues_are_until(self.queues.polled_ns, resource, now_ns)
    ):
        round_poll(round)
        return False
    entry = round_entry(round)
    queue = self.queues.by_resource.get(entry)
    if queue is None:
        queue = self.queues.by_resource[entry] = wait_queue_new(
            resource, entry, wait_queues_waiter(self.queues, entry), now_ns
        )
    turns_enter_queue(self, queue, round, now_ns)
    return True


cdef int turns_enter_queue(
    Engine self, WaitQueue queue, Round round, int64_t now_ns
) except -1:
    cdef Turn turn = round.turn
    turn.queue = queue
    self.queues.number += 1
    turn.number = self.queues.number
    if wait_queue_add(queue, round) > 0 and turn.pause_ns > 0:
        turn.is_kept = False      # an earlier round is being tried
    elif turn.is_kept and wait_queue_head(queue) is round:
        wait_queue_on(queue, EVENT_BACK)
    if turn.until_ns != NEVER_NS:
        gate_add_due(self, turn.until_ns, round)
    self.counters.waits += not turn.has_waited
    if not turn.is_kept:
        return gate_on_queue(self, queue, EVENT_WAITING, now_ns)
    gate_add_due(self, now_ns + max(
        self.round_trip_ns, max(<int64_t>AT_LEAST_NS, turn.pause_ns)
    ), round)
    return gate_ask(self, queue, now_ns) if turn_is_paused(turn) else 0


cdef int turns_leave(Engine self, Round round, int64_t now_ns) except -1:
    # Its caller has given it up.
    cdef WaitQueue queue = round.turn.queue
    cdef Round place
    if round.keys is not None and round.turn.places is not None:
        for place in round.turn.places.each:
            round_finish(place)      # no time opens it any more
            turns_leave(self, place, now_ns)
        round.turn.places = None      # which refer to it
    if queue is None:
        return 0
    gate_do(self, queue, wait_queue_leave(queue, round), now_ns)
    return gate_forget_queue(self, queue)


cdef bint turns_take_due(Engine self, int64_t now_ns) except -1:
    # The first that the time opens, or asks again; whether there was one.
    cdef Turn turn
    cdef IdleKey idle
    work = wait_queues_take_due(self.queues, now_ns)
    if work is None:
        return False
    if type(work) is WaitQueue:
        (<WaitQueue>work).due_ns = NEVER_NS
        gate_on_due_queue(self, <WaitQueue>work, now_ns)
    elif type(work) is IdleKey:
        idle = <IdleKey>work
        if idle.is_idle and now_ns < idle.until_ns:
            gate_set_due(self, idle, idle.until_ns)
        elif self.idle.keys.get(idle.round.resource) is idle:
            del self.idle.keys[idle.round.resource]
            idle_end(self, idle, now_ns)
    else:
        turn = (<Round>work).turn
        if turn.is_kept or now_ns >= turn.until_ns:
            gate_open_waiting(self, <Round>work, now_ns)
    return True


# --- several --------------------------------------------------------------------------
# A round of several keys has a place in the queue of each, and holds none of them. The
# turn of any key opens the round, which takes all or nothing. If another key is taken,
# it comes back, and pauses at the first one: that gate gives the turn to nobody, and
# the turn of the other key finds both free (but for callers that do not queue).
#
# The holder of the other key may wait for the one that is kept so. So a key is kept for
# as long as this caller had waited before; then it waits for the others only.

cdef enum:
    KEPT_LEAST_NS = 250_000_000
    KEPT_PAUSE_NS = 200_000_000      # a gate keeps it for 300 ms


cdef bint turns_wait_for_all(Engine self, Round round, int64_t now_ns) except -1:
    cdef Turn turn = round.turn
    cdef Places places
    cdef Round place
    cdef set left = set()
    places = turn_begin_places(turn, round)
    if places.had and now_ns - places.had_ns > max(
        <int64_t>KEPT_LEAST_NS, places.had_ns - turn.since_ns
    ):
        left, places.had = places.had, left
    for key in round.keys:
        if key in left and len(left) < len(round.keys) or turn.is_open:
            continue
        place = round_of_place(round, key, turn_new(
            turn.since_ns, False, turn.until_ns, True,
            KEPT_PAUSE_NS if key in places.had else 0, places,
        ))
        if not turns_wait(self, place, now_ns):
            turns_leave(self, round, now_ns)
            round_poll(round)
            return False
        places.each.append(place)
    self.counters.waits += not turn.has_waited
    return True


cdef int turns_on_all_closed(Engine self, Round round, int64_t now_ns) except -1:
    # If it is lost, its caller mostly comes back at once: its entries stay a moment.
    cdef Round place
    cdef WaitQueue queue
    if round.verdict_code != VERDICT_TAKEN or (
        now_ns >= round.turn.until_ns - LAST_ROUND_NS
    ):
        return turns_leave(self, round, now_ns)
    for place in round.turn.places.each:
        queue = place.turn.queue
        gate_do(self, queue, wait_queue_close(queue, place), now_ns)
    round.turn.places.each = []


# --- cohort ---------------------------------------------------------------------------
# A lease is handed on inside of this process, or its key is idle.
#
# A stay is the time from t0 in which the lease may be handed on; the queue knows its
# end. Those who come meanwhile are noted here alone: the entry of this process at the
# gate is as old as when the stay began. The release that ends a stay is sent behind a
# question with the true time of our next caller, in the same write, so that the gate
# gives the turn to whoever waits longest anywhere. To hand on and to join are changes
# of lists alone: a thread that has the GIL may do both while another one leads, between
# two of its passes.


cdef inline bint turns_may_need_no_master(Engine self, object work) noexcept:
    # One look, for what is no lock of this process alone.
    return len(self.queues.by_resource) > 0 or len(self.idle.keys) > 0 or (
        type(work) is Round and (<Round>work).terms.idle_ns != 0
    )


cdef bint turns_hand_on(Engine self, object work, int64_t now_ns) except -1:
    # Return whether a round needed no master: an acquire of what is idle here; a
    # release if the next caller here has its lease, or its key is idle.
    cdef Round round
    if type(work) is not Round or self.is_closed or (<Round>work).is_submitted:
        return False
    round = <Round>work
    if round.operation_code == OPERATION_ACQUIRE:
        return len(self.idle.keys) > 0 and idle_take(self, round, now_ns)
    return (
        round.operation_code == OPERATION_RELEASE and round.origin is not None
        and not is_exiting      # the next thread may be stopped before it is awake
        and (
            turns_hand_to_next(self, round, now_ns)
            or idle_begin(self, round, now_ns)
        )
    )


cdef bint turns_hand_to_next(Engine self, Round release, int64_t now_ns) except -1:
    cdef Round grant = release.origin, next
    cdef WaitQueue queue
    if self.cohort_ns == 0 or not self.queues.by_resource:
        return False
    queue = self.queues.by_resource.get(round_queue(release))
    if queue is None or not queue.rounds or (
        wait_queue_is_trying(queue) and release.permits == 0
    ):
        return False
    next = wait_queue_head(queue)
    if now_ns - grant.opened_ns > self.cohort_ns or waiter_is_over(next.waiter) or not (
        round_is_plain(grant) and round_may_be_given(grant, next, now_ns)
    ):
        return False
    round_open(release, now_ns)
    wait_queue_remove(queue, next)
    round_hand_on(grant, next, now_ns)
    round_end_here(release, now_ns)
    round_end_here(next, now_ns)
    self.counters.ended[OPERATION_RELEASE][VERDICT_WON] += 1
    self.counters.ended[OPERATION_ACQUIRE][VERDICT_WON] += 1
    self.counters.handed_on += 1
    if next.waiter is None or type(next.waiter) is Follower and (
        not (<Follower>next.waiter).is_waiting
    ):      # it leads, and sleeps
        turns_rouse(self)
    waiter_wake(round_finish(next))
    return True


cdef bint turns_join_stay(
    Engine self, object work, object waiter, int64_t now_ns
) except -1:
    # Return whether a round waits now for a lease that is handed on here. Nothing is
    # sent, and a driver need know only a time that is due before it looks again.
    cdef Round round
    cdef WaitQueue queue
    if type(work) is not Round or self.is_closed:
        return False
    round = <Round>work
    if round.turn is None or round.is_submitted or (
        round.turn.is_open or round.turn.is_kept or round.keys is not None
    ):
        return False
    queue = self.queues.by_resource.get(round_queue(round))
    if queue is None or now_ns >= queue.stay_until_ns:
        return False
    work_set_waiter(round, waiter)
    turns_enter_queue(self, queue, round, -1)      # of the stay: nothing is sent
    round_submit(round, self.closed)
    return True


cdef void turns_rouse(Engine self) noexcept:
    # A leader looks at its round, and at what is due, again: in poll, or about to be.
    self.due.at_ns = 0
    self.leadership.waker.has_followers = 1
    waker_wake(&self.leadership.waker)
