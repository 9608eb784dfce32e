# The connection of a master: from an address to READY, commands that it is given, its
# end, and the time until the next one.

# --- ending ---------------------------------------------------------------------------
# The end of one master's connection: why it ends, what becomes of the commands in
# flight on it, and when the next one is opened (back-off).

cdef enum:
    UNDO_MOST = 1 << 18        # bytes: a socket that was silent takes no more
    LOST_IDS_MOST = 8
    BACKOFF_FIRST_NS = 50_000_000
    BACKOFF_CAP_NS = 1_000_000_000

cdef int64_t AWAY_NS = 10_000_000_000      # from then on it is worth a line


cdef int master_on_cut(Master self, str reason, int64_t now_ns) except -1:
    """The server or the network has ended the connection.

    A server that takes TLS alone does so at our first plain word. A connection that
    worked, or is the first in a row that did not, is opened again at once: the rounds
    that it leaves open are asked again on the next, in the time they have left.
    """
    if self.state_code == MASTER_HANDSHAKE and not self.has_received and not self.tls:
        reason += " (before it said anything: does this port want rediss://?)"
    return master_on_lost(self, reason, now_ns, self.state_code == MASTER_READY)


cdef int master_on_lost(
    Master self, str reason, int64_t now_ns, bint is_reopened=False
) except -1:
    """End the connection: its commands in flight fail, or are deferred to the next."""
    cdef bint was_ready = self.state_code == MASTER_READY
    cdef bint is_proven = self.is_proven or (
        was_ready and now_ns - self.ready_at_ns > OVERDUE_AT_LEAST_NS
    )
    if was_ready and not is_reopened and self.tls is None:
        master_undo_open(self)
    master_note_lost(self)
    master_drop_link(self)
    master_set_state(self, MASTER_BACKOFF)
    self.reason = self.last_error = reason = reason + master_at_node(self)
    self.counters.losses += was_ready
    self.counters.deaf_epoch += 1
    self.losses += was_ready
    self.lost_at_ns = now_ns
    if self.routes is not None:
        self.routes.is_stale = True
    is_reopened = is_reopened and (
        is_proven or self.failures == 0 or self.counters.is_at_end
    )
    if is_proven or is_reopened:      # try again at once
        self.failures = 0 if is_proven else 1
        self.retry_at_ns = now_ns
    else:
        self.failures += 1
        self.retry_at_ns = now_ns + master_backoff_ns(self)
    in_flight_fail(self.in_flight, reason, is_reopened, now_ns)
    if len(self.in_flight.deferred) > 0:
        counters_note_due(self.counters, self.retry_at_ns)
    return master_note_away(self, "not connected", reason, now_ns)


cdef str master_at_node(Master self):
    # Callers know a cluster by another address than that of this node.
    if self.routes is None or self.host is None:
        return ""
    return f" at the node {self.host.decode('utf-8', 'replace')}:{self.port}"


cdef int master_drop_link(Master self) except -1:
    # Close it, and forget all that belongs to this connection alone.
    link_close(&self.link)
    self.feed = self.gets = self.handshake = self.look_up = self.tls = None
    self.plain = self.prepared = None
    self.client_id = 0
    self.unparsed = 0
    self.is_between_replies = self.has_received = self.is_proven = False


cdef int master_note_away(Master self, str how, str reason, int64_t now_ns) except -1:
    # One line for the log if it is away for long, as another attempt fails: this needs
    # no timer.
    if self.away_from_ns == 0:
        self.away_from_ns = now_ns
    elif now_ns - self.away_from_ns > AWAY_NS and not self.is_away_logged:
        self.is_away_logged = True
        away_s = (now_ns - self.away_from_ns) / 1e9
        text = f"{how} for {away_s:.0f} s: {reason}"
        self.counters.unlogged.append((LEVEL_WARNING, self.name, text))


cdef int master_note_refusal(
    Master self, str text, int64_t until_ns, int64_t now_ns
) except -1:
    # It is connected and took no lock now: it is full, or the restart guard withholds
    # it. That counts until another lock is taken, and not for long: a client without
    # work has to become ready again.
    if now_ns >= self.refused_until_ns and not self.is_away_logged:
        self.away_from_ns = 0
    self.refusal = text
    self.refused_until_ns = until_ns
    return master_note_away(self, "takes no locks", text, now_ns)


