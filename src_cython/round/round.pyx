# THE STATE MACHINE of a round: votes and the time become a verdict and a validity.
#
# Theory of operation. A round asks every master the same thing once and is open from
# the first write until its verdict. Each master has one cell, PENDING at first. While
# the round is open a cell takes one answer and the tally is judged after each:
#
#   granted >= quorum                     WON, or TOO_LATE if no validity is left
#   granted + pending < quorum            lost; it cannot be won any more:
#     granted + taken + pending < quorum    UNREACHABLE  too few could answer
#     an ACQUIRE is                         TAKEN        at once, to be rolled back;
#     others, masters - taken < quorum      TAKEN        our key is on no quorum
#             pending = 0                   UNREACHABLE  it may still be on one
#   deadline                              every PENDING becomes SILENT, judged again
#   anything else                         OPEN
#
# So GONE of a release, and the loss of a lease, is never said where those who did not
# say no are a quorum: one of three may never have had the key (it was away when it was
# taken), another be silent for a moment, and the key still stand on a majority.
#
# The quorum is of the configured masters, never of the reachable ones. The slowest
# master is not waited for, except by INSPECT, which closes when all have answered, and
# by a release that has to be repeated on one of them, because the master did not know
# its script or because the connection was cut: the others will hardly be better off,
# and a master that is not heard is sent nothing again. (Not so inside another step, as
# in a signal handler: a master whose replies that step is taking is not read here.)
#
# A verdict never changes, with one exception: `round_confirm` turns WON into TOO_LATE
# when the validity ran out before the caller could be told (a paused process). After
# the verdict, answers that come late are still counted in their cell, where that is
# PENDING, SILENT, or FAILED without an answer: a lease gains a vote, a report becomes
# truer, and no decision depends on it. (Such a FAILED cell can gain an answer while the
# round is open, too: from a release that was carried to the next connection.) A second
# answer of one master is an illegal event and changes nothing.
#
# `may_hold` is the set of masters on which the key may stand because of this round: a
# SET was sent, and nothing heard since says that it was refused. It is what a
# roll-back must reach, and a lost connection does not clear it: unknown is not failed.
# Of an EXTEND it is the set of masters that may still give the key this ttl, even after
# they granted a later one on another connection: the lease asks.
# A release inherits the set and clears what is confirmed; what is left when a
# connection is lost is carried to the next one.
#
# A round that somebody waits for puts itself into `inbox` when it closes; the engine
# finishes it from there (confirmed, or rolled back) and wakes the waiter.
#
# A round is of one key, its resource, or of several, its `keys`: all or nothing on each
# master, by one script, under one token. A vote is on all of them, so nothing here asks
# which it is: what the key may do above, any of the keys may do.

cimport cython
from cpython.bytes cimport PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free


@cython.final
@cython.freelist(16)
cdef class Terms:
    """The times of a round: fixed before it, shared by all rounds alike.

    Without expiry the SET has no PX, and ttl_ms is how long we count on the key.
    """

    cdef readonly int64_t ttl_ms
    cdef readonly int64_t drift_ns
    cdef readonly int64_t timeout_ns
    cdef readonly bint has_expiry

    def __init__(self, int64_t ttl_ms, int64_t drift_ns, int64_t timeout_ns,
                 bint has_expiry=True):
        if ttl_ms < 0 or drift_ns < 0 or timeout_ns < 0:
            raise ValueError("a negative time")
        self.ttl_ms = ttl_ms
        self.drift_ns = drift_ns
        self.timeout_ns = timeout_ns
        self.has_expiry = has_expiry


cdef enum:
    FEW_MASTERS = 7


cdef struct VoteCell:
    uint32_t answered_us     # since the round was opened; saturates after 71 minutes
    uint8_t vote


