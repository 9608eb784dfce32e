# A round starts: it waits in turn, or its commands are queued for all masters; and its
# roll-back.

cdef enum:
    DETOUR_EVERY = 64          # rounds
    DETOUR_ROUNDS = 2          # an acquire and its release
    COLD_NS = 1_000_000        # since the last round


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
    if round.turn is not None and not (<Turn>round.turn).is_open and (
        engine_wait(self, round, now_ns)
    ):
        return 0
    if round_is_of_released(round):
        return round_give_up(round, NOT_SENT, now_ns)
    if round_wants_slot(round):
        engine_set_slot(self, round, -1, now_ns)
        if round.is_opened or round.is_finished:
            return 0
    self.counters.rounds += 1
    if round.operation_code == OPERATION_RELEASE:
        round.lease_state = None      # it is sent, and may be deferred for long
        engine_end_stay(self, round, now_ns)
        is_handing_over = engine_is_handing_over(self, round, now_ns)
        if not is_handing_over:
            engine_notify_at_gate(self, round, now_ns)
            if engine_may_queue_check(self, round, now_ns):
                round.queue_check = (
                    QUEUE_CHECK_GATHERED if engine_gathers_queue_checks(self, round)
                    else QUEUE_CHECK_WANTED
                )
    elif round.operation_code == OPERATION_ACQUIRE:
        if self.scripts.is_fencing and kind_is(round.kind, KIND_IS_NUMBERED):
            engine_propose_fence(self, round, now_ns)
        if round.terms.linger_ns:
            engine_hear_recalls(self, now_ns)
    round.is_reentrant = self.leadership.depth > 1
    engine_set_first(self, round, now_ns)
    if self.token_uses is not None and (
        operation_is(round.operation_code, OPERATION_CHANGES_KEY)
    ):
        engine_start_given(self, round, now_ns)
    else:
        engine_queue(self, round, <uint64_t>-1, False, now_ns)
    if round.fencing is not None and (<Fencing>round.fencing).is_renewing:
        engine_note_renewed(self, round)
    if is_handing_over:
        engine_hand_over(self, round, now_ns)
    if round.is_rolled_back and round.operation_code == OPERATION_ACQUIRE:
        round.is_rolled_back = False
        return engine_roll_back(self, round, now_ns)
    return 0


cdef int engine_set_first(Engine self, Round round, int64_t now_ns) except -1:
    # Which master is written and read first, as the others behind it are, in a circle.
    # A short detour now and then lets each master answer a lone caller in time; with
    # many callers all masters are read anyway. A release goes to its gate first where
    # somebody may wait for it, or where the last round is long ago: then each write
    # wakes a core, and the message to the next holder is on its way before the others
    # are written (a gap of 1.05 ms was 0.3 ms longer).
    cdef bint is_cold = now_ns - self.started_ns > COLD_NS
    cdef int64_t since = self.counters.rounds % DETOUR_EVERY
    cdef int first = self.first_written
    self.started_ns = now_ns
    if since == 0:
        first = <int>((self.counters.rounds // DETOUR_EVERY) % self.master_count)
    elif since == DETOUR_ROUNDS:
        first = 0
    if round.operation_code == OPERATION_RELEASE and round.gate >= 0 and (
        is_cold or round.queue_check == QUEUE_CHECK_WANTED or wait_queues_are_until(
            self.queues.contended_ns, round_queue(round), now_ns
        )
    ):
        first = round.gate
    if first != self.first_written:
        self.first_written = first
        links_rotate(self.send_order, self.links, self.master_count, first)
    return 0


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
    # Notify nobody while the caller keeps waiting: it tries again, and the next in this
    # process, whose entry the gate may have by now, would try in vain.
    if (
        round.turn is None or round.verdict_code != VERDICT_TAKEN
        or now_ns >= (<Turn>round.turn).until_ns
    ):
        engine_end_stay(self, release, now_ns)
        engine_set_gate(self, release, now_ns)
    if release.token_uses is not None:
        token_uses_add_round(release)
    return engine_queue(self, release, release.may_hold, True, now_ns)
