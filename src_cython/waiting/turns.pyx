# From one holder to the next: releases that wait for replies, keys at rest here,
# rounds whose turn it is, callers that wait for theirs, leases that are handed on.

# --- held -----------------------------------------------------------------------------
# A release that has its verdict, and ends only when further replies are in.

cdef enum:
    HELD_LEAST_NS = 1_000_000
    GATE_SCRIPT_NS = 100_000_000


cdef bint engine_hold(Engine self, Round release, int64_t now_ns) except -1:
    # It has its verdict. Is there more to read, before its caller goes?
    cdef int64_t until_ns = engine_held_ns(self, release)
    if now_ns >= until_ns:
        return False
    self.held.append(release)
    engine_note_time(self, until_ns)
    return True


cdef int64_t engine_held_ns(Engine self, Round release) except -1:
    # A release that was repeated at one master, which did not know its script, or whose
    # connection was cut: the others will hardly be better off, and to a master that is
    # not read nothing is sent again. They have twice as long again as the quorum, so
    # a frozen one keeps nobody waiting; one that connects again, as long as the round.
    # A close() waits for the replies itself, and behind it none will come.
    cdef Master master
    if self.is_closed:
        return 0
    if release.counts[VOTE_PENDING] > 0 and (
        release.is_repeated or engine_may_lack_script(self, release)
    ):
        for master in self.masters:
            if release in master.in_flight.unanswered:
                return release.deadline_ns
        return min(release.deadline_ns, release.closed_ns + max(
            2 * (release.closed_ns - release.opened_ns), <int64_t>HELD_LEAST_NS
        ))
    return 0


cdef bint engine_may_lack_script(Engine self, Round release) noexcept:
    # Where the others are released natively, they are a quorum before the gate replies
    # that its scripts were flushed, and a caller that then rests never reads this. So
    # one release in 0.1 s waits for the reply, whatever becomes of it.
    cdef Master gate
    if release.gate < 0 or release.is_reentrant or (
        release.cells[release.gate].vote != VOTE_PENDING
        or not native_replaces(release, self.scripts)
    ):
        return False
    gate = <Master>self.masters[release.gate]
    return gate.native != FORM_SCRIPT and (
        release.closed_ns - gate.gate_script_ns > GATE_SCRIPT_NS
    )


cdef int engine_take_held(Engine self, int64_t now_ns) except -1:
    # Let those end whose masters have answered, or take too long.
    cdef Round release
    empty = []
    held, self.held = self.held, empty
    for release in held:
        if engine_hold(self, release, now_ns):
            continue
        if release.gate >= 0:
            (<Master>self.masters[release.gate]).gate_script_ns = now_ns
        self.closed.append(release)
    return 0


cdef int64_t engine_held_next_ns(Engine self) except -1:
    cdef Round release
    cdef int64_t next_ns = NEVER_NS
    for release in self.held:
        next_ns = min(next_ns, engine_held_ns(self, release))
    return next_ns


cdef int engine_notify_late(
    Engine self, Round release, Master gate, int64_t now_ns
) except -1:
    # Send the script of the next gate behind a release. Nobody waits for its reply: so
    # by its source.
    cdef Round notifying
    if gate.state_code != MASTER_READY:
        return 0
    notifying = engine_new_release(self, release, release.terms)
    engine_notify_at_gate(self, notifying, now_ns)
    self.is_notifying = True
    notifying.gate = gate.index
    notifying.may_hold = <uint64_t>1 << gate.index
    return engine_queue(self, notifying, notifying.may_hold, True, now_ns)


# --- rests ----------------------------------------------------------------------------
# Keys at rest in this process (round/local): they come to rest, are taken, and given
# up.
#
# To come to rest and to be taken are changes of this process alone, as to hand a lease
# on: a thread that has the GIL does both while another one leads. A key is given up in
# a step, by its release, which the gate's script makes the turn of whoever waits.
#
#   recalled    a gate asks for it: somebody else wants the key
#   due         its time is over
#   replaced    a caller here needs a round of its own: the release and its SET leave in
#               one write, in that order
#   ended       close(), the end of the interpreter or of the loop
#
# While a key rests somebody has to read recalls: an event loop, or a thread (`watch`).


