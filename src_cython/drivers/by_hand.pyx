# The driver by hand: the engine's events without sockets or a clock, for the simulator
# and the fuzzer.
#
# The same functions that the other drivers call, given bytes and `now_ns` by hand.
# Nothing here decides anything. by_hand_take_events is a whole step, in the order of
# engine_take_events (engine/pass).


cdef Connection by_hand_connection(Engine engine, int place):
    if not 0 <= place < engine.connection_count:
        raise ValueError("no such connection")
    return <Connection>engine.connections[place]


def by_hand_open_due(Engine engine not None, bint is_urgent, int64_t now_ns):
    """Move each connection whose time has come to CONNECTING; list their places."""
    cdef Connection connection
    due = []
    for connection in engine.connections:
        if connection_is_due(connection, is_urgent, now_ns):
            connection_begin_connect(connection, now_ns)
            due.append(connection.place)
    return due


def by_hand_take_events(
    Engine engine not None, list arrivals not None, uint64_t quiet, int64_t now_ns
):
    """Take the events of one poll, in the order of `engine_take_events`.

    `arrivals` has (place, is_connected, bytes, reason of a loss or "") of every
    connection with an event, `quiet` is the set of the others.
    """
    cdef Connection connection
    cdef bytes data
    engine.polled_before_ns, engine.polled_at_ns = engine.polled_at_ns, now_ns
    for connection in engine.connections:
        link_note_look(&connection.link, now_ns)
    for place, is_connected, data, reason in arrivals:
        connection = by_hand_connection(engine, place)
        if is_connected:
            if connection.state_code != MASTER_CONNECTING:
                continue      # an arrival before this one has ended it
            connection_on_connected(connection, now_ns)
        if connection.tls is not None:
            connection.link.received = <size_t>len(data)
            memcpy(connection.link.incoming, PyBytes_AS_STRING(data), len(data))
            connection_decrypt(connection, now_ns)
            data = connection_take_plain(connection)
        if data:
            engine_take_bytes(engine, connection, data, now_ns)
        if reason and MASTER_CONNECTING <= connection.state_code <= MASTER_READY:
            connection_on_cut(connection, reason, now_ns)
        if connection.in_flight.unanswered:
            sending_unanswered(engine, connection, now_ns)
    engine_on_time(engine, now_ns, quiet)
    engine_finish(engine, now_ns)


def by_hand_engine(Engine engine not None):
    """Open no sockets from now on; return the list of places to connect."""
    engine.by_hand = []
    idle_watch(engine.idle, engine.by_hand)      # who moves the bytes reads recalls
    return engine.by_hand


def by_hand_submit(Engine engine not None, work not None, int64_t now_ns):
    """Open a round, or let it wait for connections; or a batch of them."""
    work_check(work)
    engine_submit_work(engine, work, None, now_ns)


def by_hand_hand_on(Engine engine not None, work not None, int64_t now_ns):
    """Return the round that has what this releases, or that is won by an idle key;
    None: it is to be submitted."""
    cdef WaitQueue queue = None
    cdef IdleKey idle
    work_check(work)
    if type(work) is Round:
        queue = engine.queues.by_resource.get(round_queue(<Round>work))
    next = None if queue is None else wait_queue_head(queue)
    if not turns_hand_on(engine, work, now_ns):
        return None
    if next is not None and next.is_finished:
        return next
    idle = engine.idle.keys[(<Round>work).resource]
    return idle.round if idle.is_idle else work


def by_hand_idle_keys(Engine engine not None):
    """Return the idle keys: until when, by the token."""
    cdef IdleKey idle
    return {
        idle.round.token: idle.until_ns
        for idle in engine.idle.keys.values() if idle.is_idle
    }


def by_hand_join_stay(Engine engine not None, work not None, int64_t now_ns):
    """Whether a round waits for a lease that is handed on here."""
    work_check(work)
    return turns_join_stay(engine, work, None, now_ns)


def by_hand_return(Engine engine not None, work not None, int64_t now_ns):
    """Check the validity of finished work at the return to its caller."""
    work_check(work)
    if work_expired_before_return(work, now_ns):
        engine_withdraw_work(engine, work, now_ns)


def by_hand_outgoing(Engine engine not None, int place):
    """Return and forget the bytes to be sent to a master."""
    cdef Link *link = &by_hand_connection(engine, place).link
    if engine.has_tls or engine.is_asking or engine.to_prepare:
        engine_between_passes(engine, engine.started_ns)
    cdef bytes data = link.outgoing.data[link.outgoing.start:link.outgoing.end]
    buffer_consume(&link.outgoing, buffer_length(&link.outgoing))
    return data