cdef int master_note_back(Master self, str how, int64_t now_ns) except -1:
    if self.is_away_logged:
        away_s = (now_ns - self.away_from_ns) / 1e9
        text = f"{how} again after {away_s:.0f} s{master_at_node(self)}"
        self.counters.unlogged.append((LEVEL_INFO, self.name, text))
    self.away_from_ns = 0
    self.is_away_logged = False


cdef int master_undo_open(Master self) except -1:
    # A server that is frozen executes later what is in its socket. So the releases of
    # the acquires that this leaves open go behind their SETs, now, on this connection:
    # none of them can get its vote any more, and the next connection, on which they are
    # released as well, may come late or never. What the socket does not take is lost.
    # (Not under TLS: a server reads record by record, and gives a connection up where
    # its reply to an earlier one finds nobody.)
    cdef Buffer *outgoing = &self.link.outgoing
    cdef size_t before = buffer_length(outgoing)
    cdef uint32_t i
    cdef Round round
    for i in range(self.in_flight.count):
        round = in_flight_at(self.in_flight, i)
        if (
            round is not None and round.operation_code == OPERATION_ACQUIRE
            and not round.is_finished and not round.is_rolled_back
            and round.generation == current_generation and not round_is_overused(round)
        ):
            try:
                command_script(
                    outgoing,
                    scripts_of(self.scripts, OPERATION_RELEASE, round.kind, ROLE_FIRST),
                    self.may_eval, round.resource, round.keys, round.token, 0,
                )
            except MemoryError:
                break
            if buffer_length(outgoing) > UNDO_MOST:
                break
    if buffer_length(outgoing) == before:
        return 0
    if self.link.phase == LINK_OPEN:
        link_send(&self.link)
    else:
        self.parting = outgoing.data[outgoing.start:outgoing.end]


cdef int master_on_exception(
    Master self, object error, str reason, int64_t now_ns
) except -1:
    # Where the connection is to blame, a reason ends it. Any other exception (a signal
    # handler's, no memory) goes on to the caller, and ends it as well: how much was
    # done until then is not known.
    cdef bint collects = pass_begin()
    try:
        if self.state_code != MASTER_CLOSED and self.state_code != MASTER_BACKOFF:
            master_on_lost(self, reason or "interrupted", now_ns)
    finally:
        pass_end(collects)
    if reason is None:
        raise error


cdef int master_note_lost(Master self) except -1:
    # A connection ends with replies outstanding: remember its id until the server has
    # ended it, too. Without memory it is forgotten: the connection has to end, or its
    # next reply would be read as the answer to an earlier command.
    if self.in_flight.count == 0 or self.client_id == 0:
        return 0
    try:
        self.lost_ids = self.lost_ids[1 - LOST_IDS_MOST:] + [self.client_id]
    except MemoryError:
        pass


cdef bint master_has_lost(Master master, Round round, int64_t now_ns) except -1:
    # Whether a command under its given token may be under way from a lost connection.
    cdef set lost = master.in_flight.lost
    if master.state_code == MASTER_READY and now_ns >= master.ready_at_ns + LATE_NS:
        lost.clear()
    for key in round.keys or (round.resource,):
        if (key, round.token) in lost:
            return True
    return False


cdef int64_t master_backoff_ns(Master self) noexcept:
    # Doubles up to the cap; the upper half is drawn, so that clients spread. An end has
    # no time for that.
    if self.counters.is_at_end:
        return BACKOFF_URGENT_NS
    cdef int64_t longest = min(
        <int64_t>BACKOFF_FIRST_NS << min(self.failures - 1, 10),
        <int64_t>BACKOFF_CAP_NS,
    )
    self.jitter ^= self.jitter << 13      # xorshift64, Marsaglia 2003
    self.jitter ^= self.jitter >> 7
    self.jitter ^= self.jitter << 17
    return longest // 2 + <int64_t>(self.jitter % <uint64_t>(longest // 2))


# --- io -------------------------------------------------------------------------------
# Commands of one master's connection, encrypted or not: into its link, each with its
# entry in flight.

cdef enum:
    NOTIFYING_MOST = 64                # deferred releases, of 1.4 KB each


cdef int master_send(
    Master self, Round round, Buffer *command, InFlightEntry entry, int64_t now_ns
) except -1:
    # The entry first: bytes without one would shift every later reply.
    in_flight_push(self.in_flight, round, entry, now_ns)
    round_on_sent(round, self.index)
    return master_write(
        self, command.data + command.start, buffer_length(command), now_ns
    )


