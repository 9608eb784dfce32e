# Where there is no epoll: the event loop watches each connection itself.
#
# A descriptor must be taken from the loop before it is closed, or the loop takes the
# next one of its number for it. But connections are closed in many places, and only its
# own thread may call the loop, in calls that a signal may end. So a link that is
# watched keeps its descriptor when it is closed (`retired_fd`): its connection ends at
# once, and the next asyncio_watch takes the descriptor from the loop and closes it.
#
# Until then the loop finds it readable, which only calls on_ready once more.

cdef enum:
    WATCH_UNSURE = 1 << 30      # a call of the loop was under way: anything is possible


cdef int asyncio_watch_link(AsyncioDriver self, Link *link) except -1:
    # Watch for the events to wait for now; mostly nothing changes.
    cdef uint32_t wanted = POLLIN
    if link.retired_fd >= 0:
        asyncio_forget_retired(self, link)
    if link_wants_to_write(link):
        wanted = POLLIN | POLLOUT
    if link.fd < 0 or link.watched == wanted:
        return 0
    link.watched_in = current_generation
    link.watched = WATCH_UNSURE
    self.loop.add_reader(link.fd, self.on_ready)
    if wanted & POLLOUT:
        self.loop.add_writer(link.fd, self.on_ready)
    else:
        self.loop.remove_writer(link.fd)
    link.watched = wanted
    return 0


cdef int asyncio_forget_link(AsyncioDriver self, Link *link) except -1:
    if link.watched and link.watched_in == current_generation:
        link.watched = WATCH_UNSURE
        self.loop.remove_reader(link.fd)
        self.loop.remove_writer(link.fd)
        link.watched = 0
    return asyncio_forget_retired(self, link) if link.retired_fd >= 0 else 0


cdef int asyncio_forget_retired(AsyncioDriver self, Link *link) except -1:
    if link.watched_in == current_generation:      # a forked child has another loop
        self.loop.remove_reader(link.retired_fd)
        self.loop.remove_writer(link.retired_fd)
    close(link.retired_fd)
    link.retired_fd = -1
    return 0


cdef int asyncio_receive_polled(Link **links, int master_count) noexcept nogil:
    # Returns how many had an event.
    cdef pollfd polled[MAX_MASTERS]
    cdef timespec at_once
    cdef int i, count
    at_once.tv_sec = at_once.tv_nsec = 0
    for i in range(master_count):
        polled[i].fd = links[i].fd      # poll leaves out a negative one
        polled[i].events = POLLIN
        if link_wants_to_write(links[i]):
            polled[i].events = POLLIN | POLLOUT
        polled[i].revents = 0
    count = poll_for(polled, master_count, &at_once)
    for i in range(master_count if count > 0 else 0):
        if polled[i].revents != 0:
            asyncio_take_event(links[i], <uint32_t>polled[i].revents)
    return count


cdef inline void asyncio_take_event(Link *link, uint32_t events) noexcept nogil:
    # POLLOUT and EPOLLOUT are one number (epoll_ctl(2)).
    link.is_ready = True
    if link.phase == LINK_OPEN and not link.is_parsing and link.received == 0 and (
        events & ~<uint32_t>POLLOUT
    ):
        link_receive(link)