@cython.final
@cython.freelist(64)
cdef class Round:
    """One question to all masters, its votes, and what they come to."""

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
    cdef public int attempt                  # which of its acquire, from 1
    cdef readonly object kept            # the lease's: see keep()
    cdef bint is_submitted               # given to the engine
    cdef readonly bint is_finished       # closed, and confirmed or rolled back
    cdef list inbox                      # where it goes when it closes, or None
    cdef object waiter                   # who is woken then, or None
    cdef list said                       # per master: error text or detail, or None
    cdef tuple uses                      # of TokenUse; None: its token is our own
    cdef VoteCell *cells                 # `few`, or allocated where those are too few
    cdef VoteCell few[FEW_MASTERS]
    cdef uint8_t counts[5]               # by vote
    cdef uint8_t operation_code
    cdef uint8_t verdict_code
    cdef uint8_t master_count
    cdef uint8_t quorum
    cdef readonly uint32_t generation    # of the process that made it: not a child's
    cdef readonly bint is_opened
    cdef readonly bint is_withheld       # not sent: an earlier use is not settled
    cdef readonly bint may_settle        # by replies on connections that live
    cdef bint is_connecting              # asks nothing: waits for connections alone
    cdef bint is_rolled_back
    cdef bint needs_all                  # closed by all answers or by time alone
    cdef bint is_inner                   # begun inside a step of the same thread

    def __cinit__(
        self, int operation, bytes resource not None, bytes token not None,
        Terms terms not None, int master_count,
    ):
        if not 0 < master_count <= MAX_MASTERS:
            raise ValueError("master_count out of range")
        if not OPERATION_ACQUIRE <= operation <= OPERATION_INSPECT:
            raise ValueError("no such operation")
        self.cells = self.few
        if master_count > FEW_MASTERS:
            self.cells = <VoteCell *>calloc(master_count, sizeof(VoteCell))
            if self.cells == NULL:
                raise MemoryError
        self.operation_code = operation
        self.resource = resource
        self.token = token
        self.terms = terms
        self.master_count = master_count
        self.quorum = master_count // 2 + 1
        self.counts[VOTE_PENDING] = master_count
        self.generation = current_generation

    def __dealloc__(self):
        if self.cells != self.few:
            free(self.cells)

    @property
    def operation(self):
        """What is asked."""
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
        """The end of the validity if the round is won: t0 + ttl - drift; 0 before t0.
        """
        return round_valid_until_ns(self) if self.is_opened else 0

    def votes(self):
        """List (Vote, text or detail or None, ms until it came or None) per master."""
        with cython.critical_section(self):      # late votes still come in
            said = self.said
        return [
            (
                Vote(self.cells[i].vote),
                None if said is None else said[i],
                self.cells[i].answered_us / 1e3 if self.cells[i].answered_us else None,
            )
            for i in range(self.master_count)
        ]

    def keep(self, thing):
        """Keep one thing for the lease, in one step: return what was kept first."""
        with cython.critical_section(self):
            if self.kept is None:
                self.kept = thing
            return self.kept

    def open(self, int64_t now_ns):
        """Begin: now_ns is t0."""
        round_open(self, now_ns)

    def on_sent(self, int master):
        """Note that the command was handed to this master's connection."""
        round_check_master(self, master)
        round_on_sent(self, master)

    def on_vote(self, int master, int vote, said, bint is_definite, int64_t now_ns):
        """Take a master's answer; is_definite: it came from the master itself."""
        round_check_master(self, master)
        round_on_vote(self, master, vote, said, is_definite, now_ns)

    def on_deadline(self, int64_t now_ns):
        """Stop waiting."""
        round_on_deadline(self, now_ns)

    def confirm(self, int64_t now_ns):
        """Check the validity again, just before the caller is told."""
        round_confirm(self, now_ns)


cdef int round_check_master(Round self, int master) except -1:
    if not 0 <= master < self.master_count:
        raise ValueError("no such master")
    return 0


cdef inline int64_t round_valid_until_ns(Round self) noexcept:
    # https://redis.io/docs/latest/develop/use/patterns/distributed-locks/, step 3
    return self.opened_ns + self.terms.ttl_ms * NS_PER_MS - self.terms.drift_ns


cdef size_t round_size(Round self) noexcept:
    # Bytes of its keys and its token.
    cdef size_t size = <size_t>PyBytes_GET_SIZE(self.token)
    if self.keys is None:
        return size + <size_t>PyBytes_GET_SIZE(self.resource)
    for key in self.keys:
        size += <size_t>PyBytes_GET_SIZE(<bytes>key)
    return size


cdef int round_open(Round self, int64_t now_ns) except -1:
    if self.is_opened:
        raise StateError("a round is opened once")
    self.is_opened = True
    self.opened_ns = now_ns
    self.deadline_ns = now_ns + self.terms.timeout_ns
    if 0 < self.left_ns < self.terms.timeout_ns:
        self.deadline_ns = now_ns + self.left_ns
    return 0


cdef void round_on_sent(Round self, int master) noexcept:
    if self.operation_code <= OPERATION_EXTEND:
        self.may_hold |= <uint64_t>1 << master


