# The gate of a resource: the one master that keeps the queue of those who wait for it.
#
# Every client finds the same one, from the resource's name and the masters in the order
# of their addresses, however they were listed: the first from there on that is READY.
# Where two clients find different ones, because one of them has lost a connection, or
# knows a server by another name, there are two queues for a while: that costs order,
# nothing else. A master that may not vote now is none.
# A slow gate is passed over, by all alike (moved).


cdef inline int engine_gate(Engine self, bytes resource, int64_t now_ns) noexcept:
    # Its index; -1: no master can be one, or no queue is kept.
    return engine_gate_but(
        self, resource, wait_queues_moved(self.queues, resource, now_ns), now_ns
    )


cdef int engine_gate_but(
    Engine self, bytes resource, uint64_t but, int64_t now_ns
) noexcept:
    cdef Master master
    cdef int i, first
    if not self.scripts.keeps_queues:
        return -1
    first = <int>(engine_hash(resource) % <uint64_t>self.master_count)
    for i in range(self.master_count):
        master = <Master>self.masters[self.gate_order[(first + i) % self.master_count]]
        if master.state_code == MASTER_READY and master.may_queue and (
            now_ns >= master.votes_from_ns and not (but >> master.index) & 1
        ):
            return master.index
    return -1


cdef int engine_set_gate_order(Engine self) except -1:
    cdef Master master
    cdef int place
    by_address = [
        (master.settings.server, master.settings.db, master.index)
        for master in self.masters
    ]
    for place, (_, _, index) in enumerate(sorted(by_address)):
        self.gate_order[place] = index
    return 0


cdef uint64_t engine_hash(bytes resource) noexcept:
    # FNV-1a, 64 bits: http://www.isthe.com/chongo/tech/comp/fnv/
    cdef uint64_t hashed = 0xCBF29CE484222325ULL
    cdef const uint8_t *at = <const uint8_t *>PyBytes_AS_STRING(resource)
    cdef Py_ssize_t i
    for i in range(PyBytes_GET_SIZE(resource)):
        hashed = (hashed ^ at[i]) * <uint64_t>0x100000001B3ULL
    return hashed ^ (hashed >> 32)


cdef int engine_set_gate(Engine self, Round release, int64_t now_ns) except -1:
    # A release of one key notifies the next in the queue, by its script at the gate.
    if release.keys is None:
        release.gate = engine_gate(self, round_queue(release), now_ns)
    return 0


cdef int engine_notify_at_gate(Engine self, Round release, int64_t now_ns) except -1:
    # That of a lease notifies whatever key is at the gate, and takes our entry out
    # where nobody waits here: the gate may never have confirmed the entry.
    cdef WaitQueue queue = None
    if release.keys is not None:
        return 0
    if self.queues.by_resource:
        queue = self.queues.by_resource.get(round_queue(release))
    if queue is None or (queue.opened is None and len(queue.rounds) == 0):
        release.our_entry = OUR_ENTRY_LEAVES
    else:
        release.our_entry = OUR_ENTRY_STAYS
    return engine_set_gate(self, release, now_ns)


cdef Round engine_question(
    Engine self, int operation, bytes resource, Turn turn, Terms terms
):
    # A round that goes to the gate alone. Nobody else can make one.
    cdef Round round = round_new(
        OPERATION_INSPECT, resource, self.queues.waiter, terms, self.master_count
    )
    round.operation_code = operation
    round.turn = turn
    turn.is_open = True
    return round


cdef int engine_send_to_gate(
    Engine self, Round round, int gate, bint by_source, int64_t now_ns
) except -1:
    round.gate = gate
    round.is_submitted = True
    round.closed_list = self.closed
    return engine_queue(self, round, <uint64_t>1 << gate, by_source, now_ns)