cdef bint engine_rest(Engine self, Round release, int64_t now_ns) except -1:
    # Whether what is released rests instead. From the look on nothing can fail or run
    # a finalizer.
    cdef Rest rest
    cdef Round taken = <Round>release.lease_state
    if taken.terms.linger_ns == 0 or not kind_is(taken.kind, KIND_RESTS):
        return False
    rest = engine_place_of_rest(self, taken, now_ns)
    if rest is None or not engine_may_rest(self, taken, now_ns) or (
        rest.is_at_rest or is_exiting or self.is_closed or release.is_submitted
    ):
        return False
    self.has_rested = True
    round_open(release, now_ns)
    rest_begin(rest, taken, round_rest_until_ns(taken, now_ns), now_ns)
    engine_end_here(self, release, now_ns)
    return True


cdef Rest engine_place_of_rest(Engine self, Round taken, int64_t now_ns):
    # Where it may rest, with somebody who reads recalls; None: not now. The common one
    # has both.
    cdef Rest rest = self.rests.get(taken.resource)
    cdef int64_t until_ns = round_rest_until_ns(taken, now_ns)
    if rest is not None and self.watcher is not None and until_ns >= rest.due_ns:
        return rest
    if not engine_may_rest(self, taken, now_ns):
        return None
    if rest is None:
        rest = self.rests.setdefault(taken.resource, rest_new(taken))
    if until_ns < rest.due_ns:
        rest.due_ns = until_ns
        engine_add_due(self, until_ns, rest)
    if not engine_is_watched(self) or self.rests.get(taken.resource) is not rest:
        return None      # a recall came, or a finalizer was here
    return rest


cdef bint engine_may_rest(Engine self, Round taken, int64_t now_ns) except -1:
    # Its gate has to have the key, as far as is known, or a recall would not find us;
    # and nobody to wait.
    cdef int gate = engine_gate(self, taken.resource, now_ns)
    return (
        gate >= 0 and (taken.may_hold >> gate) & 1
        and taken.cells[gate].vote in (VOTE_GRANTED, VOTE_PENDING)
        and (<Master>self.masters[gate]).is_subscribed
        and taken.resource not in self.queues.by_resource
        and not wait_queues_are_until(
            self.queues.contended_ns, taken.resource, now_ns
        )
        and round_rest_until_ns(taken, now_ns) != 0
    )


cdef bint engine_is_watched(Engine self) except -1:
    # Whether recalls are read by now. A thread that is only started here may find one
    # that came before, while the lease was held: the next key rests.
    if self.watcher is not None:
        return True
    if self.watch is None or is_exiting:
        return False
    self.watcher = True
    try:
        watcher = self.watch(self, self.driver)
    except BaseException:
        self.watcher = None
        raise
    if self.watcher is True:      # else it is over already
        self.watcher = watcher
    return self.driver is not None and self.watcher is not None


cdef void engine_end_here(Engine self, Round round, int64_t now_ns) noexcept:
    # Nobody was asked: it counts as ended, and teaches nothing of any master.
    round.may_hold = 0 if round.operation_code == OPERATION_RELEASE else round.may_hold
    round.is_submitted = True
    round_close(round, VERDICT_WON, now_ns)
    self.counters.ended[round.operation_code][VERDICT_WON] += 1
    round.is_finished = True


cdef bint engine_take_rest(Engine self, Round next, int64_t now_ns) noexcept:
    # Whether this acquire has a key that rested here: it is won.
    cdef Rest rest = self.rests.get(next.resource)
    if rest is None or next.is_submitted or self.is_closed or is_exiting or (
        self.generation != current_generation
        or not rest_serves(rest, next, now_ns)
    ):
        return False
    rest.is_at_rest = False
    round_hand_on(rest.round, next, now_ns)
    engine_end_here(self, next, now_ns)
    self.counters.lingered += 1
    return True


cdef int engine_end_rest(Engine self, Rest rest, int64_t now_ns) except -1:
    # By source: nobody may read NOSCRIPT.
    cdef Round release
    if not rest.is_at_rest:
        return 0
    release = engine_new_release(self, rest.round, rest.round.terms)
    if not rest.is_at_rest or release.token is not rest.round.token:
        return 0      # a finalizer has taken it meanwhile
    rest.is_at_rest = False
    release.is_submitted = True
    self.counters.rounds += 1
    engine_notify_at_gate(self, release, now_ns)
    self.is_notifying = True
    engine_queue(self, release, <uint64_t>-1, True, now_ns)
    engine_open_deferred(self, now_ns)      # no call may come that does
    return 0


cdef int engine_end_rests(Engine self, int64_t now_ns) except -1:
    for rest in list(self.rests.values()):
        engine_end_rest(self, <Rest>rest, now_ns)
    self.rests.clear()
    return 0


