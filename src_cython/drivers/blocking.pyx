# The blocking driver: a caller leads or follows. With the step that a leader takes and
# the loops of steps that end by themselves, the end of the interpreter, for which a
# caller leads once more, and the thread that watches while a key is idle.

# --- blocking work --------------------------------------------------------------------
# The followers' work, taken by the leader in its step.


cdef int blocking_take_followers(Engine self) except -1:
    cdef Leadership leadership = self.leadership
    cdef bint collects = pass_begin()
    try:
        while leadership.followers:      # where this raises the next leader takes it
            blocking_take_follower(self, <Follower>leadership.followers[0])
            del leadership.followers[0]
        leadership.waker.has_followers = 0
    finally:
        pass_end(collects)


cdef int blocking_take_follower(Engine self, Follower follower) except -1:
    if follower.asks == FOLLOWER_CLOSE and not self.is_closed:
        self.leadership.closing.append(follower)
        engine_begin_close(self)
    elif follower.asks == FOLLOWER_WITHDRAW:
        engine_withdraw_work(self, follower.work, clock_ns())
        connections_open_deferred(self, clock_ns())
        follower.drain = drain_of(
            self, False, engine_quiet_ns(self, work_timeout_ns(follower.work)),
            clock_ns() + UNDO_NS,
        )
    elif follower.asks == FOLLOWER_END:
        engine_end_idle(self, clock_ns())
        connections_open_at_end(self, clock_ns())
        follower.drain = drain_of(      # a leader's work may go on for ever
            self, self.leadership.leading is None, engine_quiet_ns(self, QUIET_NS),
            clock_ns() + follower.timeout_ns,
        )
    elif self.is_closed and (
        follower.asks == FOLLOWER_CLOSE or not work_is_release(follower.work)
    ):
        wakeups_add(self.leadership, follower)
    elif not work_is_submitted(follower.work):
        engine_submit_work(self, follower.work, follower, clock_ns())


# --- step -----------------------------------------------------------------------------
# The blocking step of the leader: send what is queued, poll, receive what is there (all
# without the GIL), then take it. And the loops of steps that end by themselves.

cdef bint blocking_step(
    Engine self, int wanted, int64_t limit_ns, int first=0
) except -1:
    """Send, wait for an event, a due time or the limit, and take all that came.

    Reads from as many masters as are `wanted` to answer, not from more; begins with the
    connection at the place `first`. Returns whether a signal came first, or may have.
    """
    cdef int error
    cdef int64_t until_ns
    cdef size_t greenlet = self.leadership.greenlet
    cdef bint is_green = greenlet != 0 and greenlet_hub_caller() == greenlet
    cdef bint was_closed = self.is_closed
    if self.has_events or self.opened or self.batches or self.to_send:
        # Left by an exception: a handler's in TLS, or for want of memory.
        engine_take_events(self)
    if self.leadership.waker.has_followers:
        blocking_take_followers(self)
    if self.closed or self.is_closed and not (
        was_closed and connections_are_left(self)
    ):
        limit_ns = 0      # just now, by one of these followers; or nothing will come
    engine_before_write(self)
    engine_before_nogil(self)
    until_ns = min(self.due.at_ns, limit_ns)
    self.has_events = True
    with nogil:
        error = links_exchange(
            self.links, self.polled, self.connection_count, wanted,
            0 if is_green else until_ns, &self.leadership.waker, first,
        )
        atomic_put(&self.leadership.leader_at, LEADER_OUT_OF_SYSTEM)
    self.leadership.leader_at = LEADER_HAS_GIL
    if error == 0:
        if is_green:
            blocking_wait_in_hub(self, until_ns)
        engine_take_events(self)
    elif error != -EINTR:
        raise OSError(-error, "poll")
    return error == -EINTR


cdef int blocking_wait_in_hub(Engine self, int64_t until_ns) except -1:
    # Wait in the hub, not in a poll that sleeps. The next step reads the bytes that
    # have come; until then the leader touches nothing.
    cdef Waker *waker = &self.leadership.waker
    cdef int64_t left_ns = min(until_ns - clock_ns(), <int64_t>SLEEP_LIMIT_NS)
    cdef list readable = [], writable = []
    cdef Link *link
    cdef int i
    for i in range(self.connection_count):
        link = self.links[i]
        if link.is_ready or link_has_input(link):
            return 0
        if link.fd >= 0:
            (writable if link_wants_to_write(link) else readable).append(link.fd)
    if waker.event.fd >= 0:
        readable.append(waker.event.fd)
    if left_ns <= 0 or waker_is_set_before_sleep(waker):
        return 0
    try:
        greenlet_hub_wait(readable, writable, left_ns)
    finally:
        waker.is_sleeping = 0


