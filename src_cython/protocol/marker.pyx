# The marker of the restart guard, as a command and as its reply: pure.
#
# A key on each server names the run id of its keeper, and another one the quarantine of
# a server that has lost its keys. How they are used stands in restart_guard.

cimport cython
from libc.stdint cimport int64_t

cdef bytes MARKER_KEY = b"fastredlock:voter"
cdef bytes QUARANTINE_KEY = b"fastredlock:quarantine"
cdef int64_t LONGEST_LEFT_MS = 1_000_000_000_000_000      # in ns far inside of int64


cdef tuple marker_command(Script script, ServerInfo server_info, int64_t max_ttl_ns):
    # A server without a run id in its INFO gets one that is drawn: good enough to see
    # that two names are one server, and that the marker has gone.
    cdef int64_t span_ms = -(-(max_ttl_ns + NS_PER_S) // NS_PER_MS)
    if server_info.run_id is None:
        name, kind = b"drawn:" + draw_token(), b"any"
    else:
        name, kind = server_info.run_id.encode("utf-8", "surrogateescape"), b"exact"
    return (
        b"EVAL", script.source, b"2", MARKER_KEY, QUARANTINE_KEY,
        name, decimal_bytes(span_ms), kind,
    )


@cython.final
cdef class Mark:
    """A server's answer to the marker script."""

    cdef readonly str holder         # the name in the marker; None: unknown
    cdef readonly int64_t left_ms    # of the quarantine; < 0: none stands
    cdef readonly str error          # why it cannot be kept, or None
    cdef readonly bint is_forbidden  # by an ACL: for good, and not at this moment

    def __init__(self, reply):
        self.left_ms = -1
        if type(reply) is list and len(reply) == 2 and type(reply[0]) is int and (
            type(reply[1]) is bytes
        ):
            self.holder = (<bytes>reply[1]).decode("utf-8", "replace")
            self.left_ms = min(max(reply[0], -1), LONGEST_LEFT_MS)
            return
        self.error = reply_text(reply)
        self.is_forbidden = text_forbids(self.error)

    def warning(self):
        """Name the loss of safety where the marker cannot be kept, or None."""
        if self.error is None:
            return None
        text = f"cannot keep the marker {MARKER_KEY.decode()} ({self.error}): "
        if self.is_forbidden:
            return text + (
                "max_ttl trusts its uptime, so a new client does not see that an empty "
                "server has taken its place, or that its clock was set forward; grant "
                "~fastredlock:* +eval +get +set +pttl"
            )
        return text + "it gets no vote for max_ttl + 1 s after each connect"
