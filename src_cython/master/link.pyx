# Descriptors, and nothing that is above them: one connection, plain or by TLS, all of
# them in one poll without the GIL, and what ends that poll early.

# --- waker ----------------------------------------------------------------------------
# The waker of a leader that sleeps in poll: an event, and two flags.


cdef struct Waker:
    Event event              # its fd is -1 where there is none
    int is_sleeping          # the leader is in poll, or about to be
    int has_followers        # followers left and not taken yet
    int is_unchecked         # whose the descriptors are: another thread may lead now


cdef void waker_close(Waker *self) noexcept:
    # Followers that were queued meanwhile are still to be taken.
    event_close(&self.event)
    self.is_sleeping = 0


cdef void waker_wake(Waker *self) noexcept:
    if atomic_take(&self.is_sleeping) and self.event.fd >= 0:
        event_set(&self.event)


cdef bint waker_is_set_before_sleep(Waker *self) noexcept nogil:
    # Note that the leader is about to sleep, then look for followers: a thread does it
    # in the other order, so one of the two sees the other.
    atomic_give(&self.is_sleeping)
    return self.has_followers != 0


# --- link -----------------------------------------------------------------------------
# One descriptor: open, send, receive. Runs without the GIL; returns 0 or -errno.

cdef enum:
    LINK_CLOSED = 0
    LINK_RESOLVING = 1     # fd is readable once a thread is done (lookup)
    LINK_CONNECTING = 2    # connect(2) under way: writable when it is decided
    LINK_OPEN = 3
    INCOMING_CAPACITY = 16384

cdef struct Link:
    int fd
    int phase
    Origin origin          # of fd
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
    int epoll_fd           # which watches it for an event loop...
    uint32_t watched       # ...for these events, 0: not at all...
    uint32_t watched_in    # ...in this generation of the process
    int retired_fd         # closed, but for the loop that watches it; or -1
    Origin retired


cdef bint link_has_input(Link *self) noexcept nogil:
    return self.received > 0 or self.error != 0 or self.is_at_end


cdef inline void link_note_look(Link *self, int64_t now_ns) noexcept nogil:
    self.looked_before_ns = self.looked_ns
    self.looked_ns = now_ns


cdef bint link_wants_to_write(Link *self) noexcept nogil:
    return self.phase == LINK_CONNECTING or buffer_length(&self.outgoing) > 0


cdef int link_init(Link *self) noexcept nogil:
    memset(self, 0, sizeof(Link))
    self.fd = self.retired_fd = -1
    self.incoming = <char *>malloc(INCOMING_CAPACITY)
    return 0 if self.incoming != NULL else -ENOMEM


cdef void link_close(Link *self) noexcept nogil:
    # close(2), not shutdown(2): after a fork the socket is the parent's too. But where
    # there is no epoll, an event loop of this process watches the descriptor itself and
    # has to forget it before it is closed (drivers/asyncio). The connection ends now.
    if not origin_is_still(&self.origin, self.fd):
        self.watched = 0      # nor is that epoll known to be ours
    elif IS_PORTABLE and self.watched and self.watched_in == current_generation:
        shutdown(self.fd, SHUT_RDWR)
        self.retired_fd = self.fd
        self.retired = self.origin
        self.watched = 0
    else:
        link_unwatch(self)
        close(self.fd)
    self.fd = -1
    self.phase = LINK_CLOSED
    self.received = 0
    self.error = 0
    self.is_at_end = self.is_unseen = self.is_polled = self.is_ready = False
    buffer_free(&self.outgoing)


cdef void link_forget_loop(Link *self) noexcept nogil:
    # Its loop is over, and watches nothing.
    if IS_PORTABLE:
        self.watched = 0
        origin_close(&self.retired, self.retired_fd)
        self.retired_fd = -1


cdef uint32_t link_wanted(Link *self) noexcept nogil:
    # The events to wait for now.
    return POLLIN | POLLOUT if link_wants_to_write(self) else POLLIN


cdef int link_watch(Link *self, int epoll_fd) noexcept nogil:
    # Mostly nothing changes.
    cdef uint32_t wanted = link_wanted(self)
    if self.fd < 0 or wanted == self.watched:
        return 0
    if watch_set(epoll_fd, self.fd, wanted, self.watched == 0) != 0:
        return -errno
    self.epoll_fd = epoll_fd
    self.watched = wanted
    self.watched_in = current_generation
    return 0


cdef void link_unwatch(Link *self) noexcept nogil:
    # close(2) alone leaves a descriptor watched that a forked child has, too. The child
    # shares the epoll: a descriptor that it removed, the parent would miss.
    if not IS_PORTABLE and self.watched and self.watched_in == current_generation:
        watch_end(self.epoll_fd, self.fd)
    self.watched = 0


