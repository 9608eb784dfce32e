# The outcome of a round after its verdict: confirmed or rolled back, its waiter woken;
# and rounds that are ended from outside, withdrawn or given up.

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint32_t, uint64_t

cdef extern from "Python.h":
    int PyList_SetSlice(
        object items, Py_ssize_t low, Py_ssize_t high, PyObject *new
    ) except -1

cdef enum:
    CLOSED_TAKEN = 256


cdef int engine_finish(Engine self, int64_t now_ns) except -1:
    # Confirm or roll back the rounds that have closed, and wake their waiters.
    cdef Round round = None
    if self.unchecked:
        engine_take_checked(self, now_ns)
    try:
        while self.closed:
            round = engine_next_closed(self)
            engine_finish_round(self, round, now_ns)
    except BaseException:      # the next step goes on with it
        if not round.is_finished:
            self.closed.insert(self.closed_first, round)
        raise
    return 0


cdef Round engine_next_closed(Engine self):
    # Removed many at a time: to remove the first of thousands moves all the others.
    # Nothing is allocated here, and the finalizers of the removed run at the end: one
    # that takes a lock comes through here, too.
    cdef Round round = <Round>self.closed[self.closed_first]
    cdef Py_ssize_t taken = self.closed_first + 1
    self.closed_first = taken
    if taken == len(self.closed) or taken == CLOSED_TAKEN:
        self.closed_first = 0
        PyList_SetSlice(self.closed, 0, taken, NULL)
    return round


cdef int engine_finish_round(Engine self, Round round, int64_t now_ns) except -1:
    if round.fencing is not None and engine_write_fence(self, round, now_ns):
        return 0
    if engine_hold(self, round, now_ns):
        return 0
    if not round.is_connecting or round.operation_code == OPERATION_PING:
        engine_on_closed(self, round, now_ns)
    round.is_finished = True
    waiter, round.waiter = round.waiter, None
    if type(waiter) is Batch:
        return batch_on_finished(self, <Batch>waiter, round, now_ns)
    return waiter_wake(waiter)


cdef int engine_end_torn(Engine self, Round round, int64_t now_ns) except -1:
    # An exception came between two halves of a change (no memory, or too deep a
    # recursion: signal handlers do not run there), so the round may be in no list: it
    # ends, or its caller would wait for ever.
    cdef Turn turn = <Turn>round.turn
    if turn is not None and turn.queue is not None and not turn.is_open:
        wait_queue_remove(turn.queue, round)
        turn.queue.due_ns = now_ns
        wait_queues_add_due(self.queues, now_ns, turn.queue)
    engine_note_time(self, now_ns)
    round.is_submitted = True
    if round.verdict_code == VERDICT_OPEN:
        round.closed_list = self.closed
    return round_give_up(round, "interrupted", now_ns)


cdef int engine_on_closed(Engine self, Round round, int64_t now_ns) except -1:
    cdef int verdict
    if round.operation_code >= OPERATION_ASK_TURN:
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
    if verdict != VERDICT_UNREACHABLE and round.operation_code < OPERATION_INSPECT and (
        not (round.needs_all or round.is_repeated or round.is_withheld)
        and round.closed_ns <= round.deadline_ns      # else we stood still meanwhile
    ):
        engine_learn_round_trip(self, round.closed_ns - round.opened_ns)
    if verdict != VERDICT_WON:
        engine_roll_back(self, round, now_ns)
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
    if round.operation_code == OPERATION_EXTEND:
        round.is_rolled_back = True      # not repeated any more: round_may_repeat
    if round.turn is not None:
        engine_leave_turn(self, round, now_ns)
    if not round.is_opened:
        if round.operation_code == OPERATION_RELEASE:
            self.counters.rounds += 1
            engine_tell_at_gate(self, round, now_ns)
            engine_queue(self, round, <uint64_t>-1, True, now_ns)
        else:
            round.is_finished = True      # engine_start leaves it alone from now on
    engine_roll_back(self, round, now_ns)
    if round.is_opened and round.operation_code == OPERATION_ACQUIRE:
        round.is_rolled_back = True      # sent later, engine_start undoes it
    return 0


cdef int engine_withdraw_work(Engine self, object work, int64_t now_ns) except -1:
    if type(work) is Batch:
        return batch_withdraw(self, <Batch>work, now_ns)
    return engine_withdraw(self, <Round>work, now_ns)


cdef int engine_end_acquires(Engine self, str reason, int64_t now_ns) except -1:
    # End those under way: lost, and rolled back behind their own SETs. Of a batch all,
    # those won as well, for its caller gets an error. Releases that wait for a quorum
    # of connections are sent to the masters that are connected: it may never come.
    cdef Round round
    cdef list ended = engine_open_acquires(self)
    cdef list batches = []
    for round in list(self.admissions):
        if round.operation_code == OPERATION_ACQUIRE:
            if self.admissions.pop(round, None) is not None:
                ended.append(round)
        elif round.operation_code == OPERATION_RELEASE:
            self.admissions.pop(round, None)
            engine_start(self, round, now_ns)
    engine_end_waiting(self, reason, now_ns)
    for round in ended:
        if type(round.waiter) is Batch and round.waiter not in batches:
            batches.append(round.waiter)
        round_give_up(round, reason, now_ns)
    engine_finish(self, now_ns)
    for batch in batches:
        for each in (<Batch>batch).rounds:
            engine_roll_back(self, <Round>each, now_ns)
    return 0


cdef list engine_open_acquires(Engine self):
    cdef Master master
    cdef Round round
    cdef uint32_t i
    cdef list found = [      # a number is to be written
        round for round in self.closed if (<Round>round).verdict_code == VERDICT_OPEN
    ]
    cdef set seen = {id(round) for round in found}
    for master in self.masters:
        i = 0
        while i < master.in_flight.count:
            round = in_flight_at(master.in_flight, i)
            i += 1
            if (
                round is not None and round.verdict_code == VERDICT_OPEN
                and round.operation_code == OPERATION_ACQUIRE and id(round) not in seen
            ):
                seen.add(id(round))
                found.append(round)
        for round in master.in_flight.unanswered:
            if round.operation_code == OPERATION_ACQUIRE and id(round) not in seen and (
                round.verdict_code == VERDICT_OPEN
            ):
                seen.add(id(round))
                found.append(round)
    return found
