# One pass of the engine, and its stages: a round starts, is admitted, and has an
# outcome; at the end, the pass that calls these. Also what a fork leaves of a pass.

# --- start ----------------------------------------------------------------------------
# A round starts: it waits in turn, or is left to be sent to all masters; and its
# roll-back.

cdef int engine_start(Engine self, Round round, int64_t now_ns) except -1:
    cdef Connection connection
    if round.is_opened or round.is_finished:      # withdrawn meanwhile
        return 0
    round_submit(round, self.closed)
    if round.turn is not None and not round.turn.is_open and (
        turns_wait(self, round, now_ns)
    ):
        return 0
    if round_is_of_released(round):
        return round_give_up(round, NOT_SENT, now_ns)
    if round.permits and round_wants_slot(round):
        gate_set_slot(self, round, -1, now_ns)
    self.counters.rounds += 1
    if round.operation_code == OPERATION_RELEASE:
        turns_before_release(self, round, now_ns)
    elif round.operation_code == OPERATION_ACQUIRE:
        # It waited, and nothing was handed on to it. (As a given token it may be a
        # lease's that was handed on: it is sent as it is.)
        if round.token is HANDED_ON and self.token_source is not None:
            round.token = tokens_draw(self.token_source)
        if round.kind == KIND_SHARED:
            turns_start_reader(self, round, now_ns)
        if self.scripts.is_fencing:
            fences_propose(self.fences, round, engine_wall_us(self, now_ns))
        if round.terms.idle_ns:      # an asker may have another gate than we
            for connection in self.connections:
                if connection.state_code == MASTER_READY and connection.may_queue:
                    connection_subscribe(connection, self.queues.waiter, now_ns)
    self.started_ns = now_ns
    if self.token_uses is not None and (
        operation_is(round.operation_code, OPERATION_CHANGES_KEY)
    ):
        engine_start_given(self, round, now_ns)
    else:
        round_send(round, self.to_send, TO_ALL, False, now_ns)


cdef int64_t engine_wall_us(Engine self, int64_t now_ns) noexcept:
    return (wall_ns() if self.by_hand is None else now_ns + self.wall_offset_ns) // 1000


cdef int engine_roll_back(Engine self, Round round, int64_t now_ns) except -1:
    # The release follows the SETs. No caller waits for its replies: each pops its
    # entry when it comes. So it is sent by source: NOSCRIPT would be read by the next
    # call only, if there is one.
    cdef Round release = round_roll_back(round, now_ns)
    if release is None:
        return 0
    self.counters.rolled_back += 1
    # Notify nobody while the caller keeps waiting: it tries again, and the next in this
    # process, whose entry the gate may have by now, would try in vain.
    if round.turn is None or round.verdict_code != VERDICT_TAKEN or (
        now_ns >= round.turn.until_ns
    ):
        if release.keys is None:
            gate_end_stay(self, release, now_ns)
            gate = gate_master(self, round_queue(release), now_ns)
            round_set_gate(release, gate, OUR_ENTRY_AS_IS)
    return round_send(release, self.to_send, release.may_hold, True, now_ns)


# --- given tokens ---------------------------------------------------------------------
# Rounds with a token that the caller gave: whether they may be sent, and to which
# masters, by the rules of token use.

cdef str NOT_SETTLED = "not asked: an earlier use of this token is not settled here"


