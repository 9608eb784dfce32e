# A round, one command to all masters; the judge, which makes a verdict and a validity
# of its votes and the time; a batch, many rounds of one caller; and the word for
# either.

# --- round ----------------------------------------------------------------------------
# A round: one command to all masters, with its terms, its votes and its verdict, which
# judge makes. It is of one key, its resource, or of several, its `keys`: all or
# nothing on each master, by one script, under one token.

cdef enum:
    LAST_ROUND_NS = 50_000_000      # a server that is there answers by then


@cython.final
@cython.freelist(16)
cdef class Terms:
    """The times of a round: fixed before it, shared by all rounds alike. Without
    expiry the SET has no PX, and ttl_ms is how long we count on the key."""

    cdef readonly int64_t ttl_ms
    cdef readonly int64_t drift_ns
    cdef readonly int64_t timeout_ns
    cdef readonly int64_t idle_ns        # how long its key may be idle; 0: not at all
    cdef readonly bint has_expiry
    cdef readonly bint is_of_rate        # never released: drift_ns has the window in it

    def __init__(self, int64_t ttl_ms, int64_t drift_ns, int64_t timeout_ns,
                 bint has_expiry=True, int64_t idle_ns=0, bint is_of_rate=False):
        if ttl_ms < 0 or drift_ns < 0 or timeout_ns < 0 or idle_ns < 0:
            raise ValueError("a negative time")
        self.ttl_ms = ttl_ms
        self.drift_ns = drift_ns
        self.timeout_ns = timeout_ns
        self.has_expiry = has_expiry
        self.idle_ns = idle_ns
        self.is_of_rate = is_of_rate

    def last_round_ns(self, int64_t round_trip_ns):
        """Return the time for a round that begins when its caller's time is over."""
        return round_last_ns(self, round_trip_ns)


cdef enum:                   # our entry at the gate of a release
    OUR_ENTRY_AS_IS = 0      # it may be another's by now: as it is
    OUR_ENTRY_STAYS = 1      # others wait in this process
    OUR_ENTRY_LEAVES = 2
    OUR_ENTRY_NONE = 3       # nor has another process one, as far as is known here
    OUR_ENTRY_ASKED = 4      # ...so it went natively, and the gate is asked for a queue