cdef int master_send_again(
    Master self, Round round, InFlightEntry entry, int64_t now_ns
) except -1:
    cdef Buffer command
    if self.state_code != MASTER_READY:      # bytes here would go before HELLO
        return master_on_unsent(self, round, entry, now_ns)
    if self.is_native_alone and native_replaces(round, self.scripts):
        entry.form = self.native
    memset(&command, 0, sizeof(Buffer))
    try:
        command_of_form(
            &command, round, self.scripts, entry.form, entry.is_by_source,
            entry.is_second, self.leaving,
        )
        return master_send(self, round, &command, entry, now_ns)
    finally:
        buffer_free(&command)


cdef int master_on_unsent(
    Master self, Round round, InFlightEntry entry, int64_t now_ns
) except -1:
    # There is no connection: as where the connection is lost just after the send.
    if round.operation_code == OPERATION_RELEASE:
        deferred_add(self.in_flight, round, entry.key_until_ns, entry.is_second)
        counters_note_due(self.counters, max(self.retry_at_ns, now_ns))
    if round.verdict_code == VERDICT_OPEN:
        reason = self.reason
        if not self.last_error and (
            MASTER_CONNECTING <= self.state_code <= MASTER_HANDSHAKE
        ):      # it may be well
            reason = f"not connected in time: {reason}"
        round_on_vote(round, self.index, VOTE_FAILED, reason, False, now_ns)


cdef int master_send_deferred(Master self, int64_t now_ns) except -1:
    # A connection is READY: first the releases whose keys may exist. All commands of
    # earlier connections have been executed by now, or are about to be: so the time of
    # the keys begins. (TCP can deliver an older connection's bytes later, even behind
    # these releases: then no release helps, and the key lives for its ttl.)
    #
    # By source: there may be no caller to read that a server does not know the script.
    # At its gate by the script that notifies: a command that was cut may have deleted
    # and notified nobody. Another caller may wait by now: our queue entry stays.
    cdef DeferredRelease each
    cdef InFlightEntry entry
    cdef int notifying = 0
    for each in deferred_take(self.in_flight):
        if each.key_until_ns == NEVER_NS:
            each.key_until_ns = (
                now_ns + each.release.terms.ttl_ms * NS_PER_MS
                + each.release.terms.drift_ns
            )
        if now_ns >= each.key_until_ns:
            continue
        entry = ENTRY_OF_ROUND
        entry.key_until_ns = each.key_until_ns
        entry.is_second = each.is_second
        entry.is_by_source = self.may_eval
        if each.release.gate == self.index and notifying < NOTIFYING_MOST:
            entry.form = FORM_GATE
            notifying += 1
        each.release.our_entry = OUR_ENTRY_AS_IS
        master_send_again(self, each.release, entry, now_ns)


cdef int master_send_unanswered(Master self, int64_t now_ns) except -1:
    # Send again the rounds that the last connection left open. Releases are sent with
    # the deferred ones.
    cdef InFlightEntry entry = ENTRY_OF_ROUND
    cdef Round round
    entry.is_second = True
    unanswered, self.in_flight.unanswered = self.in_flight.unanswered, []
    for round in unanswered:
        if round.operation_code == OPERATION_RELEASE or (
            round.verdict_code != VERDICT_OPEN
            or not set_has(round_pending(round), self.index)      # withheld since
        ):
            continue
        if round_may_repeat(round):
            master_send_again(self, round, entry, now_ns)
        elif round_is_of_released(round):      # its caller still waits for this vote
            round_on_vote(round, self.index, VOTE_FAILED, NOT_SENT, False, now_ns)


cdef int master_ask(
    Master self, uint8_t purpose, tuple words, int64_t now_ns
) except -1:
    # A command of no round; its reply is no vote.
    cdef InFlightEntry entry = ENTRY_OF_ROUND
    cdef bytes command = command_encode(words)
    if self.state_code != MASTER_READY:      # there was no memory for the one before
        return 0
    entry.purpose = purpose
    in_flight_push(self.in_flight, None, entry, now_ns)
    return master_write(self, command, <size_t>len(command), now_ns)


cdef int master_kill_lost(Master self, int64_t now_ns) except -1:
    # Have the server end our lost connections before it executes anything behind this:
    # commands of theirs that it has not executed by then, it never will. (An ACL may
    # forbid it.)
    if self.lost_run_id is None or self.lost_run_id != self.server_info.run_id:
        self.lost_ids = []      # of another server: ids begin anew when a server does
    self.lost_run_id = self.server_info.run_id
    for client_id in self.lost_ids:
        words = (b"CLIENT", b"KILL", b"ID", decimal_bytes(client_id))
        master_ask(self, ENTRY_KILL, words, now_ns)


