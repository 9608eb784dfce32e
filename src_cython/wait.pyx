# The blocking driver: moves the bytes, reads the clock, waits with the GIL released.
#
# A step is: send what is queued, poll, receive what is there (all without the GIL),
# then parse and vote. Everything of a round is sent before anything of it is read, and
# no Python object is made in between.
#
# One thread at a time drives an engine; its mutex may be taken again by the thread that
# has it, because a signal handler or a finalizer may take a lock in the middle of a
# step. Such an inner step finds the bytes that the outer one has received and takes
# them first, so the order of the replies stands; a master whose replies are being taken
# out right now is left alone by it.

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals
from cpython.pythread cimport (
    NOWAIT_LOCK, WAIT_LOCK, PyThread_acquire_lock, PyThread_allocate_lock,
    PyThread_get_thread_ident, PyThread_release_lock,
)
from libc.errno cimport EINTR, errno
from libc.stdint cimport int64_t
from posix.time cimport timespec

cdef int engine_enter(Engine self) except -1:
    cdef unsigned long me = PyThread_get_thread_ident()
    if self.generation != current_generation:
        engine_adopt_fork(self)
    if self.depth > 0 and self.owner == me:
        self.depth += 1
        return 0
    if PyThread_acquire_lock(self.mutex, NOWAIT_LOCK) == 0:
        with nogil:
            PyThread_acquire_lock(self.mutex, WAIT_LOCK)
    self.owner = me
    self.depth = 1
    return 0


cdef void engine_leave(Engine self) noexcept:
    self.depth -= 1
    if self.depth == 0:
        PyThread_release_lock(self.mutex)


cdef int engine_adopt_fork(Engine self) except -1:
    # In a forked child: the mutex may be held by a thread that does not exist here, and
    # the sockets are the parent's.
    self.mutex = PyThread_allocate_lock()
    if self.mutex == NULL:
        raise MemoryError
    self.depth = 0
    self.generation = current_generation
    return engine_forget_connections(self)


cdef int links_exchange(
    Link **links, pollfd *polled, int count, int first, int wanted, int64_t deadline_ns
) noexcept nogil:
    # Send, look, poll, receive, beginning with the link `first`, until `wanted` links
    # have brought something. Returns 0 or -errno of the poll; what happened to a link
    # stands in the link.
    links_send(links, count, first)
    if links_look(links, count, first, wanted):
        return 0
    return links_poll(links, polled, count, first, wanted, deadline_ns)


cdef void links_send(Link **links, int count, int first) noexcept nogil:
    cdef int i
    cdef Link *link
    for i in range(first, first + count):
        link = links[i % count]
        link.is_polled = link.is_ready = False
        if (
            link.phase == LINK_OPEN and not link.is_parsing
            and buffer_length(&link.outgoing) > 0
        ):
            link_send(link)
            link.is_unseen = True


cdef enum:
    BEHIND_LIMIT = 16     # replies owed; from here on a master is read in any case


cdef bint links_look(Link **links, int count, int first, int wanted) noexcept nogil:
    # The servers written first have mostly answered when the last one has been written:
    # look there before the poll, once, in the order of writing, no further than to the
    # first that has not. The last one cannot have, so it is not asked; a master that is
    # behind would give an old reply: it is left to the poll, and read when it owes
    # many. Reading stops at the quorum: what the others answer is read together with
    # their next replies, and `first` moves on now and then, so that each comes to its
    # turn. (In bench/floor.c a look saves 2 % of the time, and mostly the poll.)
    # Returns whether there is anything to take.
    cdef int i, found = 0
    cdef bint is_any = False
    cdef Link *link
    cdef Link *before = NULL      # looked at only when another one follows
    for i in range(first, first + count):
        link = links[i % count]
        if not link.is_unseen or link.is_parsing:
            continue
        is_any = is_any or link.error != 0
        if 1 < link.owed < BEHIND_LIMIT:
            continue
        if before != NULL:
            before.is_unseen = False
            link_receive(before)
            is_any = is_any or before.received > 0
            found += link_is_caught_up(before)
            is_any = is_any or before.error != 0 or before.is_at_end
            if found >= wanted:
                return True
            if before.received == 0:
                return is_any
        before = link
    if before != NULL:
        before.is_unseen = False
    return is_any


