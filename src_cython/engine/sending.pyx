# A round's commands, to all masters: started, rolled back, sent again.
#
# The engine moves no bytes and waits for nothing: it queues commands on connections and
# entries in FIFOs. A driver does the rest.
#
# From below: engine_start_given (given_tokens), engine_set_gate, engine_tell_at_gate
# (gate), engine_gathers, engine_may_check (queue_check), engine_is_handing_over,
# engine_hand_over (turns), engine_wait (waiting), engine_propose_fence,
# engine_note_renewed (fences), engine_end_torn (outcome).

from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memset


cdef int engine_start(Engine self, Round round, int64_t now_ns) except -1:
    try:
        return engine_start_whole(self, round, now_ns)
    except BaseException:
        engine_end_torn(self, round, now_ns)
        raise


cdef int engine_start_whole(Engine self, Round round, int64_t now_ns) except -1:
    # A finalizer may run while connections or votes are made for a round, and withdraw
    # it for another thread: then it has been opened, or must not be, and behind its
    # roll-back none of its commands may be sent.
    cdef bint is_handing_over = False
    if round.is_opened or round.is_finished:
        return 0
    if round.turn is not None and not (<Turn>round.turn).is_open:
        return engine_wait(self, round, now_ns)
    if round_is_of_released(round):
        return round_give_up(round, NOT_SENT, now_ns)
    self.counters.rounds += 1
    if round.operation_code == OPERATION_RELEASE:
        is_handing_over = engine_is_handing_over(self, round, now_ns)
        if not is_handing_over:
            engine_tell_at_gate(self, round, now_ns)
            if engine_may_check(self, round, now_ns):
                round.check = (
                    CHECK_GATHERED if engine_gathers(self, round) else CHECK_WANTED
                )
    elif round.operation_code == OPERATION_ACQUIRE and (
        self.scripts.write_fence is not None
    ):
        engine_propose_fence(self, round, now_ns)
    round.is_reentrant = self.leadership.depth > 1
    engine_set_order(self, round, now_ns)
    if self.token_uses is not None and round.operation_code <= OPERATION_RELEASE:
        engine_start_given(self, round, now_ns)
    else:
        engine_queue(self, round, <uint64_t>-1, False, now_ns)
    if round.fencing is not None and (<Fencing>round.fencing).is_renewing:
        engine_note_renewed(self, round)
    if is_handing_over:
        engine_hand_over(self, round.resource, now_ns)
    if round.is_rolled_back and round.operation_code == OPERATION_ACQUIRE:
        round.is_rolled_back = False
        return engine_roll_back(self, round, now_ns)
    return 0


cdef int engine_set_order(Engine self, Round round, int64_t now_ns) except -1:
    cdef bint is_cold = now_ns - self.started_ns > COLD_NS
    self.started_ns = now_ns
    order_update(self.send_order, self.links, self.master_count, self.counters.rounds)
    if round.operation_code == OPERATION_RELEASE and round.gate >= 0 and (
        is_cold or round.check == CHECK_WANTED or wait_queues_are_until(
            self.queues.contended_ns, round.resource, now_ns
        )
    ):
        order_put_first(self.send_order, self.links[round.gate], self.master_count)
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
    cdef Master master
    cdef InFlightEntry entry = in_flight_entry(NEVER_NS, False), again
    cdef int form
    for master in self.masters:
        if not (masters >> master.index) & 1:
            continue
        if master.state_code == MASTER_READY and (
            in_flight_is_full(master.in_flight, master.heard_ns, now_ns)
        ):
            master_on_lost(
                master, f"owes {master.in_flight.count} replies and is silent", now_ns
            )
        if master.state_code == MASTER_READY:
            if engine_is_withheld(master, round, now_ns):
                engine_withhold(master, round, now_ns)
                continue
            form = form_for(master, round, by_source)
            entry.is_at_gate = form == FORM_GATE
            entry.is_checked = form == FORM_CHECKED
            entry.is_native = entry.is_checked or (
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
                if round.check == CHECK_GATHERED and entry.is_native and (
                    round.gate == master.index
                ):
                    self.has_gathered = True
                    master_gather_check(master, round, now_ns)
            if (
                master.state_code == MASTER_READY
                and now_ns - master.clock.asked_at_ns > CLOCK_EVERY_NS
            ):
                master_ask_time(master, now_ns)
            continue
        master_on_unsent(
            master, round, in_flight_entry(NEVER_NS, False), now_ns
        )
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


cdef int engine_roll_back(Engine self, Round round, int64_t now_ns) except -1:
    # Queue the release behind the SETs, to every master that did not refuse. No caller
    # waits for its replies: each pops its entry when it comes. So it is sent by source:
    # NOSCRIPT would be read by the next call only, if there is one.
    cdef Round release
    if (
        round.operation_code != OPERATION_ACQUIRE
        or round.is_rolled_back or not round.may_hold
        or round.generation != current_generation    # the parent may hold it
        or round_is_overused(round)
    ):
        return 0
    round.is_rolled_back = True
    self.counters.rolled_back += 1
    release = engine_new_release(self, round, round.terms)
    # It tells nobody where its caller waits on: that one tries again, and the next in
    # this process, who may stand at the gate by now, would try in vain as well.
    if (
        round.turn is None or round.verdict_code != VERDICT_TAKEN
        or now_ns >= (<Turn>round.turn).until_ns
    ):
        engine_set_gate(self, release, now_ns)
    if release.token_uses is not None:
        token_uses_add_round(release)
    return engine_queue(self, release, release.may_hold, True, now_ns)
