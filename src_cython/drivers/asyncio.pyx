# An event loop drives the engine: nothing here waits.
#
# The loop watches one descriptor, an epoll of ours in which every connection is
# registered once: so connections come and go without the loop, whatever loop it is.
# What all tasks of one turn queue goes out in one send per master, at the end of the
# turn; only of hundreds of tasks the first are sent while the others still run, so that
# the servers need not wait for the last (200 tasks: 8 % more pairs/s, 1,000: twice as
# many). One timer stands for all that can be due.

cimport cython
from cpython.pythread cimport PyThread_get_thread_ident
from libc.errno cimport errno
from libc.stdint cimport int64_t, uint32_t

cdef enum:
    CHUNK = 100      # rounds: some 11 KiB, which a server reads in one piece of 16


cdef int loop_wake_soon(LoopDriver self, LoopFuture future) except -1:
    if not self.done:
        self.loop.call_soon(self.wake)
    self.done.append(future)
    return 0


@cython.final
cdef class LoopDriver:
    """One engine on one event loop; used by the loop's thread only."""

    cdef Engine engine
    cdef readonly object loop
    cdef object running_loop     # asyncio's function
    cdef uint32_t generation     # of the process whose loop it is
    cdef unsigned long awake     # the loop's thread, while wake() lets tasks go on
    cdef int epoll_fd
    cdef list done               # futures whose tasks are to be told
    cdef int queued              # rounds since the last flush
    cdef bint is_flush_due       # at the end of this turn
    cdef int64_t armed_ns        # when the timer goes off
    cdef Settlement settlement   # of close()
    cdef object parting          # the end of what was opened after close(), or None
    cdef object timer

    def __cinit__(self, Engine engine not None, loop):
        self.epoll_fd = -1
        self.armed_ns = NEVER_NS
        self.done = []

    def __init__(self, Engine engine not None, loop):
        """Take the engine over from a loop that is closed, or another process's."""
        from asyncio import get_running_loop      # has long been imported

        self.engine = engine
        self.loop = loop
        self.running_loop = get_running_loop
        self.generation = current_generation
        loop_forget_connections(engine)
        if not engine.is_closed:
            loop_join(self)

    def __dealloc__(self):
        if self.epoll_fd >= 0:
            close(self.epoll_fd)

    def is_here(self):
        """Whether its loop is the one that runs the caller.

        A task that was let go on by wake() need not ask asyncio, which before Python
        3.12 asks the kernel for the process each time.
        """
        if self.generation != current_generation:
            return False
        return (
            self.awake == PyThread_get_thread_ident()
            or self.loop is self.running_loop()
        )

    def is_over(self):
        """Whether another loop may take the engine over."""
        return self.generation != current_generation or self.loop.is_closed()

    def submit(self, work not None):
        """Begin a round or a batch; return what to await for its end, a RoundFuture.

        Raises ClosedError where the engine is closed; a release opens connections of
        its own then.
        """
        cdef RoundFuture future
        cdef int64_t now_ns = clock_ns()
        check_work(work)
        if self.engine.is_closed:
            if not work_is_release(work):
                raise ClosedError("closed")
            loop_join_again(self)
        if now_ns - self.engine.polled_at_ns > NS_PER_S:
            now_ns = loop_look_again(self)
        future = RoundFuture()
        future.driver = self
        future.work = work
        self.queued += 1
        engine_submit_work(self.engine, work, future, now_ns)
        if self.engine.closed:      # no master to be asked: it is told in a turn of
            loop_flush_soon(self)   # its own, or who tries on and on stops the loop
        if self.queued >= CHUNK:
            loop_flush(self)
        else:
            loop_flush_soon(self)
        return future

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
        check_work(work)
        engine_withdraw_work(self.engine, work, clock_ns())
        if not self.is_over():
            if self.engine.is_closed and engine_is_in_touch(self.engine):
                loop_join_again(self)
                engine_open_due(self.engine, True, clock_ns())
            loop_flush(self)
        elif self.generation == current_generation:
            # A task that its loop left behind is collected, by any thread: with the
            # GIL, for another loop may be about to take the engine over.
            links_send(self.engine.in_turn, self.engine.master_count)

    def flush(self):
        """Send what the tasks of this turn have queued."""
        self.is_flush_due = False
        try:
            if self.engine.closed:
                loop_finish(self)
            loop_flush(self)
        except BaseException:
            self.loop.call_soon(self.on_ready)      # what is left is sent then
            raise

    def wake(self):
        """Let the tasks go on whose rounds are finished; called by the loop alone.

        A task that ends the loop (KeyboardInterrupt, SystemExit) keeps the others for
        the next turn.
        """
        cdef LoopFuture future
        cdef Py_ssize_t count = 0
        done, self.done = self.done, []
        self.awake = PyThread_get_thread_ident()
        try:
            for future in done:
                count += 1
                callback, future.callback = future.callback, None
                if callback is not None:
                    future.context.run(callback, future)
        finally:
            self.awake = 0
            if count < len(done):
                self.done = done[count:] + self.done
                self.loop.call_soon(self.wake)

    def on_ready(self):
        """Some connection has something to say, or room for more."""
        if self.epoll_fd < 0 or self.generation != current_generation:
            return
        try:
            with nogil:
                loop_receive(self.engine.links, self.epoll_fd)
            engine_take_events(self.engine)
            if self.done:
                self.wake()
            if self.parting is not None:
                loop_part_when_settled(self)
            loop_flush_rest(self)
        except BaseException:
            self.loop.call_soon(self.on_ready)      # what is left is taken then
            raise

    def on_timer(self):
        """Something may be due."""
        self.timer = None
        self.armed_ns = NEVER_NS
        self.on_ready()

    def owes_replies(self):
        """Whether a master owes a reply."""
        return engine_owes_replies(self.engine)

    def refuse(self, int64_t timeout_ns):
        """Take nothing but releases from now on; acquires under way end UNREACHABLE,
        "closed", and are rolled back. Masters that are silent get timeout_ns."""
        self.engine.is_closed = True
        loop_end_acquires(self, "closed")
        self.settlement = settlement_of(
            self.engine, True, timeout_ns,
            clock_ns() + min(10 * timeout_ns, <int64_t>NS_PER_S),
        )

    def is_settled(self):
        """Whether the replies are in that are waited for since `refuse`."""
        return settlement_limit_ns(self.settlement, self.engine, clock_ns()) == 0

    def end_acquires(self):
        """End the acquires under way, rolled back: the interpreter ends."""
        loop_end_acquires(self, "the interpreter ends")

    def shut(self):
        """Close all connections; what is under way ends UNREACHABLE, "closed".

        Blocks for the replies of masters that answer: there are none to wait for but
        where close() was interrupted.
        """
        cdef Py_ssize_t before = len(self.done)
        parting, self.parting = self.parting, None
        if parting is not None:
            parting.cancel()
        self.engine.is_closed = True
        try:
            engine_drain(self.engine, clock_ns() + SHUT_NS)
        finally:
            engine_part(self.engine)
            loop_wake_later(self, before)
            self.leave()
        if self.engine.admissions:      # the rest of a batch of releases
            loop_join_again(self)
            loop_flush(self)

    def retire(self):
        """Forget a loop that is over; who still holds this driver holds nothing."""
        self.timer = self.parting = None      # whose callbacks hold this driver
        if self.engine.driver is self:
            self.engine.driver = None
        if self.epoll_fd >= 0:
            close(self.epoll_fd)
        self.epoll_fd = -1

    def leave(self):
        """Leave the loop alone from now on; called by its thread."""
        cdef int i
        if self.engine.driver is self:
            self.engine.driver = None
        if self.epoll_fd < 0 or self.is_over():
            return
        for i in range(self.engine.master_count):
            link_unwatch(self.engine.links[i])
        fd, self.epoll_fd = self.epoll_fd, -1
        try:
            self.loop.remove_reader(fd)
            if self.timer is not None:
                self.timer.cancel()
        finally:
            close(fd)