cdef int blocking_probe_idle(Engine self) except -1:
    # Look whether a connection was cut in an idle time. The end of its bytes follows
    # late replies that are not read yet, so poll until there is nothing more. Twice
    # will do; a master that sends without end is left to the next steps.
    cdef int _i, i
    for _i in range(4):
        for i in range(self.connection_count):
            self.links[i].is_unseen = False      # no early read: poll them all
        blocking_step(self, self.connection_count, 0)
        if links_are_quiet(self.links, self.connection_count):
            return 0


cdef int blocking_flush(Engine self) except -1:
    # Send all that is queued, a roll-back too, and do not wait.
    cdef int i
    engine_before_write(self)
    for i in range(self.connection_count):
        if buffer_length(&self.links[i].outgoing) > 0:
            engine_before_nogil(self)
            with nogil:
                links_send(self.links, self.connection_count)
                atomic_put(&self.leadership.leader_at, LEADER_OUT_OF_SYSTEM)
            self.leadership.leader_at = LEADER_HAS_GIL
            break


cdef enum:
    STALLED_NS = 20_000_000
    FLUSH_NS = 1_000_000_000


cdef int blocking_flush_all(Engine self) except -1:
    # Flush; a batch may have queued more than the sockets take at once: go on for as
    # long as they take some. A release without a waiter would stay here otherwise.
    cdef int64_t now_ns, stop_ns, stalled_ns
    cdef size_t unsent, before = 0
    blocking_flush(self)
    if not self.has_batch:
        return 0
    self.has_batch = False
    now_ns = clock_ns()
    stop_ns = stalled_ns = now_ns + FLUSH_NS
    unsent = blocking_unsent(self)
    while unsent > 0 and now_ns < min(stop_ns, stalled_ns):
        if unsent != before:
            before = unsent
            stalled_ns = now_ns + STALLED_NS
        blocking_step(self, self.connection_count, min(stop_ns, stalled_ns))
        now_ns = clock_ns()
        unsent = blocking_unsent(self)


cdef size_t blocking_unsent(Engine self) noexcept:
    # Return how many bytes wait for an open socket to take them.
    cdef size_t unsent = 0
    cdef int i
    for i in range(self.connection_count):
        if self.links[i].phase == LINK_OPEN:
            unsent += buffer_length(&self.links[i].outgoing)
    return unsent


# --- close ----------------------------------------------------------------------------
# The end of an engine: the last replies are read (drain), then its connections are
# closed. close(), a release that comes after it, the end of the interpreter.


cdef int blocking_drain(Engine self, Drain drain) except -1:
    # Step until it is settled. With the engine to oneself, and not in a handler that
    # runs between two passes of this thread: TLS may be at the very replies. No
    # connection is given up meanwhile: what is on its way might be dropped with it.
    cdef int64_t now_ns = clock_ns(), limit_ns, before_ns
    self.is_draining = True
    self.leadership.waker.is_unchecked = 1
    try:
        while True:
            limit_ns = engine_limit_ns(self, drain, now_ns)
            if limit_ns == 0:
                return 0
            blocking_step(
                self, self.connection_count, min(limit_ns, now_ns + drain.slice_ns)
            )
            before_ns, now_ns = now_ns, clock_ns()
            drain_take_time(drain, self, now_ns - before_ns)
    finally:
        self.is_draining = False


cdef int blocking_drain_undo(Engine self, object work) except -1:
    # The replies to the releases of work that was given up just now.
    if self.leadership.depth > 1:
        return 0
    connections_open_deferred(self, clock_ns())
    return blocking_drain(self, drain_of(
        self, False, engine_quiet_ns(self, work_timeout_ns(work)), clock_ns() + UNDO_NS
    ))


cdef int blocking_drain_all(Engine self, Drain drain) except -1:
    # Drain all commands at the end of an engine, which its caller has to itself.
    if connections_open_at_end(self, clock_ns()) or connections_await_replies(self):
        blocking_flush(self)
        return blocking_drain(self, drain)