def by_hand_parting(Engine engine not None, int place):
    """Return and forget the last bytes of a connection that was given up, or None."""
    cdef Connection connection = by_hand_connection(engine, place)
    return connection_take_parting(connection)


def by_hand_all_outgoing(Engine engine not None):
    """As by_hand_outgoing for all connections: a list of (place, bytes), or None."""
    cdef int i
    if engine.has_tls or engine.is_asking or engine.to_prepare:
        engine_between_passes(engine, engine.started_ns)
    return [
        (i, by_hand_outgoing(engine, i)) for i in range(engine.connection_count)
        if buffer_length(&engine.links[i].outgoing) > 0
    ] or None


def by_hand_begin_close(Engine engine not None, int64_t now_ns):
    """As the beginning of blocking_shut_down: acquires under way are undone."""
    engine.is_closed = engine.is_draining = True
    engine_end_acquires(engine, "closed", now_ns)


def by_hand_awaits_replies(Engine engine not None):
    """Whether a close still has to wait for replies, or for connections."""
    cdef Connection connection
    for connection in engine.connections:
        if connection_is_opening(connection) and connection.in_flight.deferred or (
            connection_is_to_retry(connection)
        ):
            return True
    return connections_await_replies(engine)


def by_hand_end_close(Engine engine not None, int64_t now_ns):
    """As the end of blocking_shut_down: the connections are gone, all rounds end."""
    engine.is_draining = False
    connections_forget(engine, now_ns)
    engine_finish(engine, now_ns)


def by_hand_fork(int count):
    """Count so many forks more, for what asks whether it is the parent's."""
    global current_generation
    current_generation += count


def by_hand_start(Engine engine not None, Round round not None, int64_t now_ns):
    """Queue a round's command for every master; now_ns is its t0."""
    engine_start(engine, round, now_ns)
    engine_admit_left(engine, now_ns)
    sending_all(engine, now_ns)


def by_hand_conclude(Engine engine not None, Round round not None, int64_t now_ns):
    """Confirm a closed round; a lost one is rolled back."""
    engine_on_closed(engine, round, now_ns)
    engine_admit_left(engine, now_ns)
    sending_all(engine, now_ns)


def by_hand_withdraw(Engine engine not None, work not None, int64_t now_ns):
    """Roll back ACQUIRE rounds that their caller gave up, send RELEASE ones."""
    work_check(work)
    engine_withdraw_work(engine, work, now_ns)


# A wait queue by itself: its table, and a queue without an engine and a gate.


def by_hand_queue_table():
    """Return the text of the table; and the cells that were read from it, a row for
    each event: (next state, action, how often it came)."""
    return QUEUE_TABLE, tuple([
        tuple([
            (cell.next, cell.action, cell.count)
            for cell in queue_cells[event][:QUEUE_STATES]
        ])
        for event in range(EVENTS)
    ])


@cython.final
cdef class QueueByHand:
    """A wait queue; its callers are rounds that are never sent."""

    cdef WaitQueue queue
    cdef int64_t last_number

    def __cinit__(self):
        self.queue = wait_queue_new(b"", b"", b"", 0)

    @property
    def state(self):
        """As in the table, from 0."""
        return self.queue.state

    @property
    def waiting(self):
        """Those that wait, the first one first."""
        return list(self.queue.rounds)

    @property
    def trying(self):
        """The round that is under way, or None."""
        return self.queue.trying

    def on(self, int event):
        """Give it an event; return the action."""
        if not 0 <= event < EVENTS:
            raise ValueError("no such event")
        return wait_queue_on(self.queue, event)

    def come(self, int64_t since_ns):
        """Add a caller that has waited since then; return its round."""
        cdef Round round = round_new(
            OPERATION_ACQUIRE, b"", b"", LEAVE_TERMS, Electorate(1)
        )
        cdef Turn turn = turn_new(since_ns, False)
        self.last_number += 1
        turn.number = self.last_number
        round_wait_in_turn(round, turn)
        wait_queue_add(self.queue, round)
        return round

    def leave(self, Round round not None):
        """Let a caller give up; return the action."""
        return wait_queue_leave(self.queue, round)

    def hand_on(self, Round round not None):
        """Give a caller a lease of this process; return whether it waited."""
        return wait_queue_remove(self.queue, round)

    def open(self, Round round not None, int gate):
        """Try the round of a caller; `gate` is -1 where there is none."""
        wait_queue_open(
            self.queue, round, wait_queue_behind(self.queue, round), gate, 0
        )

    def close(self, Round round not None, int verdict, int gate_reply):
        """End a round that was opened; return the action."""
        (<Turn>round.turn).gate_reply = gate_reply
        round_close(round, verdict, 0)
        return wait_queue_close(self.queue, round)
