# Debts: the replies that one master owes us, and the releases that we owe it.
#
# Every command sent leaves one entry in a FIFO, every reply pops the oldest. So a reply
# is never read as another command's, however late it comes: the entry knows its round.
#
# Unknown is not failed. What was unanswered when a connection ended may have been
# executed, or may be executed later: a server that stands still takes it out of its
# socket when it goes on, hours after we have closed ours. So
#
# - the releases among it, and those asked for while there is no connection, are
#   `carried`: sent on the next connection before anything else. Until that one is
#   READY their keys can be set, so they can live for a ttl from then on.
# - the rounds among it that are still open can be `unanswered`: their votes stay
#   PENDING for the next connection, where every one is asked again. All commands may be
#   executed twice: an acquire is repeated by a script that takes its own token for a
#   grant, and a release that finds nothing the second time has deleted it the first.
#   (An acquire whose token the caller gave is not repeated: others may use it as well.)
#
# What is kept has a bound, for a master that is silent or dead: IN_FLIGHT_MOST replies
# (a master that owes so many and says nothing is given up), CARRIED_MOST releases, and
# CARRIED_BYTES_MOST of keys and tokens. Releases beyond are counted (releases_dropped)
# and left to the ttl of their keys. Every operation here is of constant cost, on the
# average over the entries.

cimport cython
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_XDECREF, PyObject
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport free, malloc

cdef enum:
    OVERDUE_AT_LEAST_NS = 1_000_000_000
    IN_FLIGHT_MOST = 120_000         # of these half are releases
    CARRIED_MOST = 65_536
    CARRIED_BYTES_MOST = 1 << 26

cdef enum:                   # why an entry has no round
    OWED_VOTE = 0            # it has one
    OWED_TIME = 1
    OWED_KILL = 2            # of our last connection there

cdef struct Owed:
    PyObject *round          # owned; NULL for what belongs to no round
    int64_t sent_ns
    int64_t overdue_ns       # from when on the connection counts as dead
    int64_t key_until_ns     # of a release that was carried: as there; else NEVER_NS
    int kind
    bint is_by_source        # sent with its script's text: NOSCRIPT is no answer to it
    bint is_second           # was sent on an earlier connection, and may be executed


@cython.final
@cython.internal
cdef class Carried:
    """A release to be sent on the next connection."""

    cdef Round release
    cdef int64_t key_until_ns    # its key cannot stand any more; NEVER_NS: not known
    cdef bint is_second          # was sent before, and may have been executed


@cython.final
@cython.internal
cdef class Debts:
    """What is owed between us and one master."""

    cdef int master                  # its index
    cdef Link *link                  # is told how many replies are owed
    cdef Counters counters
    cdef Owed *owed                  # a ring of capacity, a power of two
    cdef uint32_t first, count, capacity
    cdef uint32_t closed             # so many of the oldest have closed rounds, or none
    cdef list carried                # of Carried, for the next connection
    cdef size_t carried_bytes
    cdef list unanswered             # open rounds that wait for the next connection
    cdef bint has_given_tokens       # which may be another's, too

    def __cinit__(self):
        self.carried = []
        self.unanswered = []
        self.capacity = 16
        self.owed = <Owed *>malloc(self.capacity * sizeof(Owed))
        if self.owed == NULL:
            raise MemoryError

    def __dealloc__(self):
        cdef uint32_t i
        for i in range(self.count):
            Py_XDECREF(self.owed[(self.first + i) & (self.capacity - 1)].round)
        free(self.owed)


cdef Debts debts_of(int master, Link *link, Counters counters):
    # The link stands in the master that these are the debts of.
    debts = Debts()
    debts.master = master
    debts.link = link
    debts.counters = counters
    return debts


cdef Owed debts_pop(Debts self) noexcept:
    cdef Owed oldest = self.owed[self.first]
    self.first = (self.first + 1) & (self.capacity - 1)
    self.count -= 1
    self.closed -= self.closed > 0
    self.link.owed = self.count
    self.link.answered += 1
    return oldest


cdef Round debts_at(Debts self, uint32_t index):
    # The round of an entry, counted from the oldest; None where it has none.
    cdef PyObject *round
    round = self.owed[(self.first + index) & (self.capacity - 1)].round
    return None if round == NULL else <Round>round


cdef Round owed_round(Owed entry):
    # The entry's round, its reference taken over; None where it has none.
    if entry.round == NULL:
        return None
    round = <Round>entry.round
    Py_DECREF(round)
    return round


cdef Owed owed_vote(int64_t key_until_ns, bint is_second) noexcept:
    # A new entry of a round, as debts_push takes it.
    cdef Owed entry
    memset(&entry, 0, sizeof(Owed))
    entry.key_until_ns = key_until_ns
    entry.is_second = is_second
    return entry


cdef int debts_push(Debts self, Round round, Owed entry, int64_t now_ns) except -1:
    cdef uint32_t i
    cdef Owed *grown
    if self.count == self.capacity:
        grown = <Owed *>malloc(2 * self.capacity * sizeof(Owed))
        if grown == NULL:
            raise MemoryError
        for i in range(self.count):
            grown[i] = self.owed[(self.first + i) & (self.capacity - 1)]
        free(self.owed)
        self.owed = grown
        self.first = 0
        self.capacity *= 2
    entry.round = NULL
    entry.sent_ns = now_ns
    entry.overdue_ns = now_ns + OVERDUE_AT_LEAST_NS
    if round is not None:
        Py_INCREF(round)
        entry.round = <PyObject *>round
        entry.overdue_ns = now_ns + round_overdue_ns(round)
    self.owed[(self.first + self.count) & (self.capacity - 1)] = entry
    self.count += 1
    self.link.owed = self.count
    return 0


