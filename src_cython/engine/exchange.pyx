# The exchange of bytes: between the sockets and the links, without the GIL, and from
# the links into the masters. Both drivers use it.
#
# Everything of a round is sent before anything of it is read, and no Python object is
# made in between. Then the replies are parsed, and become votes.
#
# A signal handler or a finalizer may take a lock in the middle of a step. Such an inner
# step finds the bytes that the outer one has received and takes them first, so the
# order of the replies stands; it leaves alone a master whose replies the outer step is
# taking out at this moment.
#
# From below: engine_admit, engine_on_time (admission), engine_finish (outcome),
# engine_check_fork (takeover).

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.errno cimport errno
from libc.stdint cimport int64_t, uint64_t
from posix.time cimport timespec

cdef enum:
    BEHIND_LIMIT = 16     # replies in flight: from here on a master is read in any case
    SLEEP_LIMIT_NS = 1_000_000_000
    DUE_PASSES = 64       # of 16 KiB per master: more than can be in flight


cdef int links_exchange(
    Link **links, pollfd *polled, int count, int wanted,
    int64_t deadline_ns, Waker *waker,
) noexcept nogil:
    # Send, read early, poll, receive, all in the order of `links`, until `wanted` of
    # them have received something, or a follower has come. Returns 0 or -errno of the
    # poll; the errors of a link stand in the link.
    links_send(links, count)
    if waker.has_followers or links_read_early(links, count, wanted):
        return 0
    return links_poll(links, polled, count, wanted, deadline_ns, waker)


cdef void links_send(Link **links, int count) noexcept nogil:
    cdef int i
    cdef Link *link
    for i in range(count):
        link = links[i]
        link.is_polled = link.is_ready = False
        if (
            link.phase == LINK_OPEN and not link.is_parsing
            and buffer_length(&link.outgoing) > 0
        ):
            link_send(link)
            link.is_unseen = True


cdef bint links_read_early(Link **links, int count, int wanted) noexcept nogil:
    # The servers written first have mostly answered when the last one has been written:
    # read each once before the poll, in the order of writing, until the quorum. Replies
    # of the others are read together with their next ones; the order is another now and
    # then (order), and a master with many replies in flight is read in any case.
    # (To stop at the first that has not answered, or to leave out those that have old
    # replies to give, saves 2 calls where the servers have a core of their own and
    # costs 1.5 where they share both with the client, with 9 % of CPU and 3 % of time.)
    # Returns whether there is anything to take.
    cdef int i, found = 0
    cdef bint is_any = False
    cdef Link *link
    for i in range(count):
        link = links[i]
        if not link.is_unseen or link.is_parsing:
            continue
        link.is_unseen = False
        if count > 1 and (found < wanted or link.in_flight >= BEHIND_LIMIT):
            link_receive(link)
            found += link_is_caught_up(link)
        is_any = is_any or link_has_input(link)
    return is_any


cdef int links_poll(
    Link **links, pollfd *polled, int count, int wanted,
    int64_t deadline_ns, Waker *waker,
) noexcept nogil:
    cdef int watched = links_fill_polled(links, polled, count)
    cdef int error = links_sleep(polled, watched, deadline_ns, waker)
    cdef int i
    if error != 0:
        for i in range(count):
            links[i].is_polled = False
        return error
    links_collect_polled(links, polled, count, wanted)
    return 0


cdef inline int links_fill_polled(
    Link **links, pollfd *polled, int count
) noexcept nogil:
    # The descriptors to poll, in the order of `links`. Returns how many there are.
    cdef int i, watched = 0
    cdef Link *link
    for i in range(count):
        link = links[i]
        link.is_polled = link.fd >= 0 and not link.is_parsing
        if not link.is_polled:
            continue
        polled[watched].fd = link.fd
        polled[watched].events = POLLIN
        if link_wants_to_write(link):
            polled[watched].events = POLLIN | POLLOUT
        polled[watched].revents = 0
        watched += 1
    return watched


