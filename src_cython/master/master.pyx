# One master: where its connection stands, and what comes of its replies.
#
# Theory of operation. The states and what leads from one to the next:
#
#   CLOSED, BACKOFF --open--> CONNECTING --connected--> HANDSHAKE --done--> READY
#   any but CLOSED  --lost--> BACKOFF        any --close--> CLOSED
#
# A reply pops the oldest of the debts, which knows its round. A reply with no debt, one
# that does not fit its question, or bytes that are not RESP end the connection, for
# nothing read after them can be trusted. When it ends, the debts know what becomes of
# what is unanswered.
#
# Events take bytes and `now_ns`; the driver moves the bytes. What comes before READY
# stands in opening, what lies between bytes and commands or replies in stream.

cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free

cdef enum:
    SAMPLES = 64                       # round trips remembered, a power of two


@cython.final
cdef class Counters:
    """What happened since the engine was made."""

    cdef readonly int64_t rounds, won, taken, unreachable, too_late
    cdef readonly int64_t rolled_back, late_replies, repeated_scripts
    cdef readonly int64_t connects, losses
    cdef readonly int64_t releases_dropped


@cython.final
cdef class Master:
    """One master's settings, connection and debts."""

    cdef readonly str name           # for messages: without user or password
    cdef readonly int index
    cdef readonly str reason         # why it takes no command now, or ""
    cdef readonly str last_error     # why the last connection ended, or ""
    cdef readonly Facts facts        # of the last server seen here
    cdef readonly ServerClock clock
    cdef bint is_news                # it has become READY: the engine looks at it once
    cdef list complaints             # what may lose locks here, for the engine to tell
    cdef Guard guard
    cdef int64_t votes_from_ns       # restart guard: asked for no vote before
    cdef str identity                # its run id, or whom its marker names, or None
    cdef uint32_t samples[SAMPLES]   # its last round trips in us
    cdef uint32_t sample_count
    cdef object settings             # an Endpoint
    cdef object tls_context          # an ssl.SSLContext, or None for plain text
    cdef bytes client_name
    cdef Scripts scripts
    cdef Counters counters
    cdef int state_code
    cdef Link link
    cdef AddressList addresses
    cdef Handshake handshake
    cdef TlsSession tls              # of this connection, or None
    cdef object feed, gets           # of this connection's hiredis.Reader
    cdef Debts debts
    cdef int failures                # connections in a row that came to nothing
    cdef int64_t client_id           # the server's of this connection; 0: not known
    cdef bint may_eval               # its user may; else scripts go by their hash alone
    cdef list lost_ids               # of connections that ended with replies owed...
    cdef str lost_run_id             # ...by the server with this run id
    cdef int64_t heard_ns            # when a reply was last taken
    cdef bint has_spoken             # this connection has received something
    cdef bint is_proven              # this connection has answered a round
    cdef int64_t ready_at_ns
    cdef int64_t lost_at_ns
    cdef int64_t retry_at_ns
    cdef int64_t give_up_at_ns       # of connect(2) or handshake
    cdef int64_t connect_timeout_ns
    cdef bint is_between_replies     # what comes next is the beginning of one
    cdef size_t unparsed             # bytes fed since the last whole reply
    cdef int scan                    # of reply_is_giant
    cdef uint64_t jitter
    cdef readonly int64_t late_us    # the last reply that missed its round's deadline

    def __cinit__(self):
        if link_init(&self.link) != 0:
            raise MemoryError

    def __init__(
        self, int index, settings, tls_context, bytes client_name, Scripts scripts,
        Counters counters, int64_t connect_timeout_ns, int64_t max_ttl_ns,
        uint64_t jitter_seed,
    ):
        self.index = index
        self.settings = settings
        self.tls_context = tls_context
        self.name = settings.name
        self.client_name = client_name
        self.scripts = scripts
        self.counters = counters
        self.connect_timeout_ns = connect_timeout_ns
        self.complaints = []
        self.guard = guard_of(max_ttl_ns)
        self.jitter = jitter_seed | 1
        self.last_error = ""
        self.facts = Facts(None)
        self.clock = ServerClock()
        self.may_eval = True
        self.lost_ids = []
        self.debts = debts_of(index, &self.link, counters)
        self.reason = "not connected yet"

    def __dealloc__(self):
        link_close(&self.link)
        free(self.link.incoming)