cdef void link_take(Link *self, int fd, int phase) noexcept nogil:
    self.fd = fd
    self.phase = phase
    self.origin = origin_of(fd)


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
    link_take(self, fd, LINK_CONNECTING)
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


cdef bint link_receive(Link *self) noexcept nogil:
    # One read, into an empty buffer. Bytes left in the socket are seen by the next
    # poll; a second read to find EAGAIN would cost a call in every round. Returns
    # whether the reply to the last command seems to be there: all but a few of our
    # replies are one line. A guess, to know when to stop; a wrong one costs a call.
    cdef ssize_t i, size = recv(self.fd, self.incoming, INCOMING_CAPACITY, MSG_DONTWAIT)
    cdef uint32_t lines = 0
    if size > 0:
        self.received = <size_t>size
    elif size == 0:
        self.is_at_end = True
    elif errno != EAGAIN and errno != EINTR:
        self.error = -errno
    for i in range(size):
        lines += self.incoming[i] == c'\n'
    return lines > 0 and lines >= self.in_flight


cdef str error_text(int error):
    return (<bytes>strerror(-error)).decode("utf-8", "replace").lower()


# --- tls ------------------------------------------------------------------------------
# TLS for one master: an SSLObject between two memory buffers, no socket.
#
# Commands go in as plain text and come out as records for the link; bytes that the link
# received go in as records and come out as plain text for the reader. So all else (one
# write per master, polling without the GIL, the commands in flight) is as without TLS.
#
# The module ssl runs Python code, in which a signal handler may lock, raise or fork. So
# it is called between two passes alone: records are decrypted before a pass takes the
# plain text, and what a pass has queued is encrypted before the next write. A handler's
# own calls leave a session alone that `is_busy`: its records stay in the link, its
# commands wait in `unencrypted`, in the order of their entries.


@cython.final
cdef class TlsSession:
    cdef object context         # ssl.SSLContext
    cdef str server_hostname
    cdef object session         # ssl.SSLObject; None: not started
    cdef object incoming, outgoing      # ssl.MemoryBIO
    cdef readonly bint is_established
    cdef bint is_busy
    cdef readonly list unencrypted   # plain text that waits to be encrypted

    def __init__(self, context, server_hostname):
        self.context = context
        self.server_hostname = server_hostname
        self.unencrypted = []

    def start(self):
        """Begin the handshake; return the first records to send."""
        from ssl import MemoryBIO

        self.incoming = MemoryBIO()
        self.outgoing = MemoryBIO()
        self.session = self.context.wrap_bio(
            self.incoming, self.outgoing, server_hostname=self.server_hostname
        )
        return self.receive(b"")[1]

    def encrypt(self, bytes plain not None):
        """Encrypt, once the handshake is done; return the records to send."""
        self.session.write(plain)
        return self.outgoing.read()

    def receive(self, bytes records not None):
        """Decrypt; return (plain text, records to send). Raises ssl.SSLError."""
        from ssl import SSLWantReadError

        self.incoming.write(records)
        plain = []
        try:
            if not self.is_established:
                self.session.do_handshake()
                self.is_established = True
            while data := self.session.read(65536):
                plain.append(data)
        except SSLWantReadError:
            pass
        return b"".join(plain), self.outgoing.read()


cdef str tls_reason(object error):
    # Why TLS ends the connection: the library's own reason, and its usual cause. None
    # where the error is not one of TLS.
    if not isinstance(error, (OSError, ValueError)):
        return None
    reason = getattr(error, "verify_message", "") or getattr(error, "reason", None)
    text = f"TLS: {reason or error}".replace("_", " ").lower().replace("tls:", "TLS:")
    if "mismatch" in text:
        text += " (give it as ssl_server_name, or let a cluster announce names)"
    if "wrong version" in text or "record layer" in text:
        text += " (does the server speak TLS on this port?)"
    return text


# --- links ----------------------------------------------------------------------------
# The links of all masters, in one step without the GIL: sent, polled, received; in the
# order as configured, but that one may come `first`: it is awaited whatever the others
# answer.
#
# Everything of a round is sent before anything of it is read, and no Python object is
# made in between.

cdef enum:
    BEHIND_LIMIT = 16     # replies in flight: from here on a master is read in any case
    SLEEP_LIMIT_NS = 1_000_000_000


cdef int links_exchange(
    Link **links, pollfd *polled, int count, int wanted,
    int64_t deadline_ns, Waker *waker, int first,
) noexcept nogil:
    # Send, read early, poll, receive, all in the order of `links`, until `wanted` of
    # them have received something, or a follower has come. Returns 0 or -errno of the
    # wait, -EINTR where a signal came or may have; the errors of a link are in it.
    links_send(links, count, first, waker.is_unchecked)
    waker.is_unchecked = 0
    if waker.has_followers or links_read_early(links, count, wanted, first):
        return 0
    return links_poll(links, polled, count, wanted, deadline_ns, waker, first)