@cython.final
@cython.freelist(64)
cdef class Round:
    """One command to all masters, its votes, and their verdict."""

    cdef readonly bytes resource         # the key; of several, the first
    cdef readonly tuple keys             # of bytes, sorted and distinct; None: one key
    cdef readonly bytes token
    cdef readonly Terms terms
    cdef readonly int64_t opened_ns      # t0, read just before the first write
    cdef readonly int64_t closed_ns
    cdef readonly int64_t deadline_ns    # when it stops waiting; 0 before t0
    cdef readonly uint64_t may_hold
    cdef public int64_t left_ns          # of the caller's timeout; 0: a single try,
    #                                      which may take its time; < 0: no limit
    cdef readonly int64_t began_ns       # when its caller began to acquire; 0: adopted
    cdef public object lease_state       # the lease's record, which the shell sets; of
    #                                      an EXTEND or a RELEASE, the round of its
    #                                      lease; of one that notifies where a queue has
    #                                      moved, the RELEASE that it follows
    cdef list closed_list                # where it goes when it closes, or None
    cdef object waiter        # to be woken then: a follower, a future, a Batch; or None
    cdef list details                    # per master: error text or detail, or None
    cdef tuple token_uses                # of TokenUse; None: its token is our own
    cdef Turn turn                       # its Turn, where it waits for one; or None
    cdef Fencing fencing                 # its Fencing; None: an ACQUIRE without, others
    cdef readonly Electorate electorate
    # The votes: which masters gave them. The others are PENDING.
    cdef uint64_t granted
    cdef uint64_t taken                  # ...and of these
    cdef uint64_t gone                   # the key is nobody's any more
    cdef uint64_t failed
    cdef uint64_t silent
    cdef uint32_t *answered_us           # after t0, per master; 0: no answer, most: 71
    #                                      minutes; `few_us`, or allocated for more
    # Thousands of leases hold a round each: from here on the smallest types, by size.
    cdef public int attempt              # number within its acquire, from 1
    cdef uint32_t extensions             # of this lease; of an EXTEND, its number
    cdef readonly uint32_t generation    # of the process that made it: not a child's
    cdef uint16_t permits                # of a semaphore, so many slots; 0: a lock
    cdef uint32_t few_us[FEW_MASTERS]
    cdef uint8_t operation_code
    cdef uint8_t kind                    # of lock
    cdef uint8_t verdict_code
    cdef int8_t gate                     # the master that it asks in turn; -1: none
    cdef readonly byte_bint is_opened
    cdef readonly byte_bint is_finished  # closed, and confirmed or rolled back
    cdef readonly byte_bint is_withheld  # not sent: an earlier use is not settled
    cdef public byte_bint is_shown       # its token is known outside: lease.token
    cdef readonly byte_bint is_submitted  # given to the engine
    cdef public byte_bint is_released    # an ACQUIRE: its release was made, so nothing
    #                                      extends it any more; an EXTEND: it stands in
    #                                      the place of the release (at_least)
    cdef byte_bint is_connecting         # waits for all connections: they are decided
    #                                      when it is opened, or closed with no question
    cdef byte_bint is_rolled_back
    cdef public byte_bint needs_all      # closed by all answers or by time alone: of a
    #                                      release that reports on each
    cdef byte_bint is_repeated           # a RELEASE: sent to one master once more
    cdef uint8_t our_entry               # what becomes of ours at its gate
    cdef uint8_t deleted_at              # a RELEASE: 1 + the master at which the one
    #                                      that follows it deleted the key; 0: none

    def __init__(
        self, int operation, bytes resource not None, bytes token not None,
        Terms terms not None, int master_count,
    ):
        round_check_operation(operation)
        if self.terms is not None:
            raise RuntimeError("a round is initialised once")
        round_new(operation, resource, token, terms, Electorate(master_count), self)

    def __dealloc__(self):
        pass_keep(self.lease_state)
        pass_keep(self.waiter)
        free(NULL if self.answered_us == self.few_us else self.answered_us)

    @property
    def operation(self):
        """The operation that the round asks for."""
        return Operation(self.operation_code)

    @property
    def verdict(self):
        """How the round ended, or OPEN."""
        return Verdict(self.verdict_code)

    @property
    def is_won(self):
        """Whether a quorum granted and validity was left when the round closed."""
        return self.verdict_code == VERDICT_WON

    @property
    def valid_until_ns(self):
        """The end of its validity, if it is won: t0 + ttl - drift; 0 before t0."""
        return round_valid_until_ns(self) if self.is_opened else 0

    @property
    def slot(self):
        """Which slot of a semaphore it asks for; -1: of none, or none yet."""
        return round_slot(self)

    @property
    def fence(self):
        """The number of this grant, once it is won; None: without fencing."""
        return None if self.fencing is None else self.fencing.fence or None

    def votes(self):
        """List (Vote, text or detail or None, ms until it came or None) per master."""
        cdef int i
        return [
            (
                Vote(round_vote(self, i)),
                None if self.details is None else self.details[i],
                self.answered_us[i] / 1e3 or None,
            )
            for i in range(self.electorate.count)
        ]

    def wait_in_turn(
        self, int64_t since_ns, bint keeps_turn=False, int64_t until_ns=-1,
        bint has_waited=False, int64_t pause_ns=0, places=None,
    ):
        """Wait in the queue of the resource before it is opened. since_ns: when its
        caller began to wait; until_ns: when it is opened at the latest, -1: no limit.
        keeps_turn: its last round had its turn, and lost it by a master that had not
        seen the release. has_waited: in an earlier round. pause_ns: before it is
        opened, unless the gate notifies it of its turn; those behind it in this process
        wait as long. places: of several keys, those of its last round."""
        self.turn = turn_new(since_ns, keeps_turn, until_ns, has_waited, pause_ns)
        self.turn.places = places

    @property
    def places(self):
        """Of several keys, where it waited; or None."""
        return None if self.turn is None else self.turn.places

    @property
    def lacks_its_gate(self):
        """Whether nothing but the silence of its gate has kept it from a quorum of
        answers: so the quorum is not lost."""
        return self.gate >= 0 and set_has(self.silent, self.gate) and electorate_wins(
            self.electorate, self.granted | self.taken | set_of(self.gate)
        )

    @property
    def has_turn(self):
        """Whether it waited in a queue, or was to."""
        return self.turn is not None

    @property
    def keeps_turn(self):
        """Whether the gate had set the key of this round, which was lost elsewhere."""
        return self.turn is not None and self.verdict_code == VERDICT_TAKEN and (
            self.turn.gate_reply in (GATE_SET, GATE_SET_FIRST)
        )

    def lost_turns(self, int before):
        """Count the turns lost in a row: `before` it, and its own, where it was tried
        as its turn, as far as the gate knew. None where the gate had notified it, for
        mostly there was a release, or refused it: a key was there, or another first."""
        cdef Turn turn = self.turn
        cdef bint had_turn = turn is not None and turn.is_open and not turn.is_probe
        if turn is not None and (turn.is_notified or not had_turn and (
            turn.gate_reply in (GATE_TAKEN, GATE_REFUSED)
        )):
            return 0
        return before + (had_turn or self.permits == 0 and self.keeps_turn)

    def open(self, int64_t now_ns):
        """Begin: now_ns is t0."""
        round_open(self, now_ns)

    def on_sent(self, int master):
        """Note that the command was handed to this master's connection."""
        round_check_master(self, master)
        round_on_sent(self, master)

    def on_vote(self, int master, int vote, detail, bint is_definite, int64_t now_ns):
        """Take a master's answer; is_definite: it came from the master itself."""
        round_check_master(self, master)
        round_on_vote(self, master, vote, detail, is_definite, now_ns)

    def on_deadline(self, int64_t now_ns):
        """Stop waiting."""
        round_on_deadline(self, now_ns)

    def confirm(self, int64_t now_ns):
        """Check the validity again, just before the return to the caller."""
        round_confirm(self, now_ns)