cdef int blocking_shut_down(Engine self, int64_t timeout_ns) except -1:
    if self.is_closed:
        return 0
    try:
        engine_begin_close(self)
    except BaseException:
        engine_disconnect(self)
        raise
    return blocking_end_close(self, timeout_ns)


cdef int blocking_end_close(Engine self, int64_t timeout_ns) except -1:
    try:
        blocking_drain(self, drain_of_close(self, timeout_ns))
    finally:
        engine_disconnect(self)


cdef int blocking_close_again(Engine self) except -1:
    # A release that comes after close() opens connections of its own, and closes them.
    cdef int64_t now_ns = clock_ns()
    if not connections_are_left(self):
        return 0
    try:
        connections_open_due(self, True, now_ns)
        blocking_drain(self, drain_until(self, now_ns + OPEN_AGAIN_NS))
    finally:
        engine_disconnect(self)


cdef bint blocking_take_over(Engine self) except -1:
    # The interpreter ends, and the leader is a daemon thread that it has stopped. If it
    # was stopped between two steps all is as it should be, else as after a fork; but
    # the releases in flight are deferred to the next connections.
    cdef Leadership leadership = self.leadership
    cdef int64_t now_ns = clock_ns()
    cdef Follower follower
    if not leader_was_stopped(leadership):
        raise ClosedError("a thread that the interpreter has stopped is at it")
    is_whole = leadership.leader_at == LEADER_OUT_OF_SYSTEM
    followers = [
        follower for follower in leadership.followers
        if follower.asks == FOLLOWER_WITHDRAW
    ]
    leader_reset(leadership)
    leader_try_enter(leadership)
    leadership.followers = followers
    leadership.waker.has_followers = len(followers) > 0
    if not is_whole:
        self.has_batch = False
        self.due.at_ns = NEVER_NS
        connections_forget(self, now_ns, "its thread was stopped")
    engine_end_acquires(self, "the interpreter ends", now_ns)
    return True


cdef bint blocking_replace(Engine self) except -1:
    # The leader is a greenlet that never goes on. It waited in its hub, between two
    # passes: all is whole. Its own work is undone; a close() that it led is over.
    cdef Leadership leadership = self.leadership
    cdef Follower follower
    atomic_give(&leadership.mutex)      # its outer steps are over, too
    leader_try_enter(leadership)
    work, leadership.leading = leadership.leading, None
    leadership.waiting = [
        follower for follower in leadership.waiting
        if not greenlet_is_over(follower.green)
    ]
    self.is_draining = False
    leadership.waker.is_sleeping = 0
    if work is not None and not work_is_finished(work):
        engine_withdraw_work(self, work, clock_ns())
    for follower in leadership.waiting if self.is_closed else ():
        if follower.asks == FOLLOWER_CLOSE and follower not in leadership.followers:
            wakeups_add(leadership, follower)
    return True


# --- blocking roles -------------------------------------------------------------------
# The two roles of a blocking caller: to lead, with the mutex, or to follow.

cdef enum:
    SIGNALS_NS = 100_000_000      # a leader that polls for longer looks for signals


cdef int blocking_lead(Engine self, object work) except -1:
    # Lead, with the mutex, and give it back. This returns before the round is finished
    # if a signal came: its handler may take a lock itself, in this thread or in another
    # one. One that comes between two polls, or to another thread, ends none; so also
    # after a while.
    cdef bint is_signal = False
    cdef int wanted, first
    cdef int64_t now_ns, began_ns = NEVER_NS
    self.leadership.leading = work
    try:
        if self.is_closed and not work_is_release(work):
            raise ClosedError("closed")
        if self.leadership.waker.event.fd < 0:
            # Where no descriptor is left the leader looks at the end of each poll.
            event_open(&self.leadership.waker.event)
        if not work_is_submitted(work):
            now_ns = clock_ns()
            if now_ns - self.polled_at_ns > NS_PER_S:
                blocking_probe_idle(self)     # idle: has one been cut?
                now_ns = clock_ns()         # (and this may have submitted it)
            engine_submit_work(self, work, None, now_ns)
            # A batch was long in the making: a signal that came then ends no poll.
            is_signal = type(work) is Batch
        elif type(work) is Round:      # where there was no memory to report it
            round_report_closed(<Round>work)
        if self.closed:
            # Nothing to wait for; but take the replies for others, or handshakes
            # and repeated releases get stuck while all rounds end like this one.
            blocking_step(self, self.connection_count, 0)
        while not (work_is_finished(work) or is_signal):
            wanted = self.connection_count      # to answer before the replies are taken
            first = 0
            if type(work) is Round and not self.leadership.waiting:
                wanted = round_wanted(<Round>work)
                first = gate_first(self, <Round>work, wanted)
            is_signal = blocking_step(self, wanted, NEVER_NS, first)
            began_ns = min(began_ns, self.polled_at_ns)
            is_signal |= self.polled_at_ns - began_ns > SIGNALS_NS
            if self.is_closed and self.leadership.closing:
                blocking_end_closing(self)
        blocking_flush_all(self)
    finally:
        self.leadership.leading = None
        blocking_leave(self)
    if is_signal:
        PyErr_CheckSignals()


