# Server info: a server's INFO at connect, and its clock. Pure: replies in, values out.
#
# Three uses. Safety: its run id and uptime show a master that has forgotten its votes
# (restart_guard); and two masters that are one server have one vote, not two. Advice:
# set-ups that lose locks are reported once. Health: the first questions of an operator.


@cython.final
cdef class ServerInfo:
    """The fields of one server's INFO; None where they are missing."""

    cdef readonly dict fields
    cdef readonly str run_id
    cdef readonly object uptime_s      # int: whole seconds
    cdef readonly str version
    cdef readonly str role
    cdef readonly str mode             # standalone, cluster, sentinel
    cdef readonly str policy           # maxmemory-policy
    cdef readonly bint has_memory_limit

    def __init__(self, info):
        self.fields = fields = {}
        if isinstance(info, bytes):
            for line in info.decode("utf-8", "replace").split("\r\n"):
                name, colon, value = line.partition(":")
                if colon:
                    fields[name] = value
        self.run_id = fields.get("run_id") or None
        uptime = fields.get("uptime_in_seconds", "")[:20]
        self.uptime_s = int(uptime) if uptime.isdecimal() else None
        self.version = fields.get("valkey_version") or fields.get("redis_version")
        self.role = fields.get("role")
        mode = fields.get("redis_mode") or fields.get("server_mode")
        self.mode = "cluster" if fields.get("cluster_enabled") == "1" else mode
        self.policy = fields.get("maxmemory_policy")
        self.has_memory_limit = fields.get("maxmemory", "0") != "0"

    def refusal(self):
        """Return why this server must not vote at all, or None."""
        if self.role == "active-replica":
            return (
                "an active replica: it and its peer accept the same key at once, "
                "so it gets no vote"
            )
        if self.role == "slave" or self.role == "replica":
            return "is a replica: give the masters, independent of each other"
        if self.mode == "sentinel":
            return "is a Sentinel, not a master: it holds no keys"
        return None

    def warnings(self):
        """List the properties of this server that can lose locks."""
        found = []
        if self.mode == "cluster":
            found.append(
                "is a cluster node: its failover can lose locks; "
                "give independent masters"
            )
        if self.has_memory_limit and self.policy not in (None, "noeviction"):
            found.append(
                f"evicts keys with a ttl ({self.policy}): "
                "an evicted lock is a free lock; set maxmemory-policy noeviction"
            )
        return found


cdef str server_info_warning(ServerInfo server_info):
    # The loss of safety where a server withholds its run id or uptime, or None.
    if server_info.run_id is not None and server_info.uptime_s is not None:
        return None
    return (
        "does not tell its run id and uptime (INFO), so max_ttl withholds its vote for "
        "max_ttl + 1 s after each connect, or may miss a restart with its data; "
        "grant +info"
    )


cdef enum:
    CLOCK_NEAR_NS = 100_000_000        # a reply read later is too inexact

cdef int64_t CLOCK_EVERY_NS = 5_000_000_000
cdef int64_t LATEST_S = 9_000_000_000  # of 64 bits of ns; the year 2255


@cython.final
cdef class ServerClock:
    """A server's wall clock against ours: notices when it jumps.

    Redis expires keys by its wall clock: a jump forward frees locks early.
    """

    cdef int64_t asked_at_ns
    cdef int64_t offset_ns             # server - ours, at the last sample
    cdef int64_t sampled_at_ns
    cdef readonly int64_t step_ns      # the last jump seen, 0 before any

    def on_time(self, reply, int64_t sent_ns, int64_t now_ns):
        """Take a reply to TIME; return whether it shows a jump."""
        cdef int64_t offset_ns, step_ns, allowed_ns, now_s, now_us
        if type(reply) is not list or len(reply) != 2:
            return False
        if now_ns - sent_ns > <int64_t>CLOCK_NEAR_NS:
            return False
        # In C from here on: Python looks for signals where it multiplies integers of
        # over 30 bits (longobject.c, SIGCHECK), and an exception in here is a lost
        # connection.
        try:
            now_s, now_us = int(reply[0]), int(reply[1])
        except (TypeError, ValueError, OverflowError):
            return False
        if not 0 <= now_s <= LATEST_S or not 0 <= now_us < 1_000_000:
            return False
        offset_ns = now_s * NS_PER_S + now_us * 1000 - (sent_ns + now_ns) // 2
        step_ns = offset_ns - self.offset_ns
        is_first = self.sampled_at_ns == 0
        # 1 % of the time between: the drift that the algorithm allows for anyway.
        allowed_ns = CLOCK_NEAR_NS // 2 + (now_ns - self.sampled_at_ns) // 100
        self.offset_ns = offset_ns
        self.sampled_at_ns = now_ns
        if is_first or -allowed_ns <= step_ns <= allowed_ns:
            return False
        self.step_ns = step_ns
        return True
