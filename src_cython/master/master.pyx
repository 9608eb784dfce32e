# One master: its state and its counters, from when on it may vote again after a
# restart, and whether it is far slower than a quorum. The first two are pure.

# --- restart guard --------------------------------------------------------------------
# The restart guard: when a master may vote. Pure: the server's answers and a time in,
# another time out.
#
# A master that lost its keys has forgotten its votes, so with a `max_ttl` it gets none
# until every lease from before has ended (the "delayed restart" of the Redlock page).
# Any of these shows that it lost them, and the latest end counts:
#
#   uptime      it has been up for less than max_ttl. Two readings of a wall clock: a
#               step forward makes it too high, and a server that was up and empty all
#               along may have taken the other's address. So alone it proves nothing.
#   memory      its run id is not the one that this client has last seen here.
#   marker      a key that names the run id of its keeper. Where it is missing or names
#               another (an empty server, one restored from its disk, a promoted
#               replica, FLUSHALL), the client that finds it so sets a quarantine beside
#               it, which all clients with a max_ttl keep: those without a memory, too.
#
# Where an endpoint's server is replaced by a failover, the old primary may go on
# granting for a while (failover): then run id and marker withhold votes for that long
# in addition.
#
# An operator may know that no lease is from before (a first deployment): then a key
# beside the quarantine names the run id, and uptime counts for nothing (`is_lifted`).
#
# Time is counted on our own clock, from a server's answer on. A reconnection never
# makes it shorter. Not seen: changes behind a connection that stays open
# (FLUSHALL); a quarantine that ends early because the server's wall clock steps
# forward; two servers that alternate under one name, each with its own marker.


@cython.final
cdef class RestartGuard:
    cdef int64_t max_ttl_ns          # 0: no restart guard
    cdef int64_t failover_ns         # < 0: as the server's settings say (failover)
    cdef int64_t window_ns           # the longest of them so far
    cdef int64_t until_ns            # from when on the master may vote
    cdef str cause                   # why not before; None: its uptime
    cdef bint has_met                # a server has been READY here...
    cdef str identity            # ...and this was its run id or marker; None: unknown


cdef int restart_guard_on_ready(
    RestartGuard self, ServerInfo server_info, Mark mark, int64_t failover_ns,
    int64_t now_ns,
) except -1:
    # The uptime is the difference of two clock readings cut to whole seconds
    # (genRedisInfoString in server.c), so it is up to 1 s too high or too low: hence
    # the second on top. Without one the server may have been restarted just now.
    cdef int64_t whole_ns = now_ns + self.max_ttl_ns + NS_PER_S
    cdef int64_t uptime_s = min(server_info.uptime_s or 0, 1_000_000_000)
    cdef bint is_endpoint = self.failover_ns != 0
    cdef str before = self.identity
    self.identity = server_info.identity(is_endpoint)
    if self.identity is None and mark is not None:
        self.identity = mark.holder
    if self.max_ttl_ns == 0:
        return 0
    cdef bint is_marked = mark is not None and mark.error is None
    cdef bint is_same = self.has_met and (
        server_info.goes_on(before, counts=not is_marked) if is_endpoint
        else before == self.identity
    )
    if not (is_same and server_info.run_id or mark is not None and mark.is_lifted):
        restart_guard_hold_until(self, whole_ns - uptime_s * NS_PER_S, None)
    self.window_ns = max(self.window_ns, failover_ns)
    whole_ns += self.window_ns
    if is_endpoint and server_info.run_id is None:
        restart_guard_hold_until(self, whole_ns, "may be replaced: INFO is forbidden")
    if mark is not None and mark.left_ms >= 0:
        restart_guard_hold_until(
            self, now_ns + (mark.left_ms + 1) * NS_PER_MS,
            "restarted, replaced, emptied or new: in quarantine "
            "(fastredlock quarantine)",
        )
    if mark is not None and mark.error is not None and (
        is_endpoint or not mark.is_forbidden
    ):
        restart_guard_hold_until(self, whole_ns, "may be restarted: it keeps no marker")
    if self.has_met and not is_same:
        restart_guard_hold_until(
            self, whole_ns, "restarted or replaced: its run id is new"
            if before is None or not before.startswith(f"{server_info.run_id}:") else
            "may have been replaced: its replicas, or a replication id, are others"
        )
    self.has_met = True


cdef void restart_guard_hold_until(
    RestartGuard self, int64_t until_ns, str cause
) noexcept:
    if until_ns > self.until_ns:
        self.until_ns = until_ns
        self.cause = cause


# --- master ---------------------------------------------------------------------------
# One master: its settings, the state of its connection, and its figures.
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
# Events take bytes and `now_ns`; the driver moves the bytes (connection, replies).

cdef enum:
    SAMPLES = 64                       # round trips remembered, a power of two
    LEVEL_INFO = 20                    # of logging
    LEVEL_WARNING = 30