cdef int engine_start_given(Engine self, Round round, int64_t now_ns) except -1:
    cdef uint64_t late = 0, unsettled = 0, ready = 0
    cdef TokenUse use
    cdef Master master
    cdef Connection connection
    if round.operation_code != OPERATION_ACQUIRE:
        if round_may_be_sent(round, now_ns):
            return round_send(round, self.to_send, TO_ALL, False, now_ns)
        return engine_withhold_all(self, round, VOTE_TAKEN, None, now_ns)
    token_uses_take(self.token_uses, round, now_ns)
    for use in round.token_uses:
        if round_is_tried(use.open):
            return engine_withhold_all(self, round, VOTE_TAKEN, USED_HERE, now_ns)
        unsettled |= token_use_unsettled(use, now_ns)
    for master in self.masters:
        connection = master_connection(master, round.resource)
        if connection.state_code == MASTER_READY:
            ready |= set_of(master.vote)
        if connection_has_lost(connection, round, now_ns):
            late |= set_of(master.vote)
    if electorate_wins(self.electorate, ready) and (
        not electorate_wins(self.electorate, ~(late | unsettled))
    ):
        return engine_withhold_all(self, round, VOTE_FAILED, NOT_SETTLED, now_ns)
    for use in round.token_uses:
        use.open = round
    round_send(round, self.to_send, ~late, False, now_ns)
    for master in self.masters:
        if set_has(late, master.vote):
            text = master_connection(master, round.resource).reason or NOT_SETTLED
            round_on_vote(round, master.vote, VOTE_FAILED, text, False, now_ns)


cdef int engine_withhold_all(
    Engine self, Round round, int vote, str text, int64_t now_ns
) except -1:
    # Send it to no master; it is closed at once.
    cdef int i
    round_open(round, now_ns)
    round.is_withheld = True
    for i in range(self.vote_count):
        round_on_vote(round, i, vote, text, False, now_ns)


# --- admission ------------------------------------------------------------------------
# The admission of rounds: opened at once, or after a wait for connections.
#
# A round that finds a quorum of connections is opened at once. Otherwise it waits for
# connections first, as long as the caller's time allows, and t0 comes after that.


cdef struct Prospects:       # sets of masters
    uint64_t opening         # connections on their way
    uint64_t ready           # take an operation,
    uint64_t voting          # and an ACQUIRE: no restart guard withholds them


@cython.final
@cython.internal
cdef class Admission:
    cdef Round round             # that waits for connections
    cdef int64_t began_ns
    cdef int64_t limit_ns        # once it is decided: how long the others still get


cdef Prospects engine_prospects(Engine self, Round round, int64_t now_ns) noexcept:
    # Return the prospects of this round: a cluster counts by the node which has its
    # key, or by the next map. None: of any round, if no master is a cluster.
    cdef Prospects prospects = Prospects(0, 0, 0)
    cdef Master master
    cdef Connection connection
    cdef bint is_opening
    for master in self.masters:
        connection = master.connection
        if round is not None:
            connection = master_connection(master, round.resource)
        is_opening = connection_is_opening(connection)
        if connection.state_code == MASTER_READY:
            prospects.ready |= set_of(master.vote)
            if now_ns >= connection.restart_guard.until_ns:
                prospects.voting |= set_of(master.vote)
        else:
            is_opening |= connection_is_opening(master.connection)
        if round is not None and round.is_connecting:
            is_opening |= nodes_are_opening(master)
        if is_opening:
            prospects.opening |= set_of(master.vote)
    return prospects


cdef inline int engine_take_in(Engine self, Round round, int64_t now_ns) except -1:
    # Open a round, or let it wait for connections.
    cdef Master master
    cdef Connection connection
    cdef uint64_t ready = 0
    cdef bint waits
    for master in self.masters:
        connection = master_connection(master, round.resource)
        if connection.restart_guard.window_ns:
            connection_doubt(connection, now_ns)
            connection = master_connection(master, round.resource)
        if connection.state_code == MASTER_READY and (
            round.operation_code != OPERATION_ACQUIRE
            or now_ns >= connection.restart_guard.until_ns      # to wait is worth it
        ):
            ready |= set_of(master.vote)
    if ready != self.electorate.members:
        if round.operation_code == OPERATION_PING:      # it asks for the present states
            for connection in self.connections:
                connection_retry_now(connection, now_ns)
        waits = round.is_connecting or not electorate_wins(self.electorate, ready)
        connections_open_due(self, waits, now_ns)
        if waits:
            return engine_let_wait(self, round, now_ns)
    return engine_start(self, round, now_ns)


