# What a round asks of each master, as one command.
#
# An ACQUIRE of one key is a SET; all else is a script, known to the server since the
# handshake. `by_source` sends its text along: the answer to NOSCRIPT.

cimport cython
from libc.stdint cimport int64_t


@cython.final
cdef class Scripts:
    """The scripts of the operations that need one."""

    cdef readonly Script extend, release, inspect
    cdef readonly Script acquire_all, extend_all, release_all     # of several keys
    cdef readonly Script acquire_again      # of one key or several; rare: not loaded
    cdef readonly Script probe, marker    # of the handshake; None: left out

    def __init__(self, Script extend not None, Script release not None,
                 Script inspect not None, Script acquire_all not None,
                 Script extend_all not None, Script release_all not None,
                 Script acquire_again not None,
                 Script probe=None, Script marker=None):
        self.extend = extend
        self.release = release
        self.inspect = inspect
        self.acquire_all = acquire_all
        self.extend_all = extend_all
        self.release_all = release_all
        self.acquire_again = acquire_again
        self.probe = probe
        self.marker = marker


cdef tuple scripts_listed(Scripts self):
    return (
        self.extend, self.release, self.inspect,
        self.acquire_all, self.extend_all, self.release_all,
    )


cdef int command_of_round(
    Buffer *out, Round round, Scripts scripts, bint by_source, bint is_second
) noexcept:
    if round.operation_code == OPERATION_ACQUIRE and is_second:
        # The first may have been executed: our own token is a grant.
        return command_script_of_all(
            out, scripts.acquire_again, True, round.keys or (round.resource,),
            round.token, round.terms.ttl_ms if round.terms.has_expiry else 0,
        )
    if round.keys is not None:
        return command_of_all(out, round, scripts, by_source)
    if round.operation_code == OPERATION_ACQUIRE:
        return command_acquire(
            out, round.resource, round.token,
            round.terms.ttl_ms if round.terms.has_expiry else 0,
        )
    if round.operation_code == OPERATION_EXTEND:
        return command_script(
            out, scripts.extend, by_source, round.resource, round.token,
            round.terms.ttl_ms,
        )
    return command_script(
        out,
        scripts.release if round.operation_code == OPERATION_RELEASE
        else scripts.inspect,
        by_source, round.resource, round.token, 0,
    )


cdef int command_of_all(
    Buffer *out, Round round, Scripts scripts, bint by_source
) noexcept:
    cdef Script script = scripts.release_all
    cdef int64_t ttl_ms = 0
    if round.operation_code != OPERATION_RELEASE:
        ttl_ms = round.terms.ttl_ms
        script = scripts.extend_all
        if round.operation_code == OPERATION_ACQUIRE:
            script = scripts.acquire_all
    return command_script_of_all(
        out, script, by_source, round.keys, round.token, ttl_ms
    )
