# A round: one command to all masters, with its terms, its votes and its verdict. The
# rules by which votes and the time become a verdict are in judge.
#
# A round is of one key, its resource, or of several, its `keys`: all or nothing on each
# master, by one script, under one token.

cdef enum:
    LAST_ROUND_NS = 50_000_000      # a server that is there answers by then


@cython.final
@cython.freelist(16)
cdef class Terms:
    """The times of a round: fixed before it, shared by all rounds alike.

    Without expiry the SET has no PX, and ttl_ms is how long we count on the key.
    """

    cdef readonly int64_t ttl_ms
    cdef readonly int64_t drift_ns
    cdef readonly int64_t timeout_ns
    cdef readonly int64_t linger_ns      # how long its key may rest; 0: not at all
    cdef readonly bint has_expiry
    cdef readonly bint is_of_rate        # never released: drift_ns has the window in it

    def __init__(self, int64_t ttl_ms, int64_t drift_ns, int64_t timeout_ns,
                 bint has_expiry=True, int64_t linger_ns=0, bint is_of_rate=False):
        if ttl_ms < 0 or drift_ns < 0 or timeout_ns < 0 or linger_ns < 0:
            raise ValueError("a negative time")
        self.ttl_ms = ttl_ms
        self.drift_ns = drift_ns
        self.timeout_ns = timeout_ns
        self.has_expiry = has_expiry
        self.linger_ns = linger_ns
        self.is_of_rate = is_of_rate

    cpdef int64_t last_round_ns(self, int64_t round_trip_ns) noexcept:
        """Return the time for a round that begins when its caller's time is over."""
        return min(self.timeout_ns, max(<int64_t>LAST_ROUND_NS, 3 * round_trip_ns))


cdef enum:                   # the check of the queue behind a native release
    QUEUE_CHECK_NONE = 0         # there is none, or it is answered
    QUEUE_CHECK_WANTED = 1       # to be sent with it
    QUEUE_CHECK_GATHERED = 2     # to be sent behind it, with those of others
    QUEUE_CHECK_ASKED = 3
    QUEUE_CHECK_NOTIFYING = 4    # it follows a check, and notifies who waits


cdef enum:                   # our entry at the gate of a release
    OUR_ENTRY_AS_IS = 0      # it may be another's by now: as it is
    OUR_ENTRY_STAYS = 1      # others wait in this process
    OUR_ENTRY_LEAVES = 2


cdef enum:                   # one byte for two questions
    WITHHELD_NOT = 0
    WITHHELD_YES = 1
    WITHHELD_FOR_REPLIES = 2     # on connections that live

