# A round's commands, queued for the masters: once, or again.
#
# The engine moves no bytes and waits for nothing: it queues commands on connections and
# entries in FIFOs. A driver does the rest.
#
# A command is made in each form that one of the masters is to be sent: all in one
# buffer, one behind the other.


cdef inline int sending_form(Master self, Round round, bint by_source) noexcept:
    # Where nobody may read an error (by_source), a native command goes only where one
    # has been answered before: an ACL may forbid it.
    if round.gate == self.index and (
        operation_is(round.operation_code, OPERATION_CHANGES_KEY)
    ):
        if round.queue_check == QUEUE_CHECK_WANTED and not by_source:
            return FORM_QUEUE_CHECK
        if round.queue_check == QUEUE_CHECK_GATHERED and not by_source:
            return self.native
        return FORM_GATE
    if self.native != FORM_SCRIPT and native_replaces(round, self.scripts) and (
        self.native_is_proven or not by_source
    ):
        return self.native
    return FORM_SCRIPT


cdef int engine_encode(
    Engine self, Buffer *out, Buffer *forms, Round round, uint64_t masters,
    bint by_source,
) except -1:
    # `forms` are views into `out`, empty where no master needs one.
    cdef Master master
    cdef int form, error, needed = 0
    for master in self.masters:
        if (masters >> master.index) & 1:
            needed |= 1 << sending_form(master, round, by_source)
    for form in range(FORMS):
        forms[form].start = out.end
        if (needed >> form) & 1:
            if form == FORM_GATE:
                error = command_of_gate(
                    out, round, self.scripts, by_source, self.queues.leaving
                )
            elif form == FORM_SCRIPT:
                error = command_of_round(out, round, self.scripts, by_source, False)
            elif form == FORM_QUEUE_CHECK:
                master = <Master>self.masters[round.gate]
                error = native_command(out, round, master.native)
                if error == 0:
                    error = native_queue_check(out, round, self.scripts.name_prefix)
            else:
                error = native_command(out, round, form)
            if error != 0:
                raise MemoryError
        forms[form].end = out.end
    for form in range(FORMS):      # it may have moved
        forms[form].data = out.data
    return 0


cdef int engine_queue(
    Engine self, Round round, uint64_t masters, bint by_source, int64_t now_ns
) except -1:
    # Queue the round's command for the given set of masters; t0 is now_ns.
    # The buffer is taken, not borrowed: making a vote may collect garbage, and a
    # finalizer that takes a lock comes through here before this one is done.
    cdef Buffer command = self.command
    cdef Buffer forms[FORMS]
    memset(&self.command, 0, sizeof(Buffer))
    round_open(round, now_ns)
    engine_note_time(self, round.deadline_ns)
    try:
        engine_encode(self, &command, forms, round, masters, by_source)
        engine_queue_on(self, round, masters, forms, by_source, now_ns)
    finally:
        buffer_free(&self.command)
        buffer_consume(&command, buffer_length(&command))
        self.command = command
    return 0


cdef int engine_queue_on(
    Engine self, Round round, uint64_t masters, Buffer *forms, bint by_source,
    int64_t now_ns,
) except -1:
    # What is raised for one master (there is no memory) keeps nothing from the others:
    # this may be the release of a key that all of them hold.
    cdef Master master
    failure = None
    for master in self.masters:
        if (masters >> master.index) & 1:
            try:
                engine_queue_at(self, master, round, forms, by_source, now_ns)
            except BaseException as error:
                failure = error
    if failure is not None:
        raise failure
    return 0


cdef int engine_queue_at(
    Engine self, Master master, Round round, Buffer *forms, bint by_source,
    int64_t now_ns,
) except -1:
    cdef InFlightEntry entry = in_flight_entry(NEVER_NS, False), again
    cdef int form
    if master.state_code == MASTER_READY and (
        in_flight_is_full(master.in_flight, master.heard_ns, now_ns)
    ):
        master_on_lost(
            master, f"owes {master.in_flight.count} replies and is silent", now_ns
        )
    if master.state_code != MASTER_READY:
        return master_on_unsent(master, round, entry, now_ns)
    if engine_is_withheld(master, round, now_ns):
        return engine_withhold(master, round, now_ns)
    form = sending_form(master, round, by_source)
    entry.is_at_gate = form == FORM_GATE
    entry.has_queue_check = form == FORM_QUEUE_CHECK
    entry.is_native = entry.has_queue_check or (
        form == FORM_DELIFEQ or form == FORM_DELEX
    )
    entry.is_by_source = by_source and not entry.is_native
    if entry.is_by_source and not master.may_eval or (
        buffer_length(&forms[form]) == 0      # it was another just now
    ):
        again = in_flight_entry(NEVER_NS, False)
        again.is_at_gate = entry.is_at_gate
        again.is_by_source = by_source and master.may_eval
        master_send_again(master, round, again, now_ns)
    else:
        master_send(master, round, &forms[form], entry, now_ns)
        if round.queue_check == QUEUE_CHECK_GATHERED and entry.is_native and (
            round.gate == master.index
        ):
            self.queue_check_gathered = True
            master_gather_queue_check(master, round, now_ns)
    if (
        master.state_code == MASTER_READY
        and now_ns - master.clock.asked_at_ns > CLOCK_EVERY_NS
    ):
        master_ask_time(master, now_ns)
    return 0


cdef int engine_send_unanswered(Engine self, Master master, int64_t now_ns) except -1:
    # Rounds are open whose connection to this master is gone: connect at once, and ask
    # again as soon as it is READY.
    cdef Round round
    if master.state_code == MASTER_READY:
        for round in tuple(master.in_flight.unanswered):
            if engine_is_withheld(master, round, now_ns):
                engine_withhold(master, round, now_ns)
        return master_send_unanswered(master, now_ns)
    if master_is_due(master, False, now_ns):
        return engine_open(self, master, now_ns)
    return 0


cdef bint engine_is_withheld(Master master, Round round, int64_t now_ns) noexcept:
    return (
        now_ns < master.votes_from_ns and round.operation_code == OPERATION_ACQUIRE
    )


cdef int engine_withhold(Master master, Round round, int64_t now_ns) except -1:
    # The restart guard: this master may have forgotten its votes, so it gets none.
    master.counters.life_epoch += 1
    if round.verdict_code != VERDICT_OPEN:
        return 0
    text = restart_guard_text(
        master.restart_guard, master.server_info, master.ready_at_ns, now_ns
    )
    return round_on_vote(round, master.index, VOTE_FAILED, text, False, now_ns)
