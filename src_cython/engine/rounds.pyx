# The rounds of an engine: made, handed on in lists, and ended where they are torn.

cdef extern from "Python.h":
    int PyList_SetSlice(
        object items, Py_ssize_t low, Py_ssize_t high, PyObject *new
    ) except -1

cdef enum:
    TAKEN_TOGETHER = 256


cdef class Engine             # engine/engine


cdef inline Round engine_next_of(list rounds, Py_ssize_t *first):
    # Removed many at a time: to remove the first of thousands moves all the others.
    # Nothing is allocated here, and the finalizers of the removed run at the end: one
    # that takes a lock comes through here, too.
    cdef Round round = <Round>rounds[first[0]]
    cdef Py_ssize_t taken = first[0] + 1
    first[0] = taken
    if taken == len(rounds) or taken == TAKEN_TOGETHER:
        first[0] = 0
        PyList_SetSlice(rounds, 0, taken, NULL)
    return round


cdef int engine_end_torn(Engine self, Round round, int64_t now_ns) except -1:
    # An exception came between two halves of a change (no memory, or too deep a
    # recursion: signal handlers do not run there), so the round may be in no list: it
    # ends, or its caller would wait for ever.
    cdef Turn turn = <Turn>round.turn
    if turn is not None and turn.queue is not None and not turn.is_open:
        wait_queue_remove(turn.queue, round)
        turn.queue.due_ns = now_ns
        wait_queues_add_due(self.queues, now_ns, turn.queue)
    engine_note_time(self, now_ns)
    round.is_submitted = True
    if round.verdict_code == VERDICT_OPEN:
        round.closed_list = self.closed
    return round_give_up(round, "interrupted", now_ns)


cdef inline object engine_keys(Engine self, object keys):
    # What the caller names, as the masters know it.
    if isinstance(keys, KeyOfKind):
        keys = (<KeyOfKind>keys).name
    if self.key_prefix is None:
        return keys
    if type(keys) is tuple:      # sorted as before
        return tuple([self.key_prefix + <bytes?>key for key in keys])
    return self.key_prefix + <bytes?>keys


cdef inline void engine_note_time(Engine self, int64_t due_ns) noexcept:
    counters_note_due(self.counters, due_ns)


cdef Round engine_new_round(
    Engine self, int operation, object keys, bytes token, Terms terms
):
    cdef Round round
    if self.spare is None:      # used by a release: no lock without one for the next
        self.spare = Round.__new__(Round)
    if isinstance(keys, KeyOfKind):
        round = round_new(
            operation, <bytes>engine_keys(self, keys), token, terms, self.master_count
        )
        round.kind = (<KeyOfKind>keys).kind
        round.permits = (<KeyOfKind>keys).count
        return round
    keys = engine_keys(self, keys)
    if type(keys) is not tuple:
        if terms.linger_ns and operation == OPERATION_ACQUIRE:
            token = rest_token(self.queues.waiter, token)
        return round_new(operation, keys, token, terms, self.master_count)
    check_keys(keys)
    if operation == OPERATION_INSPECT:
        raise ValueError("keys are inspected one by one")
    round = round_new(operation, keys[0], token, terms, self.master_count)
    round.keys = keys
    round.kind = KIND_SEVERAL
    return round


cdef Round engine_round_of_lease(Engine self, int operation, Round lease, Terms terms):
    cdef Round round = Round.__new__(Round)
    engine_init_of_lease(self, round, operation, lease, terms)
    return round


cdef int engine_init_of_lease(
    Engine self, Round round, int operation, Round lease, Terms terms
) except -1:
    round_init(
        round, operation, lease.resource, lease.token, terms, self.master_count
    )
    round.keys = lease.keys
    round.kind = lease.kind
    round.permits = lease.permits
    round.token_uses = lease.token_uses
    return 0


cdef Round engine_new_extension(Engine self, Round lease, Terms terms):
    cdef Round extension = engine_round_of_lease(self, OPERATION_EXTEND, lease, terms)
    extension.lease_state = lease
    lease.extensions += 1
    extension.extensions = lease.extensions
    return extension


cdef Round engine_new_release(Engine self, Round lease, Terms terms):
    # Of two, by two threads or after one that was unconfirmed, either may be sent late:
    # from the second on it is not handed on. Before the token is read. Without memory
    # it is the spare one, which was in its place before the acquire was made.
    cdef Round release
    lease.is_shown |= lease.is_released
    lease.is_released = True
    try:
        release = engine_round_of_lease(self, OPERATION_RELEASE, lease, terms)
    except MemoryError:
        release, self.spare = self.spare, None
        if release is None:
            raise
        engine_init_of_lease(self, release, OPERATION_RELEASE, lease, terms)
    release.may_hold = lease.may_hold
    return release


cdef int engine_end_batch(Engine self, Batch batch) except -1:
    # Wake its caller, if it is over.
    if batch.is_finished or not batch_is_over(batch):
        return 0
    batch.is_finished = self.has_batch = True
    waiter, batch.waiter = batch.waiter, None
    return waiter_wake(waiter)


cdef bint engine_has_no_slot(Engine self, Permits permits, int64_t now_ns) except -1:
    # Whether each slot counts as taken.
    cdef Slots slots = self.queues.slots.get(engine_keys(self, permits))
    return slots is not None and slots_choose(slots, permits.count, 0, now_ns) < 0


cdef bint engine_is_contended(Engine self, object keys, int64_t now_ns) except -1:
    if not (self.queues.by_resource or self.queues.contended_ns) and (
        type(keys) is not Permits
    ):
        return False
    name = engine_keys(self, keys)
    return (
        name in self.queues.by_resource
        or wait_queues_are_until(self.queues.contended_ns, name, now_ns)
        or type(keys) is Permits and engine_has_no_slot(self, <Permits>keys, now_ns)
    )
