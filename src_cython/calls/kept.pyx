# The fields of leases that are kept, and what a keeper does to thousands of them at a
# time, in C: the common case, a lease that nobody extends by hand, renewed in time.
#
# The rules are those of _locking/keeping/renewals.py, which treats all the others one
# by one: so each loop here passes those that are plain, and lists the others. A lease
# that is not kept has none of these; of one that is there are ten thousand, so a Kept
# is as small as can be. It is the weak reference to its lease, not an object that has
# one.
#
# Threads share a Kept without a lock (_locking/keeping/kept.py): each field that more
# than the keeper's own thread changes is read and set in one step.

cdef extern from *:
    ctypedef class _weakref.ReferenceType [object PyWeakReference]:
        pass


@cython.final
cdef class Pace:
    """The times of all leases of one ttl (ns)."""

    cdef readonly int64_t lease_ns       # the ttl, less the drift
    cdef readonly int64_t wait_ns        # between renewals, at most
    cdef readonly int64_t part_ns        # of that, which is random
    cdef readonly int64_t margin_ns      # a loss is reported so long before
    cdef readonly int shift              # log2 of the span of a bucket
    cdef readonly int notice_shift       # log2 of a span below half of the margin

    def __init__(
        self, int64_t lease_ns, int64_t wait_ns, int64_t part_ns, int64_t margin_ns,
        int shift, int notice_shift,
    ):
        self.lease_ns = lease_ns
        self.wait_ns = wait_ns
        self.part_ns = part_ns
        self.margin_ns = margin_ns
        self.shift = shift
        self.notice_shift = notice_shift


cdef class WatchFields:
    """What makes a kept lease another than most."""

    cdef public object extensions        # None: never extended by hand
    cdef public object failed            # the last renewal, where it was not confirmed
    cdef public object on_renewal        # to be called at each, or None
    cdef public uint64_t awaited         # the masters that never answered a renewal
    cdef public byte_bint is_lost


cdef class KeptFields(ReferenceType):
    """A weak reference to a kept lease, and its times."""

    cdef public int64_t validity_ns      # its end, where it has no Extensions
    cdef int64_t kept_until_ns
    cdef public Pace pace                # of its ttl, once the keeper has looked
    cdef public list bucket              # of its keeper, in which it waits; or None
    cdef public WatchFields watch        # None: it is as most are
    cdef Round last                      # its renewal

    @property
    def renewal(self):
        """The last renewal, until all masters have answered it, or None."""
        with cython.critical_section(self):
            return self.last

    @renewal.setter
    def renewal(self, Round renewal):
        kept_set_renewal(self, renewal)

    @property
    def until_ns(self):
        """From when on it is not renewed; None: without a bound."""
        return None if self.kept_until_ns == NEVER_NS else self.kept_until_ns

    @until_ns.setter
    def until_ns(self, until_ns):
        self.kept_until_ns = NEVER_NS if until_ns is None else until_ns


cdef void kept_set_renewal(KeptFields self, Round renewal) noexcept:
    cdef Round _before     # let go of at the end, when this one is set
    with cython.critical_section(self):
        _before, self.last = self.last, renewal


cdef inline bint kept_is_plain(KeptFields self) noexcept:
    # Whether it has no Extensions, its last renewal was confirmed, it is not lost, and
    # nobody is notified of a renewal.
    cdef WatchFields watch = self.watch
    return watch is None or (
        watch.extensions is None and watch.failed is None and watch.on_renewal is None
        and not watch.is_lost
    )


