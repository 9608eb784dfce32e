# Which slot of a semaphore a round asks for, and what its end says of it (round/key).


cdef Slots engine_slots(Engine self, bytes name):
    cdef Slots slots = self.queues.slots.get(name)
    if slots is None:
        if len(self.queues.slots) >= REMEMBERED_MOST:
            self.queues.slots.clear()
        slots = self.queues.slots.setdefault(name, slots_new())
    return slots


cdef int engine_set_slot(Engine self, Round round, int slot, int64_t now_ns) except -1:
    # -1: where to try is for us to say. It counts as taken while it is tried.
    cdef bytes name = round_queue(round)
    cdef Slots slots = engine_slots(self, name)
    cdef int start = <int>(engine_hash(round.token) % <uint64_t>round.permits)
    if not 0 <= slot < round.permits:
        slot = slots_choose(slots, round.permits, start, now_ns)
    if slot < 0:
        slot = start
    key = slot_key(name, slot)
    slots_take(slots, slot, now_ns + round.terms.timeout_ns)
    if round_wants_slot(round):      # a finalizer may have opened it for another one
        round.resource = key
    return 0


cdef int engine_on_slot_closed(Engine self, Round round, int64_t now_ns) except -1:
    cdef Slots slots = engine_slots(self, round_queue(round))
    cdef int slot = round_slot(round)
    cdef bint is_won = round.verdict_code == VERDICT_WON
    if round.operation_code == OPERATION_INSPECT:
        return slots_learn(slots, round, now_ns) if is_won else 0
    if slot < 0:
        return 0
    if round.operation_code == OPERATION_RELEASE:
        # Gone, it may be another's by now; unknown, it is as before.
        return slots_give(slots, slot) if is_won else 0
    if is_won:
        return slots_take(
            slots, slot, round.opened_ns + round.terms.ttl_ms * NS_PER_MS
        )
    if round.operation_code == OPERATION_ACQUIRE:
        if round.verdict_code == VERDICT_TAKEN and not round_is_refused(round):
            return slots_take(slots, slot, now_ns + SLOT_SEEN_NS)
        slots.taken_ns.pop(slot, None)
    return 0
