# One master: what is configured of it, its votes, and what its connections report; and
# from when on a server may vote again after a restart. All of this is pure.

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
    self.identity = server_info.known_as(is_endpoint)
    if self.identity is None and mark is not None:
        self.identity = mark.holder
    if self.max_ttl_ns == 0:
        return 0
    cdef bint is_marked = mark is not None and mark.error is None
    cdef bint is_same = self.has_met and (
        server_info.is_after(before, not is_marked) if is_endpoint
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
# One master: what is configured of it, and what it knows as one that votes. Commands go
# to a connection of it (master_connection): it has one, a cluster one for each node. A
# connection reports what becomes of it: ready, lost, refused, warned, back.

cdef enum:
    SAMPLES = 64                       # round trips remembered, a power of two
    MISSED_MOST = 16                   # turns that are passed on in the time of one
    LEVEL_INFO = 20                    # of logging
    LEVEL_WARNING = 30

cdef class Connection         # master/connection


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

    @property
    def operations(self):
        """Per operation, to PING, but for BREAK: how many rounds ended WON, TAKEN,
        UNREACHABLE and TOO_LATE."""
        return tuple([
            tuple([n for n in self.ended[operation][VERDICT_WON:VERDICT_TOO_LATE + 1]])
            for operation in range(OPERATION_PING + 1)
            if operation != OPERATION_BREAK
        ])


@cython.final
@cython.internal
cdef class NextDue:
    cdef int64_t at_ns               # nothing is due before, in the whole engine

    def __cinit__(self):
        self.at_ns = NEVER_NS


cdef inline void due_note(NextDue self, int64_t at_ns) noexcept:
    # The gate: whatever sets a time, in a step of the engine, a master or a link, has
    # the driver woken by then.
    self.at_ns = min(self.at_ns, at_ns)


@cython.final
@cython.internal
cdef class Conditions:               # of all masters of an engine
    cdef int64_t deaf_epoch          # a master may notify of no recall any more
    cdef int64_t slow_from_ns        # a reply of a slow master takes longer (slowness)
    cdef bint is_at_end              # there is no time for a back-off that grows


@cython.final
@cython.internal
cdef class Master:
    cdef str name                    # for messages: without user or password
    cdef int vote                    # the number of it
    cdef object settings             # an Endpoint
    cdef object server               # its address, to be compared...
    cdef tuple rank                  # ...and to be put in order, with its database
    cdef object tls_context          # an ssl.SSLContext, or None for plain text
    cdef object prepare              # gives the login and the context anew, or None
    cdef bytes client_name
    cdef Lists lists                 # what others have is compared with; or None
    cdef Scripts scripts
    cdef Counters counters           # these five are its engine's...
    cdef NextDue due
    cdef Conditions conditions
    cdef list unlogged               # for the log: (its level, master's name, text)
    cdef list to_prepare             # connections: their threads begin behind this pass
    cdef int64_t connect_timeout_ns
    cdef int64_t max_ttl_ns          # of the restart guard; 0: none
    cdef tuple leaving               # our name, as the argument of a release (gate)
    cdef Connection connection       # to its server; of a cluster what reads the map...
    cdef Routes routes               # ...which tells the node of a key, else None...
    cdef list nodes                  # ...and the nodes' by number, or None: not needed
    cdef int64_t votes[VOTES]        # counts, see `master_figures`
    cdef int64_t connects, losses, late_replies      # counts
    cdef int64_t unanswered_late     # how many of closed rounds never were answered
    cdef int64_t releases_dropped    # how many there was no room for
    cdef uint32_t samples[SAMPLES]   # its last round trips in us
    cdef uint32_t sample_count
    cdef int64_t late_us             # the last reply that missed its round's deadline
    cdef list turns                  # resources for which it has notified us
    cdef list notified               # ...and for which another process
    cdef list moved                  # rounds whose queue is not here, as it has replied
    cdef int64_t missed_ns           # from when on turns that were missed are counted
    cdef int missed

    def __init__(
        self, int vote, settings, tls_context, bytes client_name, Scripts scripts,
        int64_t connect_timeout_ns, int64_t max_ttl_ns, prepare, tuple leaving,
        Lists lists, Counters counters, NextDue due, Conditions conditions,
        list unlogged, list to_prepare,
    ):
        self.vote = vote
        self.settings = settings
        self.name = settings.name
        self.server = settings.server
        self.rank = settings.server, settings.db, vote
        self.tls_context = tls_context
        self.prepare = prepare
        self.client_name = client_name
        self.scripts = scripts
        self.connect_timeout_ns = connect_timeout_ns
        self.max_ttl_ns = 0 if settings.lossless_failover else max_ttl_ns
        self.leaving = leaving
        self.lists = lists
        self.counters = counters
        self.due = due
        self.conditions = conditions
        self.unlogged = unlogged
        self.to_prepare = to_prepare
        self.nodes = []
        self.turns = []
        self.notified = []
        self.moved = []


cdef inline Connection master_connection(Master self, bytes key):
    # The one to the server that has this key. Of a cluster that may not be known yet:
    # then it is the one that reads the map, which is never READY.
    return self.connection if self.routes is None else master_node(self, key)


cdef Connection master_node(Master self, bytes key):
    cdef int at = self.routes.owner[routes_slot(key)]
    if at >= len(self.nodes) or self.nodes[at] is None:
        return self.connection
    return <Connection>self.nodes[at]


cdef void master_part(Master self) noexcept:
    # They refer to each other.
    self.connection = None
    self.nodes = None


cdef tuple master_figures(Master self):
    # GRANTED and TAKEN: answers, late ones too. FAILED: error replies, and commands
    # that were not sent or lost their connection. SILENT: rounds that ended without its
    # reply at their deadline; it may have come later.
    return (
        self.name, self.votes[VOTE_GRANTED],
        self.votes[VOTE_TAKEN] + self.votes[VOTE_GONE],
        self.votes[VOTE_FAILED] + self.unanswered_late, self.votes[VOTE_SILENT],
        self.late_replies, self.connects, self.losses, self.releases_dropped,
    )


cdef list master_take_notified(Master self):
    # Return for what our releases have notified others, mostly after the quorum.
    cdef list notified = self.notified
    if notified:
        self.notified = []
    return notified


cdef list master_take_moved(Master self):
    cdef list moved
    moved, self.moved = self.moved, []
    return moved


cdef void master_note_no_answer(Master self, Round round) noexcept:
    # Count the masters without an answer at the end of a round.
    self.votes[VOTE_FAILED] += set_has(round.failed, self.vote)
    self.votes[VOTE_SILENT] += set_has(round.silent, self.vote)


cdef void master_set_leaving(Master self, tuple leaving) noexcept:
    self.leaving = leaving


cdef bint master_may_pass_on(Master self, int64_t now_ns) noexcept:
    # Return whether a turn that nobody waits for here goes to the next at once. A gate
    # that sends thousands would have an answer to each, and behind that thousands more:
    # so beyond a few they pass by themselves, as those of a frozen process.
    if now_ns - self.missed_ns >= TURN_NS:
        self.missed_ns = now_ns
        self.missed = 0
    self.missed += 1
    return self.missed <= MISSED_MOST


# --- report ---------------------------------------------------------------------------
# What a master is told of each connection: since when its server takes no lock and why,
# and what the user has to know. No timer is needed for a line of the log.

cdef int64_t AWAY_NS = 10_000_000_000      # from then on it is worth a line


@cython.final
@cython.internal
cdef class Report:
    cdef Master master
    cdef str at_node                 # its address, behind a message; "": the master's
    cdef list warnings               # that hold, as far as is known
    cdef list new_warnings           # for the engine, to be logged once each
    cdef bint is_introduced          # ...of a handshake: they replace those
    cdef bint needs_review           # it has become READY, or has new warnings
    cdef str refusal                 # of the last write, and until when it counts...
    cdef int64_t refused_until_ns    # ...0: another has not been refused since
    cdef int64_t away_from_ns        # the first of the losses since it was READY; or 0
    cdef bint is_away_logged

    def __init__(self, Master master):
        self.master = master
        self.at_node = ""
        self.warnings = []
        self.new_warnings = []


cdef int report_ready(Report self, list warnings) except -1:
    # Take the warnings of a handshake, which replace those of before.
    self.refused_until_ns = 0
    self.master.counters.connects += 1
    self.master.connects += 1
    report_warned(self, warnings)
    self.is_introduced = self.needs_review = True


cdef int report_not_ready(
    Report self, list warnings, bint is_to_the_end
) except -1:
    # A handshake has failed; those warnings hold if it came to its end.
    self.is_introduced |= is_to_the_end
    return report_warned(self, warnings)


cdef inline void report_for_review(Report self) noexcept:
    self.needs_review = True


cdef int report_lost(
    Report self, bint was_ready, str reason, int64_t now_ns
) except -1:
    self.master.counters.losses += was_ready
    self.master.conditions.deaf_epoch += 1
    self.master.losses += was_ready
    if self.master.routes is not None:
        self.master.routes.is_stale = True
    return report_away(self, "not connected", reason, now_ns)


cdef int report_away(Report self, str how, str reason, int64_t now_ns) except -1:
    # One line for the log if it is away for long, as another attempt fails.
    if self.away_from_ns == 0:
        self.away_from_ns = now_ns
    elif now_ns - self.away_from_ns > AWAY_NS and not self.is_away_logged:
        self.is_away_logged = True
        away_s = (now_ns - self.away_from_ns) / 1e9
        text = f"{how} for {away_s:.0f} s: {reason}"
        self.master.unlogged.append((LEVEL_WARNING, self.master.name, text))


cdef int report_refused(
    Report self, str text, int64_t until_ns, int64_t now_ns
) except -1:
    # It is connected and took no lock now: it is full, or the restart guard withholds
    # it. That counts until another lock is taken, and not for long: a client without
    # work has to become ready again.
    if now_ns >= self.refused_until_ns and not self.is_away_logged:
        self.away_from_ns = 0
    self.refusal = text
    self.refused_until_ns = until_ns
    return report_away(self, "takes no locks", text, now_ns)


cdef int report_back(Report self, str how, int64_t now_ns) except -1:
    if self.is_away_logged:
        away_s = (now_ns - self.away_from_ns) / 1e9
        text = f"{how} again after {away_s:.0f} s{self.at_node}"
        self.master.unlogged.append((LEVEL_INFO, self.master.name, text))
    report_no_outage(self)


cdef void report_no_outage(Report self) noexcept:
    self.away_from_ns = 0
    self.is_away_logged = False


cdef int report_took_lock(Report self, int64_t now_ns) except -1:
    self.refused_until_ns = 0
    return report_back(self, "takes locks", now_ns)


cdef int report_warned(Report self, list texts) except -1:
    # Leave them to the engine, which logs each once.
    if texts:
        self.new_warnings += texts
        self.needs_review = True


cdef list report_begin_review(Report self):
    # The new warnings, once.
    cdef list new
    new, self.new_warnings = self.new_warnings, []
    self.needs_review = False
    return new


cdef list report_take_warnings(Report self, list found, list before):
    # Take the warnings found in a review, which hold from now on. Return those that are
    # new here, and not in those that were there `before`.
    cdef list warnings = [] if self.is_introduced else list(self.warnings)
    cdef list new = []
    for text in found:
        if text not in warnings:
            warnings.append(text)
            if (self.master.name, text) not in before:
                new.append(text)
    self.warnings = warnings
    self.is_introduced = False
    return new
