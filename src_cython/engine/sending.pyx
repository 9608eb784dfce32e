# An engine's connections: opened when they are due, counted, closed; and what is sent
# on them: the rounds that others have left in a list, as commands.

# --- connections ----------------------------------------------------------------------
# The connections of an engine, by place, those to the nodes of clusters among them.

cdef class Engine             # engine/engine


cdef int connections_add(Engine self, Connection connection) except -1:
    connection.place = self.connection_count
    self.links[connection.place] = &connection.link
    self.connections.append(connection)
    self.connection_count += 1


cdef int connections_open_due(Engine self, bint is_urgent, int64_t now_ns) except -1:
    # Begin to connect to every master that is not connected and whose time has come;
    # where a quorum is missing, back-off gives way to a short spacing.
    cdef Connection connection
    for connection in self.connections:
        if connection_is_due(connection, is_urgent, now_ns):
            connections_open(self, connection, now_ns)


cdef int connections_open(Engine self, Connection connection, int64_t now_ns) except -1:
    cdef bint collects = pass_begin()
    try:
        if self.by_hand is not None:
            connection_begin_connect(connection, now_ns)
            self.by_hand.append(connection.place)
        else:
            connection_open(connection, now_ns)
    finally:
        pass_end(collects)


cdef bint connections_open_deferred(Engine self, int64_t now_ns) except -1:
    # Connect for releases that are deferred, as soon as the back-off allows, and for
    # the map of a cluster: no later call may do it. Returns whether there are any.
    cdef Connection connection, each
    cdef bint is_any = False
    for connection in self.connections:
        if connection.in_flight.deferred:
            for each in (connection, connection.master.connection):
                if connection_is_due(each, False, now_ns):
                    connections_open(self, each, now_ns)
            is_any = True
    return is_any


cdef bint connections_open_at_end(Engine self, int64_t now_ns) except -1:
    # Open them at once, here, and whenever one that is READY is cut from now on. If a
    # connection is refused, it is tried again and again until the drain ends.
    cdef Connection connection
    self.conditions.is_at_end = True
    for connection in self.connections:
        connection_retry_now(connection, now_ns)
    return connections_open_deferred(self, now_ns)


cdef bint connections_await_replies(Engine self) noexcept:
    for connection in self.connections:
        if (<Connection>connection).in_flight.count:
            return True
    return False


cdef bint connections_are_left(Engine self) noexcept:
    cdef Connection connection
    for connection in self.connections:
        if connection.link.fd >= 0 or connection.in_flight.deferred:
            return True
    return False


cdef int connections_forget(
    Engine self, int64_t now_ns, str deferred_for=None
) except -1:
    # close(2) all and start anew: after a fork, and at the end. The commands in flight
    # fail, and deferred releases are dropped: a forked child has none of its parent's
    # leases. With a reason to defer them, releases go to the next connections.
    cdef Connection connection
    cdef str reason = "closed" if self.is_closed else "not connected yet"
    for connection in self.connections:
        if deferred_for is not None:
            connection_note_lost(connection)
            in_flight_fail(connection.in_flight, deferred_for, False, now_ns)
        connection_forget(connection, reason, now_ns)
        if deferred_for is None:
            deferred_take(connection.in_flight)
            connection_forget_lost(connection)


# --- sending --------------------------------------------------------------------------
# The last stage of a pass. Whoever decides that a round is sent leaves it in the list
# `to_send` (round_send): a start, a roll-back, a withdrawal, a question to a gate, the
# end of an idle key. Here they become commands, in that order: so a release comes
# behind its SET, and the SET of the next caller behind the release.
#
# The engine moves no bytes and waits for nothing: it queues commands on connections,
# and entries in FIFOs. A driver does the rest.


cdef int sending_all(Engine self, int64_t now_ns) except -1:
    # Rounds that end here are judged in the same pass. If there is no memory, the next
    # pass goes on with the others.
    cdef Round round
    while self.to_send:
        round = <Round>list_take(self.to_send)
        if round_is_given_up(round):
            continue
        try:
            sending_queue(self, round, now_ns)
        except BaseException:
            round_give_up(round, "interrupted", now_ns)
            raise
    if self.idle.were_any:      # no call may come that connects for their releases
        connections_open_deferred(self, now_ns)


cdef inline int sending_form(Connection self, Round round) noexcept:
    # Where nobody may read an error (by source), a native command goes only where one
    # has been answered before: an ACL may forbid it.
    cdef bint is_at_gate = round.gate == self.vote and (
        operation_is(round.operation_code, OPERATION_CHANGES_KEY)
    )
    if round.fencing is not None and round.fencing.asked:
        return FORM_FENCE
    if is_at_gate and (round.our_entry != OUR_ENTRY_NONE or round.is_by_source):
        return FORM_GATE
    if self.native != FORM_SCRIPT and native_replaces(round, self.master.scripts) and (
        self.native_is_proven or not round.is_by_source
    ):
        return self.native
    return FORM_GATE if is_at_gate else FORM_SCRIPT


