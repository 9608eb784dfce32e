# The restart guard: when a master may vote. Pure: the server's answers and a time in,
# another time out.
#
# A master that lost its keys has forgotten its votes, so with a `max_ttl` it gets none
# until every lease from before has ended (the "delayed restart" of the Redlock page).
# Any of these shows that it lost them, and the latest end counts:
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
# makes it shorter. Not seen: changes behind a connection that stays open
# (FLUSHALL); a quarantine that ends early because the server's wall clock steps
# forward; two servers that alternate under one name, each with its own marker.


@cython.final
cdef class RestartGuard:
    """One client's memory of the servers under one name."""

    cdef int64_t max_ttl_ns          # 0: no restart guard
    cdef int64_t until_ns            # from when on the master may vote
    cdef str cause                   # why not before; None: its uptime
    cdef bint has_met                # a server has been READY here...
    cdef str identity              # ...and this was its run id or marker; None: unknown


cdef RestartGuard restart_guard_new(int64_t max_ttl_ns):
    guard = RestartGuard()
    guard.max_ttl_ns = max_ttl_ns
    return guard


cdef int restart_guard_on_ready(
    RestartGuard self, ServerInfo server_info, Mark mark, str identity, int64_t now_ns
) except -1:
    cdef int64_t whole_ns = now_ns + self.max_ttl_ns + NS_PER_S
    if self.max_ttl_ns == 0:
        return 0
    restart_guard_hold_until(
        self, restart_guard_until_ns(server_info, self.max_ttl_ns, now_ns), None
    )
    if mark is not None and mark.left_ms >= 0:
        restart_guard_hold_until(
            self, now_ns + (mark.left_ms + 1) * NS_PER_MS,
            "restarted, replaced or emptied: in quarantine",
        )
    if mark is not None and mark.error is not None and not mark.is_forbidden:
        restart_guard_hold_until(self, whole_ns, "may be restarted: it keeps no marker")
    if self.has_met and identity != self.identity:
        restart_guard_hold_until(
            self, whole_ns, "restarted or replaced: its run id is new"
        )
    self.has_met = True
    self.identity = identity
    return 0


cdef void restart_guard_hold_until(
    RestartGuard self, int64_t until_ns, str cause
) noexcept:
    if until_ns > self.until_ns:
        self.until_ns = until_ns
        self.cause = cause


cdef int64_t restart_guard_until_ns(
    ServerInfo server_info, int64_t max_ttl_ns, int64_t now_ns
) except -1:
    # From when on a server may vote, by its uptime at now_ns. That is the difference of
    # two clock readings cut to whole seconds (genRedisInfoString in server.c), so it is
    # up to 1 s too high or too low: hence the second on top. Without an uptime the
    # server may have been restarted just now.
    cdef int64_t uptime_ns = 0
    if max_ttl_ns == 0:
        return 0
    if server_info.uptime_s is not None:
        uptime_ns = NS_PER_S * min(
            <int64_t>server_info.uptime_s, <int64_t>1_000_000_000
        )
    return max(<int64_t>0, now_ns + max_ttl_ns + NS_PER_S - uptime_ns)


cdef str restart_guard_text(
    RestartGuard self, ServerInfo server_info, int64_t ready_at_ns, int64_t now_ns
):
    left_s = (self.until_ns - now_ns) / 1e9
    if self.cause is not None:
        return f"{self.cause}, votes in {left_s:.1f} s"
    if server_info.uptime_s is None:
        return f"may be restarted (INFO tells no uptime), votes in {left_s:.1f} s"
    ago_s = server_info.uptime_s + (now_ns - ready_at_ns) / 1e9
    return f"restarted {ago_s:.1f} s ago, votes again in {left_s:.1f} s"
