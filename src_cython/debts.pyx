# Debts: the replies that one master owes us, and the releases that we owe it.
#
# Every command sent leaves one entry in a FIFO, every reply pops the oldest. So a reply
# is never read as another command's, however late it comes: the entry knows its round.
#
# Unknown is not failed. When a connection is lost, the acquires it owes become FAILED
# votes whose keys may stand all the same; the releases it owes, and those asked for
# while it is away, are `carried`: sent on the next connection before anything else,
# while their keys can still live. What was unanswered when a connection ended may have
# been executed at its end: a server that was stopped sets the key, does not know the
# script of the release, and that answer is never read. So a key can live a ttl from
# then on, by the server's clock.

cimport cython
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_XDECREF, PyObject
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport free, malloc

cdef enum:
    OVERDUE_AT_LEAST_NS = 1_000_000_000

cdef struct Owed:
    PyObject *round          # owned; NULL for a TIME, which belongs to no round
    int64_t sent_ns
    int64_t overdue_ns       # from when on the connection counts as dead
    int64_t key_until_ns     # of a release that was carried: as there; else 0
    bint is_repeated         # sent again by its source, after NOSCRIPT


@cython.final
@cython.internal
cdef class Carried:
    """A release to be sent on the next connection."""

    cdef Round release
    cdef int64_t key_until_ns        # from when on its key cannot stand any more


@cython.final
@cython.internal
cdef class Debts:
    """What is owed between us and one master."""

    cdef int master                  # its index
    cdef Link *link                  # is told how many replies are owed
    cdef Owed *owed                  # a ring of capacity, a power of two
    cdef uint32_t first, count, capacity
    cdef list carried                # of Carried, for the next connection

    def __cinit__(self):
        self.carried = []
        self.capacity = 16
        self.owed = <Owed *>malloc(self.capacity * sizeof(Owed))
        if self.owed == NULL:
            raise MemoryError

    def __dealloc__(self):
        cdef uint32_t i
        for i in range(self.count):
            Py_XDECREF(self.owed[(self.first + i) & (self.capacity - 1)].round)
        free(self.owed)


cdef Debts debts_of(int master, Link *link):
    # The link stands in the master that these are the debts of.
    debts = Debts()
    debts.master = master
    debts.link = link
    return debts


cdef Owed debts_pop(Debts self) noexcept:
    cdef Owed oldest = self.owed[self.first]
    self.first = (self.first + 1) & (self.capacity - 1)
    self.count -= 1
    self.link.owed = self.count
    self.link.answered += 1
    return oldest


cdef Round debts_at(Debts self, uint32_t index):
    # The round of an entry, counted from the oldest; None for a TIME.
    cdef PyObject *round
    round = self.owed[(self.first + index) & (self.capacity - 1)].round
    return None if round == NULL else <Round>round


cdef Round owed_round(Owed entry):
    # The entry's round, its reference taken over; None for a TIME.
    if entry.round == NULL:
        return None
    round = <Round>entry.round
    Py_DECREF(round)
    return round


cdef int debts_push(
    Debts self, Round round, bint is_repeated, int64_t key_until_ns, int64_t now_ns
) except -1:
    cdef uint32_t i
    cdef Owed *grown
    cdef Owed *entry
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
    entry = &self.owed[(self.first + self.count) & (self.capacity - 1)]
    entry.round = NULL
    entry.sent_ns = now_ns
    entry.overdue_ns = now_ns + OVERDUE_AT_LEAST_NS
    if round is not None:
        Py_INCREF(round)
        entry.round = <PyObject *>round
        entry.overdue_ns = now_ns + max(
            <int64_t>OVERDUE_AT_LEAST_NS, 2 * round.terms.timeout_ns
        )
    entry.key_until_ns = key_until_ns
    entry.is_repeated = is_repeated
    self.count += 1
    self.link.owed = self.count
    return 0


cdef int debts_carry(
    Debts self, Round release, int64_t key_until_ns, int64_t now_ns
) except -1:
    # Keeps a release for the next connection where its key may stand here. One that was
    # carried before keeps its end: a master that comes and goes collects no old ones.
    cdef Carried old, carried
    if not (release.may_hold >> self.master) & 1:
        return 0
    if len(self.carried) & 63 == 63:
        self.carried = [old for old in self.carried if now_ns < old.key_until_ns]
    carried = Carried()
    carried.release = release
    carried.key_until_ns = key_until_ns or (
        now_ns + release.terms.ttl_ms * NS_PER_MS + release.terms.drift_ns
    )
    if now_ns < carried.key_until_ns:
        self.carried.append(carried)
    return 0


cdef int debts_fail(Debts self, str reason, int64_t now_ns) except -1:
    # The connection is gone: what it owed failed, or is carried to the next one.
    cdef Owed entry
    cdef Round round
    while self.count:
        entry = debts_pop(self)
        round = owed_round(entry)
        if round is None:
            continue
        if round.operation_code == OPERATION_RELEASE:
            debts_carry(self, round, entry.key_until_ns, now_ns)
        if round.verdict_code == VERDICT_OPEN:
            round_on_vote(round, self.master, VOTE_FAILED, reason, False, now_ns)
    return 0


cdef bint debts_are_overdue(Debts self, int64_t now_ns) noexcept:
    return self.count > 0 and self.owed[self.first].overdue_ns < now_ns


cdef int debts_expire_rounds(Debts self, int64_t now_ns) except -1:
    # A round that is still open has a PENDING vote, so one of its masters owes it.
    cdef uint32_t i
    cdef Round round
    for i in range(self.count):
        round = debts_at(self, i)
        if (
            round is not None and round.verdict_code == VERDICT_OPEN
            and now_ns >= round.opened_ns + round.terms.timeout_ns
        ):
            round_on_deadline(round, now_ns)
    return 0


cdef int64_t debts_next_ns(Debts self, int64_t now_ns) noexcept:
    # When something is due here; a thing that is overdue by now counts from now on.
    cdef uint32_t i
    cdef int64_t next_ns = NEVER_NS
    cdef Round round
    if self.count:
        next_ns = max(self.owed[self.first].overdue_ns, now_ns + NS_PER_MS)
    for i in range(self.count):
        round = debts_at(self, i)
        if round is not None and round.verdict_code == VERDICT_OPEN:
            next_ns = min(next_ns, round.opened_ns + round.terms.timeout_ns)
    return next_ns
