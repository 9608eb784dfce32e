# Those in this process who wait for a resource: the queue of one, all of these with the
# times in them, and the turn of a round that waits. Lists alone: what a gate is asked
# and answers is in waiting/gate.

# --- wait queue -----------------------------------------------------------------------
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
cdef class Turn               # below


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


# --- wait queues ----------------------------------------------------------------------
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


cdef class Rest               # round/local


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


# --- turn -----------------------------------------------------------------------------
# The turn of a round that waits in the queue of its resource. Pure.
#
# A round with a Turn is not opened when it is submitted, but when it is its turn, or at
# the end of its caller's time: a last try, as any acquire makes one. Then it is a round
# like all others, but for the script that it sends to the gate of the queue: that one
# refuses where somebody waits longer, and this refusal is a veto, for the other masters
# know nothing of the queue. A silent gate refuses nothing.

cdef enum:                   # the replies of take_turn
    GATE_SILENT = -1
    GATE_TAKEN = 0           # the key exists
    GATE_SET = 1
    GATE_REFUSED = 2         # somebody waits longer
    GATE_SET_FIRST = 3       # set, and our next caller waits longest of all
    GATE_MOVED = 4           # the key exists; 5: it is set. The queue is elsewhere


@cython.final
@cython.internal
@cython.freelist(64)
cdef class Turn:
    """The place of one round in the queue of its resource."""

    cdef int64_t since_ns        # when its caller began to wait
    cdef int64_t until_ns        # when it tries a last time; NEVER_NS: it has no limit
    cdef int64_t pause_ns        # before this try, where the last ones were lost; or 0
    cdef WaitQueue queue         # None before it is submitted
    cdef int64_t number          # its own, and that of the next of the queue when it
    cdef int64_t next_number     # was opened; 0: none. (A reference would make a chain
    #                              of all rounds to come, kept by a lease that is kept.)
    cdef tuple arguments         # of its script at the gate
    cdef list asked              # (queue, number): of several, by one question
    cdef int gate_reply
    cdef bint is_open            # its round is, or was
    cdef bint is_kept            # from the last round of its caller: no need to ask
    cdef bint is_probe           # opened because it was time, not because of a turn
    cdef bint is_notified        # its gate notified us: before, or meanwhile
    cdef bint has_waited         # its caller has, in an earlier round: counted once


cdef Turn turn_new(
    int64_t since_ns, bint is_kept, int64_t until_ns=-1, bint has_waited=False,
    int64_t pause_ns=0,
):
    cdef Turn self = Turn.__new__(Turn)
    self.since_ns = since_ns
    self.until_ns = NEVER_NS if until_ns < 0 else until_ns
    self.gate_reply = GATE_SILENT
    self.is_kept = is_kept or pause_ns > 0
    self.pause_ns = pause_ns
    self.has_waited = has_waited
    return self


cdef bint turn_is_kept(Turn self, Round round) noexcept:
    # Whether the gate had set the key of a round that was lost elsewhere.
    return round.verdict_code == VERDICT_TAKEN and (
        self.gate_reply == GATE_SET or self.gate_reply == GATE_SET_FIRST
    )


cdef bint turn_is_paused(Turn self) noexcept:
    # Whether it waits for a while, or for a release, and is given no turn by its gate.
    return self.is_kept and self.pause_ns > 0


cdef bint turn_is_behind(Turn self) noexcept:
    # Whether its gate had refused: the key was there, or another waited longer.
    return self.gate_reply == GATE_TAKEN or self.gate_reply == GATE_REFUSED


cdef void turn_spend(
    Turn self, Round round, int64_t round_trip_ns, int64_t now_ns
) noexcept:
    # The wait is part of the caller's time; the round keeps that of a last one.
    if self.until_ns != NEVER_NS:
        round.left_ns = max(
            self.until_ns - now_ns, round.terms.last_round_ns(round_trip_ns)
        )


cdef bytes turn_waited_us(int64_t since_ns, int64_t now_ns):
    # For how long a caller has waited, as an argument of a script.
    return decimal_bytes(max(<int64_t>0, (now_ns - since_ns) // 1000))


cdef int turn_set_arguments(
    Turn self, Round round, Round next, bytes waiter, int64_t now_ns
) except -1:
    # Those of take_turn behind the token. The next of the queue takes our place there.
    self.arguments = (
        decimal_bytes(round.terms.ttl_ms if round.terms.has_expiry else 0),
        waiter,
        turn_waited_us(self.since_ns, now_ns),
        b"-1" if next is None else turn_waited_us((<Turn>next.turn).since_ns, now_ns),
    )
    if round.permits:
        self.arguments += (decimal_bytes(round.permits),)
    return 0


cdef void round_on_gate_reply(Round self, int reply) noexcept:
    # What the gate replies beside its vote; it may come after the verdict.
    cdef Turn turn
    if self.turn is not None:
        turn = <Turn>self.turn
        turn.gate_reply = reply
        if reply == GATE_SET_FIRST and turn.queue is not None:
            wait_queue_on_first(turn.queue, turn.next_number)


cdef bint round_is_refused(Round self) noexcept:
    # Whether the gate has refused it: somebody waits longer.
    return self.turn is not None and (<Turn>self.turn).gate_reply == GATE_REFUSED


cdef inline int round_quorum(Round self) noexcept:
    # Of the configured masters.
    return self.master_count // 2 + 1
