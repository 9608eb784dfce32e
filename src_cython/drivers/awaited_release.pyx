# A release of the awaitable FastRedlock.

cimport cython


@cython.final
cdef class ReleaseCall(AwaitedCall):
    """A release of an awaitable lease."""

    cdef LeaseFields lease
    cdef Round round             # None: nothing to be released

    def __init__(self, LeaseFields lease not None):
        self.driver = lease._driver
        self.lease = lease
        self.stage = CALL_NEW

    cdef int begin(self) except -1:
        cdef LeaseFields lease = self.lease
        cdef Round taken = lease._round
        self.here = awaited_here(self.driver)
        if lease._status is None and taken.lease_state is None and (
            taken.generation == current_generation
        ):
            self.round = engine_new_release(self.here.engine, taken, taken.terms)
            lease._status = lease._unknown      # until a quorum has confirmed it
        else:
            self.round = lease._begin_release()
        return 0 if self.round is None else awaited_submit(self, self.round)

    cdef object end(self):
        cdef LeaseFields lease = self.lease
        if self.round is None:
            return lease._gone
        if self.round.verdict_code == VERDICT_WON:
            lease._status = lease._released
            return lease._status
        return lease._end_release(self.round)

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


awaiting_set_slots(ReleaseCall)