@cython.final
cdef class Counters:
    cdef readonly int64_t rounds
    cdef int64_t ended[OPERATION_PING + 1][VERDICT_TOO_LATE + 1]
    cdef readonly int64_t rolled_back, late_replies, repeated_scripts
    cdef readonly int64_t connects, losses
    cdef readonly int64_t releases_dropped
    cdef readonly int64_t waits, turns_told, turns_missed, handed_over, handed_on
    cdef readonly int64_t lingered
    cdef readonly int64_t fences_written
    cdef int64_t deaf_epoch          # a master may notify of no recall any more
    cdef int64_t slow_from_ns        # a reply of a slow master takes longer (slowness)
    cdef int64_t due_ns              # nothing is due before, in the whole engine
    cdef bint is_at_end              # there is no time for a back-off that grows
    cdef list unlogged      # for the log: (its level, master's name, text)

    def __cinit__(self):
        self.unlogged = []
        self.due_ns = NEVER_NS

    @property
    def operations(self):
        """Per operation, to PING: how many rounds ended WON, TAKEN, UNREACHABLE and
        TOO_LATE."""
        return tuple([
            tuple([n for n in self.ended[operation][VERDICT_WON:VERDICT_TOO_LATE + 1]])
            for operation in range(OPERATION_PING + 1)
        ])


cdef inline void counters_note_due(Counters self, int64_t due_ns) noexcept:
    # The gate: whatever sets a time, in a step of the engine, a master or a link, has
    # the driver woken by then.
    self.due_ns = min(self.due_ns, due_ns)


@cython.final
cdef class Master:
    cdef readonly str name           # for messages: without user or password
    cdef readonly int index          # of its vote
    cdef int place                   # among the engine's connections; -1: none yet
    cdef Routes routes               # of the cluster that it belongs to, or None...
    cdef int node                    # ...its number there; -1: it asks for the map...
    cdef bytes node_id               # ...and the id that its last connection told
    cdef readonly str reason         # why it takes no command now, or "": any thread's
    cdef readonly str last_error     # why the last connection ended, or ""
    cdef readonly ServerInfo server_info     # of the last server seen here
    cdef readonly ServerClock clock
    cdef bint needs_review           # it has become READY, or has new warnings
    cdef list warnings               # that hold, as far as is known
    cdef list new_warnings           # for the engine, to be reported once each
    cdef bint is_introduced          # ...of a handshake: they replace those
    cdef RestartGuard restart_guard
    cdef uint32_t samples[SAMPLES]   # its last round trips in us
    cdef uint32_t sample_count
    cdef object settings             # an Endpoint
    cdef object server               # its address, to be compared
    cdef bytes host                  # its name as it is looked up; None: `no_host`...
    cdef int port                    # ...both as they were found for this connection
    cdef str no_host
    cdef object tls_context          # an ssl.SSLContext, or None for plain text
    cdef object prepare              # gives the login and the context anew, or None
    cdef bint is_to_prepare          # its call is to be begun behind this pass
    cdef Preparing preparing         # its call for the next connection, or None...
    cdef tuple prepared              # ...and what it gave; None: not yet
    cdef bytes client_name
    cdef Scripts scripts
    cdef Counters counters
    cdef int64_t votes[VOTES]      # counts, see `master_figures`
    cdef int64_t connects, losses, late_replies      # counts
    cdef int state_code
    cdef Link link
    cdef LookUp look_up              # of its address, for this connection
    cdef int tried                   # so many of its addresses
    cdef uint32_t bad_addresses      # connections that came to nothing, by address
    cdef Handshake handshake
    cdef TlsSession tls              # of this connection, or None...
    cdef bytes plain                 # ...and what it has decrypted, not yet taken
    cdef object feed, gets           # of this connection's hiredis.Reader
    cdef InFlight in_flight
    cdef int failures                # connections in a row that came to nothing
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
    cdef bint is_subscribed          # this connection is, to our channel
    cdef tuple leaving               # our name, as the argument of a release (gate)
    cdef list turns                  # resources for which it has notified us
    cdef list notified               # ...and for which another process
    cdef int64_t missed_ns           # from when on turns that were missed are counted
    cdef int missed
    cdef list moved                  # rounds whose queue is not here, as it has replied
    cdef Slowness slowness
    cdef list lost_ids              # of connections that ended with replies outstanding
    cdef str lost_run_id             # ...of the server with this run id
    cdef int64_t heard_ns            # when a reply was last taken...
    cdef int64_t asked_ns            # ...and when what it answers was sent
    cdef int64_t role_asked_ns       # when a node was last asked for its role
    cdef int64_t silent_at_ns        # ...and when a deadline last passed without one
    cdef str refusal                 # of the last write, and until when it counts...
    cdef int64_t refused_until_ns    # ...0: another has not been refused since
    cdef bint has_received           # this connection has received something
    cdef bint is_proven              # this connection has answered a round
    cdef int64_t ready_at_ns
    cdef int64_t lost_at_ns
    cdef int64_t away_from_ns        # the first of the losses since it was READY; or 0
    cdef bint is_away_logged
    cdef int64_t retry_at_ns
    cdef int64_t give_up_at_ns       # of connect(2) or handshake
    cdef int64_t connect_timeout_ns
    cdef bytes parting               # by hand: sent as the connection was given up
    cdef bint is_between_replies     # the next byte begins one
    cdef size_t unparsed             # bytes fed since the last whole reply
    cdef ReplyScan scan              # of reply_is_giant
    cdef uint64_t jitter
    cdef readonly int64_t late_us    # the last reply that missed its round's deadline

    def __cinit__(self):
        if link_init(&self.link) != 0:
            raise MemoryError

    def __init__(
        self, int index, settings, tls_context, bytes client_name, Scripts scripts,
        Counters counters, int64_t connect_timeout_ns, int64_t max_ttl_ns,
        uint64_t jitter_seed, prepare=None, Master of=None,
    ):
        self.index = self.place = index
        self.settings = settings
        self.tls_context = tls_context
        self.prepare = prepare
        if of is None:
            master_set_place(self)
        else:      # a node of its cluster: this may be in a pass
            self.name, self.server, self.routes = of.name, of.server, of.routes
            self.leaving = of.leaving
            self.place = -1
        self.client_name = client_name
        self.scripts = scripts
        self.counters = counters
        self.connect_timeout_ns = connect_timeout_ns
        self.warnings = []
        self.new_warnings = []
        self.restart_guard = RestartGuard()
        self.restart_guard.max_ttl_ns = 0 if settings.lossless_failover else max_ttl_ns
        self.restart_guard.failover_ns = settings.failover_ns
        self.jitter = jitter_seed | 1
        self.last_error = ""
        self.server_info = ServerInfo(None)
        self.clock = ServerClock()
        self.may_eval = True
        self.turns = []
        self.notified = []
        self.moved = []
        self.released = []
        self.asked = []
        self.awaited = []
        self.lost_ids = []
        self.in_flight = InFlight()
        self.in_flight.master = index
        self.in_flight.link = &self.link
        self.in_flight.counters = counters
        self.reason = "not connected yet"

    def __dealloc__(self):
        link_forget_loop(&self.link)
        link_close(&self.link)
        free(self.link.incoming)