cdef tuple master_standing(Master self):
    with cython.critical_section(self):
        reason = self.reason
    return MasterState(self.state_code), reason


cdef tuple master_health(Master self):
    cdef int i
    with cython.critical_section(self):
        facts, clock, reason = self.facts, self.clock, self.reason or self.last_error
    samples = sorted([self.samples[i] for i in range(master_sample_count(self))])
    return self.name, MasterState(self.state_code), reason, facts, clock, samples


cdef int master_explain(Master self, str reason) except -1:
    # Why it takes no command now. Other threads than the leader read this, without the
    # GIL too: never a bare write. (So with what was learnt of the server, below.)
    with cython.critical_section(self):
        self.reason = reason
    return 0


cdef int master_set_state(Master self, int state) except -1:
    # The gate: the only place that changes the state.
    cdef int old = self.state_code
    cdef bint is_legal
    if state == MASTER_CONNECTING:
        is_legal = old == MASTER_CLOSED or old == MASTER_BACKOFF
    elif state == MASTER_HANDSHAKE:
        is_legal = old == MASTER_CONNECTING
    elif state == MASTER_READY:
        is_legal = old == MASTER_HANDSHAKE
    elif state == MASTER_BACKOFF:
        is_legal = old != MASTER_CLOSED
    else:
        is_legal = state == MASTER_CLOSED
    if not is_legal:
        raise StateError(f"master state {old} -> {state}")
    self.state_code = state
    return 0


cdef int master_on_reply(Master self, object reply, int64_t now_ns) except -1:
    cdef Owed entry
    cdef Round round
    cdef int vote
    if self.state_code == MASTER_HANDSHAKE:
        return master_on_handshake_reply(self, reply, now_ns)
    if self.debts.count == 0:
        return master_on_lost(self, "sent a reply nobody asked for", now_ns)
    entry = debts_pop(self.debts)
    self.heard_ns = now_ns
    round = owed_round(entry)
    if round is None:
        return master_on_other_reply(self, entry, reply, now_ns)
    vote = vote_of(
        round.operation_code, round.keys is not None or entry.is_second, reply
    )
    if entry.is_second:
        vote = vote_of_second(round.operation_code, vote)
    if vote == VOTE_FAILED and not reply_is_error(reply):
        return master_on_strange_reply(self, entry, round, reply, now_ns)
    self.is_proven = True
    self.failures = 0
    if vote == VOTE_FAILED:
        return master_on_failed_reply(self, entry, round, reply, now_ns)
    if round.verdict_code != VERDICT_OPEN:
        master_count_late(self, round, now_ns)
    elif round.operation_code != OPERATION_INSPECT:
        self.samples[self.sample_count & (SAMPLES - 1)] = <uint32_t>min(
            (now_ns - entry.sent_ns) // 1000, <int64_t>0xFFFFFFFF
        )
        self.sample_count += 1
    said = reply if round.operation_code == OPERATION_INSPECT else None
    return master_on_definite(self, entry, round, vote, said, now_ns)


cdef int master_on_definite(
    Master self, Owed entry, Round round, int vote, object said, int64_t now_ns
) except -1:
    round_on_vote(round, self.index, vote, said, True, now_ns)
    if entry.is_second and round.operation_code <= OPERATION_EXTEND:
        # What the first connection was given has been, or may still be executed: an
        # answer to the second, an error too, says nothing about it.
        round_on_sent(round, self.index)
    return 0


cdef int master_ask_time(Master self, int64_t now_ns) except -1:
    # Rides with a round's command, in the same write; its reply is nobody's vote.
    cdef Owed entry = owed_vote(NEVER_NS, False)
    entry.kind = OWED_TIME
    self.clock.asked_at_ns = now_ns
    debts_push(self.debts, None, entry, now_ns)
    return master_say(self, b"*1\r\n$4\r\nTIME\r\n", now_ns)


