# The connections of an engine: how many there are, opening those that are due, and
# closing all.


cdef int engine_asked_count(Engine self, int operation, int64_t now_ns) noexcept:
    # How many masters a round would be sent to now. A READY one that the restart guard
    # withholds is not among them: to wait for another one is worth while.
    cdef Master master
    cdef int count = 0
    for master in self.masters:
        count += master.state_code == MASTER_READY and (
            operation != OPERATION_ACQUIRE or now_ns >= master.votes_from_ns
        )
    return count


cdef int engine_opening_count(Engine self) noexcept:
    cdef int count = 0, state
    for master in self.masters:
        state = (<Master>master).state_code
        count += state == MASTER_CONNECTING or state == MASTER_HANDSHAKE
    return count


cdef int engine_open_due(Engine self, bint is_urgent, int64_t now_ns) except -1:
    # Begin to connect to every master that is not connected and whose time has come;
    # where a quorum is missing, back-off gives way to a short spacing.
    cdef Master master
    for master in self.masters:
        if master_is_due(master, is_urgent, now_ns):
            engine_open(self, master, now_ns)
    return 0


cdef int engine_open_all(Engine self, int64_t now_ns) except -1:
    # Regardless of the back-off: a caller asks for their present states.
    cdef Master master
    for master in self.masters:
        if not master.link.is_parsing and (
            master.state_code == MASTER_BACKOFF or master.state_code == MASTER_CLOSED
        ):
            engine_open(self, master, now_ns)
    return 0


cdef int engine_open(Engine self, Master master, int64_t now_ns) except -1:
    if self.by_hand is not None:
        master_begin_connect(master, now_ns)
        self.by_hand.append(master.index)
    else:
        master_open(master, now_ns)
    return 0


cdef bint engine_open_deferred(Engine self, int64_t now_ns) except -1:
    # Connect for releases that are deferred, as soon as the back-off allows: no later
    # call may do it. Returns whether there are such connections.
    cdef Master master
    cdef bint is_any = False
    for master in self.masters:
        if len(master.in_flight.deferred) > 0:
            if master_is_due(master, False, now_ns):
                engine_open(self, master, now_ns)
            is_any = is_any or master_is_opening(master)
    return is_any


cdef bint engine_open_deferred_at_end(Engine self, int64_t now_ns) except -1:
    # Once more, at once, here and where one that is READY is cut from now on.
    cdef Master master
    self.counters.is_at_end = True
    for master in self.masters:
        master.retry_at_ns = min(master.retry_at_ns, now_ns)
    return engine_open_deferred(self, now_ns)


cdef bint engine_awaits_replies(Engine self) noexcept:
    for master in self.masters:
        if (<Master>master).in_flight.count:
            return True
    return False


cdef bint engine_is_connected_or_deferring(Engine self) noexcept:
    # Whether there are connections, or releases for them.
    cdef Master master
    for master in self.masters:
        if master.link.fd >= 0 or len(master.in_flight.deferred) > 0:
            return True
    return False


cdef int engine_forget_connections(Engine self, int64_t now_ns) except -1:
    # close(2) all and start anew: after a fork, and at the end. The commands in flight
    # fail, and deferred releases are dropped: a forked child has none of its parent's
    # leases.
    cdef Master master
    for master in self.masters:
        link_close(&master.link)
        master.feed = master.gets = master.handshake = None
        master.addresses = master.tls = None
        master.preparing = master.prepared = None
        master_set_state(master, MASTER_CLOSED)
        master_set_reason(master, "closed" if self.is_closed else "not connected yet")
        master.failures = 0
        in_flight_fail(master.in_flight, master.reason, False, now_ns)
        in_flight_fail_unanswered(master.in_flight, master.reason, now_ns)
        master.in_flight.deferred = []
        master.in_flight.deferred_bytes = 0
        master.client_id = 0
        master.lost_ids = []
    return 0


cdef int engine_forget_but_defer(Engine self, str reason, int64_t now_ns) except -1:
    # The same, but releases are deferred to the next connections.
    cdef Master master
    for master in self.masters:
        master_note_lost(master)
        in_flight_fail(master.in_flight, reason, False, now_ns)
    carried = [(<Master>master).in_flight.deferred for master in self.masters]
    lost_ids = [(<Master>master).lost_ids for master in self.masters]
    engine_forget_connections(self, now_ns)
    for master, releases, ids in zip(self.masters, carried, lost_ids):
        master.in_flight.deferred = releases
        master.lost_ids = ids
    return 0
