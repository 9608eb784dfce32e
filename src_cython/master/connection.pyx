# The connection to one server: its state; from an address to READY; commands that it is
# given; its end, and the time until the next one.

# --- connection -----------------------------------------------------------------------
# One socket to one server, and what is known of that server.
#
# Theory of operation. The states and what leads from one to the next:
#
#   CLOSED, BACKOFF --open--> CONNECTING --connected--> HANDSHAKE --done--> READY
#   any but CLOSED  --lost--> BACKOFF        any --close--> CLOSED
#
# A reply pops the oldest entry in flight, which knows its round. A reply without an
# entry, one that does not fit the command, or bytes that are not RESP end the
# connection, for nothing read after them can be trusted.
#
# Events take bytes and `now_ns`; the driver moves the bytes (link, replies). A master
# is told what becomes of its connections (report), and asks them nothing.

cdef enum:                   # a connection's number among the nodes of a cluster
    NODE_NONE = -2           # no cluster: a server that is configured
    NODE_MAP = -1            # none yet: it reads the map


@cython.final
@cython.internal
cdef class Connection:
    cdef Master master
    cdef Report report               # what the master is told of it
    cdef int vote                    # the master's
    cdef int place                   # among the engine's connections; -1: none yet
    cdef int node                    # its number in its cluster...
    cdef bytes node_id               # ...and the id that its server told last
    cdef str reason                  # why it takes no command now, or "": any thread's
    cdef str last_error              # why the last one ended, or ""
    cdef ServerInfo server_info      # of the last server seen here
    cdef ServerClock clock
    cdef RestartGuard restart_guard
    cdef bytes host                  # its name as it is looked up; None: `no_host`...
    cdef int port                    # ...both as they were found for this connection
    cdef str no_host
    cdef Preparing preparing         # for the next connection, or None...
    cdef tuple prepared              # ...and what it gave; None: not yet
    cdef int state_code
    cdef Link link
    cdef Addresses addresses         # of this connection; None: not known
    cdef int tried                   # so many of its addresses
    cdef uint32_t bad_addresses      # connections that came to nothing, by address
    cdef int64_t give_up_at_ns       # of connect(2) or handshake
    cdef Handshake handshake
    cdef TlsSession tls              # None: plain text...
    cdef bytes plain                 # ...and what it has decrypted, not yet taken
    cdef Incoming incoming           # its bytes become replies there
    cdef InFlight in_flight
    cdef int64_t client_id           # the server's of this connection; 0: not known
    cdef bint may_eval               # its user may; else scripts go by their hash alone
    cdef bint may_queue              # it can be a gate, on this connection
    cdef int native                  # the form of its native commands (native)
    cdef bint native_is_proven       # one was answered on this connection
    cdef bint is_native_alone        # ...which runs no script
    cdef list released               # natively, as their gate: it is to be asked,
    cdef list asked                  # or was, for each EXISTS: who waits for these?
    cdef list awaited                # those for which somebody does, or may
    cdef int64_t asks_from_ns        # it was late with that: until then no release asks
    cdef bint is_subscribed          # this connection is, to our channel;
    cdef bint reads                  # ...and to that of our readers
    cdef bint knows_shared           # it was sent the scripts of shared locks
    cdef Slowness slowness
    cdef list lost_ids               # of those that ended with replies outstanding
    cdef str lost_run_id             # ...of the server with this run id
    cdef int64_t heard_ns            # when a reply was last taken...
    cdef int64_t asked_ns            # ...and when what it answers was sent
    cdef int64_t role_asked_ns       # when its server was last asked for its role
    cdef int64_t silent_at_ns        # when a deadline last passed without a reply
    cdef bint has_received           # this connection has received something
    cdef bint is_proven              # this connection has answered a round
    cdef int64_t ready_at_ns
    cdef int64_t lost_at_ns
    cdef int failures                # connections in a row that came to nothing
    cdef int64_t retry_at_ns
    cdef uint64_t jitter
    cdef bytes parting               # by hand: sent as the connection was given up

    def __cinit__(self):
        if link_init(&self.link) != 0:
            raise MemoryError

    def __init__(self, Master master, int node, uint64_t jitter_seed):
        self.master = master
        self.report = Report(master)
        self.vote = master.vote
        self.place = -1
        self.node = node
        self.restart_guard = RestartGuard()
        self.restart_guard.max_ttl_ns = master.max_ttl_ns
        self.restart_guard.failover_ns = master.settings.failover_ns
        self.jitter = jitter_seed | 1
        self.last_error = ""
        self.server_info = ServerInfo(None)
        self.clock = ServerClock()
        self.may_eval = True
        self.released = []
        self.asked = []
        self.awaited = []
        self.lost_ids = []
        self.in_flight = InFlight()
        self.in_flight.vote = master.vote
        self.in_flight.link = &self.link
        self.in_flight.master = master
        self.reason = "not connected yet"

    def __dealloc__(self):
        link_forget_loop(&self.link)
        link_close(&self.link)
        free(self.link.incoming)


