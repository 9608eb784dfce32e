# The blocking driver: a caller leads or follows. With the end of the interpreter, for
# which it leads once more, and the thread that watches while a key is idle.

# --- blocking roles -------------------------------------------------------------------
# The two roles of a blocking caller: to lead, with the mutex, or to follow.

cdef enum:
    SIGNALS_NS = 100_000_000      # a leader that polls for longer looks for signals


cdef int blocking_lead(Engine self, object work) except -1:
    # With the mutex; gives it back. Returns before the round is finished where a signal
    # came: its handler may take a lock itself, in this thread or in another one. One
    # that comes between two polls, or to another thread, ends none; so also after a
    # while.
    cdef bint is_signal = False
    cdef int wanted
    cdef int64_t now_ns, began_ns = NEVER_NS
    try:
        if self.is_closed and not work_is_release(work):
            raise ClosedError("closed")
        if self.leadership.waker.event.fd < 0:
            # Where no descriptor is left the leader looks at the end of each poll.
            event_open(&self.leadership.waker.event)
        if not work_is_submitted(work):
            now_ns = clock_ns()
            if now_ns - self.polled_at_ns > NS_PER_S:
                engine_probe_idle(self)     # idle: has one been cut?
                now_ns = clock_ns()         # (and this may have submitted it)
            engine_submit_work(self, work, None, now_ns)
            # A batch was long in the making: a signal that came then ends no poll.
            is_signal = type(work) is Batch
        elif type(work) is Round:      # where there was no memory to report it
            round_report_closed(<Round>work)
        if self.closed:
            # Nothing to wait for; but take the replies for others, or handshakes
            # and repeated releases get stuck while all rounds end like this one.
            engine_step(self, self.master_count, 0)
        while not (work_is_finished(work) or is_signal):
            wanted = self.master_count      # to answer before the replies are taken
            if type(work) is Round and not self.leadership.waiting:
                wanted = round_wanted(<Round>work)
            is_signal = engine_step(self, wanted, NEVER_NS)
            began_ns = min(began_ns, self.polled_at_ns)
            is_signal |= self.polled_at_ns - began_ns > SIGNALS_NS
            if self.is_closed and self.leadership.closing:
                blocking_end_closing(self)
        engine_flush_all(self)
    finally:
        blocking_leave(self)
    if is_signal:
        PyErr_CheckSignals()
    return 0


cdef int blocking_follow(Engine self, object work) except -1:
    cdef Leadership leadership = self.leadership
    cdef Follower follower = Follower(leadership, FOLLOWER_RUN, work)
    cdef bint is_patient = wakeups_are_under_way(leadership)
    leadership.waiting.append(follower)
    try:
        if work_is_submitted(work):       # it was the leader until a signal came
            work_set_waiter(work, follower)
        elif not engine_join_stay(self, work, follower, clock_ns()):
            leader_add_follower(leadership, follower)
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
    return 0


cdef bint blocking_try_enter(Engine self) except -1:
    # Raises ClosedError where the interpreter ends and no thread may enter any more.
    if leader_is_caller(self.leadership):
        self.leadership.depth += 1
        return True
    if leader_try_enter(self.leadership):
        return True
    return interpreter_is_finalizing() and engine_take_over(self)


cdef int blocking_leave(Engine self) except -1:
    if self.generation != current_generation or not leader_is_caller(self.leadership):
        return 0      # a leader's greenlet, copied by a fork
    try:
        if self.is_closed and self.leadership.depth == 1:
            blocking_end_closing(self)
            engine_close_again(self)
    finally:
        leader_leave(self.leadership)
    if self.leadership.depth == 0 and self.leadership.waker.has_followers:
        return blocking_serve(self)
    return 0