cdef int engine_let_wait(Engine self, Round round, int64_t now_ns) except -1:
    # Let the round wait for connections, at most for the caller's timeout. A single try
    # waits as well, for the time of one round. Rounds that wait already are looked at
    # in the next step: nothing is over for them because one more has come.
    cdef Admission admission = Admission.__new__(Admission)
    cdef Prospects prospects = engine_prospects(self, round, now_ns)
    cdef int64_t patience_ns = self.connect_timeout_ns
    if round.left_ns >= 0:      # a PING's question has its own time
        patience_ns = min(patience_ns, (
            round.left_ns - round.terms.timeout_ns
            if round.operation_code == OPERATION_PING
            else round.left_ns or round.terms.timeout_ns
        ))
    admission.round = round
    admission.began_ns = now_ns
    admission.limit_ns = now_ns + patience_ns
    self.admissions[round] = admission
    round_submit(round, self.closed)
    due_note(self.due, admission.limit_ns)
    if admission_is_over(self, admission, &prospects, now_ns):
        return engine_end_admission(self, admission, now_ns)


cdef int engine_admit_left(Engine self, int64_t now_ns) except -1:
    # Admit the rounds whose turn it is, the one behind a release, and more of batches.
    while self.opened or self.batches:
        if self.opened:
            engine_take_in(self, <Round>list_take(self.opened), now_ns)
        else:
            engine_admit_batch(self, <Batch>self.batches.pop(), now_ns)


cdef int engine_admit_batch(Engine self, Batch batch, int64_t now_ns) except -1:
    # Admit as many of its rounds as its window has room for.
    cdef Round round
    while (round := batch_next(batch)) is not None:
        if self.is_closed and not round_is_release(round):
            round_submit(round, self.closed)
            round_give_up(round, "closed", now_ns)
            continue
        if batch.failure is not None:      # whatever connections there are
            engine_start(self, round, now_ns)
            continue
        engine_take_in(self, round, now_ns)
        if not round.is_opened:
            break
    return engine_end_batch(self, batch)


cdef int engine_end_batch(Engine self, Batch batch) except -1:
    # Wake its caller, if it is over.
    if batch.is_finished or batch.under_way > 0 and not batch.is_withdrawn or (
        batch.next < len(batch.rounds) and not batch_is_given_up(batch)
    ):
        return 0
    batch.is_finished = self.has_batch = True
    waiter, batch.waiter = batch.waiter, None
    return waiter_wake(waiter)


cdef int engine_admit(Engine self, int64_t now_ns) except -1:
    # Admit what is left in the lists, and the rounds whose wait is over: once in a
    # step, however many they are.
    cdef Admission admission
    cdef Prospects prospects
    engine_admit_left(self, now_ns)
    if not self.admissions:
        return 0
    prospects = engine_prospects(self, None, now_ns)
    for admission in list(self.admissions.values()):
        if self.has_slots:
            prospects = engine_prospects(self, admission.round, now_ns)
        if admission_is_over(self, admission, &prospects, now_ns):
            engine_end_admission(self, admission, now_ns)
    return engine_admit_left(self, now_ns)


cdef int engine_end_admission(
    Engine self, Admission admission, int64_t now_ns
) except -1:
    cdef Round round = admission.round
    del self.admissions[round]
    if round.is_connecting and round.operation_code != OPERATION_PING:
        round_open(round, now_ns)
        round_close(round, VERDICT_WON, now_ns)
        return round_report_closed(round)
    round_on_connected(round, now_ns - admission.began_ns)
    return engine_start(self, round, now_ns)


