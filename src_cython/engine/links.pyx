# The links of all masters, in one step without the GIL: sent, polled, received; in the
# order as configured, from the one that is `first` on (start).
#
# Everything of a round is sent before anything of it is read, and no Python object is
# made in between.
#
# Over one master a leader that no thread has followed for a while waits for a round's
# reply alone at first, once, for a few ms: by a recv(2) that blocks (link_wait) in
# place of poll and recv. A thread that comes just then is seen behind the reply, or
# after these few ms. (A C program that does no more took 5 % less time so, and 6 % less
# CPU. Over three and five, a poll without the waker made no difference.)

cdef enum:
    BEHIND_LIMIT = 16     # replies in flight: from here on a master is read in any case
    SLEEP_LIMIT_NS = 1_000_000_000
    ALONE_LEFT_NS = 50_000_000      # to wait alone: LINK_WAIT_MS is rounded up


cdef int links_exchange(
    Link **links, pollfd *polled, int count, int wanted,
    int64_t deadline_ns, Waker *waker,
) noexcept nogil:
    # Send, read early, poll, receive, all in the order of `links`, until `wanted` of
    # them have received something, or a follower has come. Returns 0 or -errno of the
    # wait, -EINTR where a signal came or may have; the errors of a link are in it.
    links_send(links, count)
    if waker.has_followers or links_read_early(links, count, wanted):
        return 0
    if waker.is_alone and deadline_ns - clock_ns() > ALONE_LEFT_NS and (
        link_may_wait(links[0])
    ):
        return links_wait_alone(links[0])
    return links_poll(links, polled, count, wanted, deadline_ns, waker)


cdef void links_rotate(Link **order, Link **links, int count, int first) noexcept:
    cdef int i
    for i in range(count):
        order[i] = links[(first + i) % count]


cdef int links_wait_alone(Link *link) noexcept nogil:
    # Returns -EINTR where nothing came as well: a timer's signal ends in the same tick
    # of the kernel, and would end no later wait.
    cdef int error = link_wait(link)
    return error if error != 0 or link_has_input(link) else -EINTR


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
    # then (start), and a master with many replies in flight is read in any case.
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
    if error < 0:
        for i in range(count):
            links[i].is_polled = False
        return error
    links_collect_polled(links, polled, count, wanted, clock_ns())
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
    Link **links, pollfd *polled, int count, int wanted, int64_t now_ns
) noexcept nogil:
    # The events, into the links; receive from as many as are `wanted`.
    cdef int i, watched = 0, found = 0
    cdef Link *link
    for i in range(count):
        link = links[i]
        if not link.is_polled:
            continue
        link.is_ready = polled[watched].revents != 0
        if not polled[watched].revents & ~POLLOUT:
            link_note_look(link, now_ns)
        elif link.phase == LINK_OPEN and found < wanted:
            link_receive(link)
            link_note_look(link, now_ns)
            found += link_is_caught_up(link)
        watched += 1


cdef bint links_are_quiet(Link **links, int count) noexcept nogil:
    # Whether the last poll asked every open connection, and none had anything to read.
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
