# One descriptor: open, send, receive. Runs without the GIL; returns 0 or -errno.

cdef enum:
    LINK_CLOSED = 0
    LINK_RESOLVING = 1     # fd is readable once the name is looked up
    LINK_CONNECTING = 2    # connect(2) under way: writable when it is decided
    LINK_OPEN = 3

cdef enum:
    INCOMING_CAPACITY = 16384
    LINK_WAIT_MS = 4

cdef struct Link:
    int fd
    int phase
    Buffer outgoing
    char *incoming         # INCOMING_CAPACITY bytes, overwritten by every receive
    size_t received        # bytes in incoming that are not taken yet
    uint32_t in_flight     # commands whose replies have not come
    uint32_t answered      # replies that came, or were given up; wraps around
    int64_t heard_ns       # when the master last sent something
    int64_t looked_ns      # when all that had come was last read...
    int64_t looked_before_ns     # ...and the time before
    int error              # 0, or the -errno that ended the connection
    bint is_at_end         # the peer closed
    bint is_unseen         # written to, and not read since
    bint is_polled         # the last poll included it...
    bint is_ready          # ...and reported an event
    bint is_parsing        # its bytes or entries are being taken out: no other step may
    bint may_block         # the socket: in calls without MSG_DONTWAIT
    int epoll_fd           # which watches it for an event loop...
    uint32_t watched       # ...for these events, 0: not at all...
    uint32_t watched_in    # ...in this generation of the process
    int retired_fd         # closed, but for the loop that watches it; or -1


cdef bint link_has_input(Link *self) noexcept nogil:
    return self.received > 0 or self.error != 0 or self.is_at_end


cdef inline void link_note_look(Link *self, int64_t now_ns) noexcept nogil:
    self.looked_before_ns = self.looked_ns
    self.looked_ns = now_ns


cdef bint link_wants_to_write(Link *self) noexcept nogil:
    return self.phase == LINK_CONNECTING or buffer_length(&self.outgoing) > 0


cdef bint link_is_caught_up(Link *self) noexcept nogil:
    # Whether the bytes received seem to hold the reply to the last command: all but a
    # few of our replies are one line. A guess, to know when to stop reading; a wrong
    # one costs a system call.
    cdef size_t i
    cdef uint32_t lines = 0
    for i in range(self.received):
        lines += self.incoming[i] == c'\n'
    return lines > 0 and lines >= self.in_flight


cdef int link_init(Link *self) noexcept nogil:
    memset(self, 0, sizeof(Link))
    self.fd = self.retired_fd = -1
    self.incoming = <char *>malloc(INCOMING_CAPACITY)
    return 0 if self.incoming != NULL else -ENOMEM


cdef void link_close(Link *self) noexcept nogil:
    # close(2), not shutdown(2): after a fork the socket is the parent's too.
    if not link_retire(self):
        link_unwatch(self)
        if self.fd >= 0:
            close(self.fd)
    self.fd = -1
    self.phase = LINK_CLOSED
    self.received = 0
    self.error = 0
    self.is_at_end = self.is_unseen = self.is_polled = self.is_ready = False
    buffer_free(&self.outgoing)


cdef bint link_retire(Link *self) noexcept nogil:
    # Without epoll an event loop of this process watches the descriptor itself, and has
    # to forget it before it is closed (asyncio_readers). The connection ends now.
    if not IS_PORTABLE or not self.watched or self.watched_in != current_generation:
        return False
    shutdown(self.fd, SHUT_RDWR)
    self.retired_fd = self.fd
    self.watched = 0
    return True


cdef void link_forget_loop(Link *self) noexcept nogil:
    # Its loop is over, and watches nothing.
    if IS_PORTABLE:
        self.watched = 0
        if self.retired_fd >= 0:
            close(self.retired_fd)
        self.retired_fd = -1


cdef void link_free(Link *self) noexcept nogil:
    link_forget_loop(self)
    link_close(self)
    free(self.incoming)


cdef int link_watch(Link *self, int epoll_fd, uint32_t index) noexcept nogil:
    # Watch for the events to wait for now; mostly nothing changes.
    cdef epoll_event event
    cdef int operation = EPOLL_CTL_MOD if self.watched else EPOLL_CTL_ADD
    if self.fd < 0:
        return 0
    event.events = EPOLLIN
    event.data.u32 = index
    if link_wants_to_write(self):
        event.events = EPOLLIN | EPOLLOUT
    if event.events == self.watched:
        return 0
    if epoll_ctl(epoll_fd, operation, self.fd, &event) != 0:
        return -errno
    self.epoll_fd = epoll_fd
    self.watched = event.events
    self.watched_in = current_generation
    return 0