cdef Round round_new(
    int operation, bytes resource, bytes token, Terms terms, Electorate electorate,
    Round made=None,
):
    # As Round(...), of arguments that are checked; of one that was made before.
    cdef Round self = Round.__new__(Round) if made is None else made
    self.answered_us = self.few_us
    if electorate.count > FEW_MASTERS:
        self.answered_us = <uint32_t *>calloc(electorate.count, sizeof(uint32_t))
        if self.answered_us == NULL:
            raise MemoryError
    self.gate = -1
    self.operation_code = operation
    self.resource = resource
    self.token = token
    self.terms = terms
    self.electorate = electorate
    self.generation = current_generation
    return self


cdef inline uint64_t round_pending(Round self) noexcept:
    return self.electorate.members & ~(
        self.granted | self.taken | self.failed | self.silent
    )


cdef int round_vote(Round self, int master) noexcept:
    return (
        VOTE_GRANTED if set_has(self.granted, master)
        else VOTE_GONE if set_has(self.gone, master)
        else VOTE_TAKEN if set_has(self.taken, master)
        else VOTE_FAILED if set_has(self.failed, master)
        else VOTE_SILENT if set_has(self.silent, master)
        else VOTE_PENDING
    )


cdef int round_check_operation(int operation) except -1:
    if not OPERATION_ACQUIRE <= operation <= OPERATION_INSPECT:      # a caller's
        raise ValueError("no such operation")


cdef int round_check_master(Round self, int master) except -1:
    if not 0 <= master < self.electorate.count:
        raise ValueError("no such master")


cdef size_t round_size(Round self) noexcept:
    # Bytes of its keys and its token.
    cdef size_t size = <size_t>PyBytes_GET_SIZE(self.token)
    if self.keys is None:
        return size + <size_t>PyBytes_GET_SIZE(self.resource)
    for key in self.keys:
        size += <size_t>PyBytes_GET_SIZE(<bytes>key)
    return size