cdef int master_set_place(Master self) except -1:
    # As it is configured.
    settings = self.settings
    self.name = settings.name
    self.server = settings.server
    self.port = settings.port
    try:      # of a Unicode name Python code
        self.host = master_encoded(settings.host)
        if settings.seeds:
            self.node = -1
            self.routes = Routes(
                [(master_encoded(host), port) for host, port in settings.seeds]
            )
            self.routes.home = self
    except UnicodeError as error:
        self.no_host = f"{type(error).__name__}: {error}"


cdef bytes master_encoded(str host):
    return host.encode("ascii" if host.isascii() else "idna")


cdef str master_server(Master self):
    # The same for each way to one server: its run id, or as long as it tells none, what
    # its marker names. (The identity of an endpoint is of its replication as well.)
    return self.server_info.run_id or self.restart_guard.identity


cdef str master_withheld(Master self, int64_t now_ns):
    # Why the restart guard gives it no vote now, or None.
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


cdef tuple master_health(Master self, int64_t now_ns):
    cdef uint32_t count = min(self.sample_count, <uint32_t>SAMPLES)
    return (
        self.name, MasterState(self.state_code), self.reason or self.last_error,
        self.server_info, self.clock, sorted([us for us in self.samples[:count]]),
        self.silent_at_ns > self.heard_ns, self.restart_guard.until_ns,
        self.refusal, self.refused_until_ns, self.lost_at_ns, self.away_from_ns,
        master_withheld(self, now_ns) if self.state_code == MASTER_READY else None,
    )


cdef tuple master_figures(Master self):
    # GRANTED and TAKEN: answers, late ones too. FAILED: error replies, and commands
    # that were not sent or lost their connection. SILENT: rounds that ended without its
    # reply at their deadline; it may have come later.
    return (
        self.name, self.votes[VOTE_GRANTED],
        self.votes[VOTE_TAKEN] + self.votes[VOTE_GONE],
        self.votes[VOTE_FAILED] + self.in_flight.unanswered_late,
        self.votes[VOTE_SILENT], self.late_replies, self.connects, self.losses,
        self.in_flight.releases_dropped,
    )


cdef int master_set_state(Master self, int state) except -1:
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


cdef int master_add_warnings(Master self, list texts) except -1:
    # For the engine to report, once each.
    if texts:
        self.new_warnings += texts
        self.needs_review = True


cdef int64_t master_next_ns(Master self, int64_t now_ns) except -1:
    # When something is due here; a thing that is overdue by now counts from now on.
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


cdef inline void master_give_up_at(Master self, int64_t at_ns) noexcept:
    # When the connection that is on its way takes too long.
    self.give_up_at_ns = at_ns
    counters_note_due(self.counters, at_ns)