cdef int round_on_vote(
    Round self, int master, int vote, object said, bint is_definite, int64_t now_ns
) except -1:
    cdef VoteCell *cell = &self.cells[master]
    if not self.is_opened or not VOTE_GRANTED <= vote <= VOTE_FAILED:
        raise StateError("a vote for a round that is not open, or not an answer")
    if cell.vote == VOTE_GRANTED or cell.vote == VOTE_TAKEN or (
        cell.vote == VOTE_FAILED and cell.answered_us
    ):
        raise StateError("a second vote of one master")
    self.counts[cell.vote] -= 1
    self.counts[vote] += 1
    cell.vote = vote
    if is_definite:
        cell.answered_us = <uint32_t>min(
            max((now_ns - self.opened_ns) // 1000, <int64_t>1), <int64_t>0xFFFFFFFF
        )
        if round_is_settled(self, vote):
            self.may_hold &= ~(<uint64_t>1 << master)
    if said is not None or self.said is not None:
        round_note(self, master, said)
    if self.verdict_code == VERDICT_OPEN:
        round_judge(self, now_ns)
        round_tell(self)
    return 0


cdef int round_tell(Round self) except -1:
    if self.verdict_code != VERDICT_OPEN and self.inbox is not None:
        self.inbox.append(self)
        self.inbox = None
    return 0


cdef bint round_is_settled(Round self, int vote) noexcept:
    # Whether the master cannot hold our key any more because of this round. A release
    # that was refused by an error has deleted nothing.
    if self.operation_code == OPERATION_ACQUIRE:
        return vote != VOTE_GRANTED
    return vote != VOTE_FAILED or self.operation_code == OPERATION_EXTEND


cdef void round_wait_for_all(Round self) noexcept:
    if self.operation_code == OPERATION_RELEASE and not self.is_inner:
        self.needs_all = True


cdef bint round_may_repeat(Round self) noexcept:
    # Whether the command may be sent to a master once more. An ACQUIRE only before its
    # roll-back, or the release of its lease: behind those it would leave keys standing.
    # What an overused token did, never: it would come behind the SET of the next use.
    if round_is_overused(self):
        return False
    return self.operation_code != OPERATION_ACQUIRE or (
        self.verdict_code == VERDICT_OPEN and not self.is_rolled_back
    )


cdef int round_note(Round self, int master, object said) except -1:
    with cython.critical_section(self):
        if self.said is None:
            self.said = [None] * self.master_count
        self.said[master] = said
    return 0


cdef int round_on_deadline(Round self, int64_t now_ns) except -1:
    cdef int i
    if not self.is_opened:
        raise StateError("a deadline for a round that is not open")
    if self.verdict_code != VERDICT_OPEN:
        return 0
    for i in range(self.master_count):
        if self.cells[i].vote == VOTE_PENDING:
            self.cells[i].vote = VOTE_SILENT
    self.counts[VOTE_SILENT] += self.counts[VOTE_PENDING]
    self.counts[VOTE_PENDING] = 0
    round_judge(self, now_ns)
    return round_tell(self)


cdef int round_give_up(Round self, str reason, int64_t now_ns) except -1:
    # Nobody waits for it any more: UNREACHABLE, whatever was heard until now.
    cdef int i
    if not self.is_opened:
        round_open(self, now_ns)
    if self.verdict_code != VERDICT_OPEN:
        return 0
    round_close(self, VERDICT_UNREACHABLE, now_ns)
    round_tell(self)
    for i in range(self.master_count):
        if self.cells[i].vote == VOTE_PENDING:
            round_on_vote(self, i, VOTE_FAILED, reason, False, now_ns)
    return 0


cdef void round_judge(Round self, int64_t now_ns) noexcept:
    cdef int granted = self.counts[VOTE_GRANTED]
    cdef int pending = self.counts[VOTE_PENDING]
    cdef int answered = granted + self.counts[VOTE_TAKEN]
    if self.operation_code == OPERATION_INSPECT:
        if pending == 0:
            round_close(
                self,
                VERDICT_WON if answered >= self.quorum else VERDICT_UNREACHABLE,
                now_ns,
            )
    elif self.needs_all and pending > 0:
        return
    elif granted >= self.quorum:
        round_close(self, VERDICT_WON, now_ns)
        round_confirm(self, now_ns)
    elif granted + pending < self.quorum:
        if answered + pending < self.quorum:
            round_close(self, VERDICT_UNREACHABLE, now_ns)
        elif self.operation_code == OPERATION_ACQUIRE or (
            self.master_count - self.counts[VOTE_TAKEN] < self.quorum
        ):
            round_close(self, VERDICT_TAKEN, now_ns)
        elif pending == 0:
            round_close(self, VERDICT_UNREACHABLE, now_ns)


cdef inline void round_close(Round self, int verdict, int64_t now_ns) noexcept:
    # The gate: the only place that gives a verdict.
    self.verdict_code = verdict
    self.closed_ns = now_ns


cdef int round_wanted(Round self) noexcept:
    # How many more masters have to answer, at the least, before it can close.
    if self.operation_code == OPERATION_INSPECT or self.needs_all:
        return self.counts[VOTE_PENDING]
    return max(1, self.quorum - self.counts[VOTE_GRANTED])


cdef void round_confirm(Round self, int64_t now_ns) noexcept:
    # A release has no validity: it counts whenever it is confirmed.
    if self.verdict_code != VERDICT_WON or self.operation_code > OPERATION_EXTEND:
        return
    if round_valid_until_ns(self) <= now_ns:
        self.verdict_code = VERDICT_TOO_LATE
