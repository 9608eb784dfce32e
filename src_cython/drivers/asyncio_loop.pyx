# The asyncio driver and its event loop: joining it and shutting down in it, sending at
# the end of an iteration, watching connections and the next due time.


cdef int asyncio_join(AsyncioDriver self) except -1:
    if not IS_PORTABLE:
        self.epoll_fd = epoll_create1(EPOLL_CLOEXEC)
        if self.epoll_fd < 0:
            raise OSError(errno, "epoll_create1")
        self.is_joined = True
        self.loop.add_reader(self.epoll_fd, self.on_ready)
    self.is_joined = True
    self.nests = hasattr(self.loop, "_nest_patched")      # by nest_asyncio
    self.engine.driver = self
    return 0


cdef int asyncio_part(AsyncioDriver self) except -1:
    cdef int i
    for i in range(self.engine.master_count):
        if IS_PORTABLE:
            asyncio_forget_link(self, self.engine.links[i])
        else:
            link_unwatch(self.engine.links[i])
    if IS_PORTABLE:
        return 0
    fd, self.epoll_fd = self.epoll_fd, -1
    try:
        self.loop.remove_reader(fd)
    finally:
        close(fd)
    return 0


cdef int asyncio_join_again(AsyncioDriver self) except -1:
    # After close(), for a release: until its replies are in, or a second has passed.
    if self.is_joined:
        return 0
    self.armed_ns = NEVER_NS
    self.timer = None
    asyncio_join(self)
    self.closing_timer = self.loop.call_later(OPEN_AGAIN_NS / 1e9, self.shut)
    return 0


cdef bint asyncio_is_settled(AsyncioDriver self) noexcept:
    # Whether nothing is left of the releases that came after close().
    cdef Master master
    if len(self.engine.admissions) > 0 or engine_awaits_replies(self.engine):
        return False
    for master in self.engine.masters:
        if master_is_opening(master) and len(master.in_flight.deferred) > 0:
            return False
    return True


cdef int asyncio_end_acquires(AsyncioDriver self, str reason) except -1:
    cdef Py_ssize_t before = len(self.done)
    try:
        engine_end_acquires(self.engine, reason, clock_ns())
    finally:
        if not self.is_over():      # else its tasks never go on
            asyncio_wake_later(self, before)
    return 0 if self.is_over() else asyncio_flush(self)


cdef int asyncio_wake_later(AsyncioDriver self, Py_ssize_t before) except -1:
    # Inside a task: others can be woken only after it. `before`: how many there were to
    # be woken already. While wake() runs it takes them itself.
    if (
        before == 0 and self.done and (self.nests or not self.awake)
        and self.generation == current_generation
    ):
        asyncio_call_soon(self, self.wake)
    return 0


cdef int64_t asyncio_probe_idle(AsyncioDriver self) except -1:
    # After an idle time (the loop was blocked, or was not run): is a connection cut?
    # Inside a task, as asyncio_finish. Returns the time afterwards.
    cdef int _i, count
    cdef Py_ssize_t before = len(self.done)
    self.engine.polled_at_ns = clock_ns()
    try:
        for _i in range(4):      # the end of a stream follows the replies in it
            with nogil:
                count = asyncio_receive(
                    self.engine.links, self.engine.master_count, self.epoll_fd
                )
            if count <= 0:
                break
            engine_take_events(self.engine)
    finally:
        asyncio_wake_later(self, before)
    return clock_ns()


cdef int asyncio_flush_soon(AsyncioDriver self) except -1:
    if not self.is_flush_due:
        self.is_flush_due = True
        asyncio_call_soon(self, self.flush)
    return 0


cdef int asyncio_flush_rest(AsyncioDriver self) except -1:
    # Commands queued while the replies were taken are sent with those of the woken
    # tasks.
    cdef int i
    if self.is_flush_due:
        return 0
    if self.engine.has_tls:
        engine_encrypt(self.engine, clock_ns())
    for i in range(self.engine.master_count):
        if buffer_length(&self.engine.links[i].outgoing) > 0:
            return asyncio_flush_soon(self)
    return asyncio_watch(self)


cdef int asyncio_flush(AsyncioDriver self) except -1:
    cdef Engine engine = self.engine
    cdef int i
    cdef bint is_broken = False
    self.queued = 0
    engine.is_notifying = False
    if self.generation != current_generation:      # the parent's sockets
        return 0
    engine_before_write(engine)
    with nogil:
        links_send(engine.send_order, engine.master_count)
        for i in range(engine.master_count):
            is_broken = is_broken or engine.links[i].error != 0
    if is_broken:
        asyncio_call_soon(self, self.on_ready)
    return asyncio_watch(self)


cdef int asyncio_finish(AsyncioDriver self) except -1:
    cdef Py_ssize_t before = len(self.done)
    try:
        engine_finish(self.engine, clock_ns())
    finally:
        asyncio_wake_later(self, before)
    return 0


cdef int asyncio_watch(AsyncioDriver self) except -1:
    # Watch the connections there are now, and the next time at which something is due.
    cdef Engine engine = self.engine
    cdef int i, error
    if not self.is_joined:
        return 0
    for i in range(engine.master_count):
        if IS_PORTABLE:
            asyncio_watch_link(self, engine.links[i])
            continue
        error = link_watch(engine.links[i], self.epoll_fd, i)
        if error != 0:
            raise OSError(-error, "epoll_ctl")
    if engine.counters.due_ns < self.armed_ns:
        self.armed_ns = NEVER_NS      # an interrupt in here: the next watch arms it
        if self.timer is not None:
            self.timer.cancel()
        delay = max(engine.counters.due_ns - clock_ns(), 0) / 1e9
        self.timer = self.loop.call_later(delay, self.on_timer)
        self.armed_ns = engine.counters.due_ns
    return 0


cdef int asyncio_receive(Link **links, int master_count, int epoll_fd) noexcept nogil:
    # Returns how many had an event.
    cdef epoll_event events[MAX_MASTERS]
    cdef int i, count
    cdef int64_t now_ns = clock_ns()
    for i in range(master_count):
        link_note_look(links[i], now_ns)
    if IS_PORTABLE:
        return asyncio_receive_polled(links, master_count)
    count = epoll_wait(epoll_fd, events, MAX_MASTERS, 0)
    for i in range(count):      # -1: EINTR; the next iteration sees the same
        asyncio_take_event(links[events[i].data.u32], events[i].events)
    return count


cdef int asyncio_forget_connections(Engine self) except -1:
    # Those of another loop; its tasks are not woken, for it is closed. Replies in
    # flight are read first, or closing would undo commands that were sent; the other
    # releases are deferred to the next connections; a forked child leaves all that to
    # its parent.
    cdef int64_t now_ns = clock_ns()
    cdef Round round
    cdef int i
    if self.generation != current_generation:
        return engine_reset_after_fork(self)
    for i in range(self.master_count):
        link_forget_loop(self.links[i])
    self.watcher = None
    engine_end_rests(self, now_ns)
    engine_settle_all(self, now_ns + UNDO_NS)
    engine_forget_but_defer(self, "its event loop was closed", now_ns)
    for round in self.admissions:
        round.waiter = None
    for queue in self.queues.by_resource.values():
        for round in (<WaitQueue>queue).rounds:
            round.waiter = None
    engine_end_waiting(self, "its event loop was closed", now_ns)
    for round in self.closed + self.queue_check_pending + self.opened:
        round.waiter = None
    engine_admit(self, now_ns)
    return engine_finish(self, now_ns)