cdef int master_on_other_reply(
    Master self, Owed entry, object reply, int64_t now_ns
) except -1:
    if entry.kind == OWED_TIME:
        return master_on_time(self, reply, entry.sent_ns, now_ns)
    if type(reply) is not int and not reply_is_error(reply):
        return master_on_lost(self, strange_text(reply), now_ns)
    self.lost_ids = self.lost_ids[1:]
    return 0


cdef int master_on_time(
    Master self, object reply, int64_t sent_ns, int64_t now_ns
) except -1:
    if type(reply) is not list and not reply_is_error(reply):
        return master_on_lost(self, strange_text(reply), now_ns)
    if self.clock.on_time(reply, sent_ns, now_ns):
        self.is_news = True
    return 0


cdef int master_on_strange_reply(
    Master self, Owed entry, Round round, object reply, int64_t now_ns
) except -1:
    # No server answers so to what we asked: it is the answer to something else, and
    # each reply behind it would be read as the one before.
    round_on_vote(round, self.index, VOTE_FAILED, reply_text(reply), False, now_ns)
    if round.operation_code == OPERATION_RELEASE:
        debts_carry(self.debts, round, entry.key_until_ns, True)
    return master_on_lost(self, strange_text(reply), now_ns)


cdef str strange_text(object reply):
    return f"sent a reply that fits no question: {reply_text(reply)}"


cdef int master_on_failed_reply(
    Master self, Owed entry, Round round, object reply, int64_t now_ns
) except -1:
    if (
        not entry.is_by_source and str(reply).startswith("NOSCRIPT")
        and round_may_repeat(round)
    ):
        self.counters.repeated_scripts += 1
        round_wait_for_all(round)
        again = owed_vote(entry.key_until_ns, entry.is_second)
        again.is_by_source = True
        return master_send_again(self, round, again, now_ns)
    if round.operation_code == OPERATION_RELEASE and text_forbids(str(reply)):
        return master_on_forbidden_release(self, entry, round, reply, now_ns)
    if round.operation_code == OPERATION_RELEASE and text_is_of_now(str(reply)):
        return master_on_busy_release(self, entry, round, reply, now_ns)
    # An error reply says that the command did nothing: it is as definite as a no.
    return master_on_definite(
        self, entry, round, VOTE_FAILED, reply_text(reply), now_ns
    )


cdef int master_on_forbidden_release(
    Master self, Owed entry, Round round, object reply, int64_t now_ns
) except -1:
    # The ACL has changed, or forbids a key that it lets us SET. Where it is a command,
    # no lock may be taken here any more: the next handshake finds out, or has the
    # right back (and the script loaded again), and then the release goes out, once.
    cdef bint is_command = text_forbids_command(str(reply))
    cdef bint is_first = entry.key_until_ns == NEVER_NS
    said = reply_text(reply)
    if not is_command:
        said = f"a lock was not released here ({said}): grant its user the key (~...)"
        master_complain(self, [said])
    if not is_command or not is_first:
        return round_on_vote(
            round, self.index, VOTE_FAILED, reply_text(reply), True, now_ns
        )
    said = unreleased_text(said, "+evalsha +eval +get +del")
    master_complain(self, [said])
    round_on_vote(round, self.index, VOTE_FAILED, said, False, now_ns)
    debts_carry(self.debts, round, NEVER_NS, False)
    return master_on_lost(self, said, now_ns)


cdef int master_on_busy_release(
    Master self, Owed entry, Round round, object reply, int64_t now_ns
) except -1:
    # Somebody's slow script runs there: nothing is done until it has ended. The next
    # handshake succeeds then, and the release goes out behind it.
    said = reply_text(reply)
    round_on_vote(round, self.index, VOTE_FAILED, said, False, now_ns)
    debts_carry(self.debts, round, entry.key_until_ns, entry.is_second)
    return master_on_lost(self, said, now_ns)


cdef int master_complain(Master self, list texts) except -1:
    # For the engine to tell, once each.
    if texts:
        self.complaints += texts
        self.is_news = True
    return 0


cdef int master_sample_count(Master self) noexcept:
    return <int>min(self.sample_count, <uint32_t>SAMPLES)