cdef int blocking_follow(Engine self, object work) except -1:
    cdef Leadership leadership = self.leadership
    cdef Follower follower = Follower(leadership, FOLLOWER_RUN, work)
    cdef bint is_patient = wakeups_are_under_way(leadership)
    cdef int64_t due_ns = self.due.at_ns
    leadership.waiting.append(follower)
    try:
        if work_is_submitted(work):       # it was the leader until a signal came
            work_set_waiter(work, follower)
        elif not turns_join_stay(self, work, follower, clock_ns()):
            leader_add_follower(leadership, follower)
        elif self.due.at_ns < due_ns:
            turns_rouse(self)
        while not work_is_finished(work):
            if not is_patient and blocking_try_enter(self):
                follower.is_elected = False      # on leaving it elects another one
                blocking_lead(self, work)
                work_set_waiter(work, follower)     # where it was left to others
            elif follower.is_done:
                raise ClosedError("closed")
            else:
                leader_await(
                    leadership, follower, PATIENCE_US if is_patient else SLICE_US
                )
                is_patient = False
    finally:
        leader_remove_follower(leadership, follower)
        blocking_serve(self)


cdef bint blocking_try_enter(Engine self) except -1:
    # Raises ClosedError where the interpreter ends and no thread may enter any more.
    self.leadership.waker.is_unchecked = 1
    if leader_is_caller(self.leadership):
        self.leadership.depth += 1
        return True
    if leader_try_enter(self.leadership):
        return True
    if greenlet_is_over(self.leadership.leader):
        return blocking_replace(self)
    return interpreter_is_finalizing() and blocking_take_over(self)


cdef int blocking_leave(Engine self) except -1:
    if self.generation != current_generation or not leader_is_caller(self.leadership):
        return 0      # a leader's greenlet, copied by a fork
    try:
        if self.leadership.depth == 1 and self.leadership.greenlet != 0:
            blocking_undo_followers(self)
        if self.is_closed and self.leadership.depth == 1:
            blocking_end_closing(self)
            blocking_close_again(self)
    finally:
        leader_leave(self.leadership)
    if self.leadership.depth == 0 and self.leadership.waker.has_followers:
        return blocking_serve(self)


cdef int blocking_undo_followers(Engine self) except -1:
    # The work of greenlets that never go on: nobody reads its answers behind us.
    cdef Leadership leadership = self.leadership
    cdef Follower follower
    over = [
        follower for follower in leadership.waiting if greenlet_is_over(follower.green)
    ]
    for follower in over:
        follower_forget(leadership.waiting, follower)
        if follower.work is not None and not work_is_finished(follower.work):
            engine_withdraw_work(self, follower.work, clock_ns())
    return blocking_flush_all(self) if over else 0


cdef int blocking_serve(Engine self) except -1:
    # Take followers without a thread, queued while the last leader was leaving.
    cdef Leadership leadership = self.leadership
    if self.generation != current_generation:
        return 0
    while (
        leadership.waker.has_followers and not leadership.waiting
        and leader_try_enter(leadership)
    ):
        try:
            blocking_take_followers(self)
            blocking_flush_all(self)
            if self.is_closed:
                blocking_end_closing(self)
                blocking_close_again(self)
        finally:
            leader_leave(leadership)