cdef int connection_of(Master master, uint64_t jitter_seed) except -1:
    # Make the connection to what is configured. For a Unicode name this is Python code.
    cdef Connection self = Connection(master, NODE_NONE, jitter_seed)
    cdef list seeds = []
    settings = master.settings
    master.connection = self
    self.port = settings.port
    try:
        for host, port in settings.seeds:
            seeds.append((connection_encoded(host), port))
        self.host = connection_encoded(settings.host)
    except UnicodeError as error:
        self.no_host = f"{type(error).__name__}: {error}"
        return 0
    if seeds:
        self.node = NODE_MAP
        master.routes = Routes(seeds)


cdef bytes connection_encoded(str host):
    return host.encode("ascii" if host.isascii() else "idna")


cdef int connection_lead_to(Connection self, tuple place) except -1:
    # This node of a cluster: callers know the cluster by another address.
    self.host, self.port = place
    name = self.host.decode("utf-8", "replace")
    self.report.at_node = f" at the node {name}:{self.port}"


cdef int connection_lead_elsewhere(
    Connection self, tuple place, int64_t now_ns
) except -1:
    # Lead it to another server than the one that it met until now.
    if self.state_code != MASTER_CLOSED and self.state_code != MASTER_BACKOFF:
        connection_on_lost(self, "has left the cluster", now_ns)
    self.restart_guard.has_met = False
    self.restart_guard.identity = None
    self.retry_at_ns = now_ns
    return connection_lead_to(self, place)


cdef str connection_server(Connection self):
    # The same for each way to one server: its run id, or as long as it tells none, what
    # its marker names. (The identity of an endpoint is of its replication as well.)
    return self.server_info.run_id or self.restart_guard.identity


cdef str connection_withheld(Connection self, int64_t now_ns):
    # Return why the restart guard gives it no vote now, or None.
    cdef RestartGuard guard = self.restart_guard
    left_s = (guard.until_ns - now_ns) / 1e9
    if now_ns >= guard.until_ns:
        return None
    if guard.cause is not None:
        return f"{guard.cause}, votes in {left_s:.1f} s"
    if self.server_info.uptime_s is None:
        return f"may be restarted (INFO tells no uptime), votes in {left_s:.1f} s"
    ago_s = self.server_info.uptime_s + (now_ns - self.ready_at_ns) / 1e9
    return f"restarted {ago_s:.1f} s ago, votes again in {left_s:.1f} s"


cdef tuple connection_health(Connection self, int64_t now_ns):
    cdef Master master = self.master
    cdef Report report = self.report
    cdef uint32_t count = min(master.sample_count, <uint32_t>SAMPLES)
    return (
        master.name, MasterState(self.state_code), self.reason or self.last_error,
        self.server_info, self.clock, sorted([us for us in master.samples[:count]]),
        self.silent_at_ns > self.heard_ns, self.restart_guard.until_ns,
        report.refusal, report.refused_until_ns, self.lost_at_ns, report.away_from_ns,
        connection_withheld(self, now_ns) if self.state_code == MASTER_READY else None,
    )


