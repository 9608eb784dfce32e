# The outcome of a round after its verdict: confirmed or rolled back, its waiter woken;
# and rounds that are ended from outside, withdrawn or given up.


cdef int engine_finish_round(Engine self, Round round, int64_t now_ns) except -1:
    if round.fencing is not None and engine_write_fence(self, round, now_ns):
        return 0
    if engine_hold(self, round, now_ns):
        return 0
    if not round.is_connecting or round.operation_code == OPERATION_PING:
        engine_on_closed(self, round, now_ns)
    round.is_finished = True
    waiter, round.waiter = round.waiter, None
    if type(waiter) is not Batch:
        return waiter_wake(waiter)
    if batch_on_finished(<Batch>waiter, round):
        self.batches.append(waiter)
        return 0
    return engine_end_batch(self, <Batch>waiter)


cdef int engine_on_closed(Engine self, Round round, int64_t now_ns) except -1:
    cdef int verdict
    if operation_is(round.operation_code, OPERATION_IS_OF_GATE):
        if round.operation_code == OPERATION_ASK_TURN:
            engine_on_asked(self, round, now_ns)
        return 0
    round_confirm(round, now_ns)
    verdict = round.verdict_code
    if verdict == VERDICT_WON and round.fencing is not None:
        engine_learn_fence(self, round, now_ns)
    self.counters.ended[round.operation_code][verdict] += 1
    if round.counts[VOTE_FAILED] + round.counts[VOTE_SILENT] > 0:
        engine_count_failures(self, round)
    if round.counts[VOTE_SILENT] > 0:
        engine_note_silent(self, round, now_ns)
    if verdict != VERDICT_UNREACHABLE and (
        operation_is(round.operation_code, OPERATION_CHANGES_KEY)
        and not (round.needs_all or round.is_repeated or round.withheld)
        and round.closed_ns <= round.deadline_ns      # else we were paused meanwhile
    ):
        engine_learn_round_trip(self, round.closed_ns - round.opened_ns)
    if verdict != VERDICT_WON:
        engine_roll_back(self, round, now_ns)
        if verdict == VERDICT_TAKEN and not round_is_refused(round) and (
            round.operation_code == OPERATION_ACQUIRE and not self.is_closed
            and not round.permits      # no slot rests
        ):
            engine_recall(self, round, now_ns)
    if round.permits:
        engine_on_slot_closed(self, round, now_ns)
    if round.turn is not None:
        engine_on_turn_closed(self, round, now_ns)
    return 0


cdef void engine_note_silent(Engine self, Round round, int64_t now_ns) noexcept:
    # Which masters let the deadline pass: until they are heard again, none has a vote.
    cdef int i
    for i in range(self.master_count):
        if round.cells[i].vote == VOTE_SILENT:
            (<Master>self.masters[i]).silent_at_ns = now_ns


cdef int engine_count_failures(Engine self, Round round) except -1:
    cdef Master master
    cdef int vote
    for master in self.masters:
        vote = round.cells[master.index].vote
        if vote == VOTE_FAILED or vote == VOTE_SILENT:
            master.votes[vote] += 1
    return 0


cdef void engine_learn_round_trip(Engine self, int64_t took_ns) noexcept:
    if self.round_trip_ns == 0:
        self.round_trip_ns = took_ns
    else:      # an eighth of the difference, as TCP does (RFC 6298)
        self.round_trip_ns += (took_ns - self.round_trip_ns) // 8
    if self.shortest_round_trip_ns == 0 or took_ns < self.shortest_round_trip_ns:
        self.shortest_round_trip_ns = took_ns
    self.counters.slow_from_ns = slow_from_ns(self.round_trip_ns)


cdef int engine_withdraw(Engine self, Round round, int64_t now_ns) except -1:
    # The caller has given this round up: no waiter is woken, it is not opened any more,
    # and locks that it may have taken are undone. A release is sent all the same.
    round.waiter = None
    self.admissions.pop(round, None)
    round.is_submitted = True      # a follower with it may still come
    if round.operation_code == OPERATION_EXTEND and not round.is_last:
        round.is_rolled_back = True      # not repeated any more: round_may_repeat
    if round.turn is not None:
        engine_leave_turn(self, round, now_ns)
    if not round.is_opened:
        if round_is_release(round):
            self.counters.rounds += 1
            if not round.is_last:      # its key stays: there is nobody to notify
                engine_notify_at_gate(self, round, now_ns)
            engine_queue(self, round, <uint64_t>-1, True, now_ns)
        else:
            round.is_finished = True      # engine_start leaves it alone from now on
    engine_roll_back(self, round, now_ns)
    if round.is_opened and round.operation_code == OPERATION_ACQUIRE:
        round.is_rolled_back = True      # sent later, engine_start undoes it
    return 0