cdef bint admission_is_over(
    Engine self, Admission admission, Prospects *prospects, int64_t now_ns
) noexcept:
    # A round waits until a quorum takes the operation, or cannot, or until the
    # deadline. Connections that are still on their way then get as long again as it
    # took, at least GRACE_NS. They mostly arrive together, and a lease on all of them
    # is worth more, as is an error that names those that do not come.
    cdef uint64_t ready = prospects.ready
    cdef int64_t grace_ns
    if not prospects.opening:
        return True
    if not admission.round.is_connecting:
        if admission.round.operation_code == OPERATION_ACQUIRE:
            ready = prospects.voting
        if electorate_wins(self.electorate, ready) or (
            not electorate_wins(self.electorate, ready | prospects.opening)
        ):
            grace_ns = max(now_ns - admission.began_ns, <int64_t>GRACE_NS)
            admission.limit_ns = min(admission.limit_ns, now_ns + grace_ns)
            due_note(self.due, admission.limit_ns)
    return now_ns >= admission.limit_ns


# --- outcome --------------------------------------------------------------------------
# The outcome of a round after its verdict: confirmed or rolled back, its waiter woken;
# and rounds that are ended from outside, withdrawn or given up.


cdef int engine_finish_round(Engine self, Round round, int64_t now_ns) except -1:
    if round.fencing is not None and engine_write_fence(self, round) or (
        turns_hold(self, round, now_ns)
    ):
        return 0
    if not round.is_connecting or round.operation_code == OPERATION_PING:
        engine_on_closed(self, round, now_ns)
    waiter = round_finish(round)
    if waiter_is_over(waiter):
        return engine_withdraw(self, round, now_ns)
    if type(waiter) is not Batch:
        return waiter_wake(waiter)
    if batch_on_finished(<Batch>waiter, round):
        if self.batches[-1:] != [waiter]:
            self.batches.append(waiter)
        return 0
    return engine_end_batch(self, <Batch>waiter)


cdef bint engine_write_fence(Engine self, Round round) except -1:
    # Return whether the round is open: it is sent once more, with its number, to those
    # that granted it under a lower one.
    cdef uint64_t left
    if round.verdict_code == VERDICT_OPEN:
        self.counters.fences_written += round.fencing.asked == 0
        left = fencing_left(round)
        if left:
            round_send_again(round, self.to_send, left)
    return round.verdict_code == VERDICT_OPEN


cdef int engine_on_closed(Engine self, Round round, int64_t now_ns) except -1:
    cdef Master master
    cdef int verdict
    cdef int64_t took_ns
    if operation_is(round.operation_code, OPERATION_IS_OF_GATE):
        if round.operation_code == OPERATION_ASK_TURN:
            gate_on_asked(self, round, now_ns)
        return 0
    round_confirm(round, now_ns)
    verdict = round.verdict_code
    if verdict == VERDICT_WON and round.fencing is not None:
        fences_learn(self.fences, round, engine_wall_us(self, now_ns))
    if verdict == VERDICT_WON and round.operation_code == OPERATION_ACQUIRE and (
        round.token_uses is not None
    ):
        token_uses_grant(self.token_uses, round, round.opened_ns)
    self.counters.ended[round.operation_code][verdict] += 1
    if round.operation_code == OPERATION_ACQUIRE and not round.is_withheld and (
        self.quorum_lost_ns or verdict >= VERDICT_UNREACHABLE
    ):
        engine_note_quorum(self, round, now_ns)
    if round.failed | round.silent:
        for master in self.masters:
            master_note_no_answer(master, round)
            if set_has(round.silent, master.vote):
                connection_on_silent(master_connection(master, round.resource), now_ns)
    if verdict != VERDICT_UNREACHABLE and (
        operation_is(round.operation_code, OPERATION_CHANGES_KEY)
        and not (round.needs_all or round.is_repeated or round.is_withheld)
        and round.closed_ns <= round.deadline_ns      # else we were paused meanwhile
    ):
        took_ns = round.closed_ns - round.opened_ns
        if self.round_trip_ns == 0:
            self.round_trip_ns = took_ns
        else:      # an eighth of the difference, as TCP does (RFC 6298)
            self.round_trip_ns += (took_ns - self.round_trip_ns) // 8
        if self.shortest_round_trip_ns == 0 or took_ns < self.shortest_round_trip_ns:
            self.shortest_round_trip_ns = took_ns
        self.conditions.slow_from_ns = slow_from_ns(self.round_trip_ns)
    if verdict != VERDICT_WON:
        engine_roll_back(self, round, now_ns)
        if verdict == VERDICT_TAKEN and not round_is_refused(round) and (
            round.operation_code == OPERATION_ACQUIRE and not self.is_closed
            and not round.permits      # no slot is idle here
        ):
            idle_recall(self, round, now_ns)
    if round.permits:
        gate_on_slot_closed(self, round, now_ns)
    if round.turn is not None:
        turns_on_closed(self, round, now_ns)


