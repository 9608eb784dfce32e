# Keys at rest in this process (round/local): they come to rest, are taken, and given
# up.
#
# To come to rest and to be taken are changes of this process alone, as to hand a lease
# on: a thread that has the GIL does both while another one leads. A key is given up in
# a step, by its release, which the gate's script makes the turn of whoever waits.
#
#   recalled    a gate asks for it: somebody else wants the key
#   due         its time is over
#   replaced    a caller here needs a round of its own: the release and its SET leave in
#               one write, in that order
#   ended       close(), the end of the interpreter or of the loop
#
# While a key rests somebody has to read recalls: an event loop, or a thread (`watch`).


cdef bint engine_rest(Engine self, Round release, int64_t now_ns) except -1:
    # Whether what is released rests instead. From the look on nothing can fail or run
    # a finalizer.
    cdef Rest rest
    cdef Round taken = <Round>release.lease_state
    if taken.terms.linger_ns == 0 or not kind_is(taken.kind, KIND_RESTS):
        return False
    rest = engine_place_of_rest(self, taken, now_ns)
    if rest is None or not engine_may_rest(self, taken, now_ns) or (
        rest.is_at_rest or is_exiting or self.is_closed or release.is_submitted
    ):
        return False
    self.has_rested = True
    round_open(release, now_ns)
    rest_begin(rest, taken, round_rest_until_ns(taken, now_ns), now_ns)
    engine_end_here(self, release, now_ns)
    return True


cdef Rest engine_place_of_rest(Engine self, Round taken, int64_t now_ns):
    # Where it may rest, with somebody who reads recalls; None: not now. The common one
    # has both.
    cdef Rest rest = self.rests.get(taken.resource)
    cdef int64_t until_ns = round_rest_until_ns(taken, now_ns)
    if rest is not None and self.watcher is not None and until_ns >= rest.due_ns:
        return rest
    if not engine_may_rest(self, taken, now_ns):
        return None
    if rest is None:
        rest = self.rests.setdefault(taken.resource, rest_new(taken))
    if until_ns < rest.due_ns:
        rest.due_ns = until_ns
        engine_add_due(self, until_ns, rest)
    if not engine_is_watched(self) or self.rests.get(taken.resource) is not rest:
        return None      # a recall came, or a finalizer was here
    return rest


cdef bint engine_may_rest(Engine self, Round taken, int64_t now_ns) except -1:
    # Its gate has to have the key, as far as is known, or a recall would not find us;
    # and nobody to wait.
    cdef int gate = engine_gate(self, taken.resource, now_ns)
    return (
        gate >= 0 and (taken.may_hold >> gate) & 1
        and taken.cells[gate].vote in (VOTE_GRANTED, VOTE_PENDING)
        and (<Master>self.masters[gate]).is_subscribed
        and taken.resource not in self.queues.by_resource
        and not wait_queues_are_until(
            self.queues.contended_ns, taken.resource, now_ns
        )
        and round_rest_until_ns(taken, now_ns) != 0
    )


cdef bint engine_is_watched(Engine self) except -1:
    # Whether recalls are read by now. A thread that is only started here may find one
    # that came before, while the lease was held: the next key rests.
    if self.watcher is not None:
        return True
    if self.watch is None or is_exiting:
        return False
    self.watcher = True
    try:
        watcher = self.watch(self, self.driver)
    except BaseException:
        self.watcher = None
        raise
    if self.watcher is True:      # else it is over already
        self.watcher = watcher
    return self.driver is not None and self.watcher is not None


cdef void engine_end_here(Engine self, Round round, int64_t now_ns) noexcept:
    # Nobody was asked: it counts as ended, and teaches nothing of any master.
    round.may_hold = 0 if round.operation_code == OPERATION_RELEASE else round.may_hold
    round.is_submitted = True
    round_close(round, VERDICT_WON, now_ns)
    self.counters.ended[round.operation_code][VERDICT_WON] += 1
    round.is_finished = True


cdef bint engine_take_rest(Engine self, Round next, int64_t now_ns) noexcept:
    # Whether this acquire has a key that rested here: it is won.
    cdef Rest rest = self.rests.get(next.resource)
    if rest is None or next.is_submitted or self.is_closed or is_exiting or (
        self.generation != current_generation
        or not rest_serves(rest, next, now_ns)
    ):
        return False
    rest.is_at_rest = False
    round_hand_on(rest.round, next, now_ns)
    engine_end_here(self, next, now_ns)
    self.counters.lingered += 1
    return True