cdef void links_check(Link **links, int count) noexcept nogil:
    # A program that became a daemon has closed all descriptors, and its next socket may
    # have a number of ours. One look for all of them, before anything is written, and
    # before a caller reads: what is no socket, send(2) and recv(2) refuse themselves.
    cdef int i = 0
    while i < count and links[i].phase != LINK_OPEN:
        i += 1
    if i == count or origin_is_still(&links[i].origin, links[i].fd):
        return
    for i in range(count):
        links[i].fd = -1
        links[i].watched = 0
        links[i].error = -EBADF


cdef inline Link *links_at(Link **links, int count, int place) noexcept nogil:
    return links[place if place < count else place - count]


cdef void links_send(
    Link **links, int count, int first=0, bint is_unchecked=False
) noexcept nogil:
    cdef int i
    cdef bint is_checked = is_unchecked
    cdef Link *link
    if is_unchecked:
        links_check(links, count)
    for i in range(first, first + count):
        link = links_at(links, count, i)
        link.is_polled = link.is_ready = False
        if link.phase == LINK_OPEN and buffer_length(&link.outgoing) > 0:
            if not is_checked:
                links_check(links, count)
            is_checked = True
            link_send(link)
            link.is_unseen = True


cdef bint links_read_early(
    Link **links, int count, int wanted, int first
) noexcept nogil:
    # The servers written first have mostly answered when the last one has been written:
    # read each once before the poll, in the order of writing, until the quorum. Replies
    # of the others are read together with their next ones: one with many in flight is
    # read in any case.
    # (To stop at the first that has not answered, or to leave out those that have old
    # replies to give, saves 2 calls where the servers have a core of their own and
    # costs 1.5 where they share both with the client, with 9 % of CPU and 3 % of time.)
    # Returns whether there is anything to take.
    cdef int i, found = 0
    cdef bint is_any = False
    cdef Link *link
    for i in range(first, first + count):
        link = links_at(links, count, i)
        if not link.is_unseen or link.received > 0:
            continue
        link.is_unseen = False
        if count > 1 and (found < wanted or link.in_flight >= BEHIND_LIMIT):
            found += link_receive(link)
        is_any = is_any or link_has_input(link)
    return is_any


cdef int links_poll(
    Link **links, pollfd *polled, int count, int wanted,
    int64_t deadline_ns, Waker *waker, int first=0,
) noexcept nogil:
    # Sleep until an event, a wake-up of the leader, or the deadline, and receive from
    # as many as are `wanted`. Returns 0 or -errno. A link whose bytes are not taken yet
    # is left alone.
    cdef int i, error = 0, found = 0
    cdef int64_t now_ns = clock_ns(), left_ns
    cdef Link *link
    cdef pollfd asked
    for i in range(count):
        link = links[i]
        polled[i].fd = link.fd if link.received == 0 else -1      # left out by poll
        polled[i].events = link_wanted(link)
        polled[i].revents = 0
    polled[count].fd = waker.event.fd
    polled[count].events = POLLIN
    polled[count].revents = 0
    left_ns = min(max(deadline_ns - now_ns, <int64_t>0), <int64_t>SLEEP_LIMIT_NS)
    if not waker_is_set_before_sleep(waker) and (
        poll_for(polled, count + 1, left_ns) < 0
    ):
        error = -errno
    waker.is_sleeping = 0
    if error != 0:
        return error
    if polled[count].revents != 0:
        event_clear(&waker.event)
    now_ns = clock_ns()
    for i in range(first, first + count):
        link = links_at(links, count, i)
        asked = polled[i if i < count else i - count]
        if asked.fd < 0:
            continue
        link.is_polled = True
        link.is_ready = asked.revents != 0
        if asked.revents & ~POLLOUT:
            if link.phase != LINK_OPEN or found >= wanted:
                continue
            found += link_receive(link)
        link_note_look(link, now_ns)
    return 0


cdef bint links_are_quiet(Link **links, int count) noexcept nogil:
    # Return whether the last poll asked all open connections, and none had input.
    cdef int i
    for i in range(count):
        if links[i].phase == LINK_OPEN and (
            not links[i].is_polled or links[i].is_ready
        ):
            return False
    return True


cdef void links_receive(Link **links, int count) noexcept nogil:
    # Read all open links, polled or not.
    cdef int i
    for i in range(count):
        if links[i].phase == LINK_OPEN and links[i].received == 0:
            link_receive(links[i])
