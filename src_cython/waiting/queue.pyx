# Those in this process who wait for a resource: the queue of one, all of these with the
# times in them, and the turn of a round that waits. Lists alone: what a gate is asked
# and answers is in waiting/gate.

# --- wait queue -----------------------------------------------------------------------
# The queue of those in this process who wait for one resource: a machine. Pure.
#
# Its callers are a list of rounds, in the order in which they began to wait. Only the
# first is known outside: the gate, one of the masters, keeps one entry for each process
# and resource, and notifies the process when it is that one's turn. So a state is what
# the gate has of us, and whether a round of ours is being tried. Whatever happens is an
# event, and QUEUE_TABLE has for both of them the next state, and what is to be done,
# which gate and turns carry out. A cell "x" is an event that the code rules out in that
# state. It changes nothing, and is counted; tests and simulator fail then.
#
# Beside the machine are a lease that is held here while the next caller waits (a stay,
# which has a time: stay_until_ns), slots, and rounds that are opened at the end of
# their callers' time while another one is tried: the event of their end is "strayed".
#
# A queue that is lost, wrong or hostile costs time alone: who holds the lock is decided
# by a quorum, in the round.

cdef enum:
    QUEUE_AWAY = 0           # the gate has no entry of this process
    QUEUE_STALE = 1          # it may have one, but not of the caller that is first here
    QUEUE_ASKED = 2          # it was asked about our first, and owes the answer
    QUEUE_BEHIND = 3         # it has our first; others wait longer, as far as is known
    QUEUE_FIRST = 4          # it has our first, and reports that nobody waits longer
    QUEUE_TRYING = 5         # a round of ours is under way; else as AWAY or STALE
    QUEUE_TRYING_NEXT = 6    # "+NEXT": as TRYING, and the gate has our next
    QUEUE_TRYING_FIRST = 7   # "+FIRST": ...and nobody waits longer than our next
    QUEUE_STATES = 8

cdef enum:                   # in the order of the rows
    EVENT_WAITING = 0            # callers wait: one came, or left, or a stay is over
    EVENT_CHANGED = 1            # another caller is the first here
    EVENT_BACK = 2               # a caller came back to its entry, and is the first
    EVENT_EMPTY = 3              # no caller waits here any more
    EVENT_ASKED = 4              # the gate is asked about our first
    EVENT_STRAYED = 5            # ...or may have the entry of one that is not first
    EVENT_ELSEWHERE = 6          # another master is the gate
    EVENT_MOVED = 7              # the gate has replied that the queue is not there
    EVENT_NO_GATE = 8            # no master keeps queues
    EVENT_OTHERS = 9             # an answer: others wait longer than our first,
    EVENT_NOBODY = 10            # nobody does,
    EVENT_OURS = 11              # or it has its turn
    EVENT_TURN = 12              # a push: we have our turn
    EVENT_CALLED = 13            # a push: are we there?
    EVENT_DUE = 14               # the time to ask again
    EVENT_TRY_DUE = 15           # ...or to try on all masters, without a turn
    EVENT_OPENED = 16            # a round is tried; there is no next for the gate,
    EVENT_OPENED_NEXT = 17       # or its command brings our next to the gate
    EVENT_NEXT_IS_FIRST = 18     # the gate has set its key, and our next is first there
    EVENT_WON = 19               # it is won, and our next is at the gate,
    EVENT_WON_LAST = 20          # or the gate took our entry out, as there was no next,
    EVENT_WON_BESIDE = 21        # or the gate did not set the key
    EVENT_LOST = 22              # it is lost, or its caller gave it up
    EVENTS = 23

cdef enum:                   # what is to be done, in the order of QUEUE_ACTIONS
    DO_NOTHING = 0
    DO_ASK = 1                   # the gate about our first, which enters it there
    DO_ENTER = 2                 # the same, but not in a stay; without callers leave
    DO_OPEN = 3                  # try our first
    DO_TRY = 4                   # the same, without a turn
    DO_LEAVE = 5                 # take our entry out at the gate
    DO_LOOK_SOON = 6             # be due in a moment
    DO_LOOK_LATER = 7            # be due at the usual time
    DO_NOTE = 8                  # note the turn, for the round that is under way
    DO_RULE_OUT = 9              # "x": nothing, and it is a mistake of ours

cdef dict QUEUE_ACTIONS = dict(zip(
    ". ask enter open try leave soon later note x".split(), range(10)
))

