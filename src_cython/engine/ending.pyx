# Rounds and connections that are ended from outside: a caller gives up, close(), the
# end of the interpreter.


cdef int engine_withdraw_work(Engine self, object work, int64_t now_ns) except -1:
    # Its caller has given it up: locks that it took are undone, releases are sent.
    if type(work) is Batch:
        batch_withdraw(<Batch>work)
        self.has_batch = True
        for each in (<Batch>work).rounds:
            engine_withdraw(self, <Round>each, now_ns)
    else:
        engine_withdraw(self, <Round>work, now_ns)
    return engine_admit_left(self, now_ns)


cdef int engine_end_acquires(Engine self, str reason, int64_t now_ns) except -1:
    # Keys at rest are released. Those under way end: lost, and rolled back behind their
    # own SETs. Of a batch all, those won as well, for its caller gets an error.
    # Releases that wait for a quorum of connections are sent to the masters that are
    # connected: it may never come. Deferred ones get a last connection.
    cdef Round round
    cdef list ended, batches = []
    engine_end_rests(self, now_ns)
    ended = engine_open_acquires(self)
    for round in list(self.admissions):
        if round.operation_code == OPERATION_ACQUIRE:
            if self.admissions.pop(round, None) is not None:
                ended.append(round)
        elif round_is_release(round):
            self.admissions.pop(round, None)
            engine_submit_at_once(self, round, now_ns)
    engine_end_waiting(self, reason, now_ns)
    for round in ended:
        if type(round.waiter) is Batch and round.waiter not in batches:
            batches.append(round.waiter)
        round_give_up(round, reason, now_ns)
    engine_finish(self, now_ns)
    for batch in batches:
        for each in (<Batch>batch).rounds:
            engine_roll_back(self, <Round>each, now_ns)
    engine_open_deferred_at_end(self, now_ns)
    return 0


cdef int engine_begin_close(Engine self) except -1:
    # From here on there are only releases.
    self.is_closed = True
    return engine_end_acquires(self, "closed", clock_ns())


cdef list engine_open_acquires(Engine self):
    cdef Master master
    cdef Round round
    cdef uint32_t i
    cdef list found = [      # a number is to be written; or it was left to be admitted
        round for round in self.closed + self.opened
        if (<Round>round).verdict_code == VERDICT_OPEN
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


cdef int engine_disconnect(Engine self) except -1:
    # Close all connections; rounds that still wait for them have failed.
    cdef Master master
    engine_forget_connections(self, clock_ns())
    engine_admit(self, clock_ns())
    engine_finish(self, clock_ns())
    for master in self.masters:
        master.in_flight.deferred = []
        master.in_flight.deferred_bytes = 0
    waker_close(&self.leadership.waker)
    return 0
