# The asyncio driver: an event loop runs the engine, and nothing here waits.
#
# The loop watches one descriptor, an epoll of ours in which every connection is
# registered once: so connections come and go without the loop, whatever loop it is.
# When it is readable one poll of all connections reads them, as for threads.
# The commands of all tasks of one iteration are sent in one write per master, at its
# end; only of hundreds of tasks the first are sent while the others still run, so that
# the servers need not wait for the last (200 tasks: 8 % more pairs/s, 1,000: twice as
# many). One timer is for all that can be due.
#
# Where there is no epoll the loop watches each connection itself. A descriptor must be
# taken from the loop before it is closed, or the loop takes the next one of its number
# for it. But connections are closed in many places, and only its own thread may call
# the loop, in calls that a signal may end. So a link that is watched keeps its
# descriptor when it is closed (`retired_fd`): its connection ends at once, and the next
# asyncio_watch takes the descriptor from the loop and closes it. Until then the loop
# finds it readable, which only calls on_ready once more.

cdef enum:
    WATCH_UNSURE = 1 << 30      # a call of the loop was under way: anything is possible
    HAND_OVERS = 32      # between two looks of the loop at anything else
    CHUNK = 100      # rounds: some 11 KiB, which a server reads in one piece of 16


@cython.final
cdef class AsyncioDriver:
    """One engine on one event loop; used by the loop's thread only."""

    cdef Engine engine
    cdef readonly object loop
    cdef object running_loop     # asyncio's function
    cdef object current_task     # ...and another
    cdef uint32_t generation     # of the process whose loop it is
    cdef object come             # a future of asyncio's that is done: see wake()
    cdef unsigned long awake     # the loop's thread, while wake() lets tasks go on
    cdef bint nests              # its loop may be run again by a task, inside us
    cdef bint names_thread       # its loop has the thread that runs it, or None
    cdef bint is_joined          # the loop calls on_ready...
    cdef int epoll_fd            # ...for this one; or -1, where there is no epoll
    cdef Origin epoll            # of epoll_fd
    cdef list done               # futures whose tasks are to be woken...
    cdef Py_ssize_t woken        # ...but for so many, whose tasks were
    cdef int queued              # rounds since the last flush
    cdef bint is_flush_due       # at the end of this iteration...
    cdef bint is_wake_due        # ...and so is wake()
    cdef int64_t armed_ns        # when the timer goes off
    cdef Drain drain             # of close()
    cdef object closing_timer    # ends connections opened after close(), or None...
    cdef list late               # ...and the futures of these releases, until then
    cdef object timer

    def __cinit__(self, Engine engine not None, loop):
        self.epoll_fd = -1
        self.armed_ns = NEVER_NS
        self.done = []
        self.late = []

    def __init__(self, Engine engine not None, loop):
        """Take the engine over from a loop that is closed, or another process's."""
        from asyncio import get_running_loop, tasks      # long been imported

        self.engine = engine
        self.loop = loop
        self.running_loop = get_running_loop
        # A function of Python before 3.12, which looks into this dictionary.
        self.current_task = tasks.current_task
        if sys.version_info < (3, 12):
            self.current_task = tasks._current_tasks.get
        self.generation = current_generation
        self.come = loop.create_future()
        self.come.set_result(None)
        interpreter_exit_watch(engine)
        asyncio_forget_connections(engine)
        if not engine.is_closed:
            asyncio_join(self)

    def __dealloc__(self):
        # If the arguments were wrong, nothing is set, and 0 is another's descriptor.
        if self.armed_ns != 0:
            origin_close(&self.epoll, self.epoll_fd)

    def is_here(self):
        """Whether its loop is the one that runs the caller."""
        return asyncio_is_here(self)

    def caller(self):
        """Return a weak reference to the task that runs now; None outside of tasks."""
        return asyncio_caller(self)

    def is_over(self):
        """Whether another loop may take the engine over."""
        return self.generation != current_generation or self.loop.is_closed()

    def submit(self, work not None):
        """Begin a round or a batch; return what to await for its end, a RoundFuture.

        Raises ClosedError where the engine is closed; a release opens connections of
        its own then.
        """
        return asyncio_submit(self, work)

    def sleep(self, double seconds):
        """Return what to await for the end of a delay, a DelayFuture."""
        cdef DelayFuture delay = DelayFuture()
        cdef int64_t delay_ns = <int64_t>(seconds * 1e9)
        delay.driver = self
        delay.due_ns = clock_ns() + delay_ns
        delay_arm(delay, delay_ns)
        return delay

    def abandon(self, work not None):
        """Roll back a round, or a batch, whose caller will not get it; releases are
        sent. Does not wait."""
        work_check(work)
        engine_withdraw_work(self.engine, work, clock_ns())
        if not self.is_over():
            if self.engine.is_closed and connections_are_left(self.engine):
                asyncio_join_again(self)
                connections_open_due(self.engine, True, clock_ns())
            connections_open_deferred(self.engine, clock_ns())
            asyncio_flush(self)
        elif self.generation == current_generation:
            # A task that its loop left behind is collected, by any thread: with the
            # GIL, for another loop may be about to take the engine over.
            engine_before_write(self.engine)
            links_send(self.engine.links, self.engine.connection_count)

    def flush(self):
        """Send the commands that the tasks of this iteration have queued."""
        cdef int i
        self.is_flush_due = False
        try:
            if self.awake and not self.nests:
                # A task runs the loop inside of on_ready, whose handle cannot be run
                # in itself: another one takes its place.
                self.nests = True
                if self.epoll_fd >= 0:
                    self.loop.add_reader(self.epoll_fd, self.on_ready)
                for i in range(self.engine.connection_count if IS_PORTABLE else 0):
                    self.engine.links[i].watched = WATCH_UNSURE
            if self.engine.closed:
                try:
                    engine_finish(self.engine, clock_ns())
                finally:
                    asyncio_wake_later(self)
            asyncio_flush(self)
        except BaseException:
            self.loop.call_soon(self.on_ready)      # the rest is sent then
            raise

    def wake(self):
        """Let the tasks go on whose rounds are finished; called by the loop alone.

        A task that ends the loop (KeyboardInterrupt, SystemExit) keeps the others for
        the next iteration. The callback of a task asks the future it is given for its
        result: one of asyncio's own costs 1,300 instructions less than ours.
        """
        cdef AsyncioFuture future
        cdef Py_ssize_t _i
        cdef unsigned long before = self.awake      # of a wake() that this one is in
        self.is_wake_due = False
        self.awake = PyThread_get_thread_ident()
        try:
            for _i in range(len(self.done) - self.woken + HAND_OVERS):
                if self.woken == len(self.done):
                    break
                future = <AsyncioFuture>self.done[self.woken]
                self.done[self.woken] = None
                self.woken += 1
                callback, future.callback = future.callback, None
                if callback is None:
                    continue
                if self.nests:      # it may run the loop until the others end
                    asyncio_wake_later(self)
                PyContext_Enter(future.context)
                try:
                    callback(self.come if future.cancelled_by is None else future)
                finally:
                    PyContext_Exit(future.context)
        finally:
            self.awake = before
            PyList_SetSlice(self.done, 0, self.woken, NULL)
            self.woken = 0
            asyncio_wake_later(self)

    def on_ready(self):
        """Some connection is readable, or has room for more."""
        cdef Engine engine = self.engine
        if not self.is_joined or self.generation != current_generation:
            return
        try:
            with nogil:      # EINTR: the next iteration sees the same
                links_poll(
                    engine.links, engine.polled, engine.connection_count,
                    engine.connection_count, 0, &engine.leadership.waker,
                )
            engine_take_events(engine)
            if engine.is_notifying:
                asyncio_flush(self)
            if self.nests:
                asyncio_wake_later(self)
            elif self.done:
                self.wake()
            if not self.is_flush_due:      # else with the commands of the woken tasks
                asyncio_flush(self)
        except BaseException:
            self.loop.call_soon(self.on_ready)      # the rest is taken then
            raise

    def on_timer(self):
        """Something may be due."""
        self.timer = None
        self.armed_ns = NEVER_NS
        self.on_ready()

    def awaits_replies(self):
        """Whether commands are in flight."""
        return connections_await_replies(self.engine)

    def refuse(self, int64_t timeout_ns):
        """Take nothing but releases from now on; acquires under way end UNREACHABLE,
        "closed", and are rolled back. Masters that are silent get timeout_ns."""
        self.engine.is_closed = True
        asyncio_end_acquires(self, "closed")
        self.drain = drain_of_close(self.engine, timeout_ns)

    def is_drained(self):
        """Whether the replies are in that are waited for since `refuse`; releases wait
        for connections that are on their way."""
        return engine_limit_ns(self.engine, self.drain, clock_ns()) == 0

    def end_acquires(self):
        """End the acquires under way, rolled back: the interpreter ends."""
        asyncio_end_acquires(self, "the interpreter ends")

    def idle_left_ns(self):
        """Return for how long a key may be idle here yet; 0: none does."""
        cdef IdleKey idle
        cdef int64_t due_ns = 0
        if not self.engine.idle.keys:
            idle_watch(self.engine.idle, None)
            return 0
        for idle in self.engine.idle.keys.values():
            due_ns = max(due_ns, idle.due_ns)
        return max(<int64_t>NS_PER_MS, due_ns - clock_ns())

    def end_idle_keys(self):
        """Release the keys that are idle; from now on none does, on this loop."""
        if self.engine.driver is not self:
            return
        idle_end_watch(self.engine.idle)
        if self.engine.idle.keys and not self.is_over():
            engine_end_idle(self.engine, clock_ns())
            asyncio_flush(self)

    def shut(self):
        """Close all connections; rounds under way end UNREACHABLE, "closed".

        Blocks for the replies of masters that answer, if close() was interrupted.
        """
        cdef RoundFuture future
        closing_timer, self.closing_timer = self.closing_timer, None
        if closing_timer is not None:
            closing_timer.cancel()
        self.engine.is_closed = True
        try:
            if self.drain is None or not self.is_drained():
                blocking_drain_all(
                    self.engine, drain_until(self.engine, clock_ns() + SHUT_NS)
                )
        finally:
            engine_disconnect(self.engine)
            for future in self.late:
                if work_is_finished(future.work):
                    future_set_done(future)
            asyncio_wake_later(self)
            self.leave()
        if self.engine.admissions:      # the rest of a batch of releases
            asyncio_join_again(self)
            asyncio_flush(self)

    def shut_once_drained(self):
        """Shut when the releases after close() are confirmed; the timer calls it."""
        if self.is_drained():
            self.shut()
        else:
            self.closing_timer = self.loop.call_later(0.001, self.shut_once_drained)

    def retire(self):
        """Forget a loop that is over; this driver holds nothing of it any more."""
        self.timer = self.closing_timer = None      # their callbacks hold this driver
        if self.engine.driver is self:
            self.engine.driver = None
        self.is_joined = False
        origin_close(&self.epoll, self.epoll_fd)
        self.epoll_fd = -1

    def leave(self):
        """Leave the loop alone from now on; called by its thread."""
        cdef int i
        watcher = self.engine.idle.watcher
        self.end_idle_keys()
        if watcher is not None:
            watcher.cancel()
        if self.engine.driver is self:
            self.engine.driver = None
        if not self.is_joined or self.is_over():
            return
        self.is_joined = False
        if self.timer is not None:
            self.timer.cancel()
        for i in range(self.engine.connection_count):
            if IS_PORTABLE:
                asyncio_watch_link(self, self.engine.links[i], 0)
            else:
                link_unwatch(self.engine.links[i])
        fd, self.epoll_fd = self.epoll_fd, -1
        if fd >= 0:
            try:
                self.loop.remove_reader(fd)
            finally:
                origin_close(&self.epoll, fd)