cdef inline int64_t round_overdue_ns(Round round) noexcept:
    # Two round timeouts, at least 1 s, and no more than 1 s beyond the first.
    cdef int64_t timeout_ns = round.terms.timeout_ns
    return max(
        <int64_t>OVERDUE_AT_LEAST_NS,
        timeout_ns + min(timeout_ns, <int64_t>OVERDUE_AT_LEAST_NS),
    )


cdef bint debts_are_full(Debts self, int64_t heard_ns, int64_t now_ns) noexcept:
    # Whether a master owes more than it will ever answer: it says nothing, either.
    return self.count >= IN_FLIGHT_MOST and (
        now_ns - heard_ns > OVERDUE_AT_LEAST_NS // 10
    )


cdef int debts_carry(
    Debts self, Round release, int64_t key_until_ns, bint is_second
) except -1:
    # Keep a release for the next connection where its key may stand here. One that was
    # carried before keeps its end: a master that comes and goes collects no old ones.
    cdef Carried carried
    cdef size_t size
    if not (release.may_hold >> self.master) & 1:
        return 0
    size = round_size(release)
    if len(self.carried) >= CARRIED_MOST or (
        self.carried_bytes + size > CARRIED_BYTES_MOST
    ):
        self.counters.releases_dropped += 1
        return 0
    carried = Carried()
    carried.release = release
    carried.key_until_ns = key_until_ns
    carried.is_second = is_second
    self.carried.append(carried)
    self.carried_bytes += size
    return 0


cdef list debts_take_carried(Debts self, int64_t now_ns):
    # A connection is READY: list what is to be sent on it first. What earlier ones were
    # given has been executed by now, or is about to be: so the keys' time begins.
    cdef Carried each
    cdef list carried = self.carried
    self.carried = []
    self.carried_bytes = 0
    for each in carried:
        if each.key_until_ns == NEVER_NS:
            each.key_until_ns = (
                now_ns + each.release.terms.ttl_ms * NS_PER_MS
                + each.release.terms.drift_ns
            )
    return [each for each in carried if now_ns < each.key_until_ns]


cdef int debts_fail(
    Debts self, str reason, bint is_reopened, int64_t now_ns
) except -1:
    # The connection is gone. Where it is reopened at once, open rounds wait for the
    # next one, but none of them twice.
    cdef Owed entry
    cdef Round round
    cdef bint is_kept
    while self.count:
        entry = debts_pop(self)
        round = owed_round(entry)
        if round is None:
            continue
        is_kept = is_reopened and not entry.is_second and not (
            self.has_given_tokens and round.operation_code == OPERATION_ACQUIRE
        )
        if round.operation_code == OPERATION_RELEASE:
            debts_carry(self, round, entry.key_until_ns, True)
            is_kept = is_kept and (round.may_hold >> self.master) & 1
        round_on_dropped(round, self.master, now_ns)
        if round.verdict_code != VERDICT_OPEN:
            continue
        if is_kept:
            round_wait_for_all(round)
            self.unanswered.append(round)
        else:
            round_on_vote(round, self.master, VOTE_FAILED, reason, False, now_ns)
    return 0


cdef int debts_fail_unanswered(Debts self, str reason, int64_t now_ns) except -1:
    # The next connection came to nothing, either.
    cdef Round round
    unanswered, self.unanswered = self.unanswered, []
    for round in unanswered:
        if round.verdict_code == VERDICT_OPEN:
            round_on_vote(round, self.master, VOTE_FAILED, reason, False, now_ns)
    return 0


cdef bint debts_are_overdue(Debts self, int64_t now_ns) noexcept:
    return self.count > 0 and self.owed[self.first].overdue_ns < now_ns


cdef int debts_expire_rounds(Debts self, int64_t now_ns) except -1:
    # A round that is still open has a PENDING vote, so one of its masters owes it, or
    # will be asked again.
    cdef uint32_t i
    cdef Round round
    debts_pass_closed(self)
    for i in range(self.closed, self.count):
        round = debts_at(self, i)
        if (
            round is not None and round.verdict_code == VERDICT_OPEN
            and now_ns >= round.deadline_ns
        ):
            round_on_deadline(round, now_ns)
    for round in tuple(self.unanswered):
        if round.verdict_code == VERDICT_OPEN and now_ns >= round.deadline_ns:
            round_on_deadline(round, now_ns)
    return 0


cdef void debts_pass_closed(Debts self) noexcept:
    # Verdicts never open again: the oldest entries are looked at once. A silent master
    # owes a hundred thousand replies before it is given up.
    cdef PyObject *round
    while self.closed < self.count:
        round = self.owed[(self.first + self.closed) & (self.capacity - 1)].round
        if round != NULL and (<Round>round).verdict_code == VERDICT_OPEN:
            return
        self.closed += 1


cdef int64_t debts_next_ns(Debts self, int64_t now_ns) noexcept:
    # When something is due here; a thing that is overdue by now counts from now on.
    cdef uint32_t i
    cdef int64_t next_ns = NEVER_NS
    cdef Round round
    if self.count:
        next_ns = max(self.owed[self.first].overdue_ns, now_ns + NS_PER_MS)
    debts_pass_closed(self)
    for i in range(self.closed, self.count):
        round = debts_at(self, i)
        if round is not None and round.verdict_code == VERDICT_OPEN:
            next_ns = min(next_ns, round.deadline_ns)
    for round in self.unanswered:
        if round.verdict_code == VERDICT_OPEN:
            next_ns = min(next_ns, round.deadline_ns)
    return next_ns
