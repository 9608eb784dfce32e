# An acquire of the awaitable FastRedlock: its first try is made in C (first_try). Where
# that does not win, or is not made there, a coroutine of Python goes on.

cimport cython


@cython.final
cdef class AcquireCall(AwaitedCall):
    """An acquire: its first try, and a coroutine of Python where that does not win."""

    cdef AcquisitionFields acquisition      # of one resource: made for a second try
    cdef type kind                          # ...of this Acquisition
    cdef object resource, ttl, timeout
    cdef Round round
    cdef int64_t began_ns

    def __init__(self, AcquisitionFields acquisition not None, ttl, timeout):
        self.driver = <DriverFields?>acquisition._driver
        self.acquisition = acquisition
        self.kind = type(acquisition)
        self.resource = acquisition._resource
        self.ttl = ttl
        self.timeout = timeout
        self.began_ns = acquisition.began_ns
        self.stage = CALL_NEW

    cdef int begin(self) except -1:
        cdef object key
        self.here = awaited_here(self.driver)
        key = first_try_key(self.resource)
        if key is None and self.acquisition is not None:
            key = self.acquisition.encode(self.resource)
        if key is not None:
            self.round = first_try_round(
                self.driver, key, self.ttl, self.timeout, self.began_ns
            )
        if self.acquisition is not None:
            self.acquisition.round = self.round
        if self.round is None:
            return awaited_try_again(self)
        return awaited_submit(self, self.round)

    cdef object end(self):
        if self.round.verdict_code == VERDICT_WON:
            lease = fields_lease(
                self.kind.new_lease, self.driver, self.resource, self.round
            )
            if self.driver.observer is not None:
                observer_on_acquired(self.driver.observer, self.resource, self.round)
            return lease
        awaited_try_again(self)

    cdef int give_up(self) except -1:
        if self.round is not None:
            self.driver.abandon(self.here, self.round)
        return 0

    cdef str name(self):
        return "FastRedlock.acquire"


cdef int awaited_try_again(AcquireCall self) except -1:
    cdef Round first = self.round
    self.round = None      # thousands may wait here: the acquisition drops it
    if self.acquisition is None:
        self.acquisition = fields_acquisition(
            self.kind, self.driver, self.resource, first, self.began_ns
        )
    self.rest = self.acquisition.go_on(self.here, self.ttl, self.timeout, first)
    return 0


def new_acquire_call(
    LocksFields locks not None, type kind not None, resource, ttl, timeout
):
    """Return an acquire to be awaited; `kind`: the Acquisition of further tries."""
    cdef DriverFields driver = fields_driver(locks)
    cdef AcquireCall call = AcquireCall.__new__(AcquireCall)
    call.driver = driver
    call.kind = kind
    call.resource = driver.settings.resource if resource is None else resource
    call.ttl = ttl
    call.timeout = timeout
    call.began_ns = fields_now_ns(driver)
    call.stage = CALL_NEW
    return call


awaiting_set_slots(AcquireCall)