cdef int master_write(
    Master self, const char *plain, size_t size, int64_t now_ns
) except -1:
    # Queue plain text. That of TLS is encrypted just before the next bytes are written
    # (engine_before_write).
    if self.tls is None:
        return master_append(self, plain, size, now_ns)
    if size > 0:
        self.tls.unencrypted.append(plain[:size])


cdef int master_encrypt(Master self, int64_t now_ns) except -1:
    # Between two passes. The session of a connection that a handler gave up, or of a
    # forked child, is not this master's any more: its records go nowhere.
    cdef TlsSession tls = self.tls
    cdef bint is_first
    if tls is None or tls.is_busy:
        return 0
    tls.is_busy = True
    try:
        while self.tls is tls and tls.unencrypted and (
            tls.is_established or tls.session is None
        ):
            is_first = tls.session is None
            records = tls.start() if is_first else tls.encrypt(tls.unencrypted.pop(0))
            if self.tls is tls:
                master_append(self, <bytes>records, <size_t>len(records), now_ns)
    except BaseException as error:
        return master_on_tls_exception(self, tls, error, now_ns)
    finally:
        tls.is_busy = False


cdef int master_decrypt(Master self, int64_t now_ns) except -1:
    # Between two passes, as master_encrypt: what the link has received, and what a
    # handler's own calls receive meanwhile.
    cdef TlsSession tls = self.tls
    cdef Link *link = &self.link
    if tls is None or tls.is_busy:
        return 0
    tls.is_busy = True
    try:
        while self.tls is tls and tls.session is not None and link.received > 0:
            data = PyBytes_FromStringAndSize(link.incoming, link.received)
            link.received = 0
            link.heard_ns = now_ns
            self.has_received = True
            plain, records = tls.receive(data)
            if self.tls is tls:
                self.plain = (self.plain or b"") + plain
                master_append(self, <bytes>records, <size_t>len(records), now_ns)
    except BaseException as error:
        return master_on_tls_exception(self, tls, error, now_ns)
    finally:
        tls.is_busy = False


cdef int master_on_tls_exception(
    Master self, TlsSession tls, object error, int64_t now_ns
) except -1:
    # How much was encrypted, or decrypted, is not known: an entry without its bytes
    # would shift every later reply.
    if self.tls is tls:
        return master_on_exception(self, error, tls_reason(error), now_ns)
    if tls_reason(error) is None:
        raise error


cdef int master_append(
    Master self, const char *data, size_t size, int64_t now_ns
) except -1:
    if size > 0 and buffer_append(&self.link.outgoing, data, size) != 0:
        # An entry without its bytes would shift every later reply.
        return master_on_lost(self, "out of memory", now_ns)


# --- connect --------------------------------------------------------------------------
# Opening a connection: when it is due, login (preparing), name, address, connect(2),
# TLS and handshake. Nothing here waits. Its end, and the back-off after a failure,
# are in ending.

from hiredis import Reader

cdef enum:
    BACKOFF_URGENT_NS = 20_000_000     # the spacing when a quorum is missing
    SPREAD_FAILURES = 4                # as behind so many: 0.2 to 0.4 s

cdef str NO_TLS_YET = "no answer to TLS yet: does the server speak it on this port?"


cdef bint master_is_due(Master self, bint is_urgent, int64_t now_ns) noexcept:
    if self.routes is not None and not routes_needs(self.routes, self.node):
        return False
    if self.state_code == MASTER_BACKOFF:
        return self.retry_at_ns <= now_ns or (
            is_urgent and self.lost_at_ns + BACKOFF_URGENT_NS <= now_ns
        )
    return self.state_code == MASTER_CLOSED


cdef bint master_is_opening(Master self) noexcept:
    return (
        self.state_code == MASTER_CONNECTING or self.state_code == MASTER_HANDSHAKE
    )


cdef bint master_is_to_retry(Master self) noexcept:
    # At an end, releases that are deferred wait for the next connection.
    return self.counters.is_at_end and self.state_code == MASTER_BACKOFF and (
        len(self.in_flight.deferred) > 0
    )


cdef int master_begin_connect(Master self, int64_t now_ns) except -1:
    master_set_state(self, MASTER_CONNECTING)
    if self.routes is not None and self.node < 0:
        self.host, self.port = routes_next_place(self.routes)
    self.reason = self.last_error or "connecting"
    master_give_up_at(self, now_ns + self.connect_timeout_ns)