cdef int engine_note_quorum(Engine self, Round round, int64_t now_ns) except -1:
    # One line for the log as the quorum is lost, and one as it is there again. Only if
    # the masters are to blame: not for a caller that waited too short.
    cdef Master master
    cdef Connection connection
    cdef str reason
    cdef uint64_t gone = 0
    if round.verdict_code == VERDICT_WON or round.verdict_code == VERDICT_TAKEN:
        lost_s = (now_ns - self.quorum_lost_ns) / 1e9
        text = f"there again after {lost_s:.1f} s"
        self.unlogged.append((LEVEL_INFO, "quorum", text))
        self.quorum_lost_ns = 0
        return 0
    if self.quorum_lost_ns or self.is_closed:
        return 0
    text = "lost"
    for master in self.masters:
        connection = master_connection(master, round.resource)
        if connection.state_code != MASTER_READY or (
            now_ns < connection.report.refused_until_ns
        ):
            gone |= set_of(master.vote)
            reason = connection.reason or connection.report.refusal
            text += f"; {master.name}: {reason}"
    if not electorate_wins(self.electorate, ~gone):
        self.quorum_lost_ns = now_ns
        self.unlogged.append((LEVEL_WARNING, "quorum", text))


cdef int engine_withdraw(Engine self, Round round, int64_t now_ns) except -1:
    # The caller has given this round up: no waiter is woken, it is not opened any more,
    # and locks that it may have taken are undone. A release is sent all the same.
    self.admissions.pop(round, None)
    round_on_withdrawn(round)
    if round.turn is not None:
        turns_leave(self, round, now_ns)
    if not round.is_opened:
        if round_is_release(round) and round_may_be_sent(round, now_ns):
            self.counters.rounds += 1
            if round.operation_code == OPERATION_RELEASE:      # else its key stays
                gate_notify(self, round, now_ns)
            round_send(round, self.to_send, TO_ALL, True, now_ns)
        else:
            round_finish(round)      # engine_start leaves it alone from now on
    engine_roll_back(self, round, now_ns)
    if round.is_opened and round.operation_code == OPERATION_ACQUIRE:
        round.is_rolled_back = True      # not repeated any more, either


# --- takeover -------------------------------------------------------------------------
# An engine that was left in the middle of anything by threads that are no more: begun
# anew in a forked child. (From a leader that the interpreter has stopped: close.)


cdef inline int engine_check_fork(Engine self) except -1:
    return 0 if self.generation == current_generation else engine_reset_after_fork(self)


cdef list engine_left(Engine self):
    # The rounds in its lists, which wait for a stage.
    return [*self.admissions, *self.closed, *self.held, *self.opened, *self.to_send]


cdef int engine_reset_after_fork(Engine self) except -1:
    # Begin anew in a forked child. If a handler forked between two passes, the outer
    # frames find other objects than theirs in each master, and every round ended. It is
    # a pass: a finalizer's call would be made on the parent's sockets.
    cdef bint collects = pass_begin()
    pass_keep(self.driver)
    try:
        return engine_begin_anew(self, clock_ns())
    finally:
        pass_end(collects)