# A cell is the next state, "*" where the action of the row is to be done; or another
# action; or ".": nothing. In a cell without a state it remains as it is.
cdef str QUEUE_TABLE = """\
event       action AWAY   STALE  ASKED  BEHIND FIRST  TRYING  +NEXT   +FIRST
waiting     enter  *      *      .      .      .      .       .       .
changed     .      .      .      STALE  STALE  STALE  .       TRYING  TRYING
back        .      BEHIND BEHIND x      x      x      +NEXT   x       x
empty       leave  .      AWAY*  AWAY*  AWAY*  AWAY*  .       TRYING  TRYING
asked       .      ASKED  ASKED  .      ASKED  .      +NEXT   .       .
strayed     soon   STALE* *      STALE* STALE* STALE* .       TRYING  TRYING
elsewhere   leave  .      AWAY*  AWAY*  AWAY*  AWAY*  *       TRYING* TRYING*
moved       ask    AWAY*  AWAY*  AWAY*  AWAY*  AWAY*  .       TRYING  TRYING
no-gate     .      AWAY   AWAY   AWAY   AWAY   AWAY   .       TRYING  TRYING
others      .      x      x      BEHIND .      BEHIND x       x       x
nobody      .      x      x      FIRST  FIRST  .      x       x       x
ours        open   x      x      *      *      *      x       x       x
turn        open   *      *      *      *      *      note    note    note
called      ask    *      *      .      *      ASKED* .       .       .
due         ask    *      *      *      *      *      later   later   later
try-due     try    x      x      *      *      *      x       x       x
opened      .      TRYING TRYING TRYING TRYING TRYING .       TRYING  TRYING
opened-next .      +NEXT  +NEXT  +NEXT  +NEXT  +NEXT  +NEXT   .       +NEXT
next-first  .      .      .      FIRST  FIRST  .      .       +FIRST  .
won         enter  x      x      x      x      x      STALE*  BEHIND  FIRST
won-last    enter  x      x      x      x      x      AWAY*   BEHIND  FIRST
won-beside  enter  x      x      x      x      x      STALE*  STALE*  STALE*
lost        soon   x      x      x      x      x      STALE*  STALE*  STALE*
"""

cdef struct QueueCell:
    int next
    int action
    int64_t count            # how often the event came; also where it is ruled out

cdef QueueCell queue_cells[EVENTS][QUEUE_STATES]      # QUEUE_TABLE, without objects


cdef int wait_queue_read_table() except -1:
    cdef QueueCell *at
    cdef int event, state
    header, *rows = [line.split() for line in QUEUE_TABLE.splitlines()]
    for event, (_, action, *cells) in enumerate(rows):
        for state, cell in enumerate(cells):
            at = &queue_cells[event][state]
            name = cell.strip("*")
            at.next = header.index(name) - 2 if name in header else state
            at.action = QUEUE_ACTIONS.get(action if "*" in cell else cell, 0)


wait_queue_read_table()


cdef class Round              # round/round
cdef class Terms
cdef class Turn               # below


@cython.internal
cdef class Due:
    """What has a time: WaitQueue, or IdleKey (round/local)."""

    cdef int64_t due_ns          # NEVER_NS: there is none


@cython.final
@cython.internal
cdef class WaitQueue(Due):
    cdef bytes resource
    cdef bytes entry             # its name here: of readers, with a mark (round/key)
    cdef bytes waiter            # the name of those in it, at the gate
    cdef list rounds             # that wait, by the time since when
    cdef int state               # changed by wait_queue_on alone
    cdef Round trying            # the round that is under way, or None
    cdef int gate                # the master asked last; -1: none
    cdef int64_t place           # among the processes at the gate, from 0
    cdef int64_t tried_ns        # when its first tried on all masters, or came here
    cdef int64_t free_ns         # since when all answers are that the key is free, and
    #                              the first that nobody had been notified; 0: not so
    cdef int64_t stay_until_ns   # our lease may be handed on; 0: there is none
    cdef bint is_alone           # at our last turn nobody else waited
    cdef int slot                # which is free, as the gate reports; -1: not known
    cdef list freed              # ...others, while one is under way


cdef WaitQueue wait_queue_new(
    bytes resource, bytes entry, bytes waiter, int64_t now_ns
):
    cdef WaitQueue self = WaitQueue.__new__(WaitQueue)
    self.resource = resource
    self.entry = entry
    self.waiter = waiter
    self.tried_ns = now_ns
    self.rounds = []
    self.gate = self.slot = -1
    self.freed = []
    self.due_ns = NEVER_NS
    return self


cdef int wait_queue_on(WaitQueue self, int event) noexcept:
    # The only place where its state changes. Return what is to be done.
    cdef QueueCell *cell = &queue_cells[event][self.state]
    cell.count += 1
    self.state = cell.next
    if self.state < QUEUE_TRYING:
        self.trying = None
    return cell.action


