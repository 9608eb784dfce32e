# A round, one command to all masters, and the judge, which makes a verdict and a
# validity of its votes and the time.

# --- round ----------------------------------------------------------------------------
# A round: one command to all masters, with its terms, its votes and its verdict, which
# judge makes. It is of one key, its resource, or of several, its `keys`: all or
# nothing on each master, by one script, under one token.

cdef enum:
    LAST_ROUND_NS = 50_000_000      # a server that is there answers by then
    GRACE_NS = 10_000_000           # that a connected one needs


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
    cdef public object lease_state       # the lease's record, which the shell sets
    cdef Round origin                    # of an EXTEND, and of a RELEASE before t0: the
    #                                      round whose lease it is of; of one that only
    #                                      notifies: the RELEASE that it follows
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
    cdef uint64_t asked                  # to these it is sent...
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
    cdef byte_bint is_released_twice     # by two threads, or after one unconfirmed
    cdef byte_bint is_connecting         # waits for all connections: they are decided
    #                                      when it is opened, or closed with no question
    cdef byte_bint is_rolled_back
    cdef public byte_bint needs_all      # closed by all answers or by time alone: of a
    #                                      release that reports on each
    cdef byte_bint is_repeated           # a RELEASE: sent to one master once more
    cdef byte_bint is_by_source          # ...the sources of its scripts: nobody may
    #                                      read that a server does not know one
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
    def is_shared(self):
        """Whether others may read as well."""
        return self.kind == KIND_SHARED

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
        round_wait_in_turn(self, turn_new(
            since_ns, keeps_turn, until_ns, has_waited, pause_ns, places
        ))

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
        return self.turn is not None and self.turn.until_ns != 0

    @property
    def keeps_turn(self):
        """Whether the gate had set the key of this round, which was lost elsewhere."""
        return self.has_turn and self.verdict_code == VERDICT_TAKEN and (
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
    # Make a round of arguments that are checked, or fill the one that was made.
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


cdef void round_set_kind(Round self, int kind, tuple keys, int permits) noexcept:
    # Set the kind: all of several keys, any slot of a semaphore, or a reader.
    self.kind = kind
    self.keys = keys
    self.permits = permits


cdef Round round_from(Round origin, int operation, Terms terms):
    # Make a round of the same keys and token.
    cdef Round self = round_new(
        operation, origin.resource, origin.token, terms, origin.electorate
    )
    self.origin = origin
    self.keys = origin.keys
    self.kind = origin.kind
    self.permits = origin.permits
    self.token_uses = origin.token_uses
    return self


cdef Round round_new_extension(Round lease, Terms terms):
    cdef Round self = round_from(lease, OPERATION_EXTEND, terms)
    lease.extensions += 1
    self.extensions = lease.extensions
    return self


cdef Round round_new_release(Round lease, Terms terms, uint64_t masters):
    # If a lease is released twice (by two threads, or after an unconfirmed one), either
    # may be sent late: it is not handed on any more. The token is read later.
    cdef Round self
    lease.is_released_twice = lease.is_released
    lease.is_released = True
    self = round_from(lease, OPERATION_RELEASE, terms)
    self.may_hold = masters
    if self.token_uses is not None:
        token_uses_release(self)
    return self


cdef Round round_of_place(Round several, bytes key, Turn turn):
    # Make one that waits for one of its keys, and to which nothing is handed on.
    cdef Round self = round_new(
        OPERATION_ACQUIRE, key, several.token, several.terms, several.electorate
    )
    self.kind = KIND_SEVERAL
    self.turn = turn
    return self


cdef void round_set_caller(
    Round self, int attempt, int64_t began_ns, int64_t left_ns
) noexcept:
    # Note which of its caller's tries it is, and how much is left of the timeout.
    self.attempt = attempt
    self.began_ns = began_ns
    self.left_ns = left_ns


cdef void round_set_connecting(Round self, bint is_ping, int64_t left_ns) noexcept:
    # It waits until all connections are decided. A PING asks then whether each votes.
    self.is_connecting = True
    self.left_ns = left_ns
    if is_ping:      # nobody else can make one
        self.operation_code = OPERATION_PING


cdef void round_set_gate(Round self, int gate, int our_entry) noexcept:
    self.gate = gate
    self.our_entry = our_entry


cdef int round_on_adopted(
    Round self, bytes token, int64_t fence, int64_t now_ns
) except -1:
    # Another process took it, under this token as it is; all masters may have it.
    if fence:
        self.fencing = fencing_new(self.electorate.count, 0, 0)
        self.fencing.fence = fence
    self.token = token
    self.closed_ns = now_ns
    self.may_hold = self.electorate.members


cdef void round_submit(Round self, list closed) noexcept:
    # It is the engine's from now on, which finds it in this list when it has closed;
    # None: nobody waits for it.
    self.is_submitted = True
    if self.verdict_code == VERDICT_OPEN:
        self.closed_list = closed


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
    if not OPERATION_ACQUIRE <= operation <= OPERATION_BREAK:      # a caller's
        raise ValueError("no such operation")


cdef int round_check_master(Round self, int master) except -1:
    if not 0 <= master < self.electorate.count:
        raise ValueError("no such master")


cdef size_t round_size(Round self) noexcept:
    # Return the bytes of its keys and its token.
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
# A verdict never changes, with two exceptions: `round_confirm` turns WON into TOO_LATE
# when the validity ran out before the return to the caller (a paused process), and
# `round_give_way` into TAKEN, of a reader that is held until its gate replies. After
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
cdef uint64_t TO_ALL = ~<uint64_t>0
cdef bytes HANDED_ON = b"handed-on"      # the token of a round whose lease was


cdef int round_open(Round self, int64_t now_ns) except -1:
    if self.is_opened:
        raise StateError("a round is opened once")
    self.is_opened = True
    self.opened_ns = now_ns
    self.deadline_ns = now_ns + self.terms.timeout_ns
    if 0 < self.left_ns < self.terms.timeout_ns:
        self.deadline_ns = now_ns + self.left_ns
    if self.operation_code == OPERATION_RELEASE:
        self.origin = None      # it is sent, and may be deferred for long


cdef int round_send(
    Round self, list to_send, uint64_t masters, bint by_source, int64_t now_ns
) except -1:
    # It is open, and left for the line, which sends it to these masters in this pass.
    to_send.append(self)
    round_open(self, now_ns)
    self.asked = masters
    self.is_by_source = by_source


cdef int round_send_again(Round self, list to_send, uint64_t masters) except -1:
    # The round is sent again with its number (fencing).
    to_send.append(self)
    self.asked = masters


cdef inline bint round_is_given_up(Round self) noexcept:
    # Return whether its caller has left since it was left to be sent.
    return not round_is_release(self) and (
        self.verdict_code != VERDICT_OPEN or self.is_rolled_back
    )


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
        if self.fencing is not None and fencing_begins(self):
            return round_await_fence(self, now_ns)
        round_judge(self, now_ns)
        return round_report_closed(self)


cdef int round_await_fence(Round self, int64_t now_ns) except -1:
    # Masters that granted it under a lower number are PENDING again until they have its
    # own. They get as long again. A single try ends in two round timeouts, with its
    # wait for connections.
    cdef int64_t until_ns = self.deadline_ns + now_ns - self.opened_ns
    cdef int i
    for i in range(self.electorate.count):
        if fencing_is_short(self, i):
            self.granted &= ~set_of(i)
            self.answered_us[i] = 0
            round_note(self, i, NOT_WRITTEN)
    if self.left_ns == 0 and self.began_ns > 0:
        until_ns = min(until_ns, self.began_ns + 2 * self.terms.timeout_ns)
    self.deadline_ns = max(self.deadline_ns, until_ns)
    return fencing_report(self)


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
    # Return whether it ends a lease, and is sent whatever becomes of caller and engine.
    return self.operation_code == OPERATION_RELEASE or (
        self.operation_code == OPERATION_EXTEND and self.is_released
    )


cdef bint round_may_repeat(Round self) noexcept:
    # Return whether the command may be sent to a master once more. An ACQUIRE may
    # before its roll-back, or the release of its lease; later it would leave keys. An
    # EXTEND may while its caller waits for it; one that has won also later, for a slow
    # minority, but never behind a later one, which it would undercut if its ttl is
    # shorter. Never behind the SET of the next use of its token.
    if round_is_behind_next(self) or round_is_of_released(self):
        return False
    if self.operation_code == OPERATION_EXTEND and self.verdict_code == VERDICT_WON:
        return self.origin is None or self.extensions == self.origin.extensions
    if round_is_release(self):
        return True
    return not operation_is(self.operation_code, OPERATION_GIVES_TTL) or (
        self.verdict_code == VERDICT_OPEN and not self.is_rolled_back
    )


cdef inline bint round_is_of_released(Round self) noexcept:
    # Return whether it is an EXTEND of a lease whose release was made: its RELEASE may
    # have been sent, and this must not come behind it.
    return (
        self.operation_code == OPERATION_EXTEND and self.origin is not None
        and self.origin.is_released
    )


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


cdef int round_on_connected(Round self, int64_t waited_ns) except -1:
    # The wait for connections is part of the caller's time; the round keeps at least as
    # much as connected masters need to answer. A master that does not, is not slow.
    if self.left_ns <= 0:
        return 0
    self.left_ns = max(
        self.left_ns - waited_ns, min(self.terms.timeout_ns, <int64_t>GRACE_NS)
    )
    if self.left_ns < waited_ns:
        text = f"not connected in time: {self.left_ns / 1e6:.0f} ms were left for this"
        self.details = [text] * self.electorate.count


cdef void round_spend_wait(Round self, int64_t round_trip_ns, int64_t now_ns) noexcept:
    # Its wait in a queue is part of the caller's time; it keeps that of a last round.
    cdef int64_t until_ns = self.turn.until_ns
    if until_ns != NEVER_NS:
        self.left_ns = max(until_ns - now_ns, round_last_ns(self.terms, round_trip_ns))


cdef void round_wait_in_turn(Round self, Turn turn) noexcept:
    self.turn = turn


cdef void round_poll(Round self) noexcept:
    # No queue is kept: it is as one without a turn.
    self.turn = None


cdef void round_follow(Round self, Round release) noexcept:
    # It may delete the key where that finds none then (master/replies).
    self.origin = release


cdef void round_on_deleted(Round self, int master) noexcept:
    # A RELEASE that notifies where another one was sent before: it has deleted the key.
    if self.origin is not None:
        self.origin.deleted_at = <uint8_t>(1 + master)


cdef void round_on_withdrawn(Round self) noexcept:
    # Its caller has given it up. An EXTEND is not repeated any more (round_may_repeat).
    self.waiter = None
    self.is_submitted = True      # a follower with it may still come
    if self.operation_code == OPERATION_EXTEND and not self.is_released:
        self.is_rolled_back = True


cdef Round round_roll_back(Round self, int64_t now_ns):
    # The release of what it may have taken, at every master that did not refuse; None:
    # there is nothing, or it was made before.
    cdef uint64_t masters = self.may_hold
    if round_is_beside_lease(self, now_ns):      # of its token
        masters &= self.granted
    if (
        self.operation_code != OPERATION_ACQUIRE
        or self.is_rolled_back or not masters
        or self.generation != current_generation    # the parent may hold it
        or round_is_overused(self)
    ):
        return None
    self.is_rolled_back = True
    return round_new_release(self, self.terms, masters)


cdef int round_take_over(
    Round self, Round acquire, str reason, int64_t now_ns
) except -1:
    # An ACQUIRE under the same token is open: what it took is this one's.
    acquire.is_rolled_back = True
    if self.operation_code == OPERATION_RELEASE:
        self.may_hold |= acquire.may_hold
    return round_give_up(acquire, reason, now_ns, VERDICT_TAKEN)


cdef void round_hand_on(Round grant, Round next, int64_t now_ns) noexcept:
    # The next one has what this was granted, which holds nothing any more. All at once,
    # and nothing that can fail. (The next may have had a lease before: round/local.)
    next.token = grant.token
    next.resource = grant.resource
    next.terms = grant.terms
    next.details = grant.details
    next.turn = None
    next.opened_ns = grant.opened_ns
    next.may_hold = grant.may_hold
    next.granted, next.taken, next.gone = grant.granted, grant.taken, grant.gone
    next.failed, next.silent = grant.failed, grant.silent
    memcpy(
        next.answered_us, grant.answered_us, grant.electorate.count * sizeof(uint32_t)
    )
    next.is_opened = next.is_submitted = True
    next.is_shown = next.is_released = next.is_released_twice = False
    next.closed_list = None
    round_close(next, VERDICT_WON, now_ns)
    grant.token = HANDED_ON
    grant.may_hold = 0


cdef void round_end_here(Round self, int64_t now_ns) noexcept:
    # End it as won, without asking a master.
    if self.operation_code == OPERATION_RELEASE:
        self.may_hold = 0
    self.is_submitted = self.is_finished = True
    round_close(self, VERDICT_WON, now_ns)


cdef object round_finish(Round self):
    # It is over, and all that follows from its verdict was done. Returns its waiter.
    self.is_finished = True
    waiter, self.waiter = self.waiter, None
    return waiter


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
    # The gate: the only place that gives a verdict; round_confirm and round_give_way
    # alone take WON back.
    self.verdict_code = verdict
    self.closed_ns = now_ns


cdef void round_give_way(Round self) noexcept:
    # A reader's, whose gate refuses it behind a quorum: nobody has learnt its verdict.
    self.verdict_code = VERDICT_TAKEN


cdef int round_wanted(Round self) noexcept:
    # Return how many more masters have to answer, at least, before it can close. A look
    # at a semaphore is a hint, and closes with a quorum.
    if self.needs_all or self.permits == 0 and (
        operation_is(self.operation_code, OPERATION_NEEDS_ALL)
    ):
        return bit_count(round_pending(self))
    return max(1, electorate_lacks(self.electorate, self.granted))


cdef bint round_confirm(Round self, int64_t now_ns) noexcept:
    # Return whether a round that was won is too late by now. It is checked again at the
    # return to its caller, which withdraws it then. A release has no validity, and
    # counts whenever it is confirmed.
    if self.verdict_code != VERDICT_WON or (
        not operation_is(self.operation_code, OPERATION_GIVES_TTL)
    ):
        return False
    if round_valid_until_ns(self) <= now_ns:
        self.verdict_code = VERDICT_TOO_LATE
        return True
    return False
