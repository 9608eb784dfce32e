# What a master owes us: a reply to each command in flight, and to the releases that a
# lost connection left for the next one.

# --- deferred -------------------------------------------------------------------------
# Deferred releases: to be sent on a master's next connection, before anything else.
#
# Deferred are the releases that were unanswered when a connection ended, and those that
# were asked for while there was none. Until the next connection is READY their keys can
# still be set, by commands that a frozen server takes out of its socket
# later; so a key can live for a ttl from then on, and its release is dropped only after
# that.
#
# There is a bound, for a master that is dead: DEFERRED_MOST releases and
# DEFERRED_BYTES_MOST of keys and tokens. Releases beyond it are counted
# (releases_dropped) and left to the ttl of their keys.

cdef enum:
    DEFERRED_MOST = 65_536
    DEFERRED_BYTES_MOST = 1 << 26


@cython.final
@cython.internal
cdef class DeferredRelease:
    cdef Round release
    cdef int64_t key_until_ns    # its key cannot exist any more; NEVER_NS: not known
    cdef bint is_second          # was sent before, and may have been executed


cdef class InFlight           # below
cdef class Master             # master/master


cdef int deferred_add(
    InFlight self, Round release, int64_t key_until_ns, bint is_second
) except -1:
    # Keep a release for the next connection where its key may exist here. One that was
    # deferred before keeps its end: a master with many reconnections collects no old
    # ones.
    cdef DeferredRelease waiting
    cdef size_t size
    if not (release.may_hold >> self.vote) & 1:
        return 0
    size = round_size(release)
    if len(self.deferred) >= DEFERRED_MOST or (
        self.deferred_bytes + size > DEFERRED_BYTES_MOST
    ):
        self.master.counters.releases_dropped += 1
        self.master.releases_dropped += 1
        return 0
    waiting = DeferredRelease.__new__(DeferredRelease)
    waiting.release = release
    waiting.key_until_ns = key_until_ns
    waiting.is_second = is_second
    self.deferred.append(waiting)
    self.deferred_bytes += size


cdef list deferred_take(InFlight self):
    # List them, and begin anew.
    cdef list deferred = self.deferred
    self.deferred = []
    self.deferred_bytes = 0
    return deferred


# --- slowness -------------------------------------------------------------------------
# Whether a master is slow: by far slower than a quorum of them, again and again.
#
# A reply shows it where it was still outstanding after `slow_from_ns` when its socket
# was last looked at and empty: a client that does something else, and reads the reply
# with its next call, has seen nothing. It shows the contrary where it came within half
# of that; anything else is neither. So SLOW_REPLIES more of the former, in a second or
# longer, make a master slow, and as many more of the latter end it: one that pauses
# for a moment, with many replies outstanding, is not.
#
# `slow_from_ns` is in `Conditions`: the smoothed time of a round, which ends with the
# quorum, 4 times and 3 ms longer.                                                [pure]

cdef enum:
    SLOW_REPLIES = 16
    SLOW_TIMES = 4
    SLOW_AT_LEAST_NS = 3_000_000
    SLOW_FOR_NS = 1_000_000_000

cdef struct Slowness:
    int score                # 0 to SLOW_REPLIES
    int64_t since_ns         # when it was 0
    bint is_slow


cdef inline int64_t slow_from_ns(int64_t round_trip_ns) noexcept:
    return max(SLOW_TIMES * round_trip_ns, round_trip_ns + SLOW_AT_LEAST_NS)


cdef inline void slowness_on_reply(
    Slowness *self, int64_t slow_ns, int64_t at_least_ns, int64_t took_ns,
    int64_t now_ns,
) noexcept:
    # at_least_ns: for so long it was seen to be outstanding. slow_ns 0: not known.
    if slow_ns and at_least_ns > slow_ns:
        if self.score == 0:
            self.since_ns = now_ns
        self.score = min(self.score + 1, SLOW_REPLIES)
        if self.score == SLOW_REPLIES and now_ns - self.since_ns >= SLOW_FOR_NS:
            self.is_slow = True
    elif self.score > 0 and took_ns < slow_ns // 2:
        self.score -= 1
        if self.score == 0:
            self.is_slow = False


