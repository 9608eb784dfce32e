# What is sent for another reason than the start of a round: once more, after the end of
# a connection, or since a server may be another by now; and which must not vote.

# --- again ----------------------------------------------------------------------------
# Commands that are sent once more, and those that a lost connection left.

cdef enum:
    NOTIFYING_MOST = 64                # deferred releases, of 1.4 KB each


cdef int connection_send_again(
    Connection self, Round round, InFlightEntry entry, int64_t now_ns
) except -1:
    cdef Buffer command
    if self.state_code != MASTER_READY:      # bytes here would go before HELLO
        return connection_on_unsent(self, round, entry, now_ns)
    if self.is_native_alone and native_replaces(round, self.master.scripts):
        entry.form = self.native
    memset(&command, 0, sizeof(Buffer))
    try:
        command_of_form(
            &command, round, self.master.scripts, entry.form, entry.is_by_source,
            entry.is_second, self.master.leaving,
        )
        return connection_send(self, round, &command, entry, now_ns)
    finally:
        buffer_free(&command)


cdef int connection_on_unsent(
    Connection self, Round round, InFlightEntry entry, int64_t now_ns
) except -1:
    # There is no connection: as where the connection is lost just after the send.
    if round.operation_code == OPERATION_RELEASE:
        deferred_add(self.in_flight, round, entry.key_until_ns, entry.is_second)
        due_note(self.master.due, max(self.retry_at_ns, now_ns))
    if round.verdict_code == VERDICT_OPEN:
        reason = self.reason
        if connection_may_be_well(self):
            reason = f"not connected in time: {reason}"
        round_on_vote(round, self.vote, VOTE_FAILED, reason, False, now_ns)


cdef int connection_send_deferred(Connection self, int64_t now_ns) except -1:
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
        if each.release.gate == self.vote and notifying < NOTIFYING_MOST:
            entry.form = FORM_GATE
            notifying += 1
        each.release.our_entry = OUR_ENTRY_AS_IS
        connection_send_again(self, each.release, entry, now_ns)


cdef int connection_send_unanswered(Connection self, int64_t now_ns) except -1:
    # Send again the rounds that the last connection left open. Releases are sent with
    # the deferred ones.
    cdef InFlightEntry entry = ENTRY_OF_ROUND
    cdef Round round
    entry.is_second = True
    unanswered, self.in_flight.unanswered = self.in_flight.unanswered, []
    for round in unanswered:
        if round.operation_code == OPERATION_RELEASE or (
            round.verdict_code != VERDICT_OPEN
            or not set_has(round_pending(round), self.vote)      # withheld since
        ):
            continue
        if round_may_repeat(round):
            connection_send_again(self, round, entry, now_ns)
        elif round_is_of_released(round):      # its caller still waits for this vote
            round_on_vote(round, self.vote, VOTE_FAILED, NOT_SENT, False, now_ns)


cdef int connection_kill_lost(Connection self, int64_t now_ns) except -1:
    # Have the server end our lost connections before it executes anything behind this:
    # commands of theirs that it has not executed by then, it never will. (An ACL may
    # forbid it.)
    if self.lost_run_id is None or self.lost_run_id != self.server_info.run_id:
        connection_forget_lost(self)      # another server: ids begin anew with it
    self.lost_run_id = self.server_info.run_id
    for client_id in self.lost_ids:
        words = (b"CLIENT", b"KILL", b"ID", decimal_bytes(client_id))
        connection_ask(self, ENTRY_KILL, words, now_ns)


cdef int connection_send_left(Connection self, int64_t now_ns) except -1:
    # It is READY: first what earlier connections left.
    connection_kill_lost(self, now_ns)
    return connection_send_deferred(self, now_ns)


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


cdef bint connection_was_silent(Connection self, int64_t now_ns) noexcept:
    # An answer to a question that is under way comes before that of the next command.
    return now_ns - max(self.asked_ns, self.role_asked_ns) > SILENT_NS or (
        self.server_info.needed and now_ns - self.role_asked_ns > REPLICAS_ASKED_NS
    )


cdef int connection_ask_replication(Connection self, int64_t now_ns) except -1:
    # An operator may have replaced it and put it back meanwhile, within 15 ms: as a
    # replica it has lost the keys that it had not passed on.
    words = (b"INFO",) if self.server_info.needed else (b"INFO", b"replication")
    self.role_asked_ns = now_ns
    connection_ask(self, ENTRY_REPLICATION, words, now_ns)
    if self.node != NODE_NONE and self.master.routes.former:
        report_for_review(self.report)      # is it led back?
    if self.node_id is not None:      # CLUSTER RESET closes no connection either
        connection_ask(self, ENTRY_ID, (b"CLUSTER", b"MYID"), now_ns)


# --- review ---------------------------------------------------------------------------
# The review of a master that has become READY, or has something to report: warnings for
# the user, each once, and the masters that must not vote. A warning ends by the next
# handshake that does not find it; those that a reply gave begin anew with it, too.


cdef int connection_review(
    Connection self, list connections, bint servers_may_be_same, int64_t now_ns
) except -1:
    # It has become READY, its server's clock jumped, or it has a new warning.
    cdef Connection other
    cdef Report report = self.report
    cdef str server = connection_server(self), refusal = None
    cdef bint is_introduced = report.is_introduced
    cdef list found = []
    if self.clock.step_ns:
        step_s = self.clock.step_ns / 1e9
        found.append(f"its clock jumped by {step_s:+.3f} s")
    for text in self.server_info.warnings() + report_begin_review(report):
        if self.node == NODE_NONE or not text.startswith("is a cluster node"):
            found.append(text)
    if self.node == NODE_MAP:      # no server: it reads maps
        return connection_warn(report, connections, found)
    for other in connections:
        if server is None or other.vote == self.vote or (
            other.state_code != MASTER_READY or connection_server(other) != server
        ):
            continue
        if not servers_may_be_same or (
            other.master.settings.db == self.master.settings.db
        ):
            refusal = (
                f"is the same server as {other.master.name}: one server has one vote"
            )
            if None in (self.server_info.run_id, other.server_info.run_id):
                refusal += " (or has a copy of its data: grant +info to tell)"
        # They may be databases of one server, if a replaced library took them.
        elif other.master.server != self.master.server:    # else reported before
            found.append(
                f"is the same server as {other.master.name}: "
                "its databases fail together"
            )
    if refusal is not None and self.state_code == MASTER_READY:
        connection_warn(report, connections, found + [refusal])
        return connection_on_lost(self, refusal, now_ns)
    connection_warn(report, connections, found)
    if is_introduced and self.state_code == MASTER_READY:      # else refused
        return report_back(report, "connected", now_ns)


cdef int connection_warn(Report report, list connections, list found) except -1:
    for text in report_take_warnings(report, found, connection_warnings(connections)):
        report.master.unlogged.append((LEVEL_WARNING, report.master.name, text))


cdef list connection_warnings(list connections):
    # Return each warning once: the nodes of a cluster have one name.
    cdef Connection connection
    cdef list found = []
    for connection in connections:
        for text in connection.report.warnings:
            if (connection.master.name, text) not in found:
                found.append((connection.master.name, text))
    return found