cdef int engine_begin_anew(Engine self, int64_t now_ns) except -1:
    cdef Master master
    cdef Round round
    cdef int i
    self.generation = current_generation
    self.driver = None
    if self.leadership.depth > 0 and self.leadership.greenlet != 0:
        # A leader's greenlet was copied, and its hub watches these: libev aborts where
        # a watched descriptor is closed.
        for i in range(self.connection_count):
            self.links[i].fd = -1
        self.leadership.waker.event.fd = -1
    leader_reset(self.leadership)
    self.has_batch = False
    self.due.at_ns = NEVER_NS
    connections_forget(self, now_ns)
    idle_forget(self.idle)
    if self.token_uses is not None:      # of another process by now
        self.token_uses = TokenUses()
    gate_end_waiting(self, "the process forked", now_ns)
    self.queues = wait_queues_new(draw_token()[:16])      # it is another process
    for master in self.masters:
        master_set_leaving(master, self.queues.leaving)
    # The parent's rounds end, for a frame of ours may wait for one.
    for round in engine_left(self):
        round_give_up(round, "the process forked", now_ns)
        waiter = round_finish(round)
        if type(waiter) is Batch:
            batch_withdraw(<Batch>waiter, round)
    for batch in self.batches:
        batch_withdraw(<Batch>batch, <Round>(<Batch>batch).rounds[0])
    self.admissions.clear()
    self.batches.clear()
    self.closed.clear()
    self.opened.clear()
    self.held.clear()
    self.to_send.clear()


# --- line -----------------------------------------------------------------------------
# One pass of the engine: what came, what is due, and what follows from it. The stages
# are called here alone, in this order; each leaves lists for those behind it.
#
#   received    bytes become replies, and these the votes of their rounds
#   turns       a push opens a round that waits             (master.turns -> opened)
#   due         what the time closes, opens, or asks again  (a heap -> opened)
#   judged      a round with a verdict is confirmed, or rolled back; an answer opens a
#               round that waits; the waiter is woken       (closed -> opened, batches)
#   admitted    a round is opened, or waits for connections (opened -> to_send)
#   sent        its command is queued for each master       (to_send -> bytes, closed)
#
# Each of them may leave what is to be sent, which the last one sends in that order: a
# release and the SET that follows it leave in one write. What is closed by then, as no
# master is connected, is judged before the pass ends. An entry is taken out of its list
# before anything is done with it.
#
# A pass is atomic: from its first line to its last, with the GIL, nothing runs that is
# not ours. Garbage is not collected (before 3.12 each new object may begin that), no
# function of Python is called, no waiter is woken but by a flag or a list, and the last
# reference to a caller's object is dropped behind it. What has to run Python comes
# between two passes: TLS, which turns bytes into bytes, the start of a thread that gets
# a login, the hub of greenlets, and all callers. A signal handler that runs there may
# call the engine, and finds it whole.
#
# `due_ns` is not later than the next time at which something is due: the deadline of
# an open round, the end of a wait for connections, a connection that takes too long, a
# reply that is overdue. It is only ever lowered, until `engine_on_time` finds it anew:
# so a round that closes in time costs nothing here.

cdef enum:
    DUE_PASSES = 64       # of 16 KiB per master: more than can be in flight


cdef int engine_submit_work(
    Engine self, object work, object waiter, int64_t now_ns
) except -1:
    # Submit it once, and not to a closed engine: the probe after an idle time, a step
    # just before this, may have submitted it already, or closed the engine.
    cdef bint collects
    if work_is_finished(work):
        return waiter_wake(waiter)
    if work_is_submitted(work):
        work_set_waiter(work, waiter)
        return 0
    if self.is_closed and not work_is_release(work):
        raise ClosedError("closed")
    collects = pass_begin()
    try:
        if self.idle.keys:
            idle_replace(self, work, now_ns)
        work_set_waiter(work, waiter)
        if type(work) is Batch:
            (<Batch>work).is_submitted = True
            engine_admit_batch(self, <Batch>work, now_ns)
        else:
            engine_take_in(self, <Round>work, now_ns)
        engine_admit_left(self, now_ns)
        return sending_all(self, now_ns)
    finally:
        pass_end(collects)


