# An engine's rounds and the N masters that they go to: the lists of rounds, connections
# that are opened and counted, and commands that are made and queued for each master.

# --- rounds ---------------------------------------------------------------------------
# The rounds of an engine: made, handed on in lists, and ended where they fail.

cdef class Engine             # engine/engine


cdef int engine_end_failed(Engine self, Round round, int64_t now_ns) except -1:
    # There was no memory in the middle of a change, so the round may be in no list: it
    # ends, or its caller would wait for ever.
    cdef Turn turn = round.turn
    due_note(self.due, now_ns)
    if turn is not None and turn.queue is not None and not turn.is_open:
        wait_queue_remove(turn.queue, round)
        turn.queue.due_ns = now_ns
        wait_queues_add_due(self.queues, now_ns, turn.queue)
    round_submit(round, self.closed)
    return round_give_up(round, "interrupted", now_ns)


cdef inline object engine_keys(Engine self, object keys):
    # What the caller names, as the masters know it.
    cdef bint is_semaphore = type(keys) is Permits
    if is_semaphore:
        keys = (<Permits>keys).name
    elif type(keys) is Shared:
        keys = (<Shared>keys).name
    # With tokens of the caller it may be the name of another library's lock.
    if self.has_slots and (is_semaphore or self.token_uses is None):
        keys = routes_name(keys) if type(keys) is bytes else (
            tuple(sorted([routes_name(key) for key in keys]))
        )
    if self.key_prefix is not None and type(keys) is tuple:      # sorted as before
        keys = tuple([self.key_prefix + <bytes?>key for key in keys])
    elif self.key_prefix is not None:
        keys = self.key_prefix + <bytes?>keys
    if self.has_slots:
        refusal = routes_refusal(keys)
        if refusal is not None:
            raise self.key_error(refusal)
    return keys


cdef Round engine_new_round(
    Engine self, int operation, object keys, bytes token, Terms terms
):
    name = engine_keys(self, keys)
    if type(name) is tuple:
        check_keys(name)
        if operation == OPERATION_INSPECT:
            raise ValueError("keys are inspected one by one")
        return round_of_keys(operation, name, token, terms, self.electorate)
    if type(keys) is Permits:
        return round_of_slots(
            operation, name, (<Permits>keys).count, token, terms, self.electorate
        )
    if type(keys) is Shared:
        return round_of_shared(operation, name, token, terms, self.electorate)
    if terms.idle_ns and operation == OPERATION_ACQUIRE:
        token = b"~" + self.queues.waiter + b"~" + token      # whom to recall
    return round_new(operation, name, token, terms, self.electorate)


cdef int engine_end_batch(Engine self, Batch batch) except -1:
    # Wake its caller, if it is over.
    if batch.is_finished or batch.under_way > 0 and not batch.is_withdrawn or (
        batch.next < len(batch.rounds) and not batch_is_given_up(batch)
    ):
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
        or type(keys) is Shared and READERS + <bytes>name in self.queues.by_resource
        or wait_queues_are_until(self.queues.contended_ns, name, now_ns)
        or type(keys) is Permits and engine_has_no_slot(self, <Permits>keys, now_ns)
    )


# --- connections ----------------------------------------------------------------------
# How many connections there are, opening those that are due, and closing all.

cdef struct Prospects:       # sets of masters
    uint64_t opening         # connections on their way
    uint64_t ready           # take an operation,
    uint64_t voting          # and an ACQUIRE: no restart guard withholds them


cdef Prospects engine_prospects(Engine self, Round round, int64_t now_ns) noexcept:
    # Of this round: that of a cluster is the node which has its key, or the next map.
    # None: of any, if no master is a cluster.
    cdef Prospects prospects = Prospects(0, 0, 0)
    cdef Master master
    cdef Connection connection
    cdef bint is_opening
    for master in self.masters:
        connection = master.connection
        if round is not None:
            connection = master_connection(master, round.resource)
        is_opening = connection_is_opening(connection)
        if connection.state_code == MASTER_READY:
            prospects.ready |= set_of(master.vote)
            if now_ns >= connection.restart_guard.until_ns:
                prospects.voting |= set_of(master.vote)
        else:
            is_opening |= connection_is_opening(master.connection)
        if round is not None and round.is_connecting:
            is_opening |= nodes_are_opening(master)
        if is_opening:
            prospects.opening |= set_of(master.vote)
    return prospects


cdef int engine_rank(Engine self) except -1:
    # The order of the gates, by what all clients see alike. One cluster may have other
    # seeds in each of them, so it is the smallest id of its nodes, replicas too. (Where
    # that node leaves, some have the order of before for a while.) While the list of
    # masters changes, gates are those of the old list: clients of that know no others.
    cdef list ranks = sorted([
        (<Master>master).rank for master in self.masters
        if set_has(self.electorate.first, (<Master>master).vote)
    ])
    for place, (_, _, vote) in enumerate(ranks):
        self.gate_order[place] = vote