# --- the loop -------------------------------------------------------------------------
# The driver joins it, and joins it again for a release after close(); connections and
# the next due time are watched.


cdef int asyncio_join(AsyncioDriver self) except -1:
    if not IS_PORTABLE:
        self.epoll_fd = watch_open()
        if self.epoll_fd < 0:
            raise OSError(errno, "epoll_create1")
        self.epoll = origin_of(self.epoll_fd)
    self.is_joined = True
    if self.epoll_fd >= 0:
        self.loop.add_reader(self.epoll_fd, self.on_ready)
    self.nests = hasattr(self.loop, "_nest_patched")      # by nest_asyncio
    self.names_thread = hasattr(self.loop, "_thread_id")      # one of asyncio's own
    self.engine.driver = self


cdef int asyncio_join_again(AsyncioDriver self) except -1:
    # Join it again for a release after close(). Its task goes on once all replies are
    # in, or after a second: perhaps nobody runs the loop for the slower masters.
    if self.is_joined:
        return 0
    self.armed_ns = NEVER_NS
    self.timer = None
    asyncio_join(self)
    self.drain = drain_until(self.engine, clock_ns() + OPEN_AGAIN_NS)
    self.late = [future for future in self.late if not future.done()]
    self.closing_timer = self.loop.call_later(0.001, self.shut_once_drained)