cdef int blocking_serve(Engine self) except -1:
    # Followers without a waiting thread, queued while the last leader was leaving.
    cdef Leadership leadership = self.leadership
    if self.generation != current_generation:
        return 0
    while (
        leadership.waker.has_followers and not leadership.waiting
        and leader_try_enter(leadership)
    ):
        try:
            blocking_take_followers(self)
            engine_flush_all(self)
            if self.is_closed:
                blocking_end_closing(self)
                engine_close_again(self)
        finally:
            leader_leave(leadership)
    return 0


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
        engine_end_close(self, timeout_ns)
    finally:      # a leader's greenlet may be killed in there: closed it is
        for follower in closing:
            wakeups_add(self.leadership, follower)
    return 0


cdef int blocking_await_drained(
    Engine self, Follower follower, int64_t until_ns
) except -1:
    # Until another thread, which leads, has taken the follower and read the replies
    # that it needs; or this one does, as soon as that one has gone.
    cdef Drain drain = None
    while clock_ns() < until_ns:
        if blocking_try_enter(self):
            try:
                blocking_take_followers(self)
                return engine_drain(self, follower.drain or drain_of(
                    self, False, engine_quiet_ns(self, QUIET_NS), until_ns
                ))
            finally:
                blocking_leave(self)
        drain = follower.drain
        if drain is not None and not engine_limit_ns(self, drain, clock_ns()):
            return 0
        follower_wait(follower, AWAIT_US)
    return 0


# --- interpreter exit -----------------------------------------------------------------
# The end of the interpreter: the commands in flight of all engines of this process are
# waited for, or the servers drop those that they have not executed when our sockets go.
#
# Each engine is known here by a weak reference. The hook is an atexit function, which
# runs after all threads but daemons have ended; a child of multiprocessing ends by
# os._exit() and runs finalizers of its own before that, and threads may still work
# then: so it only reads replies in flight, and each later call reads its own.
# After os._exit() and SIGKILL nothing of ours runs.


import sys

cdef enum:
    EXIT_NS = 1_000_000_000      # for all engines together, as long as replies come in
    AWAKE_NS = 100_000_000       # by then a thread whose round is finished goes on
    IN_USE_NS = 25_000_000       # ...and one that has a key that was idle

cdef set engines = set()         # weak references
cdef uint32_t watched_in = <uint32_t>-1      # the process whose end is watched
cdef bint is_exiting = False     # the interpreter is about to end...
cdef unsigned long exiting_thread = 0    # ...in this one; the others are daemons


cdef int interpreter_exit_watch(Engine engine) except -1:
    # In a forked child from its next call on: interpreter_exit_check.
    engines.add(PyWeakref_NewRef(engine, engines.discard))
    return interpreter_exit_hook() if watched_in != current_generation else 0


cdef int interpreter_exit_hook() except -1:
    global watched_in, is_exiting, exiting_thread
    import atexit

    # Another thread may be importing it at this moment: the next engine sees it whole.
    util = sys.modules.get("multiprocessing.util")
    finalize = getattr(util, "Finalize", None)
    # An atexit function may make the first engine: none that it registers is called.
    # All other threads but daemons have ended by then, and the main one counts as that.
    main_thread = getattr(sys.modules.get("threading"), "main_thread", None)
    is_exiting = main_thread is not None and not main_thread().is_alive()
    exiting_thread = 0
    atexit.unregister(interpreter_exit_end)     # the parent's, where it was not cleared
    atexit.register(interpreter_exit_end)
    if finalize is not None:      # the last of its finalizers
        finalize(None, interpreter_exit_end, args=(False,), exitpriority=-100)
    if util is None or finalize is not None:
        watched_in = current_generation
    return 0


cdef int interpreter_exit_check(object work) except -1:
    # A daemon thread would be stopped in the middle of what it begins, and nobody can
    # use what was ended for it. As the interpreter does a moment later, this ends it
    # without a word; but its `finally` blocks run, and who joins it at exit goes on.
    if watched_in != current_generation:
        interpreter_exit_hook()
    if (
        exiting_thread != 0 and exiting_thread != PyThread_get_thread_ident()
        and not work_is_release(work)
        and (not work_is_finished(work) or work_is_unreachable(work))
    ):
        raise SystemExit
    return 0