cdef int engine_end_rest(Engine self, Rest rest, int64_t now_ns) except -1:
    # By source: nobody may read NOSCRIPT.
    cdef Round release
    if not rest.is_at_rest:
        return 0
    release = engine_new_release(self, rest.round, rest.round.terms)
    if not rest.is_at_rest or release.token is not rest.round.token:
        return 0      # a finalizer has taken it meanwhile
    rest.is_at_rest = False
    release.is_submitted = True
    self.counters.rounds += 1
    engine_notify_at_gate(self, release, now_ns)
    self.is_notifying = True
    engine_queue(self, release, <uint64_t>-1, True, now_ns)
    engine_open_deferred(self, now_ns)      # no call may come that does
    return 0


cdef int engine_end_rests(Engine self, int64_t now_ns) except -1:
    for rest in list(self.rests.values()):
        engine_end_rest(self, <Rest>rest, now_ns)
    self.rests.clear()
    return 0


cdef int engine_check_rests(Engine self, int64_t now_ns) except -1:
    # A master that a connection was lost to, or that refuses our channel, tells of no
    # recall any more. Releases that were lost with it are sent though no call comes.
    if self.deaf_epoch != self.counters.deaf_epoch:
        self.deaf_epoch = self.counters.deaf_epoch
        engine_end_rests(self, now_ns)
        engine_open_deferred(self, now_ns)
    return 0


cdef int engine_replace_rests(Engine self, object work, int64_t now_ns) except -1:
    # Before an acquire is sent for what rests here.
    cdef Round round
    for round in (<Batch>work).rounds if type(work) is Batch else (work,):
        if round.operation_code == OPERATION_ACQUIRE:
            for key in round.keys or (round.resource,):
                rest = self.rests.get(key)
                if rest is not None:
                    engine_end_rest(self, <Rest>rest, now_ns)
    return 0


cdef int engine_on_rest_due(Engine self, Rest rest, int64_t now_ns) except -1:
    if self.rests.get(rest.resource) is not rest:
        return 0
    if rest.is_at_rest and now_ns < rest.until_ns:
        rest.due_ns = rest.until_ns
        return engine_add_due(self, rest.due_ns, rest)
    self.rests.pop(rest.resource, None)
    return engine_end_rest(self, rest, now_ns)


cdef bint engine_is_recalled(Engine self, bytes push, int64_t now_ns) except -1:
    # A gate asks for a key of ours. In use, it does not rest when it is released.
    if push[:1] != b"!" or not push.startswith(RECALL):
        return False
    resource = push[len(RECALL):]
    wait_queues_remember(self.queues.contended_ns, resource, now_ns + CONTENDED_NS)
    rest = self.rests.get(resource)
    if rest is not None:
        engine_end_rest(self, <Rest>rest, now_ns)
    return True


cdef int engine_hear_recalls(Engine self, int64_t now_ns) except -1:
    # Before a key that may rest is taken: an asker may have another gate than we.
    cdef Master master
    for master in self.masters:
        if master.state_code == MASTER_READY and master.may_queue:
            master_subscribe(master, self.queues.waiter, now_ns)
    return 0


cdef int engine_recall(Engine self, Round refused, int64_t now_ns) except -1:
    # Whoever leaves a queue, or never was in it, recalls the key: at a master that has
    # it, which its gate may not. Not by source: it may get lost.
    cdef int i, at = -1
    for i in range(self.master_count):
        if refused.cells[i].vote == VOTE_TAKEN and (
            (<Master>self.masters[i]).state_code == MASTER_READY
            and (<Master>self.masters[i]).may_queue
        ):
            at = i
            if i == engine_gate(self, refused.resource, now_ns):
                break
    if at < 0 or not self.scripts.keeps_queues:
        return 0
    for key in refused.keys or (refused.resource,):
        queue = self.queues.by_resource.get(key)
        if queue is None or (<WaitQueue>queue).gate != at:
            leave = engine_question(
                self, OPERATION_LEAVE_QUEUE, key, turn_new(now_ns, False), LEAVE_TERMS
            )
            engine_send_to_gate(self, leave, at, False, now_ns)
    return 0
