# The first try of an acquire, made in C, of the blocking and of the awaitable client.
#
# The rules of all tries are those of the attempts (fastredlock/_locking/attempt.py):
# this is their common case, one round of a resource that nobody here waits for. Where
# it does not win the attempts go on behind it, with its round as their first one.

from libc.stdint cimport int64_t

cdef enum:
    PLAIN_SIZE = 1024      # of a key that no rule of encode_resource refuses

cdef bytes RESERVED_PREFIX = b"fastredlock:"


cdef Round first_try_round(
    AcquisitionFields acquisition, Engine engine, object ttl, object timeout
):
    # To be run, its arguments checked; it is the acquisition's round from now on. None:
    # others wait for it already, or an observer is told, and nothing was done.
    cdef int64_t timeout_ns = -1
    cdef Terms terms
    cdef Round round
    key = first_try_key(acquisition)
    driver = acquisition._driver
    settings = driver.settings
    terms = settings.default_terms if ttl is None else settings.terms(ttl)
    if type(timeout) is int and timeout == 0:      # what a single try gives
        timeout_ns = 0
    elif timeout is not None:
        limit_ns = acquisition.to_ns(timeout)
        timeout_ns = -1 if limit_ns is None else limit_ns
    if driver.observer is not None or (
        timeout_ns != 0 and type(key) is bytes
        and engine_is_contended(engine, key, acquisition.began_ns)
    ):
        return None
    round = engine_new_round(
        engine, OPERATION_ACQUIRE, key, settings.new_token(), terms
    )
    round.attempt = 1
    round.began_ns = acquisition.began_ns
    round.left_ns = timeout_ns      # as time_for_round
    if timeout_ns > 0:
        round.left_ns = max(timeout_ns, terms.last_round_ns(engine.round_trip_ns))
    acquisition.round = round
    return round


cdef object first_try_key(AcquisitionFields acquisition):
    # As encode_resource, which is asked about all that is not plain: outside of any
    # `except`, whose error would be the context of its own.
    cdef bytes key = None
    resource = acquisition._resource
    if type(resource) is str:
        try:
            key = (<str>resource).encode("utf-8")
        except UnicodeEncodeError:
            pass
    elif type(resource) is bytes:
        key = resource
    if key is not None and 0 < len(key) <= PLAIN_SIZE and (
        not key.startswith(RESERVED_PREFIX)
    ):
        return key
    return acquisition.encode(resource)
