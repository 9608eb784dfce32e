# THE STATE MACHINE of a round: votes and the time become a verdict and a validity.
#
# Theory of operation. A round asks every master the same thing once and is open from
# the first write until its verdict. Each master has one cell, PENDING at first. While
# the round is open a cell takes one answer and the tally is judged after each:
#
#   granted >= quorum                     WON, or TOO_LATE if no validity is left; with
#                                         fencing once a quorum has its number (fencing)
#   granted + pending < quorum            lost; it cannot be won any more:
#     granted + taken + pending < quorum    UNREACHABLE  too few could answer
#     an ACQUIRE is                         TAKEN        at once, to be rolled back;
#     others, masters - taken < quorum      TAKEN        our key is on no quorum
#             pending = 0                   UNREACHABLE  it may still be on one
#   its gate refused it                   TAKEN: somebody waits longer (turn)
#   deadline                              every PENDING becomes SILENT, judged again
#   anything else                         OPEN
#
# So GONE of a release, and the loss of a lease, is never reported where the masters
# that did not refuse are a quorum: one of three may never have had the key (it was away
# when it was taken), another be silent for a moment, and the key still be on a
# majority.
#
# What is asked of a queue is asked of one master, its gate, and closes with its answer.
#
# The quorum is of the configured masters, never of the reachable ones. The slowest
# master is not waited for, except by INSPECT and PING, which close when all have
# answered. (The caller of a release gets the verdict a little later where it
# had to be repeated, or the gate is asked whether anybody waits: engine/queue_check.)
#
# A verdict never changes, with one exception: `round_confirm` turns WON into TOO_LATE
# when the validity ran out before the return to the caller (a paused process). After
# the verdict, answers that come late are still counted in their cell, where that is
# PENDING, SILENT, or FAILED without an answer: a lease gains a vote, a report becomes
# truer, and no decision depends on it. (Such a FAILED cell can gain an answer while the
# round is open, too: from a release that was deferred to the next connection.) A second
# answer of one master is an illegal event and changes nothing.
#
# `may_hold` is the set of masters on which the key may exist because of this round: a
# SET was sent, and no answer since shows that it was refused. A roll-back must reach
# them all, and a lost connection does not clear the set: unknown is not failed.
# Of an EXTEND it is the set of masters that may still give the key this ttl, even after
# they granted a later one on another connection: the lease asks.
# A release inherits the set and clears the masters that confirm; where a connection is
# lost, the release is deferred to the next one.
#
# A round that the engine runs puts itself into its `closed_list` when it closes; the
# engine finishes it from there (confirmed, or rolled back) and wakes the waiter.
#
# One key or several: a vote is on all of them, so the rules are the same. Where "the
# key" may exist, any of the keys may.


cdef str KEY_GONE = "gone"       # details of an EXTEND that is TAKEN
cdef str KEY_GONE_OR_TAKEN = "gone or taken"


cdef int round_open(Round self, int64_t now_ns) except -1:
    if self.is_opened:
        raise StateError("a round is opened once")
    self.is_opened = True
    self.opened_ns = now_ns
    self.deadline_ns = now_ns + self.terms.timeout_ns
    if 0 < self.left_ns < self.terms.timeout_ns:
        self.deadline_ns = now_ns + self.left_ns
    return 0


cdef inline int64_t round_valid_until_ns(Round self) noexcept:
    # https://redis.io/docs/latest/develop/use/patterns/distributed-locks/, step 3
    return self.opened_ns + self.terms.ttl_ms * NS_PER_MS - self.terms.drift_ns


cdef void round_on_sent(Round self, int master) noexcept:
    if operation_is(self.operation_code, OPERATION_GIVES_TTL):
        self.may_hold |= <uint64_t>1 << master