cdef int master_open(Master self, int64_t now_ns) except -1:
    """Begin to connect; nothing here waits."""
    master_begin_connect(self, now_ns)
    if self.prepare is not None:
        self.is_to_prepare = True
        return 0
    return master_find_address(self, now_ns)


cdef int master_begin_preparing(Master self, int64_t now_ns) except -1:
    # Between two passes: gevent's start of a thread runs Python code, in which a signal
    # handler may close this connection, or fork.
    cdef Preparing preparing = self.preparing
    self.is_to_prepare = False
    if self.state_code != MASTER_CONNECTING:
        return 0
    if preparing is None or preparing_is_stale(preparing, now_ns):
        try:
            self.preparing = None
            self.preparing = preparing = preparing_begin(self.prepare)
        except BaseException as error:      # too many threads, or the end of all
            no_thread = (RuntimeError, ImportError)      # as at the interpreter's exit
            if isinstance(error, no_thread) and not self.settings.needs_answer:
                return master_find_address(self, now_ns)      # by the files as read
            reason = None
            if isinstance(error, (OSError, *no_thread)):
                reason = f"no thread for its credentials: {error}"
            return master_on_exception(self, error, reason, now_ns)
        if self.state_code != MASTER_CONNECTING or self.link.fd >= 0:
            return 0
    self.reason = self.last_error or "waits for its credentials"
    return master_await(self, &preparing.done, now_ns)


cdef int master_await(Master self, Event *done, int64_t now_ns) except -1:
    # A thread sets it: then its link is ready, by a descriptor of its own.
    cdef int fd = fcntl(done.fd, F_DUPFD_CLOEXEC, 0)
    if fd < 0:
        return master_on_lost(self, error_text(-errno), now_ns)
    link_take(&self.link, fd, LINK_RESOLVING)


cdef int master_on_prepared(Master self, int64_t now_ns) except -1:
    cdef Preparing preparing = self.preparing
    link_close(&self.link)
    if preparing_is_stale(preparing, now_ns):      # it was not read for a while
        self.is_to_prepare = True
        return 0
    self.preparing = None
    if preparing.failure is not None:
        return master_on_lost(self, preparing.failure, now_ns)
    self.prepared = preparing.given
    if self.prepared[3] is not None:
        self.host, self.port, _ = self.prepared[3]
    master_give_up_at(self, now_ns + self.connect_timeout_ns)
    return master_find_address(self, now_ns)


cdef int master_find_address(Master self, int64_t now_ns) except -1:
    self.tried = 0
    try:
        if self.settings.path:
            self.look_up = look_up_of_path(self.settings.path)
        elif self.host is None:
            return master_on_lost(self, self.no_host, now_ns)
        else:
            port = decimal_bytes(self.port)
            self.look_up = look_up_of(self.host, port, now_ns)
    except OSError as error:
        return master_on_lost(self, f"{type(error).__name__}: {error}", now_ns)
    if self.look_up.name is None:
        return master_try_address(self, now_ns)
    return master_await(self, &self.look_up.state.done, now_ns)


cdef int master_on_resolved(Master self, int64_t now_ns) except -1:
    cdef LookUp look_up = self.look_up
    if look_up is None:
        return master_on_prepared(self, now_ns)
    link_close(&self.link)
    if look_up_is_stale(look_up, now_ns):      # it was not read for a while
        master_give_up_at(self, now_ns + self.connect_timeout_ns)
        return master_find_address(self, now_ns)
    look_up_forget(look_up)
    if look_up.state.gai_error != 0:
        text = <bytes>gai_strerror(look_up.state.gai_error)
        reason = f"name look-up: {text.decode('utf-8', 'replace').lower()}"
        return master_on_lost(self, reason, now_ns)
    return master_try_address(self, now_ns)


cdef int master_try_address(Master self, int64_t now_ns) except -1:
    # From the one on that did not fail last. A name's last has most of the time: those
    # before it that answer do so at once, and who waits for them may wait for less.
    cdef Address *address
    cdef int error, count = self.look_up.state.count
    cdef int64_t share_ns
    if self.tried >= count:
        return master_on_lost(self, "the name has no address", now_ns)
    address = &self.look_up.state.addresses[self.bad_addresses % <uint32_t>count]
    self.tried += 1
    share_ns = self.connect_timeout_ns // (4 * count)
    if self.tried == count:
        share_ns = self.connect_timeout_ns - (count - 1) * share_ns
    master_give_up_at(self, now_ns + share_ns)
    error = link_open(&self.link, <sockaddr *>&address.storage, address.size)
    if error != 0:
        return master_on_address_failed(self, error_text(error), now_ns)