cdef void master_count_late(Master self, Round round, int64_t now_ns) noexcept:
    self.counters.late_replies += 1
    # Only where the round waited for it in vain: others were just not read before.
    if round.cells[self.index].vote == VOTE_SILENT:
        self.late_us = (now_ns - round.opened_ns) // 1000


cdef int master_on_lost(Master self, str reason, int64_t now_ns) except -1:
    """End the connection: what it owes fails, or is carried to the next one."""
    return master_end_connection(self, reason, False, now_ns)


cdef int master_on_cut(Master self, str reason, int64_t now_ns) except -1:
    """The server or the network has ended the connection.

    A server that takes TLS alone does so at our first plain word. A connection that
    worked, or is the first in a row that did not, is opened again at once: the rounds
    that it leaves open are asked again on the next, in the time they have left.
    """
    if self.state_code == MASTER_HANDSHAKE and not self.has_spoken and not self.tls:
        reason += " (before it said anything: does this port want rediss://?)"
    return master_end_connection(
        self, reason, self.state_code == MASTER_READY, now_ns
    )


cdef int master_end_connection(
    Master self, str reason, bint is_reopened, int64_t now_ns
) except -1:
    cdef bint was_parsing = self.link.is_parsing
    cdef bint is_proven = self.is_proven or (
        self.state_code == MASTER_READY
        and now_ns - self.ready_at_ns > OVERDUE_AT_LEAST_NS
    )
    master_note_lost(self)
    link_close(&self.link)
    self.feed = self.gets = self.handshake = self.addresses = self.tls = None
    self.client_id = 0
    master_set_state(self, MASTER_BACKOFF)
    with cython.critical_section(self):
        self.reason = self.last_error = reason
    self.counters.losses += 1
    self.lost_at_ns = now_ns
    self.unparsed = 0
    self.is_proven = False
    is_reopened = is_reopened and (is_proven or self.failures == 0)
    if is_proven or is_reopened:      # it worked until now: try again at once
        self.failures = 0 if is_proven else 1
        self.retry_at_ns = now_ns
    else:
        self.failures += 1
        self.retry_at_ns = now_ns + master_backoff_ns(self)
    # Hands off until all is settled: a finalizer in between that reconnected would put
    # new debts behind the old ones.
    self.link.is_parsing = True
    try:
        debts_fail(self.debts, reason, is_reopened, now_ns)
        if not is_reopened:
            debts_fail_unanswered(self.debts, reason, now_ns)
    finally:
        self.link.is_parsing = was_parsing
    return 0


cdef int master_on_exception(
    Master self, object error, str reason, int64_t now_ns
) except -1:
    # Where the connection is to blame, a reason ends it. Anything else (a signal
    # handler's, no memory) goes on to the caller, and ends it as well: nobody knows
    # what was done until then.
    if self.state_code != MASTER_CLOSED and self.state_code != MASTER_BACKOFF:
        master_on_lost(self, reason or "interrupted", now_ns)
    if reason is None:
        raise error
    return 0


cdef int master_check_time(Master self, int64_t now_ns) except -1:
    """Give up what takes too long; asked only after all that came has been read."""
    if self.state_code == MASTER_READY:
        if debts_are_overdue(self.debts, now_ns):
            master_on_lost(self, "owed a reply for too long", now_ns)
    elif self.state_code == MASTER_HANDSHAKE:
        if now_ns >= self.give_up_at_ns:
            master_on_lost(self, handshake_silence(self), now_ns)
    elif self.state_code == MASTER_CONNECTING and now_ns >= self.give_up_at_ns:
        is_resolving = self.link.phase == LINK_RESOLVING
        reason = "name look-up takes too long" if is_resolving else "connect timed out"
        master_on_address_failed(self, reason, now_ns)
    return 0


cdef int64_t master_next_ns(Master self, int64_t now_ns) noexcept:
    # When something is due here; a thing that is overdue by now counts from now on.
    cdef int64_t next_ns = debts_next_ns(self.debts, now_ns)
    if self.state_code == MASTER_CONNECTING or self.state_code == MASTER_HANDSHAKE:
        return min(next_ns, max(self.give_up_at_ns, now_ns + NS_PER_MS))
    return next_ns