cdef int engine_check_rests(Engine self, int64_t now_ns) except -1:
    # A master that a connection was lost to, or that refuses our channel, tells of no
    # recall any more. Releases that were lost with it are sent though no call comes.
    if self.deaf_epoch != self.counters.deaf_epoch:
        self.deaf_epoch = self.counters.deaf_epoch
        engine_end_rests(self, now_ns)
        engine_open_deferred(self, now_ns)
    return 0


cdef int engine_replace_rests(Engine self, object work, int64_t now_ns) except -1:
    # Before an acquire is sent for what rests here.
    cdef Round round
    for round in (<Batch>work).rounds if type(work) is Batch else (work,):
        if round.operation_code == OPERATION_ACQUIRE:
            for key in round.keys or (round.resource,):
                rest = self.rests.get(key)
                if rest is not None:
                    engine_end_rest(self, <Rest>rest, now_ns)
    return 0


cdef int engine_on_rest_due(Engine self, Rest rest, int64_t now_ns) except -1:
    if self.rests.get(rest.resource) is not rest:
        return 0
    if rest.is_at_rest and now_ns < rest.until_ns:
        rest.due_ns = rest.until_ns
        return engine_add_due(self, rest.due_ns, rest)
    self.rests.pop(rest.resource, None)
    return engine_end_rest(self, rest, now_ns)


cdef bint engine_is_recalled(Engine self, bytes push, int64_t now_ns) except -1:
    # A gate asks for a key of ours. In use, it does not rest when it is released.
    if push[:1] != b"!" or not push.startswith(RECALL):
        return False
    resource = push[len(RECALL):]
    wait_queues_remember(self.queues.contended_ns, resource, now_ns + CONTENDED_NS)
    rest = self.rests.get(resource)
    if rest is not None:
        engine_end_rest(self, <Rest>rest, now_ns)
    return True


cdef int engine_hear_recalls(Engine self, int64_t now_ns) except -1:
    # Before a key that may rest is taken: an asker may have another gate than we.
    cdef Master master
    for master in self.masters:
        if master.state_code == MASTER_READY and master.may_queue:
            master_subscribe(master, self.queues.waiter, now_ns)
    return 0


cdef int engine_recall(Engine self, Round refused, int64_t now_ns) except -1:
    # Whoever leaves a queue, or never was in it, recalls the key: at a master that has
    # it, which its gate may not. Not by source: it may get lost.
    cdef int i, at = -1
    for i in range(self.master_count):
        if refused.cells[i].vote == VOTE_TAKEN and (
            (<Master>self.masters[i]).state_code == MASTER_READY
            and (<Master>self.masters[i]).may_queue
        ):
            at = i
            if i == engine_gate(self, refused.resource, now_ns):
                break
    if at < 0 or not self.scripts.keeps_queues:
        return 0
    for key in refused.keys or (refused.resource,):
        queue = self.queues.by_resource.get(key)
        if queue is None or (<WaitQueue>queue).gate != at:
            engine_leave_queue(self, key, at, now_ns, by_source=False)
    return 0


# --- turns ----------------------------------------------------------------------------
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
    cdef int action
    if queue is None or not turn.is_open:
        return 0
    turn.arguments = None
    action = wait_queue_close(queue, round)
    if round.verdict_code == VERDICT_WON:
        if not queue.is_alone:
            wait_queues_remember(
                self.queues.contended_ns, queue.resource, now_ns + CONTENDED_NS
            )
        # Beside a slot there are others, which other processes release meanwhile.
        queue.stay_until_ns = round.opened_ns + min(
            self.cohort_ns, SLOT_STAY_NS if round.permits else NEVER_NS
        )
        if round.permits and queue.rounds and not wait_queue_is_trying(queue):
            return engine_after_slot(self, queue, round, action, now_ns)
    elif round.verdict_code != VERDICT_TAKEN or (
        now_ns >= turn.until_ns - LAST_ROUND_NS
    ):
        return engine_leave_if_empty(self, queue, now_ns)
    return engine_do(self, queue, action, now_ns)


