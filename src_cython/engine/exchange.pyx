# What came, from the links into the masters: the replies are parsed, and become votes.
# Both drivers use it.
#
# A signal handler or a finalizer may take a lock in the middle of a step. Such an inner
# step finds the bytes that the outer one has received and takes them first, so the
# order of the replies stands; it leaves alone a master whose replies the outer step is
# taking out at this moment.
#
# Before 3.12 any new object may collect garbage, and so run a finalizer. So a list is
# taken out in one step, for an empty one that was made before: else what a finalizer
# adds in between would be lost.
#
# From below: engine_admit, engine_on_time (admission), engine_finish (outcome),
# engine_check_fork (takeover).

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint64_t

cdef enum:
    DUE_PASSES = 64       # of 16 KiB per master: more than can be in flight


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
    if master.moved:
        engine_take_moved(self, master, now_ns)
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


cdef inline int engine_before_write(Engine self) except -1:
    # Before bytes are written: checks that were gathered stand behind all else, and
    # TLS, which runs Python code, encrypts what was queued since the last write.
    if self.has_gathered:
        engine_send_checks(self, clock_ns())
    return engine_encrypt(self, clock_ns()) if self.has_tls else 0


cdef int engine_encrypt(Engine self, int64_t now_ns) except -1:
    cdef Master master
    for master in self.masters:
        if master.tls is not None and master.tls.unencrypted and (
            not master.link.is_parsing      # the outer step encrypts this as well
        ):
            master_encrypt(master, now_ns)
    return 0


cdef inline int engine_before_nogil(Engine self) except -1:
    # Before each section without the GIL; nothing may run in between. A signal handler
    # or a finalizer may have forked since the last check: the sockets are the parent's
    # then. The flag is explained in leader.
    engine_check_fork(self)
    self.leadership.leader_at = LEADER_IN_SYSTEM
    return 0