# --- judge ----------------------------------------------------------------------------
# THE STATE MACHINE of a round: votes and the time become a verdict and a validity.
#
# Theory of operation. A round asks every master the same thing once and is open from
# the first write until its verdict. Each master is in one set, that of its vote; all
# are PENDING at first. While the round is open a master gives one answer, and the sets
# are judged after each (electorate):
#
#   granted wins                          WON, or TOO_LATE if no validity is left; with
#                                         fencing once a quorum has its number (fencing)
#   granted | pending does not            lost; it cannot be won any more:
#     granted | taken | pending does not    UNREACHABLE  too few could answer
#     an ACQUIRE is                         TAKEN        at once, to be rolled back;
#     others, all but taken do not win      TAKEN        our key is on no quorum
#             nothing is pending            UNREACHABLE  it may still be on one
#   its gate refused it                   TAKEN: somebody waits longer (turn)
#   deadline                              every PENDING becomes SILENT, judged again
#   anything else                         OPEN
#
# So GONE of a release, and the loss of a lease, is never reported where the masters
# that did not refuse are a quorum: one of three may never have had the key, another be
# silent for a moment, and the key still be on a majority.
#
# The quorum is of the configured masters, never of the reachable ones. The slowest
# master is not waited for, except by INSPECT and PING, which close when all have
# answered. What is asked of a queue is asked of one master, its gate, and closes with
# its answer. (The caller of a release waits a little longer where it had to be
# repeated, or the gate is asked whether anybody waits: waiting/turns.)
#
# A verdict never changes, with one exception: `round_confirm` turns WON into TOO_LATE
# when the validity ran out before the return to the caller (a paused process). After
# the verdict, answers that come late still count, where the master is PENDING, SILENT,
# or FAILED without an answer (as is one of a release that was deferred to the next
# connection): a lease gains a vote, and no decision depends on it. A second
# answer of one master is an illegal event and changes nothing.
#
# `may_hold` is the set of masters on which the key, or any of the keys, may exist
# because of this round: a SET was sent, and no answer since shows that it was refused.
# A roll-back must reach them all, and a lost connection does not clear the set: unknown
# is not failed. Of an EXTEND it is the set of masters that may still give the key this
# ttl, even after they granted a later one on another connection: the lease asks. A
# release inherits the set and clears the masters that confirm.
#
# A round that the engine runs puts itself into its `closed_list` when it closes; the
# engine finishes it from there (confirmed, or rolled back) and wakes the waiter.


cdef str NOT_SENT = "not sent: the lease was released"


cdef int round_open(Round self, int64_t now_ns) except -1:
    if self.is_opened:
        raise StateError("a round is opened once")
    self.is_opened = True
    self.opened_ns = now_ns
    self.deadline_ns = now_ns + self.terms.timeout_ns
    if 0 < self.left_ns < self.terms.timeout_ns:
        self.deadline_ns = now_ns + self.left_ns


cdef inline int64_t round_valid_until_ns(Round self) noexcept:
    # https://redis.io/docs/latest/develop/use/patterns/distributed-locks/, step 3
    return self.opened_ns + self.terms.ttl_ms * NS_PER_MS - self.terms.drift_ns


cdef void round_on_sent(Round self, int master) noexcept:
    if operation_is(self.operation_code, OPERATION_GIVES_TTL):
        self.may_hold |= set_of(master)