cdef int round_on_vote(
    Round self, int master, int vote, object detail, bint is_definite, int64_t now_ns
) except -1:
    cdef VoteCell *cell = &self.cells[master]
    if not self.is_opened or not VOTE_GRANTED <= vote <= VOTE_FAILED:
        raise StateError("a vote for a round that is not open, or not an answer")
    if cell.vote == VOTE_GRANTED or cell.vote == VOTE_TAKEN or (
        cell.vote == VOTE_FAILED and cell.answered_us
    ):
        raise StateError("a second vote of one master")
    if vote == VOTE_GRANTED and self.fencing is not None and (
        fencing_is_short(self, master)
    ):
        return fencing_report(self)      # it counts once it has the number
    self.counts[cell.vote] -= 1
    self.counts[vote] += 1
    cell.vote = vote
    if is_definite:
        cell.answered_us = <uint32_t>min(
            max((now_ns - self.opened_ns) // 1000, <int64_t>1), <int64_t>0xFFFFFFFF
        )
        if round_is_settled(self, vote):
            self.may_hold &= ~(<uint64_t>1 << master)
    if detail is not None or self.details is not None:
        round_note(self, master, detail)
    if self.verdict_code == VERDICT_OPEN:
        if self.fencing is not None and fencing_begins(self, now_ns):
            round_note_unwritten(self)
            return fencing_report(self)
        round_judge(self, now_ns)
        round_report_closed(self)
    return 0


cdef int round_report_closed(Round self) except -1:
    if self.verdict_code != VERDICT_OPEN and self.closed_list is not None:
        if self.fencing is None or not (<Fencing>self.fencing).is_reported:
            self.closed_list.append(self)
        self.closed_list = None
    return 0


cdef bint round_is_settled(Round self, int vote) noexcept:
    # Whether the master cannot hold our key any more because of this round. A release
    # that was refused by an error has deleted nothing.
    if self.operation_code == OPERATION_ACQUIRE:
        return vote != VOTE_GRANTED
    return vote != VOTE_FAILED or self.operation_code == OPERATION_EXTEND


cdef void round_on_repeated(Round self) noexcept:
    # The script was not known to a master, or the connection was cut. (Inside another
    # step, as in a signal handler, a master may not be read: nothing waits for it.)
    if self.operation_code == OPERATION_RELEASE and not self.is_reentrant:
        self.is_repeated = True


cdef inline bint round_is_release(Round self) noexcept:
    # Whether it ends a lease: it is sent whatever becomes of its caller and engine.
    return self.operation_code == OPERATION_RELEASE or self.is_last


cdef bint round_may_repeat(Round self) noexcept:
    # Whether the command may be sent to a master once more. An ACQUIRE only before its
    # roll-back, or the release of its lease: behind those it would leave keys behind.
    # An EXTEND only while its caller waits for it; one that has won also later, for a
    # slow minority, but never behind a later one, which it would undercut if its ttl is
    # shorter. A command under an overused token, never: it would come behind the SET of
    # the next use.
    cdef Round lease
    if round_is_overused(self):
        return False
    if round_is_of_released(self):
        return False
    if self.operation_code == OPERATION_EXTEND and self.verdict_code == VERDICT_WON:
        lease = <Round>self.lease_state
        return lease is None or self.extensions == lease.extensions
    if round_is_release(self):
        return True
    return not operation_is(self.operation_code, OPERATION_GIVES_TTL) or (
        self.verdict_code == VERDICT_OPEN and not self.is_rolled_back
    )


cdef str NOT_SENT = "not sent: the lease was released"


cdef inline bint round_is_of_released(Round self) noexcept:
    # Whether it is an EXTEND of a lease whose release was made: its RELEASE may have
    # been sent, and this must not come behind it.
    return (
        self.operation_code == OPERATION_EXTEND and self.lease_state is not None
        and (<Round>self.lease_state).is_released
    )


cdef bint round_is_overused(Round self) noexcept:
    # Whether its token was used again for one of its keys: nothing of it is sent then.
    if self.token_uses is None:
        return False
    for use in self.token_uses:
        if (<TokenUse>use).is_over:
            return True
    return False


cdef int round_note(Round self, int master, object detail) except -1:
    if self.details is None:
        self.details = [None] * self.master_count
    self.details[master] = detail
    return 0


cdef int round_note_unwritten(Round self) except -1:
    cdef int i
    for i in range(self.master_count):
        if fencing_is_short(self, i):
            round_note(self, i, NOT_WRITTEN)
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
    return round_report_closed(self)


cdef int round_give_up(Round self, str reason, int64_t now_ns) except -1:
    # Its caller is gone: UNREACHABLE, whatever the votes until now.
    cdef int i
    if not self.is_opened:
        round_open(self, now_ns)
    if self.verdict_code != VERDICT_OPEN:
        return 0
    round_close(self, VERDICT_UNREACHABLE, now_ns)
    round_report_closed(self)
    for i in range(self.master_count):
        if self.cells[i].vote == VOTE_PENDING:
            round_on_vote(self, i, VOTE_FAILED, reason, False, now_ns)
    return 0


cdef void round_judge(Round self, int64_t now_ns) noexcept:
    cdef int granted = self.counts[VOTE_GRANTED]
    cdef int pending = self.counts[VOTE_PENDING]
    cdef int answered = granted + self.counts[VOTE_TAKEN]
    if operation_is(self.operation_code, OPERATION_IS_OF_GATE):
        if answered > 0:
            round_close(self, VERDICT_WON, now_ns)
        elif self.counts[VOTE_FAILED] > 0 or pending == 0:
            round_close(self, VERDICT_UNREACHABLE, now_ns)
    elif round_needs_all(self):
        if pending == 0:
            round_close(
                self,
                VERDICT_WON if answered >= round_quorum(self) else VERDICT_UNREACHABLE,
                now_ns,
            )
    elif self.needs_all and pending > 0:
        return
    elif round_is_refused(self):
        round_close(self, VERDICT_TAKEN, now_ns)
    elif granted >= round_quorum(self):
        round_close(self, VERDICT_WON, now_ns)
        round_confirm(self, now_ns)
    elif granted + pending < round_quorum(self):
        if answered + pending < round_quorum(self):
            round_close(self, VERDICT_UNREACHABLE, now_ns)
        elif self.operation_code == OPERATION_ACQUIRE or (
            self.master_count - self.counts[VOTE_TAKEN] < round_quorum(self)
        ):
            round_close(self, VERDICT_TAKEN, now_ns)
        elif pending == 0:
            round_close(self, VERDICT_UNREACHABLE, now_ns)


cdef inline bint round_needs_all(Round self) noexcept:
    # A look at a semaphore is a hint: it closes with a quorum.
    return self.permits == 0 and (
        operation_is(self.operation_code, OPERATION_NEEDS_ALL)
    )


cdef inline void round_close(Round self, int verdict, int64_t now_ns) noexcept:
    # The gate: the only place that gives a verdict; round_confirm alone takes WON back.
    self.verdict_code = verdict
    self.closed_ns = now_ns


cdef int round_wanted(Round self) noexcept:
    # How many more masters have to answer, at the least, before it can close.
    if self.needs_all or round_needs_all(self):
        return self.counts[VOTE_PENDING]
    return max(1, round_quorum(self) - self.counts[VOTE_GRANTED])


cdef void round_confirm(Round self, int64_t now_ns) noexcept:
    # A release has no validity: it counts whenever it is confirmed.
    if self.verdict_code != VERDICT_WON or (
        not operation_is(self.operation_code, OPERATION_GIVES_TTL)
    ):
        return
    if round_valid_until_ns(self) <= now_ns:
        self.verdict_code = VERDICT_TOO_LATE


cdef bint round_expired_before_return(Round round, int64_t now_ns) noexcept:
    # Check the validity again at the return to the caller: by now it may be over, and
    # then the locks that were won have to be withdrawn.
    if round.verdict_code != VERDICT_WON:
        return False
    round_confirm(round, now_ns)
    return round.verdict_code != VERDICT_WON