cdef packed struct VoteCell:     # thousands of leases hold a round each
    uint32_t answered_us     # since the round was opened; saturates after 71 minutes
    uint8_t vote


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
    cdef readonly object lease_state     # see keep_lease_state; of an EXTEND or a
    #                                      RELEASE, the round of its lease
    cdef readonly object entered_by      # of an `async with` by this lease: a weak
    #                                      reference to the task; or None
    cdef list closed_list                # where it goes when it closes, or None
    cdef object waiter        # to be woken then: a follower, a future, a Batch; or None
    cdef list details                    # per master: error text or detail, or None
    cdef tuple token_uses                # of TokenUse; None: its token is our own
    cdef object turn                     # its Turn, where it waits for one; or None
    cdef object fencing                  # its Fencing; None: an ACQUIRE without, others
    cdef VoteCell *cells                 # `few`, or allocated where those are too few
    # Thousands of leases hold a round each: from here on the smallest types, by size.
    cdef public int attempt              # number within its acquire, from 1
    cdef uint32_t extensions             # of this lease; of an EXTEND, its number
    cdef readonly uint32_t generation    # of the process that made it: not a child's
    cdef uint16_t permits                # of a semaphore, so many slots; 0: a lock
    cdef VoteCell few[FEW_MASTERS]
    cdef uint8_t counts[5]               # by vote
    cdef uint8_t operation_code
    cdef uint8_t kind                    # of lock
    cdef uint8_t verdict_code
    cdef uint8_t master_count
    cdef int8_t gate                     # the master that it asks in turn; -1: none
    cdef readonly byte_bint is_opened
    cdef readonly byte_bint is_finished  # closed, and confirmed or rolled back
    cdef uint8_t withheld                # not sent: an earlier use is not settled
    cdef public byte_bint is_shown       # its token is known outside: lease.token
    cdef byte_bint is_submitted          # given to the engine
    cdef byte_bint is_released           # an ACQUIRE: its release was made, so nothing
    #                                      extends it any more
    cdef byte_bint is_connecting         # waits for all connections: they are decided
    #                                      when it is opened, or closed with no question
    cdef byte_bint is_rolled_back
    cdef public byte_bint is_last        # an EXTEND in the place of a release: at_least
    cdef byte_bint needs_all             # closed by all answers or by time alone
    cdef byte_bint is_repeated           # a RELEASE: sent to one master once more
    cdef byte_bint is_reentrant          # begun inside a step of the same thread
    cdef uint8_t queue_check             # ...or is asked whether anybody waits
    cdef uint8_t our_entry               # ...and what becomes of ours there

    def __cinit__(self):
        self.cells = self.few
        self.gate = -1

    def __init__(
        self, int operation, bytes resource not None, bytes token not None,
        Terms terms not None, int master_count,
    ):
        if not 0 < master_count <= MAX_MASTERS:
            raise ValueError("master_count out of range")
        round_check_operation(operation)
        if self.terms is not None:
            raise RuntimeError("a round is initialised once")
        round_init(self, operation, resource, token, terms, master_count)

    def __dealloc__(self):
        if self.cells != self.few:
            free(self.cells)

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
    def is_withheld(self):
        """Whether it was not sent: an earlier use of its token is not settled."""
        return self.withheld != WITHHELD_NOT

    @property
    def may_settle(self):
        """Whether replies on connections that live may settle that."""
        return self.withheld == WITHHELD_FOR_REPLIES

    @property
    def valid_until_ns(self):
        """The end of the validity if the round is won: t0 + ttl - drift; 0 before t0.
        """
        return round_valid_until_ns(self) if self.is_opened else 0

    @property
    def slot(self):
        """Which slot of a semaphore it asks for; -1: of none, or none yet."""
        return round_slot(self)

    @property
    def fence(self):
        """The number of this grant, once it is won; None: without fencing."""
        if self.fencing is None:
            return None
        return (<Fencing>self.fencing).fence or None

    def votes(self):
        """List (Vote, text or detail or None, ms until it came or None) per master."""
        cdef int i
        votes = []
        for i in range(self.master_count):
            vote, detail = self.cells[i].vote, None
            if self.details is not None:
                detail = self.details[i]
            if vote == VOTE_TAKEN and detail is KEY_GONE:
                vote, detail = VOTE_GONE, None
            answered_us = self.cells[i].answered_us
            votes.append((Vote(vote), detail, answered_us / 1e3 or None))
        return votes

    def keep_lease_state(self, state):
        """Keep the lease's state, in one step; return the one that was kept first."""
        if self.lease_state is None:
            self.lease_state = state
        return self.lease_state

    def wait_for_all(self):
        """Close by all answers, or by time alone: of a release that reports on each."""
        self.needs_all = True

    def wait_in_turn(
        self, int64_t since_ns, bint keeps_turn=False, int64_t until_ns=-1,
        bint has_waited=False, int64_t pause_ns=0,
    ):
        """Wait in the queue of the resource before it is opened.

        since_ns: when its caller began to wait; until_ns: when it is opened at the
        latest, -1: no limit. keeps_turn: its last round had its turn, and lost it by a
        master that had not seen the release. has_waited: in an earlier round.
        pause_ns: before it is opened, unless the gate notifies it of its turn; those
        behind it in this process wait as long.
        """
        self.turn = turn_new(since_ns, keeps_turn, until_ns, has_waited, pause_ns)

    @property
    def had_turn(self):
        """Whether it was opened because it was its turn, as far as the gate knew."""
        return self.turn is not None and (
            (<Turn>self.turn).is_open and not (<Turn>self.turn).is_probe
        )

    @property
    def has_turn(self):
        """Whether it waited in a queue, or was to."""
        return self.turn is not None

    @property
    def keeps_turn(self):
        """Whether the gate had set the key of this round, which was lost elsewhere."""
        return self.turn is not None and turn_is_kept(<Turn>self.turn, self)

    @property
    def was_behind(self):
        """Whether the gate had refused: a key was there, or another was first."""
        return self.turn is not None and turn_is_behind(<Turn>self.turn)

    @property
    def turn_was_notified(self):
        """Whether its gate had notified it: mostly there was a release."""
        return self.turn is not None and (<Turn>self.turn).is_notified

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


cdef inline Round round_new(
    int operation, bytes resource, bytes token, Terms terms, int master_count
):
    # As Round(...), of arguments that are checked.
    cdef Round round = Round.__new__(Round)
    round_init(round, operation, resource, token, terms, master_count)
    return round


cdef int round_init(
    Round self, int operation, bytes resource, bytes token, Terms terms,
    int master_count,
) except -1:
    if master_count > FEW_MASTERS:
        self.cells = <VoteCell *>calloc(master_count, sizeof(VoteCell))
        if self.cells == NULL:
            self.cells = self.few
            raise MemoryError
    self.operation_code = operation
    self.resource = resource
    self.token = token
    self.terms = terms
    self.master_count = master_count
    self.counts[VOTE_PENDING] = master_count
    self.generation = current_generation
    return 0


cdef int round_check_operation(int operation) except -1:
    if not OPERATION_ACQUIRE <= operation <= OPERATION_LEAVE_QUEUE or (
        not operation_is(operation, OPERATION_IS_OF_CALLERS)
    ):
        raise ValueError("no such operation")
    return 0


cdef int round_check_master(Round self, int master) except -1:
    if not 0 <= master < self.master_count:
        raise ValueError("no such master")
    return 0


cdef size_t round_size(Round self) noexcept:
    # Bytes of its keys and its token.
    cdef size_t size = <size_t>PyBytes_GET_SIZE(self.token)
    if self.keys is None:
        return size + <size_t>PyBytes_GET_SIZE(self.resource)
    for key in self.keys:
        size += <size_t>PyBytes_GET_SIZE(<bytes>key)
    return size


cdef inline int64_t round_overdue_ns(Round round) noexcept:
    # Two round timeouts, at least 1 s, and no more than 1 s beyond the first.
    cdef int64_t timeout_ns = round.terms.timeout_ns
    return max(
        <int64_t>OVERDUE_AT_LEAST_NS,
        timeout_ns + min(timeout_ns, <int64_t>OVERDUE_AT_LEAST_NS),
    )