cdef inline bint wait_queue_is_trying(WaitQueue self) noexcept:
    return self.state >= QUEUE_TRYING


cdef inline bint wait_queue_is_known(WaitQueue self) noexcept:
    # Return whether the gate has our first's entry, and none of ours is tried.
    return QUEUE_ASKED <= self.state <= QUEUE_FIRST


cdef Py_ssize_t wait_queue_add(WaitQueue self, Round round) except -1:
    # Most have begun later than all that wait. Return how many have not.
    cdef Py_ssize_t at = len(self.rounds)
    cdef int64_t since_ns = round.turn.since_ns
    while at > 0 and (<Round>self.rounds[at - 1]).turn.since_ns > since_ns:
        at -= 1
    self.rounds.insert(at, round)
    if at == 0:
        wait_queue_on(self, EVENT_CHANGED)
    return at


cdef bint wait_queue_remove(WaitQueue self, Round round) except -1:
    # It is opened, or is handed a lease; a caller who gives up leaves, by
    # wait_queue_leave. Return whether it waited.
    cdef Py_ssize_t at
    for at in range(len(self.rounds)):
        if self.rounds[at] is round:
            del self.rounds[at]
            if at == 0:
                wait_queue_on(self, EVENT_CHANGED)
            return True
    return False


cdef int wait_queue_leave(WaitQueue self, Round round) except -1:
    # Its caller has given it up. Return what is to be done.
    cdef int action = DO_LOOK_SOON
    if self.trying is round:
        action = wait_queue_on(self, EVENT_LOST)
    elif wait_queue_remove(self, round) and self.rounds:
        action = wait_queue_on(self, EVENT_WAITING)
    return action if self.rounds else wait_queue_on(self, EVENT_EMPTY)


cdef int wait_queue_open(
    WaitQueue self, Round round, Round next, int gate, int64_t now_ns
) except -1:
    # Its turn, or the end of its time. The gate is told of the next by its command.
    wait_queue_remove(self, round)
    round.turn.is_open = True
    round.turn.next_number = 0 if next is None else next.turn.number
    round.gate = gate
    self.tried_ns = now_ns
    self.free_ns = 0
    is_last = gate < 0 or next is None or wait_queue_head(self) is not next
    wait_queue_on(self, EVENT_OPENED if is_last else EVENT_OPENED_NEXT)
    if self.trying is None:
        self.trying = round


cdef int wait_queue_close(WaitQueue self, Round round) noexcept:
    # A round has its verdict. Return what is to be done.
    if self.trying is not round:
        return wait_queue_on(self, EVENT_STRAYED)
    if round.verdict_code != VERDICT_WON:
        return wait_queue_on(self, EVENT_LOST)
    if round.turn.gate_reply == GATE_TAKEN or round.gate < 0:
        # It was won by a quorum without the gate, or out of turn: we are queued.
        return wait_queue_on(self, EVENT_WON_BESIDE)
    return wait_queue_on(self, EVENT_WON if round.turn.next_number else EVENT_WON_LAST)


cdef list wait_queue_take_rounds(WaitQueue self):
    # All that wait, who are ended or poll.
    rounds, self.rounds = self.rounds, []
    return rounds


cdef int wait_queue_set_gate(WaitQueue self, int gate) noexcept:
    # Return what is to be done at the last one.
    if self.gate == gate:
        return DO_NOTHING
    self.gate = gate
    self.free_ns = 0
    return wait_queue_on(self, EVENT_ELSEWHERE)


cdef bint wait_queue_is_left_free(
    WaitQueue self, int whose, int64_t left_ms, int64_t now_ns
) noexcept:
    # Return whether those before us leave a free key alone. One that is there takes it
    # in less than a second, and a release notifies it. So it counts only if a second
    # lies between two questions that found nobody notified, and none between found a
    # key.
    if left_ms != -2:
        self.free_ns = 0
    elif whose != TURN_OTHER:
        self.free_ns = self.free_ns or now_ns
        return now_ns - self.free_ns >= FREE_NS
    return False


cdef Round wait_queue_head(WaitQueue self):
    return <Round>self.rounds[0] if self.rounds else None


cdef Round wait_queue_behind(WaitQueue self, Round round):
    # The first, once this one has been taken out.
    cdef Py_ssize_t at = len(self.rounds) > 0 and self.rounds[0] is round
    return <Round>self.rounds[at] if at < len(self.rounds) else None