cdef int connection_set_state(Connection self, int state) except -1:
    # The gate: the only place that changes the state.
    cdef int old = self.state_code
    if not (
        state == MASTER_CONNECTING and (old == MASTER_CLOSED or old == MASTER_BACKOFF)
        or state == MASTER_HANDSHAKE and old == MASTER_CONNECTING
        or state == MASTER_READY and old == MASTER_HANDSHAKE
        or state == MASTER_BACKOFF and old != MASTER_CLOSED
        or state == MASTER_CLOSED
    ):
        raise StateError(f"master state {old} -> {state}")
    self.state_code = state


cdef int64_t connection_next_ns(Connection self, int64_t now_ns) except -1:
    # Return when something is due here; what is overdue counts from now on.
    cdef InFlight in_flight = self.in_flight
    cdef int64_t next_ns = NEVER_NS, soon_ns = now_ns + NS_PER_MS
    cdef Round round
    if in_flight.count:
        next_ns = max(in_flight.entries[in_flight.first].overdue_ns, soon_ns)
    for round in in_flight_open(in_flight):
        next_ns = min(next_ns, round.deadline_ns)
    if self.state_code == MASTER_CONNECTING or self.state_code == MASTER_HANDSHAKE:
        return min(next_ns, max(self.give_up_at_ns, soon_ns))
    if self.state_code == MASTER_READY and self.restart_guard.until_ns > now_ns:
        return min(next_ns, self.restart_guard.until_ns)
    if self.state_code != MASTER_READY and len(in_flight.deferred) > 0:
        return min(next_ns, max(self.retry_at_ns, soon_ns))
    return next_ns


cdef inline void connection_give_up_at(Connection self, int64_t at_ns) noexcept:
    # Note when the connection that is on its way takes too long.
    self.give_up_at_ns = at_ns
    due_note(self.master.due, at_ns)


# --- ending ---------------------------------------------------------------------------
# The end of one master's connection: why it ends, what becomes of the commands in
# flight on it, and when the next one is opened (back-off).

cdef enum:
    UNDO_MOST = 1 << 18        # bytes: a socket that was silent takes no more
    LOST_IDS_MOST = 8
    BACKOFF_FIRST_NS = 50_000_000
    BACKOFF_CAP_NS = 1_000_000_000


cdef int connection_on_cut(Connection self, str reason, int64_t now_ns) except -1:
    """The server or the network has ended the connection.

    A server that takes TLS alone does so at our first plain word. A connection that
    worked, or is the first in a row that did not, is opened again at once: the rounds
    that it leaves open are asked again on the next, in the time they have left.
    """
    if self.state_code == MASTER_HANDSHAKE and not self.has_received and not self.tls:
        reason += " (before it said anything: does this port want rediss://?)"
    return connection_on_lost(self, reason, now_ns, self.state_code == MASTER_READY)


cdef int connection_on_lost(
    Connection self, str reason, int64_t now_ns, bint is_reopened=False
) except -1:
    """End the connection: its commands in flight fail, or are deferred to the next."""
    cdef bint was_ready = self.state_code == MASTER_READY
    cdef bint is_proven = self.is_proven or (
        was_ready and now_ns - self.ready_at_ns > OVERDUE_AT_LEAST_NS
    )
    if was_ready and not is_reopened and self.tls is None:
        connection_undo_open(self)
    connection_note_lost(self)
    connection_drop_link(self)
    connection_set_state(self, MASTER_BACKOFF)
    self.reason = self.last_error = reason = reason + self.report.at_node
    self.lost_at_ns = now_ns
    report_lost(self.report, was_ready, reason, now_ns)
    is_reopened = is_reopened and (
        is_proven or self.failures == 0 or self.master.conditions.is_at_end
    )
    if is_proven or is_reopened:      # try again at once
        self.failures = 0 if is_proven else 1
        self.retry_at_ns = now_ns
    else:
        self.failures += 1
        self.retry_at_ns = now_ns + connection_backoff_ns(self)
    in_flight_fail(self.in_flight, reason, is_reopened, now_ns)
    if len(self.in_flight.deferred) > 0:
        due_note(self.master.due, self.retry_at_ns)