cdef int round_on_vote(
    Round self, int master, int vote, object detail, bint is_definite, int64_t now_ns
) except -1:
    cdef uint64_t bit = set_of(master)
    cdef int i
    if not self.is_opened or vote not in (
        VOTE_GRANTED, VOTE_TAKEN, VOTE_FAILED, VOTE_GONE
    ):
        raise StateError("a vote for a round that is not open, or not an answer")
    if (self.granted | self.taken) & bit or (
        self.failed & bit and self.answered_us[master]
    ):
        raise StateError("a second vote of one master")
    if vote == VOTE_GRANTED and self.fencing is not None and (
        fencing_is_short(self, master)
    ):
        return fencing_report(self)      # it counts once it has the number
    self.silent &= ~bit
    self.failed &= ~bit
    if vote == VOTE_GRANTED:
        self.granted |= bit
    elif vote == VOTE_FAILED:
        self.failed |= bit
    else:
        self.taken |= bit
        self.gone |= bit if vote == VOTE_GONE else 0
    if is_definite:
        self.answered_us[master] = <uint32_t>min(
            max((now_ns - self.opened_ns) // 1000, <int64_t>1), <int64_t>0xFFFFFFFF
        )
        # It cannot hold our key any more because of this round. A release that was
        # refused by an error has deleted nothing.
        if (
            vote != VOTE_GRANTED if self.operation_code == OPERATION_ACQUIRE
            else vote != VOTE_FAILED or self.operation_code == OPERATION_EXTEND
        ):
            self.may_hold &= ~bit
    if detail is not None or self.details is not None:
        round_note(self, master, detail)
    if self.verdict_code == VERDICT_OPEN:
        if self.fencing is not None and fencing_begins(self, now_ns):
            for i in range(self.electorate.count):
                if fencing_is_short(self, i):
                    round_note(self, i, NOT_WRITTEN)
            return fencing_report(self)
        round_judge(self, now_ns)
        return round_report_closed(self)


cdef int round_report_closed(Round self) except -1:
    if self.verdict_code != VERDICT_OPEN and self.closed_list is not None:
        if self.fencing is None or not self.fencing.is_reported:
            self.closed_list.append(self)
        self.closed_list = None


cdef void round_on_repeated(Round self) noexcept:
    # The script was not known to a master, or the connection was cut.
    if self.operation_code == OPERATION_RELEASE:
        self.is_repeated = True


cdef inline bint round_is_release(Round self) noexcept:
    # Whether it ends a lease: it is sent whatever becomes of its caller and engine.
    return self.operation_code == OPERATION_RELEASE or (
        self.operation_code == OPERATION_EXTEND and self.is_released
    )


cdef bint round_may_repeat(Round self) noexcept:
    # Whether the command may be sent to a master once more. An ACQUIRE only before its
    # roll-back, or the release of its lease: behind those it would leave keys behind.
    # An EXTEND only while its caller waits for it; one that has won also later, for a
    # slow minority, but never behind a later one, which it would undercut if its ttl is
    # shorter. Never behind the SET of the next use of its token.
    cdef Round lease
    if round_is_behind_next(self) or round_is_of_released(self):
        return False
    if self.operation_code == OPERATION_EXTEND and self.verdict_code == VERDICT_WON:
        lease = <Round>self.lease_state
        return lease is None or self.extensions == lease.extensions
    if round_is_release(self):
        return True
    return not operation_is(self.operation_code, OPERATION_GIVES_TTL) or (
        self.verdict_code == VERDICT_OPEN and not self.is_rolled_back
    )


cdef inline bint round_is_of_released(Round self) noexcept:
    # Whether it is an EXTEND of a lease whose release was made: its RELEASE may have
    # been sent, and this must not come behind it.
    return (
        self.operation_code == OPERATION_EXTEND and self.lease_state is not None
        and (<Round>self.lease_state).is_released
    )


cdef bint round_is_overused(Round self) noexcept:
    # Whether one of its keys was granted again under its token: nothing of it is sent.
    for use in self.token_uses or ():
        if (<TokenUse>use).is_over:
            return True
    return False


cdef bint round_is_behind_next(Round self) noexcept:
    # ...or may be by now.
    cdef TokenUse use
    for use in self.token_uses or ():
        if use.is_over or use.open is not self and round_is_tried(use.open):
            return True
    return False


cdef bint round_is_tried(Round acquire) noexcept:
    return acquire is not None and not (acquire.is_finished or acquire.is_rolled_back)


cdef int round_note(Round self, int master, object detail) except -1:
    if self.details is None:
        self.details = [None] * self.electorate.count
    self.details[master] = detail


cdef int round_on_deadline(Round self, int64_t now_ns) except -1:
    if not self.is_opened:
        raise StateError("a deadline for a round that is not open")
    if self.verdict_code != VERDICT_OPEN:
        return 0
    self.silent |= round_pending(self)
    round_judge(self, now_ns)
    return round_report_closed(self)


cdef int round_give_up(
    Round self, str reason, int64_t now_ns, int verdict=VERDICT_UNREACHABLE
) except -1:
    # Its caller is gone: this verdict, whatever the votes until now.
    cdef int i
    if not self.is_opened:
        round_open(self, now_ns)
    if self.verdict_code != VERDICT_OPEN:
        return 0
    round_close(self, verdict, now_ns)
    round_report_closed(self)
    for i in range(self.electorate.count):
        if set_has(round_pending(self), i):
            round_on_vote(self, i, VOTE_FAILED, reason, False, now_ns)


cdef void round_judge(Round self, int64_t now_ns) noexcept:
    cdef Electorate electorate = self.electorate
    cdef uint64_t pending = round_pending(self)
    cdef uint64_t answered = self.granted | self.taken
    cdef bint is_won
    if operation_is(self.operation_code, OPERATION_IS_OF_GATE):
        if answered:
            round_close(self, VERDICT_WON, now_ns)
        elif self.failed or not pending:
            round_close(self, VERDICT_UNREACHABLE, now_ns)
    elif self.permits == 0 and operation_is(self.operation_code, OPERATION_NEEDS_ALL):
        if not pending:
            is_won = electorate_wins(electorate, answered)
            round_close(self, VERDICT_WON if is_won else VERDICT_UNREACHABLE, now_ns)
    elif self.needs_all and pending:
        return
    elif round_is_refused(self):
        round_close(self, VERDICT_TAKEN, now_ns)
    elif electorate_wins(electorate, self.granted):
        round_close(self, VERDICT_WON, now_ns)
        round_confirm(self, now_ns)
    elif not electorate_wins(electorate, self.granted | pending):
        if not electorate_wins(electorate, answered | pending):
            round_close(self, VERDICT_UNREACHABLE, now_ns)
        elif self.operation_code == OPERATION_ACQUIRE or (
            not electorate_wins(electorate, ~self.taken)
        ):
            round_close(self, VERDICT_TAKEN, now_ns)
        elif not pending:
            round_close(self, VERDICT_UNREACHABLE, now_ns)


cdef inline void round_close(Round self, int verdict, int64_t now_ns) noexcept:
    # The gate: the only place that gives a verdict; round_confirm alone takes WON back.
    self.verdict_code = verdict
    self.closed_ns = now_ns


cdef int round_wanted(Round self) noexcept:
    # How many more masters have to answer, at the least, before it can close. A look
    # at a semaphore is a hint, and closes with a quorum.
    if self.needs_all or self.permits == 0 and (
        operation_is(self.operation_code, OPERATION_NEEDS_ALL)
    ):
        return bit_count(round_pending(self))
    return max(1, electorate_lacks(self.electorate, self.granted))


cdef bint round_confirm(Round self, int64_t now_ns) noexcept:
    # Whether a round that was won is too late by now: checked again at the return to
    # its caller, which withdraws it then. A release has no validity, and counts
    # whenever it is confirmed.
    if self.verdict_code != VERDICT_WON or (
        not operation_is(self.operation_code, OPERATION_GIVES_TTL)
    ):
        return False
    if round_valid_until_ns(self) <= now_ns:
        self.verdict_code = VERDICT_TOO_LATE
        return True
    return False


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
    # Whether the next ones are to be submitted. Not one by one: commands that are
    # queued together are sent in one write.
    self.under_way -= 1
    self.bytes_under_way -= round_size(round)
    if round.verdict_code < VERDICT_UNREACHABLE:
        self.is_answered = True
    elif self.failure is None or round.is_withheld:
        self.failure = round
    return self.next < len(self.rounds) and 2 * self.under_way <= self.window


cdef bint batch_is_given_up(Batch self) noexcept:
    # Whether no more of it is sent. The shards of a cluster fail each on its own: if
    # one lock was answered, the others are tried, but for a mistake of the caller.
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


cdef bint work_is_unreachable(object work) noexcept:
    cdef Round round = (<Batch>work).failure if type(work) is Batch else work
    return round is not None and round.verdict_code == VERDICT_UNREACHABLE


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