# --- in flight ------------------------------------------------------------------------
# The commands in flight to one master: sent, and not answered yet.
#
# Every command sent leaves one entry in a FIFO, every reply pops the oldest. So a reply
# is never read as another command's, however late it comes: the entry knows its round.
#
# Unknown is not failed. A command that was unanswered when its connection ended may
# have been executed, or may be executed later: a frozen server takes it out of its
# socket when it goes on, hours after we have closed ours. So
#
# - the releases among the entries are deferred: sent first on the next connection.
# - the rounds among them that are still open can be `unanswered`: their votes stay
#   PENDING for the next connection, where each is sent again. All commands may be
#   executed twice: an acquire is repeated by a script that takes its own token for a
#   grant, and a release that finds nothing the second time has deleted it the first.
#   (An acquire whose token the caller gave is not repeated: the token may be in use
#   elsewhere as well.)
#
# There is a bound, for a master that is silent: one with IN_FLIGHT_MOST replies
# outstanding that sends nothing is given up. Every operation here is of constant cost,
# on the average over the entries.

cdef enum:
    OVERDUE_AT_LEAST_NS = 1_000_000_000
    WRITTEN_LATE_NS = 100_000_000
    IN_FLIGHT_MOST = 120_000         # half of them are releases

cdef enum:                   # why an entry has no round, or no vote
    ENTRY_VOTE = 0           # it has one
    ENTRY_TIME = 1           # the server's clock
    ENTRY_KILL = 2           # of our last connection there
    ENTRY_SUBSCRIBE = 3      # answered by a push, an error as all others
    ENTRY_LOAD = 4           # of a script that the server has lost; or ASKING
    ENTRY_REPLICATION = 5    # is it still the primary that it was?
    ENTRY_MARK = 6           # the marker, of other replicas by now
    ENTRY_ID = 7             # is it still a node of its cluster?
    ENTRY_QUEUES = 8         # of keys that were released natively: are there any?

cdef struct InFlightEntry:
    PyObject *round          # owned; NULL for what belongs to no round
    int64_t sent_ns
    int64_t overdue_ns       # from when on the connection counts as dead
    int64_t key_until_ns    # of a deferred release: when its key is over; else NEVER_NS
    uint8_t purpose
    byte_bint is_by_source   # sent with its script's text: NOSCRIPT is no answer to it
    byte_bint is_second      # was sent on an earlier connection, and may be executed
    uint8_t form             # of the command
    uint8_t hops             # from node to node of a cluster, so many

cdef InFlightEntry ENTRY_OF_ROUND      # a new one, for in_flight_push
ENTRY_OF_ROUND.key_until_ns = NEVER_NS


@cython.final
@cython.internal
cdef class InFlight:
    cdef int vote                    # its master's
    cdef Link *link                  # of the connection that owns this: gets the count
    cdef Master master
    cdef InFlightEntry *entries      # a ring of capacity, a power of two
    cdef uint32_t first, count, capacity
    cdef uint32_t closed             # so many of the oldest need no deadline
    cdef list deferred               # of DeferredRelease, for the next connection
    cdef size_t deferred_bytes
    cdef list unanswered             # open rounds that wait for the next connection
    cdef set lost                    # given (key, token): unanswered where it was lost

    def __cinit__(self):
        self.lost = set()
        self.deferred = []
        self.unanswered = []
        self.capacity = 16
        self.entries = <InFlightEntry *>malloc(self.capacity * sizeof(InFlightEntry))
        if self.entries == NULL:
            raise MemoryError

    def __dealloc__(self):
        cdef uint32_t i
        for i in range(self.count):
            Py_XDECREF(self.entries[(self.first + i) & (self.capacity - 1)].round)
        free(self.entries)


cdef Round in_flight_pop(InFlight self, InFlightEntry *oldest):
    # Move the oldest entry there; return its round, or None where it has none.
    cdef Round round = None
    oldest[0] = self.entries[self.first]
    self.first = (self.first + 1) & (self.capacity - 1)
    self.count -= 1
    self.closed -= self.closed > 0
    self.link.in_flight = self.count
    self.link.answered += 1
    if oldest.round != NULL:
        round = <Round>oldest.round
        Py_DECREF(round)      # the entry's own reference
    return round


cdef Round in_flight_at(InFlight self, uint32_t index):
    # The round of an entry, counted from the oldest; None where it has none.
    cdef PyObject *round
    round = self.entries[(self.first + index) & (self.capacity - 1)].round
    return None if round == NULL else <Round>round


