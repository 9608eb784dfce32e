# The order in which the masters are written to and read: `send_order`.
#
# A server on the core of its client begins to run within our send(2), while those on
# other cores can work next to us. So they are written to first, and the one that holds
# us up comes last. The kernel knows on which core the last packet of a connection was
# taken in: over loopback that is the core on which the server sent it. Of a remote one
# it is the core of an interrupt, and any order is as good.
#
# The order stays: the scheduler takes its time to put client and servers where they go
# together. To move on every 64 rounds took 8 % more time and 10 % more CPU over
# five local masters. A short detour now and then lets each master answer a lone caller
# in time; with many callers all masters are read anyway.
#
# A release goes to its gate first where somebody may wait for it, or where the last
# round is long ago: then each write wakes a core, and the message to the next holder is
# on its way before the others are written (a gap of 1.05 ms was 0.3 ms longer).

from libc.stdint cimport uint64_t

cdef enum:
    DETOUR_EVERY = 64          # rounds
    DETOUR_ROUNDS = 2          # an acquire and its release
    COLD_NS = 1_000_000        # since the last round


cdef void order_update(
    Link **send_order, Link **links, int count, uint64_t rounds
) noexcept nogil:
    # Put the masters into the order of this round, the `rounds`-th.
    cdef uint64_t since = rounds % DETOUR_EVERY
    if since == 0:
        order_rotate(send_order, links, count, <int>((rounds // DETOUR_EVERY) % count))
    elif since == DETOUR_ROUNDS:
        order_by_core(send_order, links, count)


cdef void order_rotate(
    Link **send_order, Link **links, int count, int first
) noexcept nogil:
    cdef int i
    for i in range(count):
        send_order[i] = links[(first + i) % count]


cdef void order_by_core(Link **send_order, Link **links, int count) noexcept nogil:
    # As configured, but those on this core after all others.
    cdef Link *beside[MAX_MASTERS]
    cdef int i, others = 0, besides = 0, here = core_of_caller()
    for i in range(count):
        if here >= 0 and link_core(links[i]) == here:
            beside[besides] = links[i]
            besides += 1
        else:
            send_order[others] = links[i]
            others += 1
    for i in range(besides):
        send_order[others + i] = beside[i]


cdef void order_put_first(Link **send_order, Link *first, int count) noexcept nogil:
    cdef int i, place = 0
    while place < count - 1 and send_order[place] != first:
        place += 1
    for i in range(place, 0, -1):
        send_order[i] = send_order[i - 1]
    send_order[0] = first