cdef int blocking_end_closing(Engine self) except -1:
    # The close() of followers, which has begun in a step.
    cdef Follower follower
    cdef int64_t timeout_ns = 0
    empty = []
    closing, self.leadership.closing = self.leadership.closing, empty
    if not closing:
        return 0
    for follower in closing:
        timeout_ns = max(timeout_ns, follower.timeout_ns)
    try:
        blocking_end_close(self, timeout_ns)
    finally:      # a leader's greenlet may be killed in there: closed it is
        for follower in closing:
            wakeups_add(self.leadership, follower)


cdef int blocking_await_drained(
    Engine self, Follower follower, int64_t until_ns
) except -1:
    # Wait until another thread, which leads, has taken the follower and read the
    # replies that it needs. As soon as that thread has gone, this one reads them.
    cdef Drain drain = None
    while clock_ns() < until_ns:
        if blocking_try_enter(self):
            try:
                blocking_take_followers(self)
                return blocking_drain(self, follower.drain or drain_of(
                    self, False, engine_quiet_ns(self, QUIET_NS), until_ns
                ))
            finally:
                blocking_leave(self)
        drain = follower.drain
        if drain is not None and not engine_limit_ns(self, drain, clock_ns()):
            return 0
        follower_wait(follower, AWAIT_US)


# --- interpreter exit -----------------------------------------------------------------
# The end of the interpreter: the commands in flight of all engines of this process are
# waited for, or the servers drop those that they have not executed when our sockets go.
# Keys that are idle are released, and deferred releases get a last connection.
#
# Each engine is known here by a weak reference. The hook is an atexit function, which
# runs after all threads but daemons have ended; a child of multiprocessing ends by
# os._exit() and runs finalizers of its own before that, and threads may still work
# then: so no call is ended, and each later one reads its own replies. The interpreter
# stops a daemon thread in the middle of its call: what that took stays for its ttl.
# After os._exit() and SIGKILL nothing of ours runs.


import sys

cdef enum:
    EXIT_NS = 1_000_000_000      # for all engines together, as long as replies come in
    EXIT_LEAST_NS = 100_000_000      # ...and for one behind others that took all of it

cdef set engines = set()         # weak references
cdef uint32_t watched_in = <uint32_t>-1      # the process whose end is watched
cdef bint is_exiting = False     # the interpreter is about to end...
cdef int64_t exit_until_ns = NEVER_NS    # ...and waits for replies no longer


cdef int interpreter_exit_watch(Engine engine) except -1:
    # In a forked child from its next call on.
    engines.add(PyWeakref_NewRef(engine, engines.discard))
    return interpreter_exit_hook() if watched_in != current_generation else 0


cdef int interpreter_exit_hook() except -1:
    global watched_in, is_exiting, exit_until_ns
    import atexit

    # Another thread may be importing it at this moment: the next engine sees it whole.
    util = sys.modules.get("multiprocessing.util")
    finalize = getattr(util, "Finalize", None)
    # An atexit function may make the first engine: none that it registers is called.
    # All other threads but daemons have ended by then, and the main one counts as that.
    main_thread = getattr(sys.modules.get("threading"), "main_thread", None)
    is_exiting = main_thread is not None and not main_thread().is_alive()
    exit_until_ns = NEVER_NS
    atexit.unregister(interpreter_exit_end)     # the parent's, where it was not cleared
    atexit.register(interpreter_exit_end)
    if finalize is not None:      # the last of its finalizers
        finalize(None, interpreter_exit_end, args=(False,), exitpriority=-100)
    if util is None or finalize is not None:
        watched_in = current_generation


def interpreter_exit_end(bint is_last=True):
    """Read the replies in flight: this process is about to end."""
    global is_exiting, exit_until_ns
    cdef int64_t until_ns = clock_ns() + EXIT_NS
    cdef Engine engine
    # Held before `is_exiting` is set: the thread that watches idle keys may be all
    # that holds an engine, and ends by that.
    cdef list alive = []
    for reference in list(engines):
        engine = reference()
        if engine is not None and engine.generation == current_generation:
            alive.append(engine)
    is_exiting = True
    if is_last:
        exit_until_ns = until_ns
    for engine in alive:
        interpreter_exit_drain_or_print(
            engine, max(until_ns, clock_ns() + EXIT_LEAST_NS)
        )


cdef void interpreter_exit_drain_or_print(Engine self, int64_t until_ns) noexcept:
    # An error is printed: it is no reason to leave the other engines as they are.
    interpreter_exit_drain(self, until_ns)