cdef int engine_take_events(Engine self) except -1:
    # Take all that has come, do all that is due by now, and what follows from both.
    cdef int64_t now_ns = clock_ns()
    self.polled_before_ns, self.polled_at_ns = self.polled_at_ns, now_ns
    self.has_events = True
    engine_take_links(self, now_ns)
    if now_ns >= self.due.at_ns:
        engine_on_due(self, now_ns)
    engine_finish(self, clock_ns())
    self.has_events = False


cdef int engine_finish(Engine self, int64_t now_ns) except -1:
    # Confirm or roll back the rounds that have closed, and wake their waiters; admit
    # what is opened; send all of it.
    cdef list closed = self.closed
    cdef Py_ssize_t i = 0
    cdef bint collects = pass_begin()
    try:
        if self.idle.were_any:
            idle_check(self, now_ns)
        if self.held:      # those whose masters have answered, or take too long, end
            closed += self.held
            self.held = []
        while True:
            while i < len(closed):
                if not (<Round>closed[i]).is_finished:
                    engine_finish_round(self, <Round>closed[i], now_ns)
                i += 1
            engine_admit(self, now_ns)
            sending_all(self, now_ns)
            if i == len(closed):      # else what followed has closed others
                return 0
    finally:      # the next step goes on where there was no memory
        PyList_SetSlice(closed, 0, i, NULL)
        pass_end(collects)


cdef int engine_take_links(Engine self, int64_t now_ns) except -1:
    # Take bytes and events of the links into the masters, and do what waited for these.
    cdef Connection connection
    cdef bint collects
    if self.has_tls:      # between two passes
        for connection in self.connections:
            connection_decrypt(connection, now_ns)
    collects = pass_begin()
    try:
        for connection in self.connections:
            engine_take_link(self, connection, now_ns)
            if connection.in_flight.unanswered:
                sending_unanswered(self, connection, now_ns)
    finally:
        pass_end(collects)


cdef int engine_take_link(Engine self, Connection connection, int64_t now_ns) except -1:
    cdef Link *link = &connection.link
    cdef bytes data
    if link.phase == LINK_OPEN:
        data = None
        if connection.plain is not None:      # of TLS
            data = connection_take_plain(connection)
        if link.received and connection.tls is None:
            data = PyBytes_FromStringAndSize(link.incoming, link.received)
            link.received = 0
            link.heard_ns = now_ns
        if data:
            engine_take_bytes(self, connection, data, now_ns)
        if link.error != 0:
            connection_on_cut(connection, error_text(link.error), now_ns)
        elif link.is_at_end:
            connection_on_cut(connection, "the server closed the connection", now_ns)
    elif link.is_ready:
        link.is_ready = False
        if link.phase == LINK_CONNECTING:
            connection_on_connect_event(connection, now_ns)
        elif link.phase == LINK_RESOLVING:
            connection_on_prepared(connection, now_ns)


cdef int engine_take_bytes(
    Engine self, Connection connection, bytes data, int64_t now_ns
) except -1:
    cdef Master master = connection.master
    connection_on_bytes(connection, data, now_ns)
    if master.notified:
        for resource in master_take_notified(master):
            turns_note_contended(self, resource, now_ns)
    while connection.awaited:
        turns_notify(self, <Round>connection.awaited.pop(), master.vote, now_ns)
    while master.turns:
        turns_take(self, master, now_ns)
    if master.moved:
        turns_take_moved(self, master, now_ns)
    if connection.report.needs_review:
        if connection.node != NODE_NONE:
            engine_take_map(self, master, now_ns)
        return connection_review(
            connection, self.connections, self.servers_may_be_same, now_ns
        )


