# An acquire of the awaitable FastRedlock: its first try is made in C (first_try). Where
# that does not win, or is not made there, a coroutine of Python goes on.

cimport cython


@cython.final
cdef class AcquireCall(AwaitedCall):
    """An acquire: its first try, and a coroutine of Python where that does not win."""

    cdef AcquisitionFields acquisition
    cdef object ttl, timeout

    def __init__(self, AcquisitionFields acquisition not None, ttl, timeout):
        self.driver = acquisition._driver
        self.acquisition = acquisition
        self.ttl = ttl
        self.timeout = timeout
        self.stage = CALL_NEW

    cdef int begin(self) except -1:
        cdef AcquisitionFields acquisition = self.acquisition
        cdef Round round
        if awaited_is_by_hand(self.driver):
            self.rest = acquisition.go_on(
                self.driver.here(), self.ttl, self.timeout, None
            )
            return 0
        self.here = awaited_here(self.driver)
        round = first_try_round(
            acquisition, self.here.engine, self.ttl, self.timeout
        )
        if round is None:
            return awaited_try_again(self, None)
        return awaited_submit(self, round)

    cdef object end(self):
        cdef AcquisitionFields acquisition = self.acquisition
        if acquisition.round.verdict_code == VERDICT_WON:
            return fields_lease(
                acquisition.new_lease, self.driver, acquisition._resource,
                acquisition.round,
            )
        awaited_try_again(self, acquisition.round)

    cdef int give_up(self) except -1:
        if self.acquisition.round is not None:
            self.driver.abandon(self.here, self.acquisition.round)
        return 0

    cdef str name(self):
        return "FastRedlock.acquire"


cdef int awaited_try_again(AcquireCall self, Round first) except -1:
    self.rest = self.acquisition.go_on(self.here, self.ttl, self.timeout, first)
    return 0


awaiting_set_slots(AcquireCall)