cdef inline void connection_retry_now(Connection self, int64_t now_ns) noexcept:
    self.retry_at_ns = min(self.retry_at_ns, now_ns)


cdef int connection_forget_lost(Connection self) except -1:
    self.lost_ids = []


cdef int connection_rest(Connection self, str reason, int64_t until_ns) except -1:
    # It has done what it was opened for, and is not needed before.
    connection_drop_link(self)
    connection_set_state(self, MASTER_BACKOFF)
    self.failures = 0
    self.last_error = ""
    self.reason = reason
    self.retry_at_ns = until_ns
    self.lost_at_ns = until_ns - BACKOFF_URGENT_NS


cdef int connection_forget(Connection self, str reason, int64_t now_ns) except -1:
    # close(2) it and begin anew: the commands in flight fail.
    connection_drop_link(self)
    self.preparing = None
    connection_set_state(self, MASTER_CLOSED)
    self.reason = reason
    self.failures = 0
    return in_flight_fail(self.in_flight, reason, False, now_ns)


cdef int connection_drop_link(Connection self) except -1:
    # Close it, and forget all that belongs to this connection alone.
    link_close(&self.link)
    self.incoming = self.handshake = self.addresses = self.tls = None
    self.plain = self.prepared = None
    self.client_id = 0
    self.has_received = self.is_proven = False


cdef int connection_undo_open(Connection self) except -1:
    # A server that is frozen executes later what is in its socket. So the releases of
    # the acquires that this leaves open go behind their SETs, now, on this connection:
    # none of them can get its vote any more, and the next connection, on which they are
    # released as well, may come late or never. What the socket does not take is lost.
    # (Not under TLS: a server reads record by record, and gives a connection up where
    # its reply to an earlier one finds nobody.)
    cdef Buffer *outgoing = &self.link.outgoing
    cdef Scripts scripts = self.master.scripts
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
            command_script(
                outgoing,
                scripts_of(scripts, OPERATION_RELEASE, round.kind, ROLE_FIRST),
                self.may_eval, round.resource, round.keys, round.token, 0,
            )
            if buffer_length(outgoing) > UNDO_MOST:
                break
    if buffer_length(outgoing) == before:
        return 0
    if self.link.phase == LINK_OPEN:
        link_send(&self.link)
    else:
        self.parting = outgoing.data[outgoing.start:outgoing.end]


cdef bytes connection_take_parting(Connection self):
    cdef bytes parting
    parting, self.parting = self.parting, None
    return parting


cdef int connection_on_exception(
    Connection self, object error, str reason, int64_t now_ns
) except -1:
    # Where the connection is to blame, a reason ends it. Any other exception (a signal
    # handler's, no memory) goes on to the caller, and ends it as well: how much was
    # done until then is not known.
    cdef bint collects = pass_begin()
    try:
        if self.state_code != MASTER_CLOSED and self.state_code != MASTER_BACKOFF:
            connection_on_lost(self, reason or "interrupted", now_ns)
    finally:
        pass_end(collects)
    if reason is None:
        raise error


cdef int connection_note_lost(Connection self) except -1:
    # A connection ends with replies outstanding: remember its id until the server has
    # ended it, too.
    if self.in_flight.count > 0 and self.client_id != 0:
        self.lost_ids = self.lost_ids[1 - LOST_IDS_MOST:] + [self.client_id]


cdef bint connection_has_lost(
    Connection self, Round round, int64_t now_ns
) except -1:
    # Return whether a lost connection may have a command under its given token.
    cdef set lost = self.in_flight.lost
    if self.state_code == MASTER_READY and now_ns >= self.ready_at_ns + LATE_NS:
        lost.clear()
    for key in round.keys or (round.resource,):
        if (key, round.token) in lost:
            return True
    return False