cdef int loop_join(LoopDriver self) except -1:
    self.epoll_fd = epoll_create1(EPOLL_CLOEXEC)
    if self.epoll_fd < 0:
        raise OSError(errno, "epoll_create1")
    self.loop.add_reader(self.epoll_fd, self.on_ready)
    self.engine.driver = self
    return 0


cdef int loop_join_again(LoopDriver self) except -1:
    # After close(), for a release: until its replies are in, or a second has passed.
    if self.epoll_fd >= 0:
        return 0
    self.armed_ns = NEVER_NS
    self.timer = None
    loop_join(self)
    self.parting = self.loop.call_later(OPEN_AGAIN_NS / 1e9, self.shut)
    return 0


cdef int loop_part_when_settled(LoopDriver self) except -1:
    cdef Master master
    if self.engine.admissions or engine_owes_replies(self.engine):
        return 0
    for master in self.engine.masters:
        if master_is_opening(master) and len(master.debts.carried) > 0:
            return 0
    self.shut()
    return 0


cdef int loop_end_acquires(LoopDriver self, str reason) except -1:
    cdef Py_ssize_t before = len(self.done)
    try:
        engine_end_acquires(self.engine, reason, clock_ns())
    finally:
        loop_wake_later(self, before)
    return 0 if self.is_over() else loop_flush(self)