cdef int master_on_address_failed(Master self, str reason, int64_t now_ns) except -1:
    self.bad_addresses += 1
    if self.look_up is not None and self.tried < self.look_up.state.count:
        link_close(&self.link)
        return master_try_address(self, now_ns)
    if self.settings.sentinels is not None and self.look_up is not None:
        reason += f" at {self.host.decode()}:{self.port}, as its sentinels say"
    return master_on_lost(self, reason, now_ns)


cdef int master_check_time(
    Master self, int64_t polled_before_ns, int64_t now_ns
) except -1:
    """Give up a connection that is overdue; called once all that came was read."""
    if self.state_code == MASTER_READY:
        if in_flight_is_overdue(self.in_flight, polled_before_ns, now_ns):
            master_on_lost(self, "owed a reply for too long", now_ns)
            # All clients of an overloaded server see this at once: they spread, but for
            # those that have no quorum without it.
            self.failures = max(self.failures, SPREAD_FAILURES)
            self.retry_at_ns = now_ns + master_backoff_ns(self)
            self.lost_at_ns -= BACKOFF_URGENT_NS
        return 0
    if not master_is_opening(self) or now_ns < self.give_up_at_ns:
        return 0
    if self.link.phase == LINK_RESOLVING:
        reason = "name look-up takes too long"
        if self.look_up is None:
            reason = "its credentials take too long"
            if self.settings.sentinels is not None:
                reason = "its sentinels take too long"
        return master_on_lost(self, reason, now_ns)
    if self.state_code == MASTER_CONNECTING:
        return master_on_address_failed(self, "connect timed out", now_ns)
    # The server took the connection and does not answer. (A paused one looks the same:
    # its kernel accepts connections.)
    reason = NO_TLS_YET
    if self.tls is None or self.tls.is_established:
        what = "no whole answer" if self.has_received else "no answer"
        within_s = self.connect_timeout_ns / 1e9
        reason = f"{what} to the handshake within {within_s:g} s: paused or overloaded?"
    return master_on_lost(self, reason, now_ns)


cdef int master_on_connect_event(Master self, int64_t now_ns) except -1:
    cdef int error = link_finish_connect(&self.link)
    if error == -EINPROGRESS:
        return 0
    if error != 0:
        return master_on_address_failed(self, error_text(error), now_ns)
    return master_on_connected(self, now_ns)


cdef int master_on_connected(Master self, int64_t now_ns) except -1:
    cdef bytes answer
    self.look_up = None      # with its descriptor
    reader = Reader(notEnoughData=INCOMPLETE)
    self.feed, self.gets = reader.feed, reader.gets
    settings, context, place = self.settings, None, None
    username, password = [
        None if text is None else text.encode("utf-8", "surrogateescape")
        for text in (settings.username, settings.password)
    ]
    if self.prepared is not None:
        username, password, context, place = self.prepared
    self.handshake = Handshake(
        username, password, settings.db, self.client_name, self.scripts,
        self.restart_guard.max_ttl_ns, self.restart_guard.failover_ns,
        settings.replicas if place is None else place[2],
    )
    if self.routes is not None:
        self.handshake.be_of_cluster(
            b"" if self.node < 0 else routes_tag(self.routes, self.node),
            self.restart_guard.identity,
            None if self.node < 0 else self.routes.ids[self.node],
        )
    self.prepared = None
    if context is not None:
        self.tls_context = context
    memset(&self.scan, 0, sizeof(ReplyScan))
    master_set_state(self, MASTER_HANDSHAKE)
    self.reason = self.last_error or (
        "no answer to the handshake yet" + master_at_node(self)
    )
    master_give_up_at(self, now_ns + self.connect_timeout_ns)
    if self.tls_context is not None:
        self.reason = NO_TLS_YET
        # Without the final dot of a full name: RFC 6066, section 3.
        name = None if self.settings.tls is None else self.settings.tls.server_name
        self.tls = TlsSession(
            self.tls_context, name or self.host.decode().removesuffix(".")
        )
    answer = self.handshake.start()
    return master_write(self, answer, <size_t>len(answer), now_ns)