cdef int engine_take_map(Engine self, Master master, int64_t now_ns) except -1:
    # Take the map of a cluster, or see that its own is old; new nodes get a place.
    cdef Connection node
    nodes_follow_map(master, now_ns)
    gate_rank(self)
    for node in master.nodes:
        if node is not None and node.place < 0:
            connections_add(self, node)
    return connections_open_due(self, False, now_ns)


cdef int engine_on_due(Engine self, int64_t now_ns) except -1:
    # Replies that wait in a socket are in time: read them before anything is given up.
    # A master that still brings some is not overdue.
    cdef uint64_t quiet = 0
    cdef int i, _pass
    cdef bint collects
    for _pass in range(DUE_PASSES):
        engine_before_nogil(self)
        with nogil:
            links_receive(self.links, self.connection_count)
            atomic_put(&self.leadership.leader_at, LEADER_OUT_OF_SYSTEM)
        self.leadership.leader_at = LEADER_HAS_GIL
        quiet = 0
        for i in range(self.connection_count):
            if not self.links[i].received:
                quiet |= <uint64_t>1 << i
        engine_take_links(self, now_ns)
        if quiet == ~<uint64_t>0 >> (MAX_MASTERS - self.connection_count):
            break
    collects = pass_begin()
    try:
        return engine_on_time(self, now_ns, quiet)
    finally:
        pass_end(collects)


cdef int engine_on_time(Engine self, int64_t now_ns, uint64_t quiet) except -1:
    # Close all that is due; all that had come by `now_ns` has been read. Only the
    # `quiet` masters, which sent nothing, can be overdue.
    cdef Connection connection
    cdef Round round
    cdef Admission admission
    cdef int64_t next_ns = NEVER_NS
    if now_ns < self.due.at_ns:
        return 0
    for connection in self.connections:
        for round in in_flight_open(connection.in_flight):
            if now_ns >= round.deadline_ns:
                round_on_deadline(round, now_ns)
        if (quiet >> connection.place) & 1:
            connection_check_time(
                connection, 0 if self.is_draining else self.polled_before_ns, now_ns
            )
    while turns_take_due(self, now_ns):
        pass
    connections_open_deferred(self, now_ns)
    if self.queues.due:
        next_ns = <int64_t>self.queues.due[0][0]
    for admission in self.admissions.values():
        next_ns = min(next_ns, admission.limit_ns)
    for connection in self.connections:
        next_ns = min(next_ns, connection_next_ns(connection, now_ns))
    self.due.at_ns = next_ns      # only now: without memory it is due again


cdef inline int engine_before_write(Engine self) except -1:
    if self.has_tls or self.is_asking or self.to_prepare:
        return engine_between_passes(self, clock_ns())


cdef int engine_between_passes(Engine self, int64_t now_ns) except -1:
    # Prepare the next write. Gates are asked who waits for what this client releases
    # natively. Then Python code runs: logins are begun, and what was queued since the
    # last write is encrypted.
    cdef Connection connection
    cdef bint collects
    if self.is_asking:
        collects = pass_begin()
        try:
            self.is_asking = False
            for connection in self.connections:
                connection_ask_queues(connection, self.has_slots, now_ns)
        finally:
            pass_end(collects)
    while self.to_prepare:
        connection_begin_preparing(<Connection>self.to_prepare.pop(), now_ns)
    for connection in self.connections:
        connection_encrypt(connection, now_ns)


cdef inline int engine_before_nogil(Engine self) except -1:
    # Call this before each section without the GIL; nothing may run in between. A
    # signal handler may have forked since the last check: the sockets are the parent's
    # then. The flag is explained in leader.
    engine_check_fork(self)
    self.leadership.leader_at = LEADER_IN_SYSTEM