def interpreter_exit_end(bint is_last=True):
    """Read the replies in flight: this process is about to end.

    The last time also end the acquires under way, which are daemon threads'.
    """
    global is_exiting, exiting_thread
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
        exiting_thread = PyThread_get_thread_ident()
    for engine in alive:
        interpreter_exit_drain(engine, is_last, until_ns)


cdef void interpreter_exit_drain(
    Engine self, bint is_last, int64_t until_ns
) noexcept:
    # What it raises is printed: it is no reason to leave the other engines as they are.
    if self.driver is None:
        interpreter_exit_drain_engine(self, is_last, until_ns)
    else:
        interpreter_exit_drain_awaitable(self, is_last, until_ns)


cdef int interpreter_exit_drain_engine(
    Engine self, bint is_last, int64_t until_ns
) except -1:
    cdef Follower follower = Follower(self.leadership, FOLLOWER_END, None)
    cdef bint is_in_use = False, is_opening = False
    # A daemon thread may have a key that was idle: it got it without a command, so
    # none is in flight to wait for.
    for idle in self.idle_keys.values():
        is_in_use = is_in_use or not (<IdleKey>idle).is_idle
    while not is_last and clock_ns() < until_ns:
        if blocking_try_enter(self):
            try:
                engine_end_idle_keys(self, clock_ns())
                is_opening = engine_open_deferred_at_end(self, clock_ns())
            finally:
                blocking_leave(self)
            break
        if not self.idle_keys:      # a leader opens what is due by itself
            break
        sleep_ns(NS_PER_MS)      # the thread that watches, for a moment
    if not (is_last or is_opening or engine_awaits_replies(self)):
        return 0
    follower.timeout_ns = max(<int64_t>0, until_ns - clock_ns())
    if is_last:
        leader_add_follower(self.leadership, follower)
    blocking_await_drained(self, follower, until_ns)
    # One that has just got a lease, without a command in flight, releases it by now.
    until_ns = min(until_ns, clock_ns() + AWAKE_NS)
    while is_last and self.leadership.waiting and clock_ns() < until_ns:
        sleep_ns(NS_PER_MS)
    if is_last and is_in_use:
        sleep_ns(max(<int64_t>0, min(<int64_t>IN_USE_NS, until_ns - clock_ns())))
    return blocking_await_drained(self, follower, until_ns + AWAKE_NS)