cdef int master_on_handshake_reply(Master self, object reply, int64_t now_ns) except -1:
    cdef Handshake handshake = self.handshake
    cdef bytes answer = handshake.on_reply(reply)
    if handshake.cluster_map is not None and not handshake.is_member:
        answer = handshake.on_member(routes_fault_of_node(
            self.routes, self.node, handshake.node_id, handshake.cluster_map, self.host
        ))
    if handshake.failure is not None:
        if handshake.server_info.fields:
            self.server_info = handshake.server_info
            self.is_introduced |= not handshake.awaited      # to its end
        master_add_warnings(self, handshake.warnings())
        master_warn_of_place(self, handshake.failure)
        return master_on_lost(self, handshake.failure, now_ns)
    if answer:
        self.asked_ns = now_ns
    master_write(self, answer, <size_t>len(answer), now_ns)
    if self.handshake is not handshake:      # no memory for it
        return 0
    # Anew for each answer: a client that blocks reads them in its calls alone, and each
    # may take one more call. (Who waits for connections has a limit of its own.)
    master_give_up_at(self, now_ns + self.connect_timeout_ns)
    if handshake.is_done and self.routes is not None and self.node < 0:
        return master_on_map(self, handshake, now_ns)
    if handshake.is_done:
        return master_on_ready(self, handshake, now_ns)


# --- nodes ----------------------------------------------------------------------------
# The nodes of a cluster (routes): made where they are named first, and led to another
# address where theirs has left the map.

cdef enum:
    MAP_AGAIN_NS = 100_000_000         # between two maps

cdef str NO_NODE_YET = "no node of the cluster is known to have its hash slot"


cdef int master_on_map(Master self, Handshake handshake, int64_t now_ns) except -1:
    # The map is in, and this connection has no other use. Where one cannot be taken the
    # next place is asked, and of a name the next address.
    cdef Routes routes = self.routes
    cdef object reply = handshake.cluster_map
    failure = routes_take_map(routes, reply, self.host, handshake.node_id)
    if failure == OTHER_CLUSTER and master_is_rebuilt(self, handshake.node_id, now_ns):
        failure = routes_take_map(routes, reply, self.host, handshake.node_id)
    if failure is not None:
        self.bad_addresses += 1
        master_warn_of_place(self, failure)
        return master_on_lost(self, failure, now_ns)
    master_drop_link(self)
    master_set_state(self, MASTER_BACKOFF)
    self.failures = 0
    master_note_back(self, "its map is read", now_ns)
    self.last_error = ""
    self.reason = NO_NODE_YET
    self.retry_at_ns = now_ns + MAP_AGAIN_NS
    self.lost_at_ns = self.retry_at_ns - BACKOFF_URGENT_NS
    self.needs_review = True


cdef int master_warn_of_place(Master self, str failure) except -1:
    # Callers know the cluster by another address than that of this node.
    if failure == OTHER_CLUSTER:
        place = f"{self.host.decode('utf-8', 'replace')}:{self.port}"
        master_add_warnings(self, [f"the server at {place} {failure}: not asked"])


cdef bint master_is_rebuilt(Master self, bytes node_id, int64_t now_ns) except -1:
    # Whether a map that is not of this cluster is taken after all: for longer than a
    # quarantine each place was asked, and none has one that is. A stranger's only if no
    # node has answered at all; but one that is READY may have gone without a word.
    cdef Routes routes = self.routes
    cdef Master node
    cdef int64_t span_ns = 0, heard_ns = 0
    for node in [node for node in routes.nodes if node is not None]:
        span_ns = max(span_ns, node.restart_guard.window_ns)
        heard_ns = max(heard_ns, node.heard_ns)
        if node.state_code == MASTER_READY:
            heard_ns = now_ns
            master_ask_replication(node, now_ns)
    span_ns += self.restart_guard.max_ttl_ns + NS_PER_S
    if routes.strange_ns == 0:
        routes.strange_ns, routes.strange_turn = now_ns, routes.turn
    if now_ns - routes.strange_ns <= span_ns or (
        routes.turn < routes.strange_turn + routes_place_count(routes)
        or node_id not in routes.known and now_ns - heard_ns <= span_ns
    ):
        return False
    routes_forget(routes, now_ns + span_ns)
    master_add_warnings(self, [
        f"had no map of its own for {span_ns / 1e9:g} s, so that of other nodes is "
        "taken, after a quarantine"
    ])
    return True


