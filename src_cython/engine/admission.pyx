# The admission of rounds: opened at once, or after a wait for connections.
#
# A round that finds a quorum of connections is opened at once. Otherwise it waits for
# connections first, as long as the caller's time allows, and t0 comes after that.

cdef enum:
    GRACE_NS = 10_000_000


@cython.final
@cython.internal
cdef class Admission:
    """A round that waits for connections."""

    cdef Round round
    cdef int64_t began_ns
    cdef int64_t deadline_ns
    cdef int64_t limit_ns        # once it is decided: how long the others still get
    cdef bint is_decided


cdef struct Prospects:       # of all that wait, looked at once
    int opening              # connections on their way
    int ready                # masters that take an operation,
    int voting               # and an ACQUIRE


cdef int engine_submit(Engine self, Round round, int64_t now_ns) except -1:
    # Open a round, or let it wait for connections; and those that follow it.
    engine_take_in(self, round, now_ns)
    return engine_admit_opened(self, now_ns) if self.opened else 0


cdef inline int engine_take_in(Engine self, Round round, int64_t now_ns) except -1:
    # A healthy engine passes with two comparisons. What may run Python code, or fail,
    # comes before it is submitted.
    cdef int ready = engine_asked_count(self, round.operation_code, now_ns)
    if ready < self.master_count:
        if round.operation_code == OPERATION_PING:
            engine_open_all(self, now_ns)
        else:
            engine_open_due(self, ready < self.quorum or round.is_connecting, now_ns)
        if ready < self.quorum or round.is_connecting:
            return engine_let_wait(self, round, now_ns)
    round.is_submitted = True
    round.closed_list = self.closed
    return engine_start(self, round, now_ns)


cdef int engine_admit_opened(Engine self, int64_t now_ns) except -1:
    # Those whose turn it is, and the one behind a release: in the same pass, so in the
    # same write.
    cdef Round round
    while self.opened:
        round = engine_next_of(self.opened, &self.opened_first)
        if round.is_opened or round.is_finished:      # withdrawn by a finalizer
            continue
        try:
            engine_take_in(self, round, now_ns)
        except BaseException:
            engine_end_torn(self, round, now_ns)
            raise
    return 0


cdef int engine_let_wait(Engine self, Round round, int64_t now_ns) except -1:
    # For connections. Those that wait already are looked at in the next step: nothing
    # is over for them because one more has come.
    cdef Admission admission = Admission.__new__(Admission)
    cdef Prospects prospects = engine_prospects(self, now_ns)
    admission.round = round
    admission.began_ns = now_ns
    admission.deadline_ns = now_ns + engine_patience_ns(self, round)
    admission.limit_ns = admission.deadline_ns
    self.admissions[round] = admission
    round.is_submitted = True
    round.closed_list = self.closed
    engine_note_time(self, admission.limit_ns)
    if admission_is_over(self, admission, &prospects, now_ns):
        return engine_end_admission(self, admission, now_ns)
    return 0


cdef int engine_submit_at_once(Engine self, Round round, int64_t now_ns) except -1:
    # Open a round whatever connections there are.
    round.is_submitted = True
    round.closed_list = self.closed
    engine_start(self, round, now_ns)
    return engine_admit_opened(self, now_ns) if self.opened else 0


cdef int engine_admit_left(Engine self, int64_t now_ns) except -1:
    # All that is left in the lists.
    engine_admit_opened(self, now_ns)
    while self.batches:
        engine_admit_batch(self, <Batch>self.batches.pop(), now_ns)
    return 0


cdef int engine_admit_batch(Engine self, Batch batch, int64_t now_ns) except -1:
    # As many of its rounds as its window has room for.
    cdef Round round
    while (round := batch_next(batch)) is not None:
        if self.is_closed and (
            round.operation_code == OPERATION_EXTEND and not round.is_last
        ):
            round.is_submitted = True
            round.closed_list = self.closed
            round_give_up(round, "closed", now_ns)
            continue
        if batch.failure is not None:
            engine_submit_at_once(self, round, now_ns)
            continue
        try:
            engine_submit(self, round, now_ns)
        except BaseException:      # else it stays under way, and the batch for ever
            engine_end_torn(self, round, now_ns)
            raise
        if not round.is_opened:
            break
    return engine_end_batch(self, batch)


