# Keys that are idle in this process (the option `linger`): they become idle, are
# granted again, and are given up.

# --- idle keys ------------------------------------------------------------------------
# An idle key: released, and kept for the next caller of this process.
#
# Where nobody waits, a lease that lingers (Terms.idle_ns) is not released at the
# masters: its key is idle here, and the next acquire takes it without a byte. Then
# `is_idle`, and `round` has the key, with a token that no lease knows any more. It
# is given up when another process asks for it (a recall), when its time is over, and
# when it does not serve a caller as well as a round would.
#
# So that others find us, the token of a lease that lingers begins with the name of this
# process's channel: a gate that is asked for a key notifies the one named in its value.
#
# To become idle and to be granted again are changes of this process alone, as to hand a
# lease on. A key is given up in a pass, by its release, which the gate's script makes
# the turn of whoever waits:
#
#   recalled    a gate asks for it: somebody else wants the key
#   due         its time is over
#   replaced    a caller here needs a round of its own: the release and its SET leave in
#               one write, in that order
#   ended       close(), the end of the interpreter or of the loop
#
# While a key is idle, recalls have to be read: by an event loop, or a thread (`watch`).

# This is in front of a key in a message of a gate. No resource has such a name.
cdef bytes RECALL = b"!fastredlock:"


@cython.final
@cython.internal
cdef class IdleKey(Due):
    cdef Round round             # has the key while it is idle; used again and again
    cdef int64_t until_ns        # it is idle so long at most
    cdef bint is_idle


@cython.final
cdef class IdleKeys:
    """The keys that are idle in one engine, and what reads recalls meanwhile."""

    cdef dict keys               # resource: IdleKey
    cdef public object watch     # the shell's: has recalls read; or None
    cdef object watcher          # what does, until no key is idle; or None
    cdef bint were_any           # watch the connections
    cdef int64_t deaf_epoch      # of the conditions, when keys were idle last

    def __cinit__(self):
        self.keys = {}


cdef int idle_forget(IdleKeys self) except -1:
    # Forget all in a forked child.
    self.keys = {}
    self.watcher = None


cdef void idle_watch(IdleKeys self, object watcher) noexcept:
    # This does; None: nothing any more.
    self.watcher = watcher


cdef void idle_end_watch(IdleKeys self) noexcept:
    self.watch = self.watcher = None


cdef IdleKey idle_new(Round grant):
    cdef IdleKey self = IdleKey.__new__(IdleKey)
    self.round = round_new(
        OPERATION_ACQUIRE, grant.resource, HANDED_ON, grant.terms, grant.electorate
    )
    self.due_ns = NEVER_NS
    return self


cdef int64_t idle_until_ns(Round grant, int64_t now_ns) noexcept:
    # Return until when this grant may be idle: as long as it lingers, and as a caller
    # with its terms is served as well as by a round. 0: not at all.
    cdef Terms terms = grant.terms
    cdef int64_t until_ns = min(now_ns + terms.idle_ns, (
        round_valid_until_ns(grant) - round_validity_at_worst_ns(terms)
    ))
    return until_ns if now_ns < until_ns and round_is_plain(grant) else 0


cdef void idle_fill(
    IdleKey self, Round grant, int64_t until_ns, int64_t now_ns
) noexcept:
    # Fill it at once, with nothing that can fail.
    round_hand_on(grant, self.round, now_ns)
    round_finish(self.round)
    self.until_ns = until_ns
    self.is_idle = True


cdef bint idle_begin(Engine self, Round release, int64_t now_ns) except -1:
    # Return whether the key of what is released becomes idle. This may be outside of a
    # pass: from the last look on nothing can fail or run a finalizer. Mostly the place
    # is there.
    cdef Round grant = release.origin
    cdef IdleKey idle
    cdef int64_t until_ns
    if grant.terms.idle_ns == 0 or not kind_is(grant.kind, KIND_MAY_BE_IDLE):
        return False
    idle = self.idle.keys.get(grant.resource)
    until_ns = idle_until_ns(grant, now_ns)
    if idle is None or self.idle.watcher is None or until_ns < idle.due_ns:
        if not idle_is_allowed(self, grant, now_ns):
            return False
        if idle is None:
            idle = self.idle.keys.setdefault(grant.resource, idle_new(grant))
        if until_ns < idle.due_ns:
            gate_set_due(self, idle, until_ns)
        if (
            not idle_is_watched(self)
            or self.idle.keys.get(grant.resource) is not idle
        ):
            return False
    if idle.is_idle or is_exiting or self.is_closed or release.is_submitted or (
        not idle_is_allowed(self, grant, now_ns)
    ):
        return False
    self.idle.were_any = True
    round_open(release, now_ns)
    idle_fill(idle, grant, until_ns, now_ns)
    round_end_here(release, now_ns)
    self.counters.ended[OPERATION_RELEASE][VERDICT_WON] += 1
    return True