cdef void link_unwatch(Link *self) noexcept nogil:
    # close(2) alone leaves a descriptor watched that a forked child has, too. The child
    # shares the epoll: a descriptor that it removed, the parent would miss.
    if not IS_PORTABLE and self.watched and self.watched_in == current_generation:
        epoll_ctl(self.epoll_fd, EPOLL_CTL_DEL, self.fd, NULL)
    self.watched = 0


cdef void link_set(int fd, int level, int name, int value) noexcept nogil:
    # Every option is a help, none a condition: a kernel without it still locks.
    setsockopt(fd, level, name, &value, sizeof(int))


cdef int link_open(Link *self, const sockaddr *address, socklen_t size) noexcept nogil:
    cdef int family = address.sa_family
    cdef int fd = socket_open(family)
    cdef int error
    if fd < 0:
        return -errno
    if family != AF_UNIX:
        link_set(fd, IPPROTO_TCP, TCP_NODELAY, 1)
        # A middlebox forgets an idle flow after minutes: probe it after 30 s, and let
        # neither unanswered probes nor unacknowledged data last for over 10 s.
        link_set(fd, SOL_SOCKET, SO_KEEPALIVE, 1)
        link_set(fd, IPPROTO_TCP, TCP_KEEPIDLE, 30)
        link_set(fd, IPPROTO_TCP, TCP_KEEPINTVL, 3)
        link_set(fd, IPPROTO_TCP, TCP_KEEPCNT, 3)
        socket_drop_after(fd, 10000)
    if connect(fd, address, size) != 0 and errno != EINPROGRESS and errno != EINTR:
        error = errno
        close(fd)
        return -error
    self.fd = fd
    self.phase = LINK_CONNECTING
    self.may_block = False
    return 0


cdef int link_finish_connect(Link *self) noexcept nogil:
    # -EINPROGRESS: not decided yet.
    cdef int error = 0
    cdef socklen_t size = sizeof(int)
    cdef sockaddr_storage ours, theirs
    cdef socklen_t ours_size = sizeof(sockaddr_storage)
    cdef socklen_t theirs_size = sizeof(sockaddr_storage)
    if getsockopt(self.fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0:
        return -errno
    if error != 0:
        return -error
    memset(&ours, 0, sizeof(ours))
    memset(&theirs, 0, sizeof(theirs))
    if getpeername(self.fd, <sockaddr *>&theirs, &theirs_size) != 0:
        return -EINPROGRESS
    if getsockname(self.fd, <sockaddr *>&ours, &ours_size) != 0:
        return -errno
    # A loopback port in the ephemeral range on which no server listens can be connected
    # to itself (TCP simultaneous open): it would echo, and keep the server's port.
    if theirs.ss_family != AF_UNIX and ours_size == theirs_size and (
        memcmp(&ours, &theirs, ours_size) == 0
    ):
        return -ECONNREFUSED
    self.phase = LINK_OPEN
    return 0


cdef void link_send(Link *self) noexcept nogil:
    # Hand over as much as the socket takes; the rest goes when it is writable again.
    cdef ssize_t sent
    while buffer_length(&self.outgoing) > 0:
        sent = send(
            self.fd, self.outgoing.data + self.outgoing.start,
            buffer_length(&self.outgoing), MSG_NOSIGNAL | MSG_DONTWAIT,
        )
        if sent >= 0:
            buffer_consume(&self.outgoing, <size_t>sent)
        elif errno == EAGAIN:
            return
        elif errno != EINTR:
            self.error = -errno
            return


cdef void link_receive(Link *self) noexcept nogil:
    # One read, into an empty buffer. Bytes left in the socket are seen by the next
    # poll; a second read to find EAGAIN would cost a call in every round.
    link_take(self, recv(self.fd, self.incoming, INCOMING_CAPACITY, MSG_DONTWAIT))


cdef bint link_may_wait(Link *self) noexcept nogil:
    return (
        self.phase == LINK_OPEN and not self.is_parsing
        and buffer_length(&self.outgoing) == 0
    )


cdef int link_wait(Link *self) noexcept nogil:
    # Wait for one read, for LINK_WAIT_MS at most. Returns -EINTR where a signal came
    # first. From the first time on the socket blocks, but for calls with MSG_DONTWAIT.
    cdef ssize_t size
    if not self.may_block:
        self.may_block = socket_block_for(self.fd, LINK_WAIT_MS) == 0
    size = recv(self.fd, self.incoming, INCOMING_CAPACITY, 0)
    if size < 0 and errno == EINTR:
        return -EINTR
    link_take(self, size)
    return 0


cdef inline void link_take(Link *self, ssize_t size) noexcept nogil:
    # What a recv(2) has just returned.
    if size > 0:
        self.received = <size_t>size
    elif size == 0:
        self.is_at_end = True
    elif errno != EAGAIN and errno != EINTR:
        self.error = -errno


cdef str error_text(int error):
    return (<bytes>strerror(-error)).decode("utf-8", "replace").lower()