cdef int64_t connection_backoff_ns(Connection self) noexcept:
    # The back-off doubles up to the cap; the upper half is drawn, so that clients
    # spread. An end has no time for that.
    if self.master.conditions.is_at_end:
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

cdef int connection_send(
    Connection self, Round round, Buffer *command, InFlightEntry entry, int64_t now_ns
) except -1:
    # The entry first: bytes without one would shift every later reply.
    in_flight_push(self.in_flight, round, entry, now_ns)
    round_on_sent(round, self.vote)
    return connection_write(
        self, command.data + command.start, buffer_length(command), now_ns
    )


cdef int connection_ask(
    Connection self, uint8_t purpose, tuple words, int64_t now_ns
) except -1:
    # A command of no round; its reply is no vote.
    cdef InFlightEntry entry = ENTRY_OF_ROUND
    cdef bytes command = command_encode(words)
    if self.state_code != MASTER_READY:      # there was no memory for the one before
        return 0
    entry.purpose = purpose
    in_flight_push(self.in_flight, None, entry, now_ns)
    return connection_write(self, command, <size_t>len(command), now_ns)


cdef int connection_write(
    Connection self, const char *plain, size_t size, int64_t now_ns
) except -1:
    # Queue plain text. That of TLS is encrypted just before the next bytes are written
    # (engine_before_write). An entry without its bytes would shift every later reply.
    if size == 0:
        return 0
    if self.tls is not None:
        self.tls.unencrypted.append(plain[:size])
    elif buffer_append(&self.link.outgoing, plain, size) != 0:
        return connection_on_lost(self, "out of memory", now_ns)


cdef int connection_encrypt(Connection self, int64_t now_ns) except -1:
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
                connection_append(self, <bytes>records, now_ns)
    except BaseException as error:
        return connection_on_tls_exception(self, tls, error, now_ns)
    finally:
        tls.is_busy = False


cdef int connection_decrypt(Connection self, int64_t now_ns) except -1:
    # Between two passes, as connection_encrypt: what the link has received, and what a
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
                connection_append(self, <bytes>records, now_ns)
    except BaseException as error:
        return connection_on_tls_exception(self, tls, error, now_ns)
    finally:
        tls.is_busy = False


cdef inline bytes connection_take_plain(Connection self):
    # Return what was decrypted, once.
    cdef bytes plain
    plain, self.plain = self.plain, None
    return plain


cdef int connection_on_tls_exception(
    Connection self, TlsSession tls, object error, int64_t now_ns
) except -1:
    # How much was encrypted, or decrypted, is not known: an entry without its bytes
    # would shift every later reply.
    if self.tls is tls:
        return connection_on_exception(self, error, tls_reason(error), now_ns)
    if tls_reason(error) is None:
        raise error


cdef int connection_append(Connection self, bytes records, int64_t now_ns) except -1:
    cdef size_t size = <size_t>len(records)
    if size > 0 and buffer_append(&self.link.outgoing, records, size) != 0:
        return connection_on_lost(self, "out of memory", now_ns)


# --- connect --------------------------------------------------------------------------
# Opening a connection: when it is due, login (preparing), name, address, connect(2),
# TLS and handshake. Nothing here waits. Its end, and the back-off after a failure,
# are in ending.

cdef enum:
    BACKOFF_URGENT_NS = 20_000_000     # the spacing when a quorum is missing
    SPREAD_FAILURES = 4                # as behind so many: 0.2 to 0.4 s

cdef str NO_TLS_YET = "no answer to TLS yet: does the server speak it on this port?"


cdef bint connection_is_due(Connection self, bint is_urgent, int64_t now_ns) noexcept:
    if self.node != NODE_NONE and not routes_needs(self.master.routes, self.node):
        return False
    if self.state_code == MASTER_BACKOFF:
        return self.retry_at_ns <= now_ns or (
            is_urgent and self.lost_at_ns + BACKOFF_URGENT_NS <= now_ns
        )
    return self.state_code == MASTER_CLOSED


