# The restart guard: when a master may vote. Pure, what a server said in and a time out.
#
# A master that lost its keys has forgotten its votes, so with a `max_ttl` it gets none
# until every lease from before has ended (the "delayed restart" of the Redlock page).
# That it lost them is seen by any of these, and the latest end counts:
#
#   uptime      it has been up for less than max_ttl. Two readings of a wall clock: a
#               step forward makes it too high, and a server that was up and empty all
#               along may have taken the other's address. So alone it proves nothing.
#   memory      its run id is not the one that this client has last seen here.
#   marker      a key that names the run id of its keeper. Where it is missing or names
#               another (an empty server, one restored from its disk, a promoted
#               replica, FLUSHALL), the client that finds it so sets a quarantine beside
#               it, which all clients with a max_ttl keep: those without a memory, too.
#
# Time is counted on our own clock, from a server's answer on. A reconnection never
# makes it shorter. Not seen: what happens behind a connection that stands all the
# while (FLUSHALL); a quarantine that ends early because the server's wall clock steps
# forward; two servers that take turns under one name, each with its own marker.

cimport cython
from libc.stdint cimport int64_t

cdef bytes MARKER_KEY = b"fastredlock:voter"
cdef bytes QUARANTINE_KEY = b"fastredlock:quarantine"
cdef int64_t LONGEST_LEFT_MS = 1_000_000_000_000_000      # in ns far inside of int64


cdef tuple marker_command(Script script, Facts facts, int64_t max_ttl_ns):
    # A server that does not tell its run id gets one that is drawn: it is good for
    # seeing that two names are one server, and that the marker has gone.
    cdef int64_t span_ms = -(-(max_ttl_ns + NS_PER_S) // NS_PER_MS)
    if facts.run_id is None:
        name, kind = b"drawn:" + draw_token(), b"any"
    else:
        name, kind = facts.run_id.encode("utf-8", "surrogateescape"), b"exact"
    return (
        b"EVAL", script.source, b"2", MARKER_KEY, QUARANTINE_KEY,
        name, b"%d" % span_ms, kind,
    )


@cython.final
cdef class Mark:
    """What came of asking a server for its marker."""

    cdef readonly str holder         # whom the marker names; None: not told
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
        """Say what is lost where the marker cannot be kept, or None."""
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


@cython.final
cdef class Guard:
    """What one client knows of the servers that it met under one name."""

    cdef int64_t max_ttl_ns          # 0: no restart guard
    cdef int64_t until_ns            # from when on the master may vote
    cdef str cause                   # why not before; None: its uptime
    cdef bint has_met                # it has been READY before...
    cdef str identity                # ...and this was the server's, None: not told


cdef Guard guard_of(int64_t max_ttl_ns):
    guard = Guard()
    guard.max_ttl_ns = max_ttl_ns
    return guard


cdef int guard_on_ready(
    Guard self, Facts facts, Mark mark, str identity, int64_t now_ns
) except -1:
    cdef int64_t whole_ns = now_ns + self.max_ttl_ns + NS_PER_S
    if self.max_ttl_ns == 0:
        return 0
    guard_hold_until(self, guard_until_ns(facts, self.max_ttl_ns, now_ns), None)
    if mark is not None and mark.left_ms >= 0:
        guard_hold_until(
            self, now_ns + (mark.left_ms + 1) * NS_PER_MS,
            "restarted, replaced or emptied: in quarantine",
        )
    if mark is not None and mark.error is not None and not mark.is_forbidden:
        guard_hold_until(self, whole_ns, "may be restarted: it keeps no marker")
    if self.has_met and identity != self.identity:
        guard_hold_until(self, whole_ns, "restarted or replaced: its run id is new")
    self.has_met = True
    self.identity = identity
    return 0


cdef void guard_hold_until(Guard self, int64_t until_ns, str cause) noexcept:
    if until_ns > self.until_ns:
        self.until_ns = until_ns
        self.cause = cause


cdef int64_t guard_until_ns(Facts facts, int64_t max_ttl_ns, int64_t now_ns) except -1:
    # From when on a server may vote, by its uptime at now_ns. That is
    # the difference of two clock readings cut to whole seconds (genRedisInfoString in
    # server.c), so it is up to 1 s too high or too low: hence the second on top.
    # Without an uptime the server may have been restarted just now.
    cdef int64_t uptime_ns = 0
    if max_ttl_ns == 0:
        return 0
    if facts.uptime_s is not None:
        uptime_ns = min(<int64_t>facts.uptime_s, <int64_t>1_000_000_000) * NS_PER_S
    return max(<int64_t>0, now_ns + max_ttl_ns + NS_PER_S - uptime_ns)


cdef str guard_text(Guard self, Facts facts, int64_t ready_at_ns, int64_t now_ns):
    left_s = (self.until_ns - now_ns) / 1e9
    if self.cause is not None:
        return f"{self.cause}, votes in {left_s:.1f} s"
    if facts.uptime_s is None:
        return f"may be restarted (INFO tells no uptime), votes in {left_s:.1f} s"
    ago_s = facts.uptime_s + (now_ns - ready_at_ns) / 1e9
    return f"restarted {ago_s:.1f} s ago, votes again in {left_s:.1f} s"


cdef str guard_warning(Facts facts):
    # What is lost where a server does not tell who it is, or None.
    if facts.run_id is not None and facts.uptime_s is not None:
        return None
    return (
        "does not tell its run id and uptime (INFO), so max_ttl withholds its vote for "
        "max_ttl + 1 s after each connect, or may miss a restart with its data; "
        "grant +info"
    )
