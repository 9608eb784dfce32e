# A batch, many rounds of one caller; and the word for a round or a batch.

# --- batch ----------------------------------------------------------------------------
# A batch: many rounds at once, each on its own, and one caller that waits for all.
#
# A batch hands its rounds to the engine in the order given and keeps a window of them
# under way, so that the bytes queued for a master, and the wait of the last of a window
# behind the others, have a bound. Where rounds finish, the next ones are opened: each
# has a t0, a verdict and a validity of its own.
#
# Where a quorum of connections is missing one round waits for it, alone: the others
# follow when it is finished. Acquires are one call: when too few could answer one of
# them, or too late, all are undone, so no more are sent. Releases and extensions are
# sent whatever became of others, and wait for connections once, not each: where one of
# them has failed, another may have its key on more masters. A closed engine still sends
# releases; the extensions that are left end unreachable.
#
# A batch sends nothing: the engine asks it for its next round (engine/pass), and wakes
# its `waiter` at its end.

cdef enum:
    WINDOW_LEAST = 64
    WINDOW_MOST = 1024
    WINDOW_BYTES = 1_000_000
    ROUND_SHARE_NS = 20_000      # of the timeout, for each round of a window


@cython.final
cdef class Batch:
    """Rounds of one kind that are run together, each on its own."""

    cdef readonly list rounds
    cdef readonly bint is_finished       # the wait for it is over
    cdef readonly Round failure          # the first that ended UNREACHABLE or TOO_LATE
    cdef bint is_answered                # one was granted or taken
    cdef bint is_submitted
    cdef readonly bint is_withdrawn      # of all that it had, nothing is held
    cdef object waiter                   # to be woken then, or None
    cdef Py_ssize_t next                 # the first that is not submitted
    cdef int window
    cdef int under_way
    cdef size_t bytes_under_way

    def __init__(self, list rounds not None):
        cdef Round round
        if self.rounds is not None:
            raise RuntimeError("a batch is initialised once")
        self.rounds = rounds
        self.window = WINDOW_MOST
        for each in rounds:
            round = <Round?>each
            self.window = min(self.window, max(
                <int>WINDOW_LEAST, <int>(round.terms.timeout_ns // ROUND_SHARE_NS)
            ))


cdef Round batch_next(Batch self):
    # The next one to be submitted, where the window has room; else None.
    cdef Round round
    if (
        self.next >= len(self.rounds) or self.under_way >= self.window
        or self.bytes_under_way >= WINDOW_BYTES or batch_is_given_up(self)
    ):
        return None
    round = <Round>self.rounds[self.next]
    self.next += 1
    self.under_way += 1
    self.bytes_under_way += round_size(round)
    round.waiter = self
    return round


cdef bint batch_on_finished(Batch self, Round round) noexcept:
    # Return whether the next ones are to be submitted. They are not submitted one by
    # one, because commands that are queued together are sent in one write.
    self.under_way -= 1
    self.bytes_under_way -= round_size(round)
    if round.verdict_code < VERDICT_UNREACHABLE:
        self.is_answered = True
    elif self.failure is None or round.is_withheld:
        self.failure = round
    return self.next < len(self.rounds) and 2 * self.under_way <= self.window


cdef bint batch_is_given_up(Batch self) noexcept:
    # Return whether no more of it is sent. Each shard of a cluster fails on its own: if
    # one lock was answered, others are tried, but for a mistake of the caller.
    return self.is_withdrawn or (
        self.failure is not None and (not self.is_answered or self.failure.is_withheld)
        and self.failure.operation_code == OPERATION_ACQUIRE
    )


cdef bint batch_expired_before_return(Batch self, int64_t now_ns) noexcept:
    # Check every validity again at the return to the caller.
    cdef Round round
    cdef bint is_any = False
    for round in self.rounds:
        if round_confirm(round, now_ns):
            is_any |= round.operation_code == OPERATION_ACQUIRE
            self.failure = self.failure or round
    return is_any or self.failure is not None and batch_is_given_up(self)


cdef void batch_withdraw(Batch self, Round failure=None) noexcept:
    # The caller has given it up, or the process has forked: no waiter is woken, and
    # rounds not sent yet never are, except releases.
    self.waiter = None
    self.is_submitted = True      # a follower with it may still come
    self.is_withdrawn = self.is_finished = True
    self.next = len(self.rounds)
    if self.failure is None:
        self.failure = failure


# --- work -----------------------------------------------------------------------------
# A round or a batch, for a driver that runs both: `work` is either of them. (A common
# base class would cost both their freelist: Cython gives none to subtypes.)


cdef int work_check(object work) except -1:
    if type(work) is Round:
        if (<Round>work).terms is None:
            raise TypeError("a Round that was not initialised")
    elif type(work) is not Batch:
        raise TypeError("a Round or a Batch")


cdef bint work_is_submitted(object work) noexcept:
    if type(work) is Batch:
        return (<Batch>work).is_submitted
    return (<Round>work).is_submitted


cdef bint work_is_finished(object work) noexcept:
    if type(work) is Batch:
        return (<Batch>work).is_finished
    return (<Round>work).is_finished


cdef bint work_is_release(object work) noexcept:
    # Releases are sent although the engine is closed.
    if type(work) is Round:
        return round_is_release(<Round>work)
    rounds = (<Batch>work).rounds
    return len(rounds) > 0 and round_is_release(<Round>rounds[0])


cdef int64_t work_timeout_ns(object work) noexcept:
    if type(work) is Round:
        return (<Round>work).terms.timeout_ns
    rounds = (<Batch>work).rounds
    return (<Round>rounds[0]).terms.timeout_ns if rounds else 0


cdef void work_set_waiter(object work, object waiter) noexcept:
    if type(work) is Batch:
        (<Batch>work).waiter = waiter
    else:
        (<Round>work).waiter = waiter


cdef bint work_expired_before_return(object work, int64_t now_ns) noexcept:
    if type(work) is Batch:
        return batch_expired_before_return(<Batch>work, now_ns)
    return round_confirm(<Round>work, now_ns)