cdef inline int64_t wait_queue_number(WaitQueue self) noexcept:
    # Return the number of the first here; 0: there is none.
    return (<Round>self.rounds[0]).turn.number if self.rounds else 0


# --- wait queues ----------------------------------------------------------------------
# All queues of one process, by their names here, and when something is due in them.
# Pure.
#
# `due` is a heap of times. An entry that does not count any more (the queue was set to
# another time, the round is open) stays until its time, or until most are such.

from heapq import heapify, heappop, heappush

cdef enum:
    DUE_AT_LEAST = 64
    REMEMBERED_MOST = 1024
    MARKED_MOST = 16             # waited for at once: queues that a process may move


@cython.final
@cython.internal
cdef class WaitQueues:
    cdef bytes waiter            # the name of this process, at every gate
    cdef tuple leaving           # the same, as the argument of a release
    cdef dict by_resource
    cdef list due                # (ns, number, Round or Due)
    cdef Py_ssize_t due_most     # from how many on they are looked at
    cdef int64_t number          # drawn last: of an entry, or a turn
    cdef int64_t tried_ns        # when one of several last tried on all masters
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
    self.contended_ns = {}
    self.polled_ns = {}
    self.moved = {}
    self.slots = {}
    return self


cdef bytes wait_queues_waiter(WaitQueues self, bytes entry):
    # The name at the gate of those that wait in this queue.
    return self.waiter + AS_READER if entry.startswith(READERS) else self.waiter


cdef bint wait_queues_are_until(dict until_ns, object key, int64_t now_ns) except -1:
    # Return whether a time that is kept for a resource, or a slot, is still to come.
    if not until_ns:
        return False
    at_ns = until_ns.get(key)
    return at_ns is not None and now_ns < <int64_t>at_ns


cdef int wait_queues_remember(dict kept, bytes resource, object value) except -1:
    # They are hints: those of too many resources are forgotten.
    if len(kept) >= REMEMBERED_MOST:
        kept.clear()
    kept[resource] = value


cdef uint64_t wait_queues_moved(dict moved, bytes resource, int64_t now_ns) noexcept:
    # The masters that have replied that its queue is not there.
    found = <tuple>moved.get(resource)
    if found is None or now_ns >= <int64_t>found[0]:
        return 0
    return <uint64_t>found[1]


cdef int wait_queues_on_moved(
    WaitQueues self, bytes resource, int gate, int64_t until_ns, int64_t now_ns
) except -1:
    # If there are several, the first to end ends all: they are asked again.
    cdef uint64_t bit = <uint64_t>1 << gate
    cdef uint64_t others = wait_queues_moved(self.moved, resource, now_ns) & ~bit
    if others:
        until_ns = min(until_ns, <int64_t>self.moved[resource][0])
    return wait_queues_remember(self.moved, resource, (until_ns, others | bit))


cdef int wait_queues_add_due(WaitQueues self, int64_t due_ns, object work) except -1:
    if len(self.due) >= self.due_most:
        self.due = [entry for entry in self.due if wait_queues_counts(entry)]
        heapify(self.due)
        self.due_most = max(<Py_ssize_t>DUE_AT_LEAST, 2 * len(self.due))
    self.number += 1
    heappush(self.due, (due_ns, self.number, work))


cdef object wait_queues_take_due(WaitQueues self, int64_t now_ns):
    # A Round or a Due whose time has come; None: there is none.
    while self.due and <int64_t>self.due[0][0] <= now_ns:
        entry = heappop(self.due)
        if wait_queues_counts(entry):
            return entry[2]
    return None


cdef bint wait_queues_counts(tuple entry) except -1:
    cdef Round round
    if isinstance(entry[2], Due):
        return (<Due>entry[2]).due_ns == <int64_t>entry[0]
    round = <Round>entry[2]
    return round.turn is not None and not round.is_finished and not round.turn.is_open


# --- turn -----------------------------------------------------------------------------
# The turn of a round that waits in the queue of its resource. Pure.
#
# A round with a Turn is opened when it is its turn, or at the end of its caller's time:
# a last try, as any acquire makes one. Then it is a round like all others, but for the
# script that it sends to the gate of the queue: that one refuses where somebody waits
# longer, and this refusal is a veto, for the other masters know nothing of the queue. A
# silent gate refuses nothing.

cdef enum:                   # the replies of take_turn
    GATE_SILENT = -1
    GATE_TAKEN = 0           # the key exists
    GATE_SET = 1
    GATE_REFUSED = 2         # somebody waits longer
    GATE_SET_FIRST = 3       # set, and our next caller waits longest of all
    GATE_MOVED = 4           # the key exists; 5: it is set. The queue is elsewhere