cdef bint connection_is_opening(Connection self) noexcept:
    return MASTER_CONNECTING <= self.state_code <= MASTER_HANDSHAKE


cdef bint connection_may_be_well(Connection self) noexcept:
    # Nothing has failed; it is not connected yet.
    return connection_is_opening(self) and not self.last_error


cdef bint connection_is_to_retry(Connection self) noexcept:
    # At an end, deferred releases wait for the next connection.
    return self.master.conditions.is_at_end and self.state_code == MASTER_BACKOFF and (
        len(self.in_flight.deferred) > 0
    )


cdef int connection_begin_connect(Connection self, int64_t now_ns) except -1:
    connection_set_state(self, MASTER_CONNECTING)
    if self.node == NODE_MAP:
        connection_lead_to(self, routes_next_place(self.master.routes))
    self.reason = self.last_error or "connecting"
    connection_give_up_at(self, now_ns + self.master.connect_timeout_ns)


cdef int connection_open(Connection self, int64_t now_ns) except -1:
    """Begin to connect; nothing here waits."""
    connection_begin_connect(self, now_ns)
    if self.master.prepare is not None:
        self.master.to_prepare.append(self)
        return 0
    return connection_find_address(self, now_ns)


cdef int connection_begin_preparing(Connection self, int64_t now_ns) except -1:
    # Between two passes: gevent's start of a thread runs Python code, in which a signal
    # handler may close this connection, or fork.
    cdef Preparing preparing = self.preparing
    cdef list to_prepare = self.master.to_prepare
    if self.state_code != MASTER_CONNECTING or self.link.fd >= 0:
        return 0
    place = None if self.master.settings.path else self.host, self.port
    if preparing is None or preparing.place != place or (      # a node's may change
        preparing_is_stale(preparing, now_ns)
    ):
        try:
            self.preparing = None
            self.preparing = preparing = preparing_begin(self.master.prepare, place)
        except BaseException as error:      # too many threads, or the end of all
            no_thread = (RuntimeError, ImportError)      # as at the interpreter's exit
            if isinstance(error, no_thread) and not self.master.settings.needs_answer:
                connection_find_address(self, now_ns)      # by the files as read
                if to_prepare[-1:] != [self]:
                    return 0
                to_prepare.pop()      # its address is a name
            reason = None
            if isinstance(error, (OSError, *no_thread)):
                reason = f"no thread for its credentials or its name: {error}"
            return connection_on_exception(self, error, reason, now_ns)
        if self.state_code != MASTER_CONNECTING or self.link.fd >= 0:
            return 0
    self.reason = self.last_error or (
        "waits for its credentials" if self.master.prepare is not None
        else "waits for its name look-up"
    )
    return connection_await(self, &preparing.done, now_ns)


cdef int connection_await(Connection self, Event *done, int64_t now_ns) except -1:
    # A thread sets it: then its link is ready, by a descriptor of its own.
    cdef int fd = fcntl(done.fd, F_DUPFD_CLOEXEC, 0)
    if fd < 0:
        return connection_on_lost(self, error_text(-errno), now_ns)
    link_take(&self.link, fd, LINK_RESOLVING)


cdef int connection_on_prepared(Connection self, int64_t now_ns) except -1:
    cdef Preparing preparing = self.preparing
    link_close(&self.link)
    if preparing_is_stale(preparing, now_ns):      # it was not read for a while
        self.master.to_prepare.append(self)
        return 0
    self.preparing = None
    if preparing.failure is not None:
        return connection_on_lost(self, preparing.failure, now_ns)
    self.prepared, self.addresses = preparing.given, preparing.addresses
    if self.prepared is not None and self.prepared[3] is not None:
        self.host, self.port = self.prepared[3][:2]
    connection_give_up_at(self, now_ns + self.master.connect_timeout_ns)
    return connection_find_address(self, now_ns)


