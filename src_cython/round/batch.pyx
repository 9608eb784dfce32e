# A batch: many rounds at once, each on its own, and one caller that waits for all.
#
# A batch hands its rounds to the engine in the order given and keeps a window of them
# under way, so that the bytes queued for a master, and the wait of the last of a window
# behind the others, have a bound however long the list is. Where rounds finish, the
# next ones are opened: each has a t0, a verdict and a validity of its own.
#
# Where a quorum of connections is missing one round waits for it, alone: the others
# follow when it is finished. Acquires are one call: when too few could answer one of
# them, or too late, all are undone, so the rest is not sent. Releases and extensions
# are sent whatever became of others, and wait for connections once, not each: where one
# of them has failed, another may have its key on more masters. Masters that are silent
# hold up as many windows as it takes to give their connections up.
#
# A closed engine still sends releases; the extensions that are left end unreachable.
#
# A batch itself blocks nowhere and sends nothing: the engine asks it for its next round
# (engine/admission), and wakes its `waiter` at its end.

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
    cdef bint is_submitted
    cdef bint is_withdrawn
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

    def won(self):
        """List the rounds, None in place of each that was not won."""
        return [
            round if (<Round>round).verdict_code == VERDICT_WON else None
            for round in self.rounds
        ]


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
    # Whether the next ones are to be submitted. Not one by one: commands that are
    # queued together are sent in one write.
    self.under_way -= 1
    self.bytes_under_way -= round_size(round)
    if self.failure is None and round.verdict_code >= VERDICT_UNREACHABLE:
        self.failure = round
    return self.next < len(self.rounds) and 2 * self.under_way <= self.window


cdef bint batch_is_given_up(Batch self) noexcept:
    # Whether the rest is not sent any more.
    return self.is_withdrawn or (
        self.failure is not None
        and self.failure.operation_code == OPERATION_ACQUIRE
    )


cdef bint batch_is_over(Batch self) noexcept:
    return batch_is_given_up(self) or (
        self.under_way == 0 and self.next >= len(self.rounds)
    )


cdef bint batch_expired_before_return(Batch self, int64_t now_ns) noexcept:
    # Check every validity again at the return to the caller.
    cdef Round round
    for each in self.rounds:
        round = <Round>each
        if round_expired_before_return(round, now_ns) and self.failure is None:
            self.failure = round
    return self.failure is not None and batch_is_given_up(self)


cdef void batch_withdraw(Batch self) noexcept:
    # The caller has given it up: rounds not sent yet never are, except releases.
    self.waiter = None
    self.is_submitted = True      # a follower with it may still come
    self.is_withdrawn = self.is_finished = True
    self.next = len(self.rounds)


cdef void batch_give_up(Batch self, Round failure) noexcept:
    # In a forked child: nothing more of it is sent, and no waiter woken.
    self.waiter = None
    self.is_withdrawn = self.is_finished = True
    if self.failure is None:
        self.failure = failure
