# The queue of those in this process who wait for one resource. Pure.
#
# Its rounds are in the order in which their callers began to wait. Only the first is
# known outside: the gate, one of the masters, keeps one entry for each process and
# resource, and notifies the process when it is that one's turn.
#
#   noted      the round for which the gate has our entry, as far as is known
#   is_first   the gate has reported that no other process waits longer
#   opened     the round whose turn it is, under way
#
# A queue that is lost, wrong or hostile costs time alone: who holds the lock is decided
# by a quorum, in the round.


cdef class Round              # round/round
cdef class Turn               # round/turn


@cython.final
@cython.internal
cdef class WaitQueue:
    """The rounds of this process that wait for one resource."""

    cdef bytes resource
    cdef list rounds             # that wait, by the time since when
    cdef Round opened, noted     # or None
    cdef int gate                # the master asked last; -1: none
    cdef bint is_first
    cdef int64_t place           # among the processes at the gate, from 0
    cdef int64_t tried_ns        # when its first tried on all masters, or came here
    cdef bint is_entered         # the gate may have our entry
    cdef bint is_unanswered      # the gate owes an answer
    cdef int64_t free_ns         # since when all answers are that the key is free, and
    #                              the first that nobody had been notified; 0: not so
    cdef int64_t stay_until_ns   # our lease may be handed on; 0: there is none
    cdef int64_t due_ns          # when the gate is asked again; NEVER_NS: not known
    cdef bint is_alone           # ...and that nobody else waits
    cdef int slot                # which is free, as the gate reports; -1: not known
    cdef list freed              # ...others, while one is under way


cdef WaitQueue wait_queue_new(bytes resource, int64_t now_ns):
    cdef WaitQueue self = WaitQueue.__new__(WaitQueue)
    self.resource = resource
    self.tried_ns = now_ns
    self.rounds = []
    self.gate = self.slot = -1
    self.freed = []
    self.due_ns = NEVER_NS
    return self


cdef int wait_queue_add(WaitQueue self, Round round) except -1:
    # Most have begun later than all that wait.
    cdef Py_ssize_t at = len(self.rounds)
    cdef int64_t since_ns = (<Turn>round.turn).since_ns
    while at > 0 and wait_queue_since_ns(self, at - 1) > since_ns:
        at -= 1
    self.rounds.insert(at, round)
    return 0


cdef inline int64_t wait_queue_since_ns(WaitQueue self, Py_ssize_t at) noexcept:
    return (<Turn>(<Round>self.rounds[at]).turn).since_ns


cdef bint wait_queue_remove(WaitQueue self, Round round) except -1:
    # Whether it waited.
    cdef Py_ssize_t at
    for at in range(len(self.rounds)):
        if self.rounds[at] is round:
            del self.rounds[at]
            return True
    return False


cdef Round wait_queue_head(WaitQueue self):
    return <Round>self.rounds[0] if self.rounds else None


cdef Round wait_queue_behind(WaitQueue self, Round round):
    # The first, once this one has been taken out.
    cdef Py_ssize_t at = len(self.rounds) > 0 and self.rounds[0] is round
    return <Round>self.rounds[at] if at < len(self.rounds) else None


cdef bint wait_queue_is_noted(WaitQueue self) noexcept:
    # Whether the gate has our entry for the round that is first here.
    return len(self.rounds) > 0 and self.rounds[0] is self.noted


cdef bint wait_queue_is_next(WaitQueue self) noexcept:
    # Whether a release in this process may be followed by our first round at once.
    return self.is_first and self.opened is None and wait_queue_is_noted(self)


cdef inline int64_t wait_queue_noted_number(WaitQueue self) noexcept:
    return 0 if self.noted is None else (<Turn>self.noted.turn).number


cdef void wait_queue_on_first(WaitQueue self, int64_t number) noexcept:
    # The gate reports that nobody waits longer than the one of this number.
    if number != 0 and wait_queue_noted_number(self) == number:
        self.is_first = True


cdef bint wait_queue_is_over(WaitQueue self) noexcept:
    return self.opened is None and not self.is_entered and len(self.rounds) == 0