cdef int connection_find_address(Connection self, int64_t now_ns) except -1:
    self.tried = 0
    try:
        if self.master.settings.path:
            self.addresses = addresses_of_path(self.master.settings.path)
        elif self.host is None:
            return connection_on_lost(self, self.no_host, now_ns)
        elif self.addresses is None:
            self.addresses = Addresses.__new__(Addresses)
            addresses_add(self.addresses, self.host, decimal_bytes(self.port))
            if self.addresses.count == 0:      # it is a name
                self.addresses = None
                self.master.to_prepare.append(self)
                return 0
    except OSError as error:
        return connection_on_lost(self, f"{type(error).__name__}: {error}", now_ns)
    return connection_try_address(self, now_ns)


cdef int connection_try_address(Connection self, int64_t now_ns) except -1:
    # Begin behind the address that failed last. A name's last has most of the time:
    # those before it answer at once, if at all, and their callers may wait for less.
    cdef Address *address
    cdef int error, count = self.addresses.count
    cdef int64_t share_ns
    if self.tried >= count:
        return connection_on_lost(self, "the name has no address", now_ns)
    address = &self.addresses.each[self.bad_addresses % <uint32_t>count]
    self.tried += 1
    share_ns = self.master.connect_timeout_ns // (4 * count)
    if self.tried == count:
        share_ns = self.master.connect_timeout_ns - (count - 1) * share_ns
    connection_give_up_at(self, now_ns + share_ns)
    error = link_open(&self.link, <sockaddr *>&address.storage, address.size)
    if error != 0:
        return connection_on_address_failed(self, error_text(error), now_ns)


cdef inline void connection_note_bad_address(Connection self) noexcept:
    self.bad_addresses += 1      # the next one is tried first


cdef int connection_on_address_failed(
    Connection self, str reason, int64_t now_ns
) except -1:
    connection_note_bad_address(self)
    if self.addresses is not None and self.tried < self.addresses.count:
        link_close(&self.link)
        return connection_try_address(self, now_ns)
    if self.master.settings.sentinels is not None and self.addresses is not None:
        reason += f" at {self.host.decode()}:{self.port}, as its sentinels say"
    return connection_on_lost(self, reason, now_ns)


cdef int connection_check_time(
    Connection self, int64_t polled_before_ns, int64_t now_ns
) except -1:
    """Give up a connection that is overdue; called once all that came was read."""
    if self.state_code == MASTER_READY:
        if in_flight_is_overdue(self.in_flight, polled_before_ns, now_ns):
            connection_on_lost(self, "owed a reply for too long", now_ns)
            # All clients of an overloaded server see this at once: they spread, but for
            # those that have no quorum without it.
            self.failures = max(self.failures, SPREAD_FAILURES)
            self.retry_at_ns = now_ns + connection_backoff_ns(self)
            self.lost_at_ns -= BACKOFF_URGENT_NS
        return 0
    if not connection_is_opening(self) or now_ns < self.give_up_at_ns:
        return 0
    if self.link.phase == LINK_RESOLVING:
        reason = "name look-up takes too long"
        if self.master.settings.sentinels is not None:
            reason = "its sentinels take too long"
        elif self.master.prepare is not None:
            reason = "its credentials take too long"
        return connection_on_lost(self, reason, now_ns)
    if self.state_code == MASTER_CONNECTING:
        return connection_on_address_failed(self, "connect timed out", now_ns)
    # The server took the connection and does not answer. (A paused one looks the same:
    # its kernel accepts connections.)
    reason = NO_TLS_YET
    if self.tls is None or self.tls.is_established:
        what = "no whole answer" if self.has_received else "no answer"
        within_s = self.master.connect_timeout_ns / 1e9
        reason = f"{what} to the handshake within {within_s:g} s: paused or overloaded?"
    return connection_on_lost(self, reason, now_ns)


cdef int connection_on_connect_event(Connection self, int64_t now_ns) except -1:
    cdef int error = link_finish_connect(&self.link)
    if error == -EINPROGRESS:
        return 0
    if error != 0:
        return connection_on_address_failed(self, error_text(error), now_ns)
    return connection_on_connected(self, now_ns)


