# The checks of queues at a gate: does anybody wait for what was released natively?
# (engine/queue_check decides which releases ask so.)
#
# A release alone has EXISTS behind it, in the same write. Those of a batch, and of the
# tasks of one loop, are gathered: one EXISTS of several queues follows all of
# their commands, for each more costs a server a fifth of an EXISTS of its own. What
# answers with more than 0, or an error, is asked one by one.

cdef enum:
    QUEUE_CHECKS_AT_ONCE = 16      # the first of them waits for the last
    QUEUE_CHECK_SLOW_NS = 200_000

cdef int64_t QUEUE_CHECK_PAUSE_NS = 1_000_000_000


cdef int master_gather_queue_check(
    Master self, Round release, int64_t now_ns
) except -1:
    # Its native command is queued, and none of its check.
    release.queue_check = QUEUE_CHECK_ASKED
    self.in_flight.queue_check_batch.append(release)
    if len(self.in_flight.queue_check_batch) >= QUEUE_CHECKS_AT_ONCE:
        return master_send_queue_checks(self, now_ns)
    return 0


cdef int master_send_queue_checks(Master self, int64_t now_ns) except -1:
    # Before the bytes that they follow are written.
    if not self.in_flight.queue_check_batch:
        return 0
    empty = []
    gathered, self.in_flight.queue_check_batch = self.in_flight.queue_check_batch, empty
    return master_ask_queues(self, gathered, now_ns)


cdef int master_ask_queues(Master self, list releases, int64_t now_ns) except -1:
    cdef InFlightEntry entry = in_flight_entry(NEVER_NS, False)
    cdef Buffer command
    if self.state_code != MASTER_READY:      # lost meanwhile, by a finalizer
        in_flight_forget_releases(releases)
        return 0
    memset(&command, 0, sizeof(Buffer))
    try:
        if master_encode_queue_checks(self, &command, releases) != 0:
            raise MemoryError
        entry.kind = ENTRY_QUEUE_CHECK
        self.in_flight.queue_check_sent.append(releases)
        in_flight_push(self.in_flight, None, entry, now_ns)
        if self.tls is not None:
            master_write(self, command.data[command.start:command.end], now_ns)
        elif buffer_append(
            &self.link.outgoing, command.data + command.start, buffer_length(&command)
        ) != 0:
            master_on_lost(self, "out of memory", now_ns)
    finally:
        buffer_free(&command)
    return 0


cdef int master_encode_queue_checks(Master self, Buffer *out, list releases) noexcept:
    cdef Py_ssize_t i
    cdef int error = native_queue_check_begin(out, <int>len(releases))
    for i in range(len(releases)):
        error = error or native_queue_check_add(
            out, <Round>releases[i], self.scripts.name_prefix
        )
    return error


cdef int master_on_queue_checks(Master self, object reply, int64_t now_ns) except -1:
    # How many queues there are of those that were gathered.
    cdef list releases = self.in_flight.queue_check_sent.pop(0)
    cdef Round release
    if len(releases) == 1 or type(reply) is int and reply == 0 or (
        type(reply) is not int and not reply_is_error(reply)
    ):
        for release in releases:
            master_on_queue_check(self, release, reply, now_ns)
        return 0
    for release in releases:
        if release.queue_check == QUEUE_CHECK_ASKED and self.state_code == MASTER_READY:
            master_ask_queues(self, [release], now_ns)
    return 0


cdef int master_on_queue_check(
    Master self, Round release, object reply, int64_t now_ns
) except -1:
    # An error (an ACL's) is no answer: the script may be allowed to look.
    if type(reply) is not int:
        if not reply_is_error(reply):
            return master_on_lost(self, strange_text(reply), now_ns)
        self.queue_check_from_ns = NEVER_NS
    if release.queue_check != QUEUE_CHECK_ASKED:  # it took too long
        return 0
    release.queue_check = QUEUE_CHECK_NONE
    master_note_queue_check(self, release, now_ns)
    if type(reply) is not int or reply != 0:
        self.queues_found.append(release)
    return 0


cdef void master_note_queue_check(Master self, Round release, int64_t now_ns) noexcept:
    # How long a release that was confirmed had to wait for it, beyond twice as long
    # again as it took: of many at once the last master to answer is no slow one.
    cdef int64_t waited_ns = 0
    if release.closed_ns:
        waited_ns = max(
            waited_ns,
            now_ns - release.closed_ns - 2 * (release.closed_ns - release.opened_ns),
        )
    self.queue_check_wait_ns += (waited_ns - self.queue_check_wait_ns) // 16
    if self.queue_check_wait_ns > QUEUE_CHECK_SLOW_NS and (
        self.queue_check_from_ns != NEVER_NS
    ):
        self.queue_check_wait_ns //= 2
        self.queue_check_from_ns = now_ns + QUEUE_CHECK_PAUSE_NS
