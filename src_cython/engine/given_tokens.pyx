# Rounds with a token that the caller gave: whether they may be sent, and to which
# masters. The rules are in token_use; here they are applied to N masters.


cdef str HELD_HERE = "held in this process, under the same token"
cdef str NOT_SETTLED = "not asked: an earlier use of this token is not settled here"


cdef int engine_start_given(Engine self, Round round, int64_t now_ns) except -1:
    if round.operation_code == OPERATION_ACQUIRE:
        return engine_acquire_given(self, round, now_ns)
    if round_is_overused(round):
        return engine_withhold_all(self, round, VOTE_TAKEN, None, now_ns)
    if round.token_uses is None:      # adopted
        round.token_uses = engine_current_token_uses(self, round)
    token_uses_add_round(round)
    return engine_queue(self, round, <uint64_t>-1, False, now_ns)


cdef int engine_acquire_given(Engine self, Round round, int64_t now_ns) except -1:
    cdef tuple earlier = engine_current_token_uses(self, round)
    cdef uint64_t late = 0, unsettled = 0, bit
    cdef Master master
    cdef int ready = 0
    for use in earlier:
        if token_use_is_held(<TokenUse>use, now_ns):
            return engine_withhold_all(self, round, VOTE_TAKEN, HELD_HERE, now_ns)
    for master in self.masters:
        bit = <uint64_t>1 << master.index
        ready += master.state_code == MASTER_READY
        for use in earlier:
            if token_use_is_late(
                <TokenUse>use, master.index, master.state_code == MASTER_READY,
                master.ready_at_ns, now_ns,
            ):
                late |= bit
            elif token_use_is_unsettled(<TokenUse>use, master.index, now_ns):
                unsettled |= bit
    if self.master_count - bit_count(late | unsettled) < self.quorum <= ready:
        if self.master_count - bit_count(late) >= self.quorum:
            round.withheld = WITHHELD_FOR_REPLIES
        return engine_withhold_all(self, round, VOTE_FAILED, NOT_SETTLED, now_ns)
    round.token_uses = engine_renewed_token_uses(self, round, earlier)
    token_uses_add_round(round)
    engine_sweep_token_uses(self, now_ns)
    engine_queue(self, round, ~late, False, now_ns)
    for master in self.masters:
        if not (late >> master.index) & 1:
            continue
        text = NOT_SETTLED if master.state_code == MASTER_READY else master.reason
        round_on_vote(round, master.index, VOTE_FAILED, text, False, now_ns)
    return 0


cdef int engine_withhold_all(
    Engine self, Round round, int vote, str text, int64_t now_ns
) except -1:
    # Send it to no master; it is closed at once.
    cdef int i
    round_open(round, now_ns)
    round.withheld = round.withheld or WITHHELD_YES
    for i in range(self.master_count):
        round_on_vote(round, i, vote, text, False, now_ns)
    return 0


# --- the uses of its pairs --------------------------------------------------------

cdef tuple engine_current_token_uses(Engine self, Round round):
    # The last use of each pair, made where there was none.
    cdef TokenUse use
    uses = []
    for key in round.keys or (round.resource,):
        use = self.token_uses.get((key, round.token))
        if use is None:
            use = TokenUse.__new__(TokenUse)
            use.dropped = {}
            self.token_uses[key, round.token] = use
        uses.append(use)
    return tuple(uses)


cdef tuple engine_renewed_token_uses(Engine self, Round round, tuple earlier):
    # A new use of each pair; the earlier one is over.
    cdef TokenUse use, old
    renewed = []
    for key, old in zip(round.keys or (round.resource,), earlier):
        if token_use_is_blank(old):
            renewed.append(old)
            continue
        old.is_over = True
        use = TokenUse.__new__(TokenUse)
        use.dropped = old.dropped
        self.token_uses[key, round.token] = use
        renewed.append(use)
    return tuple(renewed)


cdef int engine_sweep_token_uses(Engine self, int64_t now_ns) except -1:
    # Forget those that no call can refer to any more; costs a share of each new one.
    cdef TokenUse use
    cdef Master master
    if len(self.token_uses) < max(self.sweep_at, <Py_ssize_t>SWEEP_AT_LEAST):
        return 0
    for pair, use in list(self.token_uses.items()):
        for master in self.masters:
            token_use_is_late(
                use, master.index, master.state_code == MASTER_READY,
                master.ready_at_ns, now_ns,
            )
        if not use.dropped and token_use_is_done(use, now_ns):
            use.is_over = True
            del self.token_uses[pair]
    self.sweep_at = 2 * len(self.token_uses)
    return 0