cdef int sending_queue(Engine self, Round round, int64_t now_ns) except -1:
    # Its gate comes first, for it may be sent another form. The masters whose first
    # connection is on its way come last: where the others leave no quorum, the round
    # has ended by then, and none of these is said to have failed.
    cdef Master master
    cdef Connection connection
    cdef int encoded = FORMS      # which form is in `command`: none yet
    cdef uint64_t opening = 0
    cdef int i, first = max(round.gate, 0)
    due_note(self.due, round.deadline_ns)
    for i in range(first, first + self.vote_count):
        master = <Master>self.masters[i % self.vote_count]
        connection = master_connection(master, round.resource)
        if connection.restart_guard.failover_ns != 0 and (
            connection_was_silent(connection, now_ns)
        ):
            connection_ask_replication(connection, now_ns)
        if not set_has(round.asked, master.vote):
            continue
        if connection_may_be_well(connection):
            opening |= set_of(master.vote)
        else:
            encoded = sending_queue_at(self, connection, round, encoded, now_ns)
    for master in self.masters if opening else ():
        if set_has(opening, master.vote):
            connection = master_connection(master, round.resource)
            connection_on_unsent(connection, round, ENTRY_OF_ROUND, now_ns)


cdef int sending_queue_at(
    Engine self, Connection connection, Round round, int encoded, int64_t now_ns
) except -1:
    # Return which form is in `command` then: most masters are sent the same one.
    cdef InFlightEntry entry = ENTRY_OF_ROUND
    if connection.state_code == MASTER_READY and (
        connection.in_flight.count >= IN_FLIGHT_MOST
        and now_ns - connection.heard_ns > OVERDUE_AT_LEAST_NS // 10
    ):
        connection_on_lost(
            connection, f"owes {connection.in_flight.count} replies and is silent",
            now_ns,
        )
    if connection.state_code != MASTER_READY:
        connection_on_unsent(connection, round, entry, now_ns)
        return encoded
    if now_ns < connection.restart_guard.until_ns and (
        sending_withhold(connection, round, now_ns)
    ):
        return encoded
    entry.form = sending_form(connection, round)
    entry.is_by_source = round.is_by_source and not form_is_native(entry.form)
    if entry.is_by_source and not connection.may_eval:
        entry.is_by_source = False
        connection_send_again(connection, round, entry, now_ns)
    else:
        if entry.form != encoded:
            encoded = entry.form
            buffer_consume(&self.command, buffer_length(&self.command))
            command_of_form(
                &self.command, round, self.scripts, encoded, round.is_by_source, False,
                self.queues.leaving,
            )
        connection_send(connection, round, &self.command, entry, now_ns)
        if round.our_entry == OUR_ENTRY_NONE and round.gate == connection.vote and (
            form_is_native(entry.form)
        ):
            round.our_entry = OUR_ENTRY_ASKED
            connection.released.append(round)
            self.is_asking = True
    if now_ns - connection.clock.asked_at_ns > CLOCK_EVERY_NS:      # in the same write
        connection.clock.asked_at_ns = now_ns
        connection_ask(connection, ENTRY_TIME, (b"TIME",), now_ns)
    return encoded


cdef int sending_unanswered(
    Engine self, Connection connection, int64_t now_ns
) except -1:
    # Rounds are open whose connection to this master is gone: connect at once, and ask
    # again as soon as it is READY.
    cdef Round round
    if connection.state_code == MASTER_READY:
        for round in tuple(connection.in_flight.unanswered):
            sending_withhold(connection, round, now_ns)
        return connection_send_unanswered(connection, now_ns)
    if connection_is_due(connection, False, now_ns):
        return connections_open(self, connection, now_ns)


cdef inline bint sending_withhold(
    Connection connection, Round round, int64_t now_ns
) except -1:
    # The restart guard: a master that may have forgotten its votes gets none. Returns
    # whether it is one.
    if now_ns >= connection.restart_guard.until_ns or (
        round.operation_code != OPERATION_ACQUIRE
    ):
        return False
    if round.verdict_code == VERDICT_OPEN:
        text = connection_withheld(connection, now_ns)
        until_ns = min(now_ns + REFUSED_NS, connection.restart_guard.until_ns)
        report_refused(connection.report, text, until_ns, now_ns)
        round_on_vote(round, connection.vote, VOTE_FAILED, text, False, now_ns)
    return True
