# All queues of one process, by resource, and when something is due in them. Pure.
#
# `due` is a heap of times. An entry that does not count any more (the queue was set to
# another time, the round is open) stays until its time, or until most are such.


from heapq import heapify, heappop, heappush

cdef enum:
    DUE_AT_LEAST = 64
    REMEMBERED_MOST = 1024
    QUESTION_LEAST = 128         # queues; some 6 us each at the server
    QUESTION_MOST = 512
    QUESTIONS_ROUND = 40         # so many questions are to be enough for all queues
    MARKED_MOST = 16             # waited for at once: queues that a process may move
    QUESTION_BYTES = 65536       # of their names
    QUESTION_SLOTS = 4096        # of their semaphores; some 1 us each


cdef class Rest               # round/rest


@cython.final
@cython.internal
cdef class Questions:
    """The queues that one gate is to be asked about, together."""

    cdef int gate
    cdef list queues             # the one that has been due for longest first
    cdef int64_t asked_ns        # the last time
    cdef int64_t tried_ns        # when one of them tried on all masters
    cdef int64_t due_ns          # the next one; NEVER_NS: there is none to ask about


@cython.final
@cython.internal
cdef class WaitQueues:
    """The queues of one process."""

    cdef bytes waiter            # the name of this process, at every gate
    cdef tuple leaving           # the same, as the argument of a release
    cdef dict by_resource
    cdef list due                # (ns, number, WaitQueue, Round, Questions or Rest)
    cdef Py_ssize_t due_most     # from how many on they are looked at
    cdef int64_t number          # drawn last: of an entry, or a turn
    cdef dict questions          # gate: Questions
    cdef int64_t tried_ns        # when one of any of them tried
    cdef dict contended_ns       # resource: until when a first try joins the queue
    cdef dict polled_ns          # resource: until when no queue is asked for it
    cdef dict moved              # resource: (until when, the masters passed over)
    cdef dict slots              # the queue's name: Slots, of a semaphore


cdef WaitQueues wait_queues_new(bytes waiter):
    cdef WaitQueues self = WaitQueues.__new__(WaitQueues)
    self.waiter = waiter
    self.leaving = (waiter,)
    self.by_resource = {}
    self.due = []
    self.due_most = DUE_AT_LEAST
    self.questions = {}
    self.contended_ns = {}
    self.polled_ns = {}
    self.moved = {}
    self.slots = {}
    return self


cdef Questions wait_queues_questions(WaitQueues self, int gate):
    cdef Questions questions = self.questions.get(gate)
    if questions is None:
        questions = Questions.__new__(Questions)
        questions.gate = gate
        questions.queues = []
        questions.due_ns = NEVER_NS
        self.questions[gate] = questions
    return questions


cdef list wait_queues_take_questions(Questions self):
    # Those of the next question. From here on nothing is allocated: a finalizer that
    # takes a lock would come here, too.
    cdef list taken = []
    cdef Py_ssize_t most = min(
        max(<Py_ssize_t>QUESTION_LEAST, len(self.queues) // QUESTIONS_ROUND),
        <Py_ssize_t>QUESTION_MOST,
    )
    cdef Py_ssize_t count = 0, size = 0, slots = 0
    cdef Round head
    while count < min(most, len(self.queues)) and size < QUESTION_BYTES and (
        slots < QUESTION_SLOTS
    ):
        size += PyBytes_GET_SIZE((<WaitQueue>self.queues[count]).resource)
        head = wait_queue_head(<WaitQueue>self.queues[count])
        slots += 0 if head is None else head.permits
        taken.append(self.queues[count])
        count += 1
    del self.queues[:count]
    return taken


cdef int64_t wait_queues_number(WaitQueues self) noexcept:
    self.number += 1
    return self.number


cdef bint wait_queues_are_until(
    dict until_ns, bytes resource, int64_t now_ns
) except -1:
    # Whether a time that is kept for the resource is still to come.
    if not until_ns:
        return False
    at_ns = until_ns.get(resource)
    return at_ns is not None and now_ns < <int64_t>at_ns


cdef int wait_queues_remember(dict until_ns, bytes resource, int64_t at_ns) except -1:
    if len(until_ns) >= REMEMBERED_MOST:
        until_ns.clear()
    until_ns[resource] = at_ns
    return 0


cdef uint64_t wait_queues_moved(
    WaitQueues self, bytes resource, int64_t now_ns
) noexcept:
    # The masters that have replied that its queue is not there. Mostly none.
    if not self.moved:
        return 0
    moved = <tuple>self.moved.get(resource)
    if moved is None or now_ns >= <int64_t>moved[0]:
        return 0
    return <uint64_t>moved[1]


cdef int wait_queues_on_moved(
    WaitQueues self, bytes resource, int gate, int64_t until_ns, int64_t now_ns
) except -1:
    # Of several the first to end ends all: they are asked again.
    cdef uint64_t bit = <uint64_t>1 << gate
    cdef uint64_t others = wait_queues_moved(self, resource, now_ns) & ~bit
    if others:
        until_ns = min(until_ns, <int64_t>self.moved[resource][0])
    if len(self.moved) >= REMEMBERED_MOST:
        self.moved.clear()
    self.moved[resource] = (until_ns, others | bit)
    return 0


cdef int wait_queues_add_due(WaitQueues self, int64_t due_ns, object work) except -1:
    if len(self.due) >= self.due_most:
        self.due = [entry for entry in self.due if wait_queues_counts(entry)]
        heapify(self.due)
        self.due_most = max(<Py_ssize_t>DUE_AT_LEAST, 2 * len(self.due))
    heappush(self.due, (due_ns, wait_queues_number(self), work))
    return 0


cdef object wait_queues_take_due(WaitQueues self, int64_t now_ns):
    # A WaitQueue, Round, Questions or Rest whose time has come; None: there is none.
    while self.due and <int64_t>self.due[0][0] <= now_ns:
        entry = heappop(self.due)
        if wait_queues_counts(entry):
            return entry[2]
    return None


cdef bint wait_queues_counts(tuple entry) except -1:
    cdef Round round
    if type(entry[2]) is WaitQueue:
        return (<WaitQueue>entry[2]).due_ns == <int64_t>entry[0]
    if type(entry[2]) is Questions:
        return (<Questions>entry[2]).due_ns == <int64_t>entry[0]
    if type(entry[2]) is Rest:
        return (<Rest>entry[2]).due_ns == <int64_t>entry[0]
    round = <Round>entry[2]
    return round.turn is not None and not round.is_finished and (
        not (<Turn>round.turn).is_open
    )


cdef int64_t wait_queues_next_ns(WaitQueues self) except -1:
    return <int64_t>self.due[0][0] if self.due else NEVER_NS
