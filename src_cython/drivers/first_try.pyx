# The first try of an acquire, made in C, of the blocking and of the awaitable client.
#
# The rules of all tries are those of the attempts (fastredlock/_locking/attempt.py):
# this is their common case, one round of a resource that nobody here waits for. Where
# it does not win the attempts go on behind it, with its round as their first one.

from libc.stdint cimport int64_t
from libc.string cimport memchr, memcmp

cdef enum:
    PLAIN_SIZE = 1024              # of a key that no rule of encode_resource refuses
    PLAIN_TIMEOUT = 1_000_000      # s
    NO_PLAIN_TIMEOUT = -2
    OWN_SIZE = 12


cdef Round first_try_round(
    DriverFields driver, object key, object ttl, object timeout, int64_t began_ns
):
    # To be run. None: these arguments, or this moment, are not the common case, and
    # nothing was done; the attempts check them. The key is checked.
    cdef Engine engine = driver.engine
    cdef Terms terms = driver.default_terms
    cdef int64_t timeout_ns = first_try_timeout_ns(timeout)
    cdef Round round
    if ttl is not None:
        terms = driver.settings.terms(ttl)
    if timeout_ns == NO_PLAIN_TIMEOUT or (
        timeout_ns != 0 and type(key) is bytes
        and engine_is_contended(engine, key, began_ns)
    ):
        return None
    round = engine_new_round(
        engine, OPERATION_ACQUIRE, key, fields_token(driver), terms
    )
    round.attempt = 1
    round.began_ns = began_ns
    round.left_ns = timeout_ns      # as time_for_round
    if timeout_ns > 0:
        round.left_ns = max(timeout_ns, terms.last_round_ns(engine.round_trip_ns))
    return round


cdef int64_t first_try_timeout_ns(object timeout) except? NO_PLAIN_TIMEOUT:
    # As timeout_to_ns, which is asked about all that is not plain; -1: no limit.
    if timeout is None:
        return -1
    if type(timeout) is int:
        if timeout == 0:      # what a single try gives
            return 0
        if 0 < timeout <= PLAIN_TIMEOUT:
            return <int64_t>timeout * NS_PER_S
    elif type(timeout) is float and 0 <= <double>timeout <= PLAIN_TIMEOUT:
        return <int64_t>(<double>timeout * 1e9)
    return NO_PLAIN_TIMEOUT


cdef bytes first_try_key(object resource):
    # As encode_resource, which is asked about all that is not plain: None.
    cdef bytes key = None
    if type(resource) is str:
        try:
            key = (<str>resource).encode("utf-8")
        except UnicodeEncodeError:
            return None
    elif type(resource) is bytes:
        key = resource
    if key is not None and 0 < len(key) <= PLAIN_SIZE and (
        not first_try_has_own(<const char *>key, len(key))
    ):
        return key
    return None


cdef bint first_try_has_own(const char *at, Py_ssize_t left) noexcept:
    # Whether what is in all names of our own keys is anywhere in a key. (`in` of bytes
    # makes an exception first, and takes 0.3 us.)
    cdef const char *found
    while left >= OWN_SIZE:
        found = <const char *>memchr(at, c'f', left - OWN_SIZE + 1)
        if found == NULL:
            return False
        if memcmp(found, b"fastredlock:", OWN_SIZE) == 0:
            return True
        left -= found + 1 - at
        at = found + 1
    return False