cdef int loop_wake_later(LoopDriver self, Py_ssize_t before) except -1:
    # Inside a task: others can be told only after it. `before`: how many there were to
    # be told already.
    if before == 0 and self.done and not self.is_over():
        self.loop.call_soon(self.wake)
    return 0


cdef int64_t loop_look_again(LoopDriver self) except -1:
    # After a pause (the loop stood still, or was not run): has a connection been cut?
    # Inside a task, as loop_finish. Returns the time afterwards.
    cdef int _i, count
    cdef Py_ssize_t before = len(self.done)
    self.engine.polled_at_ns = clock_ns()
    try:
        for _i in range(4):      # the end of a stream stands behind the replies in it
            with nogil:
                count = loop_receive(self.engine.links, self.epoll_fd)
            if count <= 0:
                break
            engine_take_events(self.engine)
    finally:
        loop_wake_later(self, before)
    return clock_ns()


cdef int loop_flush_soon(LoopDriver self) except -1:
    if not self.is_flush_due:
        self.loop.call_soon(self.flush)
        self.is_flush_due = True
    return 0


cdef int loop_flush_rest(LoopDriver self) except -1:
    # What taking the replies has queued goes out with what the woken tasks will queue.
    cdef int i
    if self.is_flush_due:
        return 0
    for i in range(self.engine.master_count):
        if buffer_length(&self.engine.links[i].outgoing) > 0:
            return loop_flush_soon(self)
    return loop_watch(self)


cdef int loop_flush(LoopDriver self) except -1:
    cdef Engine engine = self.engine
    cdef int i
    cdef bint is_broken = False
    self.queued = 0
    if self.generation != current_generation:      # the parent's sockets
        return 0
    with nogil:
        links_send(engine.in_turn, engine.master_count)
        for i in range(engine.master_count):
            is_broken = is_broken or engine.links[i].error != 0
    if is_broken:
        self.loop.call_soon(self.on_ready)
    return loop_watch(self)


cdef int loop_finish(LoopDriver self) except -1:
    cdef Py_ssize_t before = len(self.done)
    try:
        engine_finish(self.engine, clock_ns())
    finally:
        loop_wake_later(self, before)
    return 0


cdef int loop_watch(LoopDriver self) except -1:
    # Watch the connections there are now, and the next time at which something is due.
    cdef Engine engine = self.engine
    cdef int i, error
    if self.epoll_fd < 0:
        return 0
    for i in range(engine.master_count):
        error = link_watch(engine.links[i], self.epoll_fd, i)
        if error != 0:
            raise OSError(-error, "epoll_ctl")
    if engine.next_ns < self.armed_ns:
        self.armed_ns = NEVER_NS      # an interrupt in here: the next watch arms it
        if self.timer is not None:
            self.timer.cancel()
        delay = max(engine.next_ns - clock_ns(), 0) / 1e9
        self.timer = self.loop.call_later(delay, self.on_timer)
        self.armed_ns = engine.next_ns
    return 0


cdef int loop_receive(Link **links, int epoll_fd) noexcept nogil:
    # Returns how many had something to say.
    cdef epoll_event events[MAX_MASTERS]
    cdef int i, count = epoll_wait(epoll_fd, events, MAX_MASTERS, 0)
    cdef Link *link
    for i in range(count):      # -1: EINTR; the next turn sees the same
        link = links[events[i].data.u32]
        link.is_ready = True
        if link.phase == LINK_OPEN and not link.is_parsing and link.received == 0 and (
            events[i].events & ~<uint32_t>EPOLLOUT
        ):
            link_receive(link)
    return count


cdef int loop_forget_connections(Engine self) except -1:
    # Those of another loop; whoever waited there is not told, for his loop is closed.
    # The replies still owed are read first, or closing would undo what was sent; the
    # rest of the releases goes on the next connections; a forked child leaves all that
    # to its parent.
    cdef int64_t now_ns = clock_ns()
    cdef Round round
    cdef Admission admission
    if self.generation != current_generation:
        return engine_begin_anew(self)
    engine_drain(self, now_ns + UNDO_NS)
    engine_forget_but_carry(self, "its event loop was closed", now_ns)
    for admission in self.admissions:
        admission.round.waiter = None
    for round in self.closed:
        round.waiter = None
    engine_admit(self, now_ns)
    return engine_finish(self, now_ns)
