# An acquire of the awaitable FastRedlock: its first try is made in C. Where that does
# not win, or others wait for the resource already, or an observer is told, a coroutine
# of Python goes on.

cimport cython
from libc.stdint cimport int64_t

cdef enum:
    PLAIN_SIZE = 1024      # of a key that no rule of encode_resource refuses

cdef bytes RESERVED_PREFIX = b"fastredlock:"


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
        cdef int64_t timeout_ns = -1
        cdef Terms terms
        cdef Round round
        cdef Engine engine
        self.here = awaited_here(self.driver)
        engine = self.here.engine
        key = awaited_key(acquisition)
        settings = self.driver.settings
        terms = settings.default_terms if self.ttl is None else settings.terms(self.ttl)
        if self.timeout is not None:
            limit_ns = acquisition.to_ns(self.timeout)
            timeout_ns = -1 if limit_ns is None else limit_ns
        if self.driver.observer is not None or (
            timeout_ns != 0 and type(key) is bytes
            and engine_is_contended(engine, key, acquisition.began_ns)
        ):
            return awaited_try_again(self, None)
        round = engine_new_round(
            engine, OPERATION_ACQUIRE, key, settings.new_token(), terms
        )
        round.attempt = 1
        round.began_ns = acquisition.began_ns
        round.left_ns = timeout_ns      # as time_for_round
        if timeout_ns > 0:
            round.left_ns = max(timeout_ns, terms.last_round_ns(engine.round_trip_ns))
        acquisition.round = round
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


cdef object awaited_key(AcquisitionFields acquisition):
    # As encode_resource, which it asks about all that is not plain.
    cdef bytes key
    resource = acquisition._resource
    if type(resource) is str:
        try:
            key = (<str>resource).encode("utf-8")
        except UnicodeEncodeError:
            return acquisition.encode(resource)
    elif type(resource) is bytes:
        key = resource
    else:
        return acquisition.encode(resource)
    if 0 < len(key) <= PLAIN_SIZE and not key.startswith(RESERVED_PREFIX):
        return key
    return acquisition.encode(resource)


awaiting_set_slots(AcquireCall)