cdef int in_flight_push(
    InFlight self, Round round, InFlightEntry entry, int64_t now_ns
) except -1:
    cdef uint32_t i
    cdef int64_t timeout_ns, least_ns = OVERDUE_AT_LEAST_NS
    cdef InFlightEntry *grown
    if self.count == self.capacity:
        grown = <InFlightEntry *>malloc(2 * self.capacity * sizeof(InFlightEntry))
        if grown == NULL:
            raise MemoryError
        for i in range(self.count):
            grown[i] = self.entries[(self.first + i) & (self.capacity - 1)]
        free(self.entries)
        self.entries = grown
        self.first = 0
        self.capacity *= 2
    entry.round = NULL
    entry.sent_ns = now_ns
    if round is not None:
        Py_INCREF(round)
        entry.round = <PyObject *>round
        # It has two round timeouts, at least 1 s, and at most 1 s beyond the first.
        timeout_ns = round.terms.timeout_ns
        least_ns = max(least_ns, timeout_ns + min(timeout_ns, least_ns))
    entry.overdue_ns = now_ns + least_ns
    self.entries[(self.first + self.count) & (self.capacity - 1)] = entry
    self.count += 1
    self.link.in_flight = self.count


cdef int in_flight_fail(
    InFlight self, str reason, bint is_reopened, int64_t now_ns
) except -1:
    # The connection is gone. No entry of it may be left, whatever is raised: the next
    # connection's replies would be read as this one's. Where the next has failed, too,
    # so have those that waited for it.
    cdef Round round
    failure = None
    while self.count:
        try:
            in_flight_fail_oldest(self, reason, is_reopened, now_ns)
        except BaseException as error:
            failure = error
    if not is_reopened:
        unanswered, self.unanswered = self.unanswered, []
        for round in unanswered:
            if round.verdict_code == VERDICT_OPEN:
                round_on_vote(round, self.vote, VOTE_FAILED, reason, False, now_ns)
    if failure is not None:
        raise failure


cdef int in_flight_fail_oldest(
    InFlight self, str reason, bint is_reopened, int64_t now_ns
) except -1:
    # Where the connection is reopened at once, open rounds wait for the next one, but
    # each of them once only.
    cdef InFlightEntry entry
    cdef Round round = in_flight_pop(self, &entry)
    cdef bint is_kept
    if round is None:
        return 0
    is_kept = is_reopened and not entry.is_second and not (
        round.token_uses is not None and round.operation_code == OPERATION_ACQUIRE
    )      # a given token may be in use elsewhere, too
    if round.operation_code == OPERATION_RELEASE:
        deferred_add(self, round, entry.key_until_ns, True)
        is_kept = is_kept and (round.may_hold >> self.vote) & 1
    if round.token_uses is not None:
        for key in round.keys or (round.resource,):
            self.lost.add((key, round.token))
    if round.verdict_code != VERDICT_OPEN:
        if set_has(round_pending(round), self.vote):
            self.master.unanswered_late += 1
        return 0
    if is_kept:      # its second write as well: the SET is repeated, and reports more
        round_on_repeated(round)
        self.unanswered.append(round)
        return 0
    return round_on_vote(round, self.vote, VOTE_FAILED, reason, False, now_ns)


cdef bint in_flight_is_overdue(
    InFlight self, int64_t polled_before_ns, int64_t now_ns
) noexcept:
    # Asked where the last poll has found nothing; when the one before it was. What had
    # not been written by then has been so just now, whenever it was queued: this
    # process may have been paused.
    cdef InFlightEntry *oldest = &self.entries[self.first]
    if self.count == 0 or now_ns <= oldest.overdue_ns:
        return False
    if oldest.sent_ns < polled_before_ns:
        return True
    oldest.overdue_ns = now_ns + WRITTEN_LATE_NS
    return False


cdef list in_flight_open(InFlight self):
    # The rounds that are open: each has a PENDING vote, so it is in flight to one of
    # its masters, or will be sent again. A verdict never opens again, so what is closed
    # is passed once: a silent master has a hundred thousand of them before it is given
    # up.
    cdef uint32_t i
    cdef Round round
    cdef list found = []
    for i in range(self.closed, self.count):
        round = in_flight_at(self, i)
        if round is not None and round.verdict_code == VERDICT_OPEN:
            found.append(round)
        elif not found:
            self.closed = i + 1
    for round in self.unanswered:
        if round.verdict_code == VERDICT_OPEN:
            found.append(round)
    return found