cdef int asyncio_forget_connections(Engine self) except -1:
    # Forget the connections of another loop; its tasks are not woken, because it is
    # closed. Replies in flight are read first, or closing would undo commands that were
    # sent; the other releases are deferred to the next connections; a forked child
    # leaves all that to its parent.
    cdef int64_t now_ns = clock_ns()
    cdef Round round
    cdef int i
    if self.generation != current_generation:
        return engine_reset_after_fork(self)
    for i in range(self.connection_count):
        link_forget_loop(self.links[i])
    idle_watch(self.idle, None)
    engine_end_idle(self, now_ns)
    if connections_await_replies(self):
        blocking_flush(self)
        blocking_drain(self, drain_until(self, now_ns + UNDO_NS))
    connections_forget(self, now_ns, "its event loop was closed")
    waiting = engine_left(self)
    for queue in self.queues.by_resource.values():
        waiting += (<WaitQueue>queue).rounds
    kept = [(<Round>each).waiter for each in waiting]      # the last references
    for round in waiting:
        round.waiter = None
    gate_end_waiting(self, "its event loop was closed", now_ns)
    engine_finish(self, now_ns)
    del kept      # tasks of the closed loop may end with them


cdef int asyncio_watch(AsyncioDriver self) except -1:
    # Watch the connections there are now, and the next time at which something is due.
    cdef Engine engine = self.engine
    cdef int i, error
    if not self.is_joined:
        return 0
    for i in range(engine.connection_count):
        if IS_PORTABLE:
            asyncio_watch_link(self, engine.links[i], link_wanted(engine.links[i]))
            continue
        error = link_watch(engine.links[i], self.epoll_fd)
        if error != 0:
            raise OSError(-error, "epoll_ctl")
    if engine.due.at_ns < self.armed_ns:
        self.armed_ns = NEVER_NS      # an interrupt in here: the next watch arms it
        if self.timer is not None:
            self.timer.cancel()
        delay = max(engine.due.at_ns - clock_ns(), 0) / 1e9
        self.timer = self.loop.call_later(delay, self.on_timer)
        self.armed_ns = engine.due.at_ns