cdef int links_poll(
    Link **links, pollfd *polled, int count, int first, int wanted, int64_t deadline_ns
) noexcept nogil:
    cdef int i, watched = 0, found = 0
    cdef int64_t left_ns
    cdef timespec timeout
    cdef Link *link
    for i in range(first, first + count):
        link = links[i % count]
        link.is_polled = link.fd >= 0 and not link.is_parsing
        if not link.is_polled:
            continue
        polled[watched].fd = link.fd
        polled[watched].events = POLLIN
        if link.phase == LINK_CONNECTING or buffer_length(&link.outgoing) > 0:
            polled[watched].events = POLLIN | POLLOUT
        polled[watched].revents = 0
        watched += 1
    left_ns = max(deadline_ns - clock_ns(), <int64_t>0)
    timeout.tv_sec = left_ns // NS_PER_S
    timeout.tv_nsec = left_ns % NS_PER_S
    if ppoll(polled, watched, &timeout, NULL) < 0:
        watched = -errno
        for i in range(count):
            links[i].is_polled = False
        return watched
    watched = 0
    for i in range(first, first + count):
        link = links[i % count]
        if not link.is_polled:
            continue
        link.is_ready = polled[watched].revents != 0
        if (
            link.phase == LINK_OPEN and found < wanted
            and polled[watched].revents & ~POLLOUT
        ):
            link_receive(link)
            found += link_is_caught_up(link)
        watched += 1
    return 0


cdef int engine_take_events(Engine self) except -1:
    # What the links have received or suffered, into the masters.
    cdef Master master
    cdef Link *link
    cdef bytes data
    cdef int64_t now_ns = clock_ns()
    self.polled_at_ns = now_ns
    for master in self.masters:
        link = &master.link
        if link.is_parsing:
            continue
        if link.phase == LINK_OPEN:
            if link.received:
                data = PyBytes_FromStringAndSize(link.incoming, link.received)
                link.received = 0
                master_on_received(master, data, now_ns)
                if master.is_news:
                    engine_on_news(self, master, now_ns)
            if link.error != 0:
                master_on_lost(master, error_text(link.error), now_ns)
            elif link.is_at_end:
                master_on_lost(master, "the server closed the connection", now_ns)
        elif link.is_ready and link.phase == LINK_CONNECTING:
            link.is_ready = False
            master_on_connect_event(master, now_ns)
        elif link.is_ready and link.phase == LINK_RESOLVING:
            link.is_ready = False
            master_on_resolved(master, now_ns)
    return engine_check_time(self, now_ns)


cdef int engine_step(Engine self, int wanted, int64_t deadline_ns) except -1:
    """Send, wait until something happens or the deadline, take what came.

    Reads from as many masters as are `wanted` to answer, not from more.
    """
    cdef int error
    engine_take_left(self)
    with nogil:
        error = links_exchange(
            self.links, self.polled, self.master_count, self.first, wanted, deadline_ns
        )
    if error == 0:
        return engine_take_events(self)
    if error != -EINTR:
        raise OSError(-error, "ppoll")
    # The handler may take a lock itself, in this thread or let another one do so.
    engine_leave(self)
    try:
        PyErr_CheckSignals()
    finally:
        engine_enter(self)
    return 0


cdef int engine_take_left(Engine self) except -1:
    # What was received and not yet taken: by the outer step of this thread, or by one
    # that ended in an exception. The next receive would overwrite it.
    cdef int i
    for i in range(self.master_count):
        if self.links[i].received and not self.links[i].is_parsing:
            return engine_take_events(self)
    return 0


cdef void engine_flush(Engine self) noexcept:
    # Send what is queued and do not wait: the roll-back on its way out.
    cdef int i
    for i in range(self.master_count):
        if buffer_length(&self.links[i].outgoing) > 0:
            with nogil:
                links_send(self.links, self.master_count, self.first)
            return


cdef int engine_connect(
    Engine self, int operation, int64_t deadline_ns, int64_t grace_ns
) except -1:
    # Wait until a quorum takes the operation, or cannot, or the deadline. Those that
    # are still on their way then get as long again as it took, at least grace_ns: they
    # mostly arrive together, a lease on all of them is worth more, and an error that
    # names those that do not come is worth more, too.
    cdef int64_t began_ns = clock_ns(), now_ns = began_ns, limit_ns = deadline_ns
    cdef int ready, opening
    cdef bint is_decided = False
    engine_open_due(self, True, now_ns)
    while True:
        ready = engine_asked_count(self, operation, now_ns)
        opening = engine_opening_count(self)
        if opening == 0:
            return 0
        if not is_decided and (ready >= self.quorum or ready + opening < self.quorum):
            is_decided = True
            limit_ns = min(deadline_ns, now_ns + max(now_ns - began_ns, grace_ns))
        if now_ns >= limit_ns:
            return 0
        engine_step(self, self.master_count, limit_ns)
        now_ns = clock_ns()