cdef int engine_after_slot(
    Engine self, WaitQueue queue, Round won, int action, int64_t now_ns
) except -1:
    # Another slot may be free by now, or will expire: of a rate nobody is notified.
    cdef list freed = queue.freed
    queue.freed = []
    if freed and queue.state == QUEUE_FIRST:      # else the gate has notified another
        return engine_open_slot(self, queue, <int>freed[-1], now_ns)
    if won.terms.is_of_rate:
        return engine_ask(self, queue, now_ns)
    return engine_do(self, queue, action, now_ns)


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
    if queue is not None and wait_queue_on(queue, EVENT_TURN) == DO_NOTE:
        (<Turn>queue.trying.turn).is_notified = True  # lost, it tries again
        if slot >= 0 and slot != round_slot(queue.trying):
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
    if not queue.rounds:
        return True
    if push[:1] == b"~":
        engine_on_queue(self, queue, EVENT_CALLED, now_ns)
    elif queue.state != QUEUE_ASKED and not wait_queue_is_trying(queue):
        engine_set_due(self, queue, min(queue.due_ns, now_ns + TURN_NS))
    return True


cdef bint engine_is_handing_over(Engine self, Round release, int64_t now_ns) except -1:
    # Whether our first waits longest of all, so that it may follow this release.
    cdef WaitQueue queue
    if release.keys is not None or not self.queues.by_resource:
        return False
    queue = self.queues.by_resource.get(round_queue(release))
    return (
        queue is not None and queue.state == QUEUE_FIRST
        and queue.gate == engine_gate(self, round_queue(release), now_ns)
        and round_may_have_slot(wait_queue_head(queue), round_slot(release))
    )


cdef int engine_hand_over(Engine self, Round release, int64_t now_ns) except -1:
    # Behind a release, in the same write. A finalizer may have been here before us.
    cdef bytes resource = round_queue(release)
    cdef WaitQueue queue = self.queues.by_resource.get(resource)
    if queue is None or queue.state != QUEUE_FIRST:
        return 0
    self.counters.handed_over += 1
    queue.slot = round_slot(release)
    wait_queues_remember(self.queues.contended_ns, resource, now_ns + CONTENDED_NS)
    return engine_open_waiting(self, queue, wait_queue_head(queue), now_ns)


# --- waiting --------------------------------------------------------------------------
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
    if wait_queue_add(queue, round) > 0 and turn.pause_ns > 0:
        turn.is_kept = False      # an earlier round is being tried
    elif turn.is_kept and wait_queue_head(queue) is round:
        wait_queue_on(queue, EVENT_BACK)
    if turn.until_ns != NEVER_NS:
        engine_add_due(self, turn.until_ns, round)
    self.counters.waits += not turn.has_waited
    if turn.is_kept:
        engine_add_due(self, now_ns + max(
            self.round_trip_ns, max(<int64_t>AT_LEAST_NS, turn.pause_ns)
        ), round)
        if turn_is_paused(turn):
            engine_ask(self, queue, now_ns)
    else:
        engine_on_queue(self, queue, EVENT_WAITING, now_ns)
    return 0


cdef int engine_leave_turn(Engine self, Round round, int64_t now_ns) except -1:
    # Its caller has given it up.
    cdef Turn turn = <Turn>round.turn
    cdef WaitQueue queue = turn.queue
    if queue is None:
        return 0
    if turn.is_open:
        if queue.trying is round:
            wait_queue_on(queue, EVENT_LOST)
    elif wait_queue_remove(queue, round) and queue.rounds:
        return engine_on_queue(self, queue, EVENT_WAITING, now_ns)
    return engine_leave_if_empty(self, queue, now_ns)


cdef bint engine_take_due(Engine self, int64_t now_ns) except -1:
    # The first that the time opens, or asks again; whether there was one.
    cdef Round round
    work = wait_queues_take_due(self.queues, now_ns)
    if work is None:
        return False
    if type(work) is WaitQueue:
        (<WaitQueue>work).due_ns = NEVER_NS
        engine_on_due_queue(self, <WaitQueue>work, now_ns)
    elif type(work) is Questions:
        engine_ask_together(self, <Questions>work, now_ns)
    elif type(work) is Rest:
        engine_on_rest_due(self, <Rest>work, now_ns)
    else:
        round = <Round>work
        if (<Turn>round.turn).is_kept or now_ns >= (<Turn>round.turn).until_ns:
            engine_open_waiting(self, (<Turn>round.turn).queue, round, now_ns)
    return True


# --- cohort ---------------------------------------------------------------------------
# A lease is handed on inside of this process, or its key rests (rests).
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
        wait_queue_is_trying(queue) and release.permits == 0
    ):
        return False
    taken = <Round>release.lease_state
    next = wait_queue_head(queue)
    if not round_may_hand_on(taken, next, self.cohort_ns, now_ns):
        return False
    round_open(release, now_ns)
    wait_queue_remove(queue, next)
    round_hand_on(taken, next, now_ns)
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