cdef int asyncio_watch_link(AsyncioDriver self, Link *link, uint32_t wanted) except -1:
    # Watch for these events without epoll, 0: for none; mostly nothing changes.
    if link.retired_fd >= 0:
        if link.watched_in == current_generation:      # a forked child has another loop
            self.loop.remove_reader(link.retired_fd)
            self.loop.remove_writer(link.retired_fd)
        origin_close(&link.retired, link.retired_fd)
        link.retired_fd = -1
    if link.fd < 0 or link.watched == wanted:
        return 0
    link.watched_in = current_generation
    link.watched = WATCH_UNSURE
    if wanted:
        self.loop.add_reader(link.fd, self.on_ready)
    else:
        self.loop.remove_reader(link.fd)
    if wanted & POLLOUT:
        self.loop.add_writer(link.fd, self.on_ready)
    else:
        self.loop.remove_writer(link.fd)
    link.watched = wanted


# --- rounds ---------------------------------------------------------------------------
# They are begun in tasks, sent, received, and their tasks are woken.


cdef bint asyncio_is_here(AsyncioDriver self) except -1:
    # Before Python 3.12 asyncio asks the kernel for the process each time: so the loop
    # is asked for its thread, and not even that where wake() lets a task go on.
    cdef unsigned long caller = PyThread_get_thread_ident()
    if self.generation != current_generation:
        return False
    if self.awake == caller:
        return True
    if self.names_thread:
        thread = self.loop._thread_id
        if thread is not None and <unsigned long>thread == caller:
            return True
    return self.loop is self.running_loop()