cdef int engine_take_map(Engine self, Master master, int64_t now_ns) except -1:
    # Of a cluster, or the one that it has is seen to be old: new nodes get a place.
    cdef Connection node
    nodes_follow_map(master, now_ns)
    engine_rank(self)
    for node in master.nodes:
        if node is not None and node.place < 0:
            engine_add(self, node)
    return engine_open_due(self, False, now_ns)


cdef int engine_add(Engine self, Connection connection) except -1:
    connection.place = self.connection_count
    self.links[connection.place] = &connection.link
    self.connections.append(connection)
    self.connection_count += 1


cdef int engine_open_due(Engine self, bint is_urgent, int64_t now_ns) except -1:
    # Begin to connect to every master that is not connected and whose time has come;
    # where a quorum is missing, back-off gives way to a short spacing.
    cdef Connection connection
    for connection in self.connections:
        if connection_is_due(connection, is_urgent, now_ns):
            engine_open(self, connection, now_ns)


cdef int engine_open(Engine self, Connection connection, int64_t now_ns) except -1:
    cdef bint collects = pass_begin()
    try:
        if self.by_hand is not None:
            connection_begin_connect(connection, now_ns)
            self.by_hand.append(connection.place)
        else:
            connection_open(connection, now_ns)
    finally:
        pass_end(collects)


cdef bint engine_open_deferred(Engine self, int64_t now_ns) except -1:
    # Connect for releases that are deferred, as soon as the back-off allows, and for
    # the map of a cluster: no later call may do it. Returns whether there are any.
    cdef Connection connection, each
    cdef bint is_any = False
    for connection in self.connections:
        if connection.in_flight.deferred:
            for each in (connection, connection.master.connection):
                if connection_is_due(each, False, now_ns):
                    engine_open(self, each, now_ns)
            is_any = True
    return is_any


cdef bint engine_open_deferred_at_end(Engine self, int64_t now_ns) except -1:
    # At once, here and where one that is READY is cut from now on; where it is refused,
    # again and again until the drain ends.
    cdef Connection connection
    self.conditions.is_at_end = True
    for connection in self.connections:
        connection_retry_now(connection, now_ns)
    return engine_open_deferred(self, now_ns)


cdef bint engine_awaits_replies(Engine self) noexcept:
    for connection in self.connections:
        if (<Connection>connection).in_flight.count:
            return True
    return False


cdef bint engine_is_connected_or_deferring(Engine self) noexcept:
    cdef Connection connection
    for connection in self.connections:
        if connection.link.fd >= 0 or connection.in_flight.deferred:
            return True
    return False


cdef int engine_forget_connections(
    Engine self, int64_t now_ns, str deferred_for=None
) except -1:
    # close(2) all and start anew: after a fork, and at the end. The commands in flight
    # fail, and deferred releases are dropped: a forked child has none of its parent's
    # leases. With a reason to defer them, releases go to the next connections.
    cdef Connection connection
    cdef str reason = "closed" if self.is_closed else "not connected yet"
    for connection in self.connections:
        if deferred_for is not None:
            connection_note_lost(connection)
            in_flight_fail(connection.in_flight, deferred_for, False, now_ns)
        connection_forget(connection, reason, now_ns)
        if deferred_for is None:
            deferred_take(connection.in_flight)
            connection_forget_lost(connection)


# --- review ---------------------------------------------------------------------------
# The review of a master that has become READY, or has something to report: warnings for
# the user, each once, and the masters that must not vote. A warning ends by the next
# handshake that does not find it; those that a reply gave begin anew with it, too.


cdef int engine_review(Engine self, Connection connection, int64_t now_ns) except -1:
    # It has become READY, its server's clock jumped, or it has a new warning.
    cdef Connection other
    cdef Report report = connection.report
    cdef str server = connection_server(connection), refusal = None
    cdef bint is_introduced = report.is_introduced
    cdef list found = []
    if connection.node != NODE_NONE:
        engine_take_map(self, connection.master, now_ns)
    if connection.clock.step_ns:
        step_s = connection.clock.step_ns / 1e9
        found.append(f"its clock jumped by {step_s:+.3f} s")
    for text in connection.server_info.warnings() + report_begin_review(report):
        if connection.node == NODE_NONE or not text.startswith("is a cluster node"):
            found.append(text)
    if connection.node == NODE_MAP:      # no server: it reads maps
        return engine_warn(self, report, found)
    for other in self.connections:
        if server is None or other.vote == connection.vote or (
            other.state_code != MASTER_READY or connection_server(other) != server
        ):
            continue
        if not self.servers_may_be_same or (
            other.master.settings.db == connection.master.settings.db
        ):
            refusal = (
                f"is the same server as {other.master.name}: one server has one vote"
            )
            if None in (connection.server_info.run_id, other.server_info.run_id):
                refusal += " (or has a copy of its data: grant +info to tell)"
        # Databases of one server, where a replaced library took them.
        elif other.master.server != connection.master.server:    # else reported before
            found.append(
                f"is the same server as {other.master.name}: "
                "its databases fail together"
            )
    if refusal is not None and connection.state_code == MASTER_READY:
        engine_warn(self, report, found + [refusal])
        return connection_on_lost(connection, refusal, now_ns)
    engine_warn(self, report, found)
    if is_introduced and connection.state_code == MASTER_READY:      # else refused
        return report_back(report, "connected", now_ns)


