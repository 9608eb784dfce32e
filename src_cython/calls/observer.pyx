# What is notified at the end of each call: an observer, and the tally of one that
# counts for metrics.

# --- observer -------------------------------------------------------------------------
# The observer of a FastRedlock: a hook at the end of each call.
#
# Theory of operation. The methods that an observer has are looked up once, when its
# FastRedlock is made. A call that has ended calls them: its round is closed, and its
# lease made or given back, so nothing depends on what they do. What a method raises is
# logged, but for what ends a program: that leaves the call as if a signal handler had
# raised it there, so an acquire is undone, and a release is done. A thread inside a
# method calls none: an observer may use the locks that it observes.
#
# What is rare, and all texts and errors: _locking/observing.py, derived from this.


cdef class ObserverHooks:
    """The methods of an observer by their names: `methods`, of those that it has.

    As it is, it has none: a FastRedlock without an observer.
    """

    cdef readonly dict methods
    cdef set threads             # that are inside a method

    def __init__(self, dict methods not None):
        self.methods = methods
        self.threads = set()

    def on_failed(self, error):
        """Notify of an acquire that raises; here nobody is."""

    def on_extended(self, lease, outcome):
        """Notify of an extension; here nobody is."""

    def on_end(self, lease, left_ns):
        """Notify of a release; here nobody is."""

    def begin_kept(self, lease):
        """Take note that a lease is kept; nothing is."""

    def notify(self, event, *values):
        """Call a method, if there is one, with these values."""
        observer_notify(self, event, values)


cdef ObserverHooks no_observer = ObserverHooks({})


cdef int observer_notify(ObserverHooks self, str event, tuple values) except -1:
    method = self.methods.get(event)
    thread = None if method is None else PyThread_get_thread_ident()
    if method is None or thread in self.threads:
        return 0
    self.threads.add(thread)
    try:
        method(*values)
    except Exception as raised:
        self.log(event, raised)
    finally:
        self.threads.discard(thread)


cdef int observer_on_acquired(
    ObserverHooks self, object resource, Round round
) except -1:
    # An acquire has ended with a lease, or without one because others hold it.
    cdef str event = "acquired" if round.verdict_code == VERDICT_WON else "taken"
    waited_ns = round.closed_ns - round.began_ns
    return observer_notify(self, event, (resource, waited_ns / 1e9, round.attempt))


# --- tally ----------------------------------------------------------------------------
# What the locks of one label have done: counted by the methods of an observer.
#
# Theory of operation. prometheus_client takes a lock for each update, and a pair of
# acquire and release makes five: they take longer than a pair does in asyncio. A tally
# is C without a call of Python between its changes, so the GIL is its lock. It is read
# where the metrics are collected (prometheus.py).

cdef enum:
    TALLY_ACQUIRED = 0          # as in prometheus.py: OUTCOMES, then COUNTED
    TALLY_ATTEMPTS = 4
    TALLY_SIZE = 7


@cython.final
cdef class Tally:
    """Count acquires, and the times (s) of waits, holds and margins.

    Of times: how many were up to each bound, and more than the one before it; how many
    were above the last; their sum.
    """

    cdef int64_t counts[TALLY_SIZE]
    cdef list bounds                              # float
    cdef readonly list waits, holds, margins

    def __cinit__(self, bounds):
        self.bounds = [<double>bound for bound in bounds]
        nothing = [*[0] * (len(self.bounds) + 1), 0.0]
        self.waits, self.holds, self.margins = nothing, [*nothing], [*nothing]

    def acquired(self, resource, double waited, int64_t attempts):
        self.counts[TALLY_ACQUIRED] += 1
        self.counts[TALLY_ATTEMPTS] += attempts
        tally_time(self, self.waits, waited)

    def margin(self, resource, double left):
        tally_time(self, self.margins, left)

    def released(self, resource, double held):
        tally_time(self, self.holds, held)

    def add(self, int place, int64_t amount):
        """Count what is rare, by its place among the counts."""
        if not 0 <= place < TALLY_SIZE:
            raise IndexError(place)
        self.counts[place] += amount

    def read(self):
        return [count for count in self.counts]


cdef int tally_time(Tally self, list times, double amount) except -1:
    cdef Py_ssize_t place = 0
    while place < len(self.bounds) and not amount <= <double>self.bounds[place]:
        place += 1
    times[place] += 1
    times[-1] += amount