cdef object asyncio_caller(AsyncioDriver self):
    task = self.current_task(self.loop)
    return None if task is None else PyWeakref_NewRef(task, None)


cdef RoundFuture asyncio_submit(AsyncioDriver self, object work):
    cdef RoundFuture future
    cdef int64_t now_ns = clock_ns()
    work_check(work)
    if self.engine.is_closed:
        if not work_is_release(work):
            raise ClosedError("closed")
        asyncio_join_again(self)
    if now_ns - self.engine.polled_at_ns > NS_PER_S:
        now_ns = asyncio_probe_idle(self)
    future = RoundFuture.__new__(RoundFuture)
    future.driver = self
    future.work = work
    if turns_join_stay(self.engine, work, future, now_ns):
        if self.engine.due.at_ns < self.armed_ns:
            asyncio_flush_soon(self)
        return future
    self.queued += 1
    if self.engine.is_closed:
        self.late.append(future)
    engine_submit_work(
        self.engine, work, None if self.engine.is_closed else future, now_ns
    )
    asyncio_wake_later(self)      # it was finished already
    # If there is no master to ask, it ends in an iteration of its own. Else a task that
    # tries again and again would stop the loop.
    if self.queued < CHUNK or self.engine.closed:
        asyncio_flush_soon(self)
    else:
        asyncio_flush(self)
    return future


cdef bint asyncio_hand_on(AsyncioDriver self, object work) except -1:
    # Return whether it needed no master; a task that has the lease now goes on later.
    if not turns_may_need_no_master(self.engine, work) or (
        not turns_hand_on(self.engine, work, clock_ns())
    ):
        return False
    if self.engine.due.at_ns < self.armed_ns:
        asyncio_flush_soon(self)
    asyncio_wake_later(self)
    return True


cdef int64_t asyncio_probe_idle(AsyncioDriver self) except -1:
    # Look, inside a task, whether a connection was cut in an idle time (the loop was
    # blocked, or was not run). Return the time afterwards.
    self.engine.polled_at_ns = clock_ns()
    try:
        blocking_probe_idle(self.engine)
    finally:
        asyncio_wake_later(self)
    return clock_ns()


cdef int asyncio_flush_soon(AsyncioDriver self) except -1:
    if not self.is_flush_due:
        self.is_flush_due = True
        asyncio_call_soon(self, self.flush)


cdef int asyncio_flush(AsyncioDriver self) except -1:
    cdef int i
    self.queued = 0
    self.engine.is_notifying = False
    if self.generation != current_generation:      # the parent's sockets
        return 0
    blocking_flush(self.engine)
    for i in range(self.engine.connection_count):
        if self.engine.links[i].error != 0:
            asyncio_call_soon(self, self.on_ready)
            break
    return asyncio_watch(self)


cdef int asyncio_end_acquires(AsyncioDriver self, str reason) except -1:
    try:
        engine_end_acquires(self.engine, reason, clock_ns())
    finally:
        if not self.is_over():      # else its tasks never go on
            asyncio_wake_later(self)
    return 0 if self.is_over() else asyncio_flush(self)


cdef int asyncio_wake_later(AsyncioDriver self) except -1:
    # Inside a task: others can be woken only after it. While wake() runs it takes them
    # itself.
    if (
        self.woken < len(self.done) and not self.is_wake_due
        and (self.nests or not self.awake) and self.generation == current_generation
    ):
        asyncio_call_soon(self, self.wake)
        self.is_wake_due = True