cdef int interpreter_exit_drain(Engine self, int64_t until_ns) except -1:
    cdef AsyncioDriver driver = self.driver
    cdef Follower follower
    if driver is None:
        follower = Follower(self.leadership, FOLLOWER_END, None)
        follower.timeout_ns = max(<int64_t>0, until_ns - clock_ns())
        leader_add_follower(self.leadership, follower)
        blocking_await_drained(self, follower, until_ns)
    elif driver.loop.is_running():      # in a daemon thread, which does the reading
        drain = drain_of(self, False, engine_quiet_ns(self, QUIET_NS), until_ns)
        while engine_limit_ns(self, drain, clock_ns()) > 0:
            sleep_ns(NS_PER_MS)
    else:
        driver.end_acquires()
        blocking_drain_all(self, drain_until(self, until_ns))


def end_with_parent(int signal):
    """Let this process get a signal when its parent ends; False: not on this system.

    Of the thread that forked it, where that ends first. It outlasts exec.
    """
    return end_with_parent_by(signal) == 0


def adopt_orphans():
    """Let orphans of this process's descendants be its children; False: not here."""
    return adopt_all_orphans() == 0


# --- blocking -------------------------------------------------------------------------
# The blocking driver: each caller runs its round as the leader, or as a follower.


def blocking_run(Engine engine not None, work not None):
    """Run a round until it is closed; a lost one is rolled back before this returns.

    Or a batch of them. Blocks, with the GIL released, for connections where a quorum of
    them is missing (as long as `round.left_ns` allows), then up to the round's timeout.
    An exception of a signal handler rolls all back and goes on. Returns how many
    lines the engine has for the log.
    """
    work_check(work)
    return blocking_run_work(engine, work)


cdef Py_ssize_t blocking_run_work(Engine engine, object work) except -1:
    engine_check_fork(engine)
    if watched_in != current_generation:
        interpreter_exit_hook()
    try:
        if turns_may_need_no_master(engine, work) and (
            turns_hand_on(engine, work, clock_ns())
        ):
            return len(engine.unlogged)
        if (
            not wakeups_are_under_way(engine.leadership)
            or leader_is_caller(engine.leadership)
        ) and blocking_try_enter(engine):
            blocking_lead(engine, work)
        if not work_is_finished(work):
            blocking_follow(engine, work)
        if work_expired_before_return(work, clock_ns()):
            blocking_abandon(engine, work)
    except BaseException:
        blocking_abandon(engine, work)
        raise
    if is_exiting:      # no later call would read the replies still in flight
        if blocking_try_enter(engine):
            try:
                blocking_drain_undo(engine, work)
            finally:
                blocking_leave(engine)
    return len(engine.unlogged)


def blocking_abandon(Engine engine not None, work not None):
    """Roll back a round, or a batch, whose caller will not get it; releases are sent.

    Blocks until the masters that answer have answered (a second at most), or a process
    that ends now would take back what it has sent. What a batch has to undo may be more
    than the sockets take. Between two passes of the same thread (a signal handler or a
    finalizer) it does not wait for replies.
    """
    cdef Follower follower
    work_check(work)
    engine_check_fork(engine)
    if blocking_try_enter(engine):
        try:
            engine_withdraw_work(engine, work, clock_ns())
            blocking_flush_all(engine)
            blocking_drain_undo(engine, work)
        finally:
            blocking_leave(engine)
    else:
        follower = Follower(engine.leadership, FOLLOWER_WITHDRAW, work)
        leader_add_follower(engine.leadership, follower)
        blocking_serve(engine)
        blocking_await_drained(engine, follower, clock_ns() + UNDO_NS)


def blocking_close(Engine engine not None, int64_t timeout_ns):
    """Close all connections; wait up to timeout_ns for the releases in flight.

    Rounds of other threads that are under way end UNREACHABLE, "closed".
    """
    cdef Leadership leadership = engine.leadership
    cdef Follower follower
    engine_check_fork(engine)
    if blocking_try_enter(engine):
        try:
            blocking_shut_down(engine, timeout_ns)
        finally:
            blocking_leave(engine)
        return
    follower = Follower(leadership, FOLLOWER_CLOSE, None)
    follower.timeout_ns = timeout_ns
    leadership.waiting.append(follower)
    try:
        leader_add_follower(leadership, follower)
        while not follower.is_done:
            if not blocking_try_enter(engine):
                leader_await(leadership, follower, SLICE_US)
                continue
            try:
                blocking_take_followers(engine)
            finally:
                blocking_leave(engine)
    finally:
        leader_remove_follower(leadership, follower)