@cython.final
@cython.internal
cdef class Places:
    """Those of a round of several keys, which waits in the queue of each (turns)."""

    cdef Round round             # that is opened where one of them has its turn
    cdef list each               # a round in each queue: none of them is sent
    cdef set had                 # keys whose turn it had: it keeps them, and pauses...
    cdef int64_t had_ns          # ...since then


@cython.final
@cython.internal
@cython.freelist(64)
cdef class Turn:
    cdef int64_t since_ns        # when its caller began to wait
    cdef int64_t until_ns        # when it tries a last time; NEVER_NS: it has no limit
    cdef int64_t pause_ns        # before this try, where the last ones were lost; or 0
    cdef WaitQueue queue         # None before it is submitted
    cdef int64_t number          # its own, and that of the next of the queue when it
    cdef int64_t next_number     # was opened; 0: none. (A reference would make a chain
    #                              of all rounds to come, kept by a lease that is kept.)
    cdef tuple arguments         # of its script at the gate
    cdef tuple asked             # of a question: (queue, its first's number)
    cdef Places places           # of several keys, for which it waits; or None
    cdef int gate_reply
    cdef bint is_open            # its round is, or was
    cdef bint is_kept            # from the last round of its caller: no need to ask
    cdef bint is_probe           # opened because it was time, not because of a turn
    cdef bint is_notified        # its gate notified us: before, or meanwhile
    cdef bint has_waited         # its caller has, in an earlier round: counted once


cdef Turn turn_new(
    int64_t since_ns, bint is_kept, int64_t until_ns=-1, bint has_waited=False,
    int64_t pause_ns=0, Places places=None,
):
    cdef Turn self = Turn.__new__(Turn)
    self.places = places
    self.since_ns = since_ns
    self.until_ns = NEVER_NS if until_ns < 0 else until_ns
    self.gate_reply = GATE_SILENT
    self.is_kept = is_kept or pause_ns > 0
    self.pause_ns = pause_ns
    self.has_waited = has_waited
    return self


cdef Places turn_begin_places(Turn self, Round round):
    # Those of this try; what an earlier one had stays.
    if self.places is None:
        self.places = Places.__new__(Places)
        self.places.had = set()
    self.places.round = round
    self.places.each = []
    return self.places


cdef bint turn_is_paused(Turn self) noexcept:
    # Return whether it waits for a time, or a release, and gets no turn from its gate.
    return self.is_kept and self.pause_ns > 0


cdef int64_t round_last_ns(Terms terms, int64_t round_trip_ns) noexcept:
    return min(terms.timeout_ns, max(<int64_t>LAST_ROUND_NS, 3 * round_trip_ns))


cdef bytes turn_waited_us(int64_t since_ns, int64_t now_ns):
    # Return for how long a caller has waited, as an argument of a script.
    return decimal_bytes(max(<int64_t>0, (now_ns - since_ns) // 1000))


cdef bytes round_ttl(Round self):
    # Return its ttl in ms, as an argument of a script; 0: the key does not expire.
    return decimal_bytes(self.terms.ttl_ms if self.terms.has_expiry else 0)


cdef Turn turn_of_first_try(Round round):
    # Make that of a reader that has not waited: it is refused if somebody waits.
    cdef Turn self = turn_new(0, False, 0)
    self.is_open = self.is_probe = True
    self.arguments = (round_ttl(round), b"", b"0", b"-1")
    return self


cdef int turn_set_arguments(
    Turn self, Round round, Round next, bytes waiter, int64_t now_ns
) except -1:
    # Set those of take_turn behind the token. The next here takes our place there.
    self.arguments = (
        round_ttl(round),
        waiter,
        turn_waited_us(self.since_ns, now_ns),
        b"-1" if next is None else turn_waited_us(next.turn.since_ns, now_ns),
    )
    if round.permits:
        self.arguments += (decimal_bytes(round.permits),)


cdef void round_on_gate_reply(Round self, int reply) noexcept:
    # Take the gate's reply to a round that waits in turn, beside its vote; it may come
    # behind the verdict.
    cdef Turn turn = self.turn
    turn.gate_reply = reply
    if reply == GATE_SET_FIRST and turn.queue is not None and turn.next_number and (
        turn.next_number == wait_queue_number(turn.queue)
    ):
        wait_queue_on(turn.queue, EVENT_NEXT_IS_FIRST)
        turn.queue.place = 0


cdef bint round_is_refused(Round self) noexcept:
    # Return whether the gate has refused it: somebody waits longer.
    return self.turn is not None and self.turn.gate_reply == GATE_REFUSED