cdef bint idle_is_allowed(Engine self, Round grant, int64_t now_ns) except -1:
    # Its gate has to have the key, as far as is known, or a recall would not find us;
    # and nobody to wait.
    cdef int gate = gate_master(self, grant.resource, now_ns)
    return (
        gate >= 0 and (grant.may_hold >> gate) & 1
        and set_has(grant.granted | round_pending(grant), gate)
        and gate_connection(self, gate, grant.resource).is_subscribed
        and grant.resource not in self.queues.by_resource
        and READERS + grant.resource not in self.queues.by_resource
        and not wait_queues_are_until(self.queues.contended_ns, grant.resource, now_ns)
        and idle_until_ns(grant, now_ns) != 0
    )


cdef bint idle_is_watched(Engine self) except -1:
    # Return whether recalls are read by now. A thread that is only started here may
    # find one that came before, while the lease was held: the next key lingers.
    if self.idle.watcher is not None or self.idle.watch is None or is_exiting:
        return self.idle.watcher is not None
    self.idle.watcher = True
    try:
        watcher = self.idle.watch(self, self.driver)
    except BaseException:
        self.idle.watcher = None
        raise
    if self.idle.watcher is True:      # else it is over already
        self.idle.watcher = watcher
    return self.driver is not None and self.idle.watcher is not None


cdef bint idle_take(Engine self, Round next, int64_t now_ns) noexcept:
    # Return whether this acquire has a key that was idle here: it is won.
    cdef IdleKey idle = self.idle.keys.get(next.resource)
    if idle is None or not idle.is_idle or now_ns >= idle.until_ns or (
        self.is_closed or is_exiting or self.generation != current_generation
        or not round_may_be_given(idle.round, next, now_ns)
    ):
        return False
    idle.is_idle = False
    round_hand_on(idle.round, next, now_ns)
    round_end_here(next, now_ns)
    self.counters.ended[OPERATION_ACQUIRE][VERDICT_WON] += 1
    self.counters.lingered += 1
    return True


cdef int idle_end(Engine self, IdleKey idle, int64_t now_ns) except -1:
    # It is sent by source, because perhaps nobody reads NOSCRIPT.
    cdef Round release
    if not idle.is_idle:
        return 0
    release = round_new_release(idle.round, idle.round.terms, idle.round.may_hold)
    idle.is_idle = False
    round_submit(release, None)
    self.counters.rounds += 1
    gate_notify(self, release, now_ns)
    self.is_notifying = True
    round_send(release, self.to_send, TO_ALL, True, now_ns)


cdef int idle_end_all(Engine self, int64_t now_ns) except -1:
    for idle in list(self.idle.keys.values()):
        idle_end(self, <IdleKey>idle, now_ns)
    self.idle.keys.clear()


cdef int idle_check(Engine self, int64_t now_ns) except -1:
    # A master that a connection was lost to, or that refuses our channel, tells of no
    # recall any more. In a pass: a finalizer could take a key that is being released.
    if self.idle.deaf_epoch != self.conditions.deaf_epoch:
        self.idle.deaf_epoch = self.conditions.deaf_epoch
        idle_end_all(self, now_ns)


cdef int idle_replace(Engine self, object work, int64_t now_ns) except -1:
    # End the idle keys of an acquire before it is sent.
    cdef Round round
    for round in (<Batch>work).rounds if type(work) is Batch else (work,):
        if round.operation_code == OPERATION_ACQUIRE:
            for key in round.keys or (round.resource,):
                idle = self.idle.keys.get(key)
                if idle is not None:
                    idle_end(self, <IdleKey>idle, now_ns)


cdef int idle_recall(Engine self, Round refused, int64_t now_ns) except -1:
    # Whoever leaves a queue, or never was in it, recalls the key: at a master that has
    # it, which its gate may not. Not by source: it may get lost.
    cdef Master master
    cdef Connection connection
    cdef int at = -1
    if not self.scripts.keeps_queues:
        return 0
    for key in refused.keys or (refused.resource,):      # others may wait (gate_notify)
        met = max(now_ns, <int64_t>self.queues.contended_ns.get(key, 0))
        wait_queues_remember(self.queues.contended_ns, <bytes>key, met)
    for master in self.masters:
        connection = master_connection(master, refused.resource)
        if set_has(refused.taken, master.vote) and (
            connection.state_code == MASTER_READY and connection.may_queue
        ):
            at = master.vote
            if at == gate_master(self, refused.resource, now_ns):
                break
    for key in refused.keys or (refused.resource,):
        queue = self.queues.by_resource.get(key)
        if queue is None or (<WaitQueue>queue).gate != at:
            gate_leave_queue(self, key, at, now_ns, by_source=False)