cdef int interpreter_exit_drain_awaitable(
    Engine self, bint is_last, int64_t until_ns
) except -1:
    # Its loop may run in a daemon thread, and does the reading then.
    cdef AsyncioDriver driver = self.driver
    cdef Drain drain
    cdef int64_t awake_ns
    if driver.loop.is_running():
        if is_last:
            driver.loop.call_soon_threadsafe(driver.end_with_interpreter)
            awake_ns = min(until_ns, clock_ns() + AWAKE_NS)
            while driver.ending < ENDING_PASSES and clock_ns() < awake_ns:
                sleep_ns(NS_PER_MS // 4)
        drain = drain_of(
            self, True, engine_quiet_ns(self, QUIET_NS), until_ns
        )
        while engine_limit_ns(self, drain, clock_ns()) > 0:
            sleep_ns(NS_PER_MS)
        return 0
    driver.end_acquires()
    return engine_drain_all(self, until_ns)


def end_with_parent(int signal):
    """Let this process get a signal when its parent ends; False: not on this system.

    Of the thread that forked it, where that ends first. It outlasts exec.
    """
    return end_with_parent_by(signal) == 0


# --- blocking -------------------------------------------------------------------------
# The blocking driver: each caller runs its round as the leader, or as a follower.


def blocking_run(Engine engine not None, work not None):
    """Run a round until it is closed; a lost one is rolled back before this returns.

    Or a batch of them. Blocks, with the GIL released, for connections where a quorum of
    them is missing (as long as `round.left_ns` allows), then up to the round's timeout.
    An exception of a signal handler rolls all back and goes on. Returns how many
    lines the engine has for the log.
    """
    return blocking_run_work(engine, work)


cdef Py_ssize_t blocking_run_work(Engine engine, object work) except -1:
    work_check(work)
    engine_check_fork(engine)
    if is_exiting or watched_in != current_generation:
        interpreter_exit_check(work)
    try:
        if engine_may_need_no_master(engine, work) and (
            engine_hand_on(engine, work, clock_ns())
        ):
            return len(engine.counters.unlogged)
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
                engine_drain_undo(engine, work)
            finally:
                blocking_leave(engine)
        interpreter_exit_check(work)
    return len(engine.counters.unlogged)


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
            engine_flush_all(engine)
            engine_drain_undo(engine, work)
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
            engine_shut_down(engine, timeout_ns)
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
            until_ns = NEVER_NS if engine.idle_keys else min(
                until_ns, clock_ns() + OPEN_AGAIN_NS
            )
    finally:
        engine.watcher = None


cdef bint blocking_has_idle_keys(Engine self) noexcept:
    # Also where releases of those that were idle are not answered yet, or wait for a
    # connection: for a second.
    cdef Master master
    cdef Py_ssize_t owed = len(self.idle_keys)
    for master in self.masters:
        owed += master.in_flight.count + len(master.in_flight.deferred)
    return owed > 0 and not (
        is_exiting or self.is_closed or self.generation != current_generation
    )


cdef int blocking_watch_once(Engine self) except -1:
    cdef int64_t now_ns = clock_ns()
    cdef int64_t until_ns = min(self.counters.due_ns, now_ns + WATCH_NS)
    if now_ns - self.polled_at_ns < BUSY_NS and now_ns < self.counters.due_ns:
        sleep_ns(BUSY_NS)
        return 0
    blocking_watch_sockets(self, until_ns - now_ns)
    if not blocking_has_idle_keys(self):
        return 0
    if not blocking_try_enter(self):
        sleep_ns(BUSY_NS)
        return 0
    try:
        engine_step(self, self.master_count, 0)
        engine_flush_all(self)
    finally:
        blocking_leave(self)
    return 0


cdef int blocking_watch_sockets(Engine self, int64_t left_ns) except -1:
    # Another thread may close one meanwhile: nothing is read here.
    cdef pollfd polled[MAX_MASTERS]
    cdef timespec left
    cdef int i
    left_ns = max(left_ns, <int64_t>0)
    if greenlet_hub_caller() != 0:
        readable = [
            self.links[i].fd for i in range(self.master_count) if self.links[i].fd >= 0
        ]
        return greenlet_hub_wait(readable, [], max(left_ns, <int64_t>BUSY_NS))
    for i in range(self.master_count):
        polled[i].fd = self.links[i].fd
        polled[i].events = POLLIN
        if link_wants_to_write(self.links[i]):
            polled[i].events = POLLIN | POLLOUT
    left.tv_sec = left_ns // NS_PER_S
    left.tv_nsec = left_ns % NS_PER_S
    with nogil:
        poll_for(polled, self.master_count, &left)
    return 0


# --- threads --------------------------------------------------------------------------
# A thread of ours is started in one step, between signals.
#
# A signal's handler may raise in any line of Python, `Thread.start()` included: a
# thread that was started already then ends before it has done anything, or what its
# starter has locked for it stays locked. So a thread without a name is started by a
# function of C. Handlers run in the main thread alone: that thread starts the one with
# a name (_locking/keeper). An error is returned, not raised, so that no `except` of
# the caller takes a handler's exception for it.

import _thread      # by its name: gevent or eventlet may patch it later


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
