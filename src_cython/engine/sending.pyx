# What is sent: the rounds that others have left in a list, as commands for the masters.

# --- sending --------------------------------------------------------------------------
# The last stage of a pass. Whoever decides that a round is sent leaves it in the list
# `to_send` (round_send): a start, a roll-back, a withdrawal, a question to a gate, the
# end of an idle key. Here they become commands, in that order: so a release comes
# behind its SET, and the SET of the next caller behind the release.
#
# The engine moves no bytes and waits for nothing: it queues commands, in each form that
# one of the masters is to be sent, on connections, and entries in FIFOs. A driver does
# the rest.

cdef class Engine             # engine/engine


cdef int sending_all(Engine self, int64_t now_ns) except -1:
    # What ends here is judged in the same pass. Where there is no memory the next pass
    # goes on with the others.
    cdef Round round
    while self.to_send:
        round = <Round>self.to_send.pop(0)
        if round_is_given_up(round):
            continue
        try:
            sending_queue(self, round, now_ns)
        except BaseException:
            round_give_up(round, "interrupted", now_ns)
            raise
    if self.idle.were_any:      # no call may come that connects for their releases
        engine_open_deferred(self, now_ns)


cdef inline int sending_form(Connection self, Round round) noexcept:
    # Where nobody may read an error (by source), a native command goes only where one
    # has been answered before: an ACL may forbid it.
    cdef bint is_at_gate = round.gate == self.vote and (
        operation_is(round.operation_code, OPERATION_CHANGES_KEY)
    )
    if is_at_gate and (round.our_entry != OUR_ENTRY_NONE or round.is_by_source):
        return FORM_GATE
    if self.native != FORM_SCRIPT and native_replaces(round, self.master.scripts) and (
        self.native_is_proven or not round.is_by_source
    ):
        return self.native
    return FORM_GATE if is_at_gate else FORM_SCRIPT


cdef int sending_queue(Engine self, Round round, int64_t now_ns) except -1:
    # The masters whose first connection is on its way come last: where the others leave
    # no quorum, the round has ended by then, and none of these is said to have failed.
    cdef Master master
    cdef Connection connection
    cdef Buffer forms[FORMS]
    cdef int needed = 0
    cdef uint64_t opening = 0
    due_note(self.due, round.deadline_ns)
    for master in self.masters:
        connection = master_connection(master, round.resource)
        if connection.restart_guard.failover_ns != 0 and (
            connection_was_silent(connection, now_ns)
        ):
            connection_ask_replication(connection, now_ns)
        if set_has(round.asked, master.vote):
            needed |= 1 << sending_form(connection, round)
            if connection_may_be_well(connection):
                opening |= set_of(master.vote)
    sending_encode(self, forms, round, needed)
    for master in self.masters:
        if set_has(round.asked & ~opening, master.vote):
            connection = master_connection(master, round.resource)
            sending_queue_at(self, connection, round, forms, now_ns)
    for master in self.masters if opening else ():
        if set_has(opening, master.vote):
            connection = master_connection(master, round.resource)
            connection_on_unsent(connection, round, ENTRY_OF_ROUND, now_ns)


cdef int sending_encode(
    Engine self, Buffer *forms, Round round, int needed
) except -1:
    # `forms` are views into one buffer, one behind the other.
    cdef Buffer *out = &self.command
    cdef int form
    buffer_consume(out, buffer_length(out))
    for form in range(FORMS):
        forms[form].start = out.end
        if (needed >> form) & 1:
            command_of_form(
                out, round, self.scripts, form, round.is_by_source, False,
                self.queues.leaving,
            )
        forms[form].end = out.end
    for form in range(FORMS):      # it may have moved
        forms[form].data = out.data


cdef int sending_queue_at(
    Engine self, Connection connection, Round round, Buffer *forms, int64_t now_ns
) except -1:
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
        return connection_on_unsent(connection, round, entry, now_ns)
    if now_ns < connection.restart_guard.until_ns and (
        sending_withhold(connection, round, now_ns)
    ):
        return 0
    entry.form = sending_form(connection, round)
    entry.is_by_source = round.is_by_source and not form_is_native(entry.form)
    if entry.is_by_source and not connection.may_eval:
        entry.is_by_source = False
        connection_send_again(connection, round, entry, now_ns)
    else:
        connection_send(connection, round, &forms[entry.form], entry, now_ns)
        if round.our_entry == OUR_ENTRY_NONE and round.gate == connection.vote and (
            form_is_native(entry.form)
        ):
            round.our_entry = OUR_ENTRY_ASKED
            connection.released.append(round)
            self.is_asking = True
    if now_ns - connection.clock.asked_at_ns > CLOCK_EVERY_NS:      # in the same write
        connection.clock.asked_at_ns = now_ns
        connection_ask(connection, ENTRY_TIME, (b"TIME",), now_ns)


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
        return engine_open(self, connection, now_ns)


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