cdef Master master_node(Master self, int at, int64_t now_ns):
    # The connection of a node of its cluster.
    cdef Master node = <Master>self.routes.nodes[at]
    if node is None:
        node = Master(
            self.index, self.settings, self.tls_context, self.client_name, self.scripts,
            self.counters, self.connect_timeout_ns, self.restart_guard.max_ttl_ns,
            self.jitter + <uint64_t>at * 0x9E3779B9, self.prepare, self,
        )
        node.node = at
        self.routes.nodes[at] = node
        self.needs_review = True      # the engine does not know it yet
    elif (node.host, node.port) != self.routes.addresses[at] or (
        node.node_id is not None and node.node_id != self.routes.ids[at]
        and self.routes.ids[at] is not None
    ):
        if node.state_code != MASTER_CLOSED and node.state_code != MASTER_BACKOFF:
            master_on_lost(node, "has left the cluster", now_ns)
        node.restart_guard.has_met = False      # what it met was another server
        node.restart_guard.identity = None
        node.retry_at_ns = now_ns
    node.host, node.port = self.routes.addresses[at]
    restart_guard_hold_until(
        node.restart_guard, self.routes.until_ns,
        "its cluster was built anew: in quarantine",
    )
    return node


# --- roles ----------------------------------------------------------------------------
# Is the server of an endpoint still the primary that it was?
#
# A reply shows what a server was when the command was sent (`asked_ns`), not what it is
# now: a primary that is replaced closes no connection. So before a command whose grant
# is to count, one that was silent is asked for its role in the same write, and a node
# of a cluster that was silent for long is connected to anew. One whose replicas count
# (failover) is asked for them every half second.

cdef enum:
    SILENT_NS = 10_000_000
    REPLICAS_ASKED_NS = 500_000_000


cdef int master_doubt(Master self, int64_t now_ns) except -1:
    # One that was frozen goes on by what is in its socket, before it learns that others
    # have taken its place. So after half of the window for which an old primary may
    # grant (the other half is for what it did grant) it is connected to anew, which
    # takes it some turns of its loop, and the map is read again.
    cdef int64_t window_ns = self.restart_guard.window_ns
    if window_ns and self.state_code == MASTER_READY and (
        now_ns - self.asked_ns > window_ns // 2 + NS_PER_S
    ):
        return master_on_lost(self, "was silent for long", now_ns)


cdef bint master_was_silent(Master self, int64_t now_ns) noexcept:
    # An answer to a question that is under way comes before that of the next command.
    return now_ns - max(self.asked_ns, self.role_asked_ns) > SILENT_NS or (
        self.server_info.needed and now_ns - self.role_asked_ns > REPLICAS_ASKED_NS
    )


cdef int master_ask_replication(Master self, int64_t now_ns) except -1:
    # An operator may have replaced it and put it back meanwhile, within 15 ms: as a
    # replica it has lost the keys that it had not passed on.
    words = (b"INFO",) if self.server_info.needed else (b"INFO", b"replication")
    self.role_asked_ns = now_ns
    master_ask(self, ENTRY_REPLICATION, words, now_ns)
    if self.node_id is not None:      # CLUSTER RESET closes no connection either
        master_ask(self, ENTRY_ID, (b"CLUSTER", b"MYID"), now_ns)


cdef int master_on_ready(Master self, Handshake handshake, int64_t now_ns) except -1:
    self.server_info = handshake.server_info
    self.role_asked_ns = 0
    self.clock = ServerClock()
    self.client_id = handshake.client_id
    self.node_id = handshake.node_id
    self.may_eval = "EVAL" not in handshake.rights.refused
    self.may_queue = handshake.speaks_resp3 and not handshake.is_native_alone
    self.is_subscribed = False
    self.released, self.asked, self.asks_from_ns = [], [], 0
    self.native = handshake.native
    self.native_is_proven = self.is_native_alone = handshake.is_native_alone
    self.refused_until_ns = 0
    restart_guard_on_ready(
        self.restart_guard, self.server_info, handshake.mark,
        max(handshake.failover_ns, <int64_t>0), now_ns,
    )
    master_add_warnings(self, handshake.warnings())
    self.is_introduced = self.needs_review = True
    self.handshake = None
    master_set_state(self, MASTER_READY)
    self.reason = ""
    self.ready_at_ns = now_ns
    self.heard_ns = now_ns
    self.counters.connects += 1
    self.connects += 1
    master_kill_lost(self, now_ns)
    master_send_deferred(self, now_ns)
    counters_note_due(self.counters, now_ns + OVERDUE_AT_LEAST_NS)