cdef int connection_on_connected(Connection self, int64_t now_ns) except -1:
    cdef bytes answer
    self.addresses = None
    self.incoming = Incoming()
    settings, context, place = self.master.settings, None, None
    username, password = [
        None if text is None else text.encode("utf-8", "surrogateescape")
        for text in (settings.username, settings.password)
    ]
    if self.prepared is not None:
        username, password, context, place = self.prepared
    name = self.master.client_name
    if self.master.lists is not None:
        name += self.master.lists.told(<bytes>self.master.leaving[0])
    self.handshake = Handshake(
        username, password, settings.db, name, self.master.scripts,
        self.restart_guard.max_ttl_ns, self.restart_guard.failover_ns,
        settings.replicas if place is None else place[2], self.master.lists,
    )
    self.handshake.place_warning = None if place is None else place[3]
    if self.node == NODE_MAP:
        self.handshake.be_of_cluster(b"", self.restart_guard.identity, None)
    elif self.node != NODE_NONE:
        self.handshake.be_of_cluster(
            routes_tag(self.master.routes, self.node), self.restart_guard.identity,
            self.master.routes.ids[self.node],
        )
    self.prepared = None
    if context is not None:
        self.master.tls_context = context
    connection_set_state(self, MASTER_HANDSHAKE)
    self.reason = self.last_error or (
        "no answer to the handshake yet" + self.report.at_node
    )
    connection_give_up_at(self, now_ns + self.master.connect_timeout_ns)
    if self.master.tls_context is not None:
        self.reason = NO_TLS_YET
        # The name goes without the final dot of a full name: RFC 6066, section 3.
        name = None if settings.tls is None else settings.tls.server_name
        self.tls = TlsSession(
            self.master.tls_context, name or self.host.decode().removesuffix(".")
        )
    answer = self.handshake.start()
    return connection_write(self, answer, <size_t>len(answer), now_ns)


# --- ready ----------------------------------------------------------------------------
# It is READY: what its handshake found. And its silence afterwards.

cdef inline void connection_on_silent(Connection self, int64_t now_ns) noexcept:
    # A round has ended at its deadline without its reply.
    self.silent_at_ns = now_ns


cdef int connection_on_ready(
    Connection self, Handshake handshake, int64_t now_ns
) except -1:
    self.server_info = handshake.server_info
    self.role_asked_ns = 0
    self.clock = ServerClock()
    self.client_id = handshake.client_id
    self.node_id = handshake.node_id
    self.may_eval = "EVAL" not in handshake.rights.refused
    self.may_queue = handshake.speaks_resp3 and not handshake.is_native_alone
    self.is_subscribed = self.reads = self.knows_shared = False
    self.released, self.asked, self.asks_from_ns = [], [], 0
    self.native = handshake.native
    self.native_is_proven = self.is_native_alone = handshake.is_native_alone
    restart_guard_on_ready(
        self.restart_guard, self.server_info, handshake.mark,
        max(handshake.failover_ns, <int64_t>0), now_ns,
    )
    report_ready(self.report, handshake.warnings())
    self.handshake = None
    connection_set_state(self, MASTER_READY)
    self.reason = ""
    self.ready_at_ns = now_ns
    self.heard_ns = now_ns
    due_note(self.master.due, now_ns + OVERDUE_AT_LEAST_NS)


cdef int connection_doubt(Connection self, int64_t now_ns) except -1:
    # One that was frozen goes on by what is in its socket, before it learns that others
    # have taken its place. So after half of the window for which an old primary may
    # grant (the other half is for what it did grant) it is connected to anew, which
    # takes it some turns of its loop, and the map is read again.
    cdef int64_t window_ns = self.restart_guard.window_ns
    if window_ns and self.state_code == MASTER_READY and (
        now_ns - self.asked_ns > window_ns // 2 + NS_PER_S
    ):
        if self.node != NODE_NONE:
            routes_doubt(self.master.routes)
        return connection_on_lost(self, "was silent for long", now_ns)
