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
    """The methods of an observer, each None where it has none.

    As it is, it has none: a FastRedlock without an observer.
    """

    cdef readonly object acquired
    cdef readonly object taken
    cdef readonly object unreachable
    cdef readonly object extended
    cdef readonly object lost
    cdef readonly object margin
    cdef readonly object released
    cdef readonly object entered
    cdef readonly object left
    cdef set threads             # that are inside a method
    cdef bint hears_ends         # of leases

    def __init__(
        self, acquired=None, taken=None, unreachable=None, extended=None, lost=None,
        margin=None, released=None, entered=None, left=None,
    ):
        self.acquired = acquired
        self.taken = taken
        self.unreachable = unreachable
        self.extended = extended
        self.lost = lost
        self.margin = margin
        self.released = released
        self.entered = entered
        self.left = left
        self.threads = set()
        self.hears_ends = not (lost is None and margin is None and released is None)

    def on_failed(self, error):
        """Notify of an acquire that raises; here nobody is."""

    def on_extended(self, lease, outcome):
        """Notify of an extension; here nobody is."""

    def begin_kept(self, lease):
        """Take note that a lease is kept; nothing is."""

    def notify(self, event, *values):
        """Call a method, if there is one, with these values."""
        method = getattr(self, event)
        if method is None or not observer_enter(self):
            return
        try:
            method(*values)
        except Exception as raised:
            self.log(event, raised)
        finally:
            observer_leave(self)


cdef ObserverHooks no_observer = ObserverHooks()


cdef bint observer_enter(ObserverHooks self) except -1:
    # False: this thread is inside a method.
    thread = PyThread_get_thread_ident()
    if self.threads and thread in self.threads:
        return False
    self.threads.add(thread)
    return True


cdef int observer_leave(ObserverHooks self) except -1:
    self.threads.discard(PyThread_get_thread_ident())
    return 0


cdef int observer_on_acquired(
    ObserverHooks self, object resource, Round round
) except -1:
    # An acquire has ended with a lease, or without one because others hold it.
    cdef bint is_won = round.verdict_code == VERDICT_WON
    method = self.acquired if is_won else self.taken
    if method is None or not observer_enter(self):
        return 0
    try:
        method(resource, (round.closed_ns - round.began_ns) / 1e9, round.attempt)
    except Exception as raised:
        self.log("acquired" if is_won else "taken", raised)
    finally:
        observer_leave(self)
    return 0


cdef int observer_on_block(
    ObserverHooks self, str event, object resource
) except -1:
    # A with block begins, or has ended.
    if (self.entered if event == "entered" else self.left) is not None:
        self.notify(event, resource)
    return 0


cdef int observer_on_released(
    ObserverHooks self, object resource, int64_t left_ns, int64_t held_ns
) except -1:
    # A release has ended that began with so much validity; -1: it was not known.
    if self.margin is None and self.released is None or not observer_enter(self):
        return 0
    event = "margin"
    try:
        if left_ns > 0 and self.margin is not None:
            try:
                self.margin(resource, left_ns / 1e9)
            except Exception as raised:
                self.log(event, raised)
        event = "released"
        if self.released is not None:
            self.released(resource, held_ns / 1e9)
    except Exception as raised:
        self.log(event, raised)
    finally:
        observer_leave(self)
    return 0