# --- blocking watch -------------------------------------------------------------------
# A thread of a blocking client, while a key is idle in it: it reads recalls.
#
# It leads for a moment when a socket has something to read and no other thread leads,
# or has just led: those read it themselves, and an ordinary round should not find the
# mutex taken. With greenlets it waits in the hub.

cdef enum:
    WATCH_NS = 100_000_000       # a key may become idle for less than another
    BUSY_NS = 1_000_000


def blocking_watch(Engine engine not None):
    """Give keys up that are idle here, when they are recalled or their time is over.

    Blocks until none is idle.
    """
    cdef int64_t until_ns = NEVER_NS
    try:
        while blocking_has_idle_keys(engine) and clock_ns() < until_ns:
            blocking_watch_once(engine)
            until_ns = NEVER_NS if engine.idle.keys else min(
                until_ns, clock_ns() + OPEN_AGAIN_NS
            )
    finally:
        idle_watch(engine.idle, None)


cdef bint blocking_has_idle_keys(Engine self) noexcept:
    # Return whether there are idle keys, or releases of such keys that are not answered
    # yet, or wait for a connection (for a second).
    cdef Connection connection
    cdef Py_ssize_t owed = len(self.idle.keys)
    for connection in self.connections:
        owed += connection.in_flight.count + len(connection.in_flight.deferred)
    return owed > 0 and not (
        is_exiting or self.is_closed or self.generation != current_generation
    )


cdef int blocking_watch_once(Engine self) except -1:
    cdef int64_t now_ns = clock_ns()
    cdef int64_t until_ns = min(self.due.at_ns, now_ns + WATCH_NS)
    if now_ns - self.polled_at_ns < BUSY_NS and now_ns < self.due.at_ns:
        sleep_ns(BUSY_NS)
        return 0
    blocking_watch_sockets(self, until_ns - now_ns)
    if not blocking_has_idle_keys(self):
        return 0
    if not blocking_try_enter(self):
        sleep_ns(BUSY_NS)
        return 0
    try:
        blocking_step(self, self.connection_count, 0)
        blocking_flush_all(self)
    finally:
        blocking_leave(self)


cdef int blocking_watch_sockets(Engine self, int64_t left_ns) except -1:
    # Another thread may close one meanwhile: nothing is read here.
    cdef pollfd polled[MAX_MASTERS]
    cdef int i
    left_ns = max(left_ns, <int64_t>0)
    if greenlet_hub_caller() != 0:
        readable = [
            self.links[i].fd for i in range(self.connection_count)
            if self.links[i].fd >= 0
        ]
        return greenlet_hub_wait(readable, [], max(left_ns, <int64_t>BUSY_NS))
    for i in range(self.connection_count):
        polled[i].fd = self.links[i].fd
        polled[i].events = link_wanted(self.links[i])
    with nogil:
        poll_for(polled, self.connection_count, left_ns)


# --- threads --------------------------------------------------------------------------
# A thread of ours is started in one step, between signals.
#
# A signal's handler may raise in any line of Python, `Thread.start()` included: a
# thread that was started already then ends before it has done anything, or what its
# starter has locked for it stays locked. So a thread without a name is started by a
# function of C. Handlers run in the main thread alone: that thread starts the one with
# a name (_locking/keeper). An error is returned, not raised, so that no `except` of
# the caller takes a handler's exception for it.

import _thread      # by its name: gevent may patch it later


def thread_begin(run):
    """Run this in a thread; return the error where none can be started, or None."""
    try:
        _thread.start_new_thread(run, ())
    except RuntimeError as error:
        return error
    return None


def thread_serve(baton, waker, run):
    """Wake the thread that has the baton; where none has, begin one that has it.

    Both are locks; `run` gives the baton back. Returns as `thread_begin`.
    """
    if not baton.acquire(False):
        if waker.locked():      # else it was woken before
            waker.release()
        return None
    has_begun = False
    try:
        error = thread_begin(run)
        has_begun = error is None
    finally:
        if not has_begun:
            baton.release()
    return error