cdef int engine_warn(Engine self, Report report, list found) except -1:
    for text in report_take_warnings(report, found, engine_warnings(self)):
        self.unlogged.append((LEVEL_WARNING, report.master.name, text))


cdef list engine_warnings(Engine self):
    # Of the nodes of a cluster, which have one name, each once.
    cdef Connection connection
    cdef list found = []
    for connection in self.connections:
        for text in connection.report.warnings:
            if (connection.master.name, text) not in found:
                found.append((connection.master.name, text))
    return found


# --- fences ---------------------------------------------------------------------------
# The numbers of grants: what is proposed, and the second write (rules: round/fencing).
#
# A proposal is the time: the wall clock, in us. It never goes back in one engine, and
# is above the last number of the resource that this engine was granted. So it is above
# all numbers of before where masters come back empty, or a number has expired: unless
# the clock of this machine is behind those of all others by more than that took. No
# decision about a validity depends on it.
#
# Remembered are the numbers that are ahead of our proposals alone: there are some where
# another machine's clock is ahead of ours. Where that is by no more than clocks that
# are set by a network differ, it is added to all further proposals: each that is behind
# another's would cost a second write.

cdef enum:
    FENCES_MOST = 1024
    AHEAD_MOST_US = 100_000

cdef int64_t WALL_MOST_US = 4_503_599_627_370_496      # 2112; a clock beyond is wrong


@cython.final
@cython.internal
cdef class Fences:
    cdef int64_t proposed        # last
    cdef int64_t ahead_us        # of the clock, by so much are numbers
    cdef dict ahead              # resource: its last number, ahead of our proposals

    def __cinit__(self):
        self.ahead = {}


cdef int64_t engine_wall_us(Engine self, int64_t now_ns) noexcept:
    return (wall_ns() if self.by_hand is None else now_ns + self.wall_offset_ns) // 1000


cdef int engine_propose_fence(Engine self, Round round, int64_t now_ns) except -1:
    cdef Fences fences = self.fences
    cdef int64_t wall_us = engine_wall_us(self, now_ns) + fences.ahead_us, proposed
    fences.proposed += 1
    if fences.proposed < wall_us <= WALL_MOST_US:
        fences.proposed = wall_us
    proposed = fences.proposed
    if fences.ahead:
        for key in round.keys or (round.resource,):
            proposed = max(proposed, <int64_t>fences.ahead.get(key, 0) + 1)
        proposed = min(proposed, FENCE_MOST)      # beyond, the scripts refuse to count
    round.fencing = fencing_new(self.vote_count, proposed, round.terms.ttl_ms)


cdef bint engine_write_fence(Engine self, Round round, int64_t now_ns) except -1:
    # The second write of a round that is open, to those that need it; whether it is.
    cdef Fencing fencing = round.fencing
    cdef Master master
    cdef InFlightEntry entry = ENTRY_OF_ROUND
    cdef uint64_t bit
    fencing.is_reported = False
    if round.verdict_code != VERDICT_OPEN:
        return False
    if round.is_rolled_back:      # its caller has left
        return True
    self.counters.fences_written += fencing.asked == 0
    entry.form = FORM_FENCE
    for master in self.masters:
        bit = <uint64_t>1 << master.vote
        if fencing.asked & bit or not fencing_is_short(round, master.vote):
            continue
        fencing.asked |= bit
        connection_send_again(
            master_connection(master, round.resource), round, entry, now_ns
        )
    due_note(self.due, round.deadline_ns)      # nothing was in flight
    return True


cdef int engine_learn_fence(Engine self, Round round, int64_t now_ns) except -1:
    cdef Fences fences = self.fences
    cdef int64_t fence = round.fencing.fence, ahead_us
    if fence <= fences.proposed:
        return 0
    ahead_us = fence - engine_wall_us(self, now_ns)
    if fences.ahead_us < ahead_us <= AHEAD_MOST_US:
        fences.ahead_us = ahead_us
    for key in round.keys or (round.resource,):
        fences.ahead[key] = fence
    if len(fences.ahead) > FENCES_MOST:
        for key, last in list(fences.ahead.items()):
            if last <= fences.proposed or len(fences.ahead) > FENCES_MOST:
                del fences.ahead[key]