cdef inline int links_sleep(
    pollfd *polled, int watched, int64_t deadline_ns, Waker *waker
) noexcept nogil:
    # Until an event, a wake-up of the leader, or the deadline. Returns 0 or -errno.
    cdef int64_t left_ns
    cdef timespec timeout
    cdef int error = 0
    polled[watched].fd = waker.event.fd      # poll leaves out a negative one
    polled[watched].events = POLLIN
    polled[watched].revents = 0
    left_ns = min(max(deadline_ns - clock_ns(), <int64_t>0), <int64_t>SLEEP_LIMIT_NS)
    timeout.tv_sec = left_ns // NS_PER_S
    timeout.tv_nsec = left_ns % NS_PER_S
    if not waker_is_set_before_sleep(waker):
        if poll_for(polled, watched + 1, &timeout) < 0:
            error = -errno
    waker_after_wake(waker, error == 0 and polled[watched].revents != 0)
    return error


cdef inline void links_collect_polled(
    Link **links, pollfd *polled, int count, int wanted
) noexcept nogil:
    # The events, into the links; receive from as many as are `wanted`.
    cdef int i, watched = 0, found = 0
    cdef Link *link
    for i in range(count):
        link = links[i]
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


cdef bint links_are_quiet(Link **links, int count) noexcept nogil:
    # Whether the last poll asked every open connection, and none had anything to say.
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
        if links[i].phase == LINK_OPEN and not links[i].is_parsing and (
            links[i].received == 0
        ):
            link_receive(links[i])


cdef int engine_take_links(Engine self, int64_t now_ns) except -1:
    # Bytes and events of the links, into the masters.
    cdef Master master
    for master in self.masters:
        if not master.link.is_parsing:
            engine_take_link(self, master, now_ns)
            if master.in_flight.unanswered:
                engine_send_unanswered(self, master, now_ns)
    return 0


cdef int engine_take_link(Engine self, Master master, int64_t now_ns) except -1:
    cdef Link *link = &master.link
    cdef bytes data
    if link.phase == LINK_OPEN:
        if link.received:
            data = PyBytes_FromStringAndSize(link.incoming, link.received)
            link.received = 0
            link.heard_ns = now_ns
            engine_take_bytes(self, master, data, now_ns)
        if link.error != 0:
            master_on_cut(master, error_text(link.error), now_ns)
        elif link.is_at_end:
            master_on_cut(master, "the server closed the connection", now_ns)
    elif link.is_ready and link.phase == LINK_CONNECTING:
        link.is_ready = False
        master_on_connect_event(master, now_ns)
    elif link.is_ready and link.phase == LINK_RESOLVING:
        link.is_ready = False
        master_on_resolved(master, now_ns)
    return 0


cdef int engine_take_bytes(
    Engine self, Master master, bytes data, int64_t now_ns
) except -1:
    master_on_received(master, data, now_ns)
    if master.turns or master.told:
        engine_take_turns(self, master, now_ns)
    if master.queues_found:
        engine_take_queues_found(self, master, now_ns)
    return engine_review_master(self, master, now_ns) if master.needs_review else 0


cdef int engine_take_events(Engine self) except -1:
    # All that has come, then all that is due by now, then wake the waiters.
    cdef int64_t now_ns = clock_ns()
    self.polled_before_ns, self.polled_at_ns = self.polled_at_ns, now_ns
    engine_take_links(self, now_ns)
    engine_admit(self, now_ns)
    if now_ns >= self.next_ns:
        engine_on_due(self, now_ns)
    return engine_finish(self, clock_ns()) if self.closed or self.unchecked else 0


cdef int engine_on_due(Engine self, int64_t now_ns) except -1:
    # Replies that wait in a socket are in time: read them before anything is given up.
    # A master that still brings some is not overdue.
    cdef uint64_t quiet = 0
    cdef int i, _pass
    for _pass in range(DUE_PASSES):
        engine_before_nogil(self)
        with nogil:
            links_receive(self.links, self.master_count)
            atomic_put(&self.leadership.leader_at, LEADER_OUT_OF_SYSTEM)
        self.leadership.leader_at = LEADER_HAS_GIL
        quiet = 0
        for i in range(self.master_count):
            if not self.links[i].received:
                quiet |= <uint64_t>1 << i
        engine_take_links(self, now_ns)
        if quiet == ~<uint64_t>0 >> (MAX_MASTERS - self.master_count):
            break
    return engine_on_time(self, now_ns, quiet)


cdef inline int engine_before_nogil(Engine self) except -1:
    # Before each section without the GIL; nothing may run in between. A signal handler
    # or a finalizer may have forked since the last check: the sockets are the parent's
    # then. The flag is explained in leader.
    engine_check_fork(self)
    self.leadership.leader_at = LEADER_IN_SYSTEM
    return 0