def kept_due(
    list bucket not None, int64_t now_ns, list renewals not None, list taken not None
):
    """Add the plain ones to be renewed now, and the rounds that took their leases.

    Returns the others of the bucket, and the earliest end of these (ns).
    """
    cdef KeptFields kept
    cdef LeaseFields lease
    cdef int64_t soonest_ns = NEVER_NS
    cdef list others = []
    for kept in bucket:
        if kept.bucket is not bucket:
            continue      # it was put into another one since
        lease = kept()
        if lease is None or lease._status is not None:
            kept.bucket = None
        elif (
            not kept_is_plain(kept) or kept.kept_until_ns != NEVER_NS
            or kept.pace is None or now_ns >= kept.validity_ns - kept.pace.margin_ns
        ):
            others.append(kept)
        else:
            kept.bucket = None
            renewals.append(kept)
            taken.append(lease._round)
            soonest_ns = min(soonest_ns, kept.validity_ns)
    return others, soonest_ns


def kept_begin(
    Engine engine not None, list renewals not None, list taken not None, int64_t time_ns
):
    """Make the rounds that renew these, each for time_ns at most: (rounds, others).

    `taken`: the rounds that took their leases. The others, each with its round, are
    those that have Extensions or notify of renewals.
    """
    cdef Py_ssize_t i
    cdef KeptFields kept
    cdef Round acquired, round
    cdef WatchFields watch
    cdef list rounds = [], others = []
    for i in range(len(renewals)):
        kept = renewals[i]
        acquired = taken[i]
        watch = kept.watch
        if watch is None or watch.extensions is None:
            round = engine_new_extension(engine, acquired, acquired.terms)
        else:
            round = engine_new_extension(engine, acquired, watch.extensions.terms)
        if time_ns < round.terms.timeout_ns:
            round.left_ns = time_ns
        if kept.last is not None:
            kept.settle(kept.last)
        kept_set_renewal(kept, round)      # before it is asked for Extensions
        watch = kept.watch
        if watch is not None and (
            watch.extensions is not None or watch.on_renewal is not None
        ):
            others.append((kept, round))
        rounds.append(round)
    return rounds, others


def kept_end(
    list renewals not None, list rounds not None, dict buckets not None,
    int draw, int step,
):
    """Let the plain ones count that were won in time; put each at its next renewal.

    `draw` and `step` are chance. Returns the others, each with its round; the next
    draw; the keys of new buckets; the shortest time between renewals of these (ns).
    """
    cdef Py_ssize_t i
    cdef KeptFields kept
    cdef LeaseFields lease
    cdef Round round
    cdef Pace pace
    cdef int64_t due_ns, key_ns, bucket_ns = -1, shortest_ns = NEVER_NS
    cdef list bucket = None, new_keys = [], others = []
    for i in range(len(renewals)):
        kept = renewals[i]
        round = rounds[i]
        lease = kept()
        pace = kept.pace
        if (
            round.verdict_code != VERDICT_WON
            or round.closed_ns >= kept.validity_ns
            or not kept_is_plain(kept)
            or lease is None or lease._status is not None or pace is None
        ):
            others.append((kept, round))
            continue
        kept.validity_ns = round_valid_until_ns(round)
        shortest_ns = min(shortest_ns, pace.wait_ns)
        draw = (draw + step) & 0xFFFF
        due_ns = round.opened_ns + pace.wait_ns - (draw * pace.part_ns >> 16)
        key_ns = due_ns >> pace.shift << pace.shift
        if key_ns != bucket_ns:
            bucket_ns = key_ns
            bucket = buckets.get(key_ns)
            if bucket is None:
                buckets[key_ns] = bucket = []
                new_keys.append(key_ns)
        bucket.append(kept)
        kept.bucket = bucket
    return others, draw, new_keys, shortest_ns


def kept_settle(list renewals not None, list rounds not None):
    """Let go of renewals that all have answered; list the others, with their rounds."""
    cdef Py_ssize_t i
    cdef KeptFields kept
    cdef Round round
    cdef list others = []
    for i in range(len(renewals)):
        kept = renewals[i]
        round = rounds[i]
        if round.may_hold:
            others.append((kept, round))
        elif kept.last is round:      # which this thread alone sets
            kept_set_renewal(kept, None)
    return others
