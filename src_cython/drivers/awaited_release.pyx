# A release of the awaitable FastRedlock, and both ends of an `async with` by a lease.
#
# No signal comes between the end of a body and its release (with_body): what
# leave_lease returns is awaited next, and there sends the release.

cimport cython


cdef class ReleaseCall(AwaitedCall):
    """A release of an awaitable lease."""

    cdef LeaseFields lease
    cdef Round round             # None: nothing to be released
    cdef int64_t left_ns         # before it

    def __init__(self, LeaseFields lease not None):
        self.driver = <DriverFields?>lease._driver
        self.lease = lease
        self.stage = CALL_NEW

    cdef int begin(self) except -1:
        cdef LeaseFields lease = self.lease
        self.here = awaited_here(self.driver)
        self.left_ns = fields_left_if_observed(lease, self.driver)
        self.round = fields_begin_release(lease, self.driver.engine, lease._unknown)
        return 0 if self.round is None else awaited_submit(self, self.round)

    cdef object end(self):
        cdef LeaseFields lease = self.lease
        if self.round is None:
            return lease._gone
        if self.round.verdict_code == VERDICT_WON:
            lease._status = lease._released
        else:
            lease._end_release(self.round)
        if self.driver.observer is not None:
            fields_on_released(lease, self.driver, self.left_ns)
        return lease._status

    cdef int give_up(self) except -1:
        # Sent all the same where it was begun; else the lease is still held.
        cdef LeaseFields lease = self.lease
        if self.here is not None and lease._status is lease._unknown:
            if self.round is None:
                self.round = lease._new_release()
            self.driver.abandon(self.here, self.round)
        return 0

    cdef str name(self):
        return "Lease.release"


@cython.final
cdef class ExitCall(ReleaseCall):
    """The end of an `async with` by a lease: its `__aexit__`."""

    cdef object kind, error, traceback      # of the body
    cdef bint was_valid, was_released

    cdef int begin(self) except -1:
        cdef Round taken = self.lease._round
        if taken.lease_state is not None:      # it may be kept, or was extended
            self.rest = self.lease._leave(self.kind, self.error, self.traceback)
            return 0
        if self.lease._status is not None:      # the body released it
            self.was_released = True
            return 0
        self.was_valid = fields_left_ns(self.lease, self.driver) > 0
        return ReleaseCall.begin(self)

    cdef object end(self):
        if self.was_released:
            return None
        status = ReleaseCall.end(self)
        if self.error is None and (not self.was_valid or status is self.lease._gone):
            self.lease._check_exit(self.was_valid, status)

    cdef int give_up(self) except -1:
        if self.lease._status is None:
            return lease_give_up(self.lease)
        return ReleaseCall.give_up(self)

    cdef bint swallows(self, object error):
        # The body's error stands.
        return self.error is not None and isinstance(error, Exception)

    cdef str name(self):
        return "Lease.__aexit__"


def leave_lease(LeaseFields self not None, kind, error, traceback):
    """Return what to await to leave it: its `__aexit__`."""
    cdef ExitCall call = ExitCall(self)
    call.kind = kind
    call.error = error
    call.traceback = traceback
    return call


@cython.final
cdef class EntryCall(AwaitedCall):
    """The way into an `async with` by a lease: its `__aenter__`."""

    cdef LeaseFields lease

    cdef int begin(self) except -1:
        # A loss cancels the body of one that is kept, from now on or later.
        lease_note_entry(self.lease)
        if self.lease._round.lease_state is not None:
            self.lease._enter_kept()
        return 0

    cdef object end(self):
        return self.lease

    cdef int give_up(self) except -1:
        return 0

    cdef str name(self):
        return "Lease.__aenter__"


def enter_lease(LeaseFields self not None):
    """Return what to await to enter by it, which is the lease: its `__aenter__`."""
    cdef EntryCall call = EntryCall.__new__(EntryCall)
    call.lease = self
    call.stage = CALL_NEW
    return call


awaiting_set_slots(ReleaseCall)
awaiting_set_slots(ExitCall)
awaiting_set_slots(EntryCall)
