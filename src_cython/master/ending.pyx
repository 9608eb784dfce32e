# The end of one master's connection: why it ends, what becomes of the commands in
# flight on it, and when the next one is opened (back-off).

cdef enum:
    UNDO_MOST = 1 << 18        # bytes: a socket that was silent takes no more
    LOST_IDS_MOST = 8
    BACKOFF_FIRST_NS = 50_000_000
    BACKOFF_CAP_NS = 1_000_000_000

cdef int64_t AWAY_NS = 10_000_000_000      # from then on it is worth a line


cdef int master_on_lost(Master self, str reason, int64_t now_ns) except -1:
    """End the connection: its commands in flight fail, or are deferred to the next."""
    return master_end_connection(self, reason, False, now_ns)


cdef int master_on_cut(Master self, str reason, int64_t now_ns) except -1:
    """The server or the network has ended the connection.

    A server that takes TLS alone does so at our first plain word. A connection that
    worked, or is the first in a row that did not, is opened again at once: the rounds
    that it leaves open are asked again on the next, in the time they have left.
    """
    if self.state_code == MASTER_HANDSHAKE and not self.has_received and not self.tls:
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
    if self.state_code == MASTER_READY and not is_reopened and self.tls is None:
        master_undo_open(self)
    master_note_lost(self)
    link_close(&self.link)
    self.feed = self.gets = self.handshake = self.addresses = self.tls = None
    self.prepared = None
    self.client_id = 0
    master_set_state(self, MASTER_BACKOFF)
    self.reason = self.last_error = reason
    self.counters.losses += 1
    self.counters.deaf_epoch += 1
    self.losses += 1
    self.lost_at_ns = now_ns
    self.unparsed = 0
    self.is_proven = False
    is_reopened = is_reopened and (
        is_proven or self.failures == 0 or self.counters.is_at_end
    )
    if is_proven or is_reopened:      # it worked until now: try again at once
        self.failures = 0 if is_proven else 1
        self.retry_at_ns = now_ns
    else:
        self.failures += 1
        self.retry_at_ns = now_ns + master_backoff_ns(self)
    # Nothing else may touch it until all is settled: a finalizer in between that
    # reconnected would put new entries behind the old ones.
    self.link.is_parsing = True
    try:
        in_flight_fail(self.in_flight, reason, is_reopened, now_ns)
        if not is_reopened:
            in_flight_fail_unanswered(self.in_flight, reason, now_ns)
    finally:
        self.link.is_parsing = was_parsing
    if len(self.in_flight.deferred) > 0:
        counters_note_due(self.counters, self.retry_at_ns)
    return master_note_away(self, now_ns)


cdef int master_note_away(Master self, int64_t now_ns) except -1:
    # One line for the log where it is away for long, as another attempt fails: this
    # needs no timer, and where nobody calls nobody misses it.
    if self.away_from_ns == 0:
        self.away_from_ns = now_ns
    elif now_ns - self.away_from_ns > AWAY_NS and not self.is_away_logged:
        self.is_away_logged = True
        away_s = (now_ns - self.away_from_ns) / 1e9
        text = f"not connected for {away_s:.0f} s: {self.last_error}"
        self.counters.unlogged.append((LEVEL_WARNING, self.name, text))
    return 0


cdef int master_note_back(Master self, int64_t now_ns) except -1:
    # Once its server was looked at: one that is refused is not back.
    if self.state_code == MASTER_READY:
        away_s, self.away_from_ns = (now_ns - self.away_from_ns) / 1e9, 0
        is_away_logged, self.is_away_logged = self.is_away_logged, False
        if is_away_logged:
            text = f"connected again after {away_s:.0f} s"
            self.counters.unlogged.append((LEVEL_INFO, self.name, text))
    return 0


cdef int master_undo_open(Master self) except -1:
    # A server that is frozen executes later what is in its socket. So the releases of
    # the acquires that this leaves open go behind their SETs, now, on this connection:
    # none of them can get its vote any more, and the next connection, on which they are
    # released as well, may come late or never. What the socket does not take is lost.
    # (Not under TLS: a server reads record by record, and gives a connection up where
    # its reply to an earlier one finds nobody; and ssl runs Python code in here.)
    cdef Buffer undo
    cdef uint32_t i
    cdef Round round
    memset(&undo, 0, sizeof(Buffer))
    for i in range(self.in_flight.count):
        round = in_flight_at(self.in_flight, i)
        if (
            round is not None and round.operation_code == OPERATION_ACQUIRE
            and not round.is_finished and not round.is_rolled_back
            and round.generation == current_generation and not round_is_overused(round)
        ):
            if command_undo(&undo, round, self.scripts, self.may_eval) != 0 or (
                buffer_length(&undo) > UNDO_MOST
            ):
                break
    try:
        if buffer_length(&undo) > 0 and buffer_append(
            &self.link.outgoing, undo.data, buffer_length(&undo)
        ) == 0:
            if self.link.phase == LINK_OPEN:
                link_send(&self.link)
            else:
                self.parting = self.link.outgoing.data[
                    self.link.outgoing.start:self.link.outgoing.end
                ]
    finally:
        buffer_free(&undo)
    return 0


cdef int master_on_exception(
    Master self, object error, str reason, int64_t now_ns
) except -1:
    # Where the connection is to blame, a reason ends it. Any other exception (a signal
    # handler's, no memory) goes on to the caller, and ends it as well: how much was
    # done until then is not known.
    if self.state_code != MASTER_CLOSED and self.state_code != MASTER_BACKOFF:
        master_on_lost(self, reason or "interrupted", now_ns)
    if reason is None:
        raise error
    return 0


cdef int master_note_lost(Master self) except -1:
    # A connection ends with replies outstanding: remember its id until the server has
    # ended it, too. Without memory it is forgotten: the connection has to end, or its
    # next reply would be read as the answer to an earlier command.
    if self.in_flight.count == 0 or self.client_id == 0:
        return 0
    try:
        if self.lost_run_id != self.server_info.run_id:
            self.lost_run_id = self.server_info.run_id
            self.lost_ids = []
        self.lost_ids = self.lost_ids[1 - LOST_IDS_MOST:] + [self.client_id]
    except MemoryError:
        pass
    return 0


cdef int64_t master_backoff_ns(Master self) noexcept:
    # Doubles up to the cap; the upper half is drawn, so that clients spread.
    cdef int64_t longest = min(
        <int64_t>BACKOFF_FIRST_NS << min(self.failures - 1, 10),
        <int64_t>BACKOFF_CAP_NS,
    )
    self.jitter ^= self.jitter << 13      # xorshift64, Marsaglia 2003
    self.jitter ^= self.jitter >> 7
    self.jitter ^= self.jitter << 17
    return longest // 2 + <int64_t>(self.jitter % <uint64_t>(longest // 2))


cdef str master_silence_text(Master self):
    # Name the likely cause where a server took the connection and does not answer. (A
    # paused server looks the same: its kernel accepts connections.)
    if self.tls is not None and not self.tls.is_established:
        return "no answer to TLS yet: does the server speak it on this port?"
    what = "no whole answer" if self.has_received else "no answer"
    within_s = self.connect_timeout_ns / 1e9
    return f"{what} to the handshake within {within_s:g} s: paused or overloaded?"