cdef int64_t engine_patience_ns(Engine self, Round round) noexcept:
    # How long to wait for connections: inside the caller's timeout, but one round
    # timeout at least, because a single try on a new client has to connect.
    if round.left_ns < 0:
        return self.connect_timeout_ns
    return min(self.connect_timeout_ns, max(round.left_ns, round.terms.timeout_ns))


cdef int engine_prepare(Engine self, Round round) except -1:
    # Connections first, t0 after them. A healthy engine passes with two comparisons.
    cdef int64_t now_ns = clock_ns()
    cdef int ready
    if now_ns - self.polled_at_ns > NS_PER_S:
        engine_step(self, self.master_count, now_ns)     # idle: has one been cut?
    ready = engine_asked_count(self, round.operation_code, now_ns)
    if ready < self.quorum:
        engine_connect(
            self, round.operation_code, now_ns + engine_patience_ns(self, round),
            10 * NS_PER_MS,
        )
    elif ready < self.master_count:
        engine_open_due(self, False, now_ns)
    return 0


def engine_run(Engine engine not None, Round round not None):
    """Run a round until it is closed; a lost one is rolled back before this returns.

    Returns how many warnings the engine has by now.
    Blocks, with the GIL released, for connections where a quorum of them is missing
    (as long as `round.left_ns` allows), then up to the round's timeout. An exception
    of a signal handler rolls the round back and goes on.
    """
    cdef int64_t now_ns
    engine_enter(engine)
    try:
        if engine.is_closed:
            raise ValueError("closed")
        try:
            engine_prepare(engine, round)
            engine_start(engine, round, clock_ns())
            if round.verdict_code != VERDICT_OPEN:
                # Nothing to wait for; but take what has come for others, or handshakes
                # and repeated releases stand still while all rounds end like this one.
                engine_step(engine, engine.master_count, clock_ns())
            while round.verdict_code == VERDICT_OPEN:
                engine_step(
                    engine, round_wanted(round),
                    round.opened_ns + round.terms.timeout_ns,
                )
                if round.verdict_code != VERDICT_OPEN:
                    break
                now_ns = clock_ns()
                if now_ns >= round.opened_ns + round.terms.timeout_ns:
                    round_on_deadline(round, now_ns)
            engine_on_closed(engine, round, clock_ns())
        except BaseException:
            engine_roll_back(engine, round, clock_ns())
            raise
        finally:
            engine_flush(engine)
        return len(engine.warnings)
    finally:
        engine_leave(engine)


def engine_abandon(Engine engine not None, Round round not None):
    """Roll back an ACQUIRE round whose caller will not get it, or send a RELEASE round
    whose caller will not hear of it; does not wait."""
    engine_enter(engine)
    try:
        if not engine.is_closed:
            if round.operation_code == OPERATION_RELEASE and not round.is_opened:
                engine_start(engine, round, clock_ns())
            engine_roll_back(engine, round, clock_ns())
            engine_flush(engine)
    finally:
        engine_leave(engine)


def engine_open(Engine engine not None, int64_t timeout_ns):
    """Connect to all masters at the same time; wait until all are decided."""
    engine_enter(engine)
    try:
        if engine.is_closed:
            raise ValueError("closed")
        engine_connect(engine, OPERATION_INSPECT, clock_ns() + timeout_ns, timeout_ns)
    finally:
        engine_leave(engine)


def engine_close(Engine engine not None, int64_t timeout_ns):
    """Close all connections; wait up to timeout_ns for the releases they still owe."""
    cdef int64_t deadline_ns = clock_ns() + timeout_ns
    engine_enter(engine)
    try:
        if engine.is_closed:
            return
        try:
            while engine_owes_replies(engine) and clock_ns() < deadline_ns:
                engine_step(engine, engine.master_count, deadline_ns)
        finally:
            engine.is_closed = True
            engine_forget_connections(engine)
    finally:
        engine_leave(engine)


cdef bint engine_owes_replies(Engine self) noexcept:
    for master in self.masters:
        if (<Master>master).owed_count:
            return True
    return False