cdef int64_t engine_patience_ns(Engine self, Round round) noexcept:
    # How long to wait for connections: inside the caller's timeout. A single try on a
    # new client has to connect, too: it gets the time of its round for that.
    if round.left_ns < 0:
        return self.connect_timeout_ns
    if round.operation_code == OPERATION_PING:      # the question has its own time
        return min(self.connect_timeout_ns, round.left_ns - round.terms.timeout_ns)
    return min(self.connect_timeout_ns, round.left_ns or round.terms.timeout_ns)


cdef int engine_admit(Engine self, int64_t now_ns) except -1:
    # Open what an exception has left, and the rounds whose wait is over: once in a
    # step, however many they are.
    cdef Admission admission
    cdef Prospects prospects
    if self.opened or self.batches:
        engine_admit_left(self, now_ns)
    if not self.admissions:
        return 0
    prospects = engine_prospects(self, now_ns)
    for admission in list(self.admissions.values()):
        if admission_is_over(self, admission, &prospects, now_ns):
            engine_end_admission(self, admission, now_ns)
            engine_admit_opened(self, now_ns)
    return 0


cdef Prospects engine_prospects(Engine self, int64_t now_ns) noexcept:
    cdef Prospects prospects
    prospects.opening = engine_opening_count(self)
    prospects.ready = engine_asked_count(self, OPERATION_INSPECT, now_ns)
    prospects.voting = engine_asked_count(self, OPERATION_ACQUIRE, now_ns)
    return prospects


cdef int engine_end_admission(
    Engine self, Admission admission, int64_t now_ns
) except -1:
    # Opening the one before it may have run a finalizer, which forked, or gave it up.
    cdef Round round = admission.round
    if self.admissions.pop(round, None) is None:
        return 0
    if round.is_connecting and round.operation_code != OPERATION_PING:
        round_open(round, now_ns)
        round_close(round, VERDICT_WON, now_ns)
        return round_report_closed(round)
    admission_spend(admission, now_ns)
    return engine_start(self, round, now_ns)


cdef int admission_spend(Admission self, int64_t now_ns) except -1:
    # The wait for connections is part of the caller's time; the round keeps at least as
    # much as connected masters need to answer. A master that does not, is not slow.
    cdef Round round = self.round
    cdef int64_t waited_ns = now_ns - self.began_ns
    if round.left_ns > 0:
        round.left_ns = max(
            round.left_ns - waited_ns, min(round.terms.timeout_ns, <int64_t>GRACE_NS)
        )
        if round.left_ns < waited_ns:
            text = f"{round.left_ns / 1e6:.0f} ms were left for this"
            round.details = [f"not connected in time: {text}"] * round.master_count
    return 0


cdef bint admission_is_over(
    Engine self, Admission admission, Prospects *prospects, int64_t now_ns
) noexcept:
    # Until a quorum takes the operation, or cannot, or the deadline. Those that are
    # still on their way then get as long again as it took, at least GRACE_NS: they
    # mostly arrive together, a lease on all of them is worth more, and an error that
    # names those that do not come is worth more, too.
    cdef int ready = prospects.ready
    cdef int64_t grace_ns
    if prospects.opening == 0:
        return True
    if not admission.is_decided and not admission.round.is_connecting:
        if admission.round.operation_code == OPERATION_ACQUIRE:
            ready = prospects.voting
        if ready >= self.quorum or ready + prospects.opening < self.quorum:
            grace_ns = max(now_ns - admission.began_ns, <int64_t>GRACE_NS)
            admission.is_decided = True
            admission.limit_ns = min(admission.deadline_ns, now_ns + grace_ns)
            engine_note_time(self, admission.limit_ns)
    return now_ns >= admission.limit_ns
