# The first commands of a connection, and what their replies tell: the server's settings
# and clock, and the rights of its user.

# --- server info ----------------------------------------------------------------------
# Server info: a server's INFO at connect, and its clock. Pure: replies in, values out.
#
# Three uses. Safety: its run id and uptime show a master that has forgotten its votes
# (restart_guard); and two masters that are one server have one vote, not two. Advice:
# set-ups that lose locks are reported once. Health: the first questions of an operator.

cdef str IS_REPLICA = "is a replica: give the masters, independent of each other"
cdef str FAILED_OVER = "is a replica: a failover has made another one the primary"
cdef dict REFUSALS = {       # by role or mode
    "active-replica": "an active replica: it and its peer accept the same key at once, "
                      "so it gets no vote",
    "slave": IS_REPLICA,
    "replica": IS_REPLICA,
    "sentinel": "is a Sentinel, not a master: it holds no keys",
}
cdef tuple SYNCED = ("state=wait_bgsave", "state=send_bulk")


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
    # These are its settings if it may be replaced (failover):
    cdef public bint keeps_promotion   # is it seen for as long as a quarantine?
    # So many replicas have to stay; 0: none is counted; < 0: their number is not known,
    # so all that are there have to.
    cdef readonly int needed
    cdef readonly int64_t lag_s        # one that has sent nothing for longer is away

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

    cdef int on_asked(self, ServerInfo before) except -1:
        # This is a later answer of the same connection, perhaps of a few fields.
        self.run_id = self.run_id or before.run_id
        self.keeps_promotion = before.keeps_promotion
        self.needed, self.lag_s = before.needed, before.lag_s

    def identity(self, bint is_endpoint):
        """Return its name in the memory of a client and in the marker, or None."""
        return self.known_as(is_endpoint)

    cdef str known_as(self, bint is_endpoint):
        # For an endpoint, return its second replication id as well, which a promotion
        # changes: a server that is made a replica and then a primary again has lost
        # keys, and keeps its run id. (Redis draws a new first one also where the first
        # replica comes, or none has been there for repl-backlog-ttl; both clear the
        # second one: replicationCron and masterTryPartialResync in replication.c.)
        if self.run_id is None or not is_endpoint:
            return self.run_id
        promotion = self.fields.get("master_replid", "")
        if self.keeps_promotion:      # else it is not told for long enough
            promotion = self.fields.get("master_replid2", "")
            if promotion.strip("0"):
                promotion += "@" + self.fields.get("second_repl_offset", "")
            else:
                promotion = ""
        return f"{self.run_id}:{self.replicas_come()}:{promotion}"

    cdef int64_t replicas_come(self) except? -1:
        # How many replicas have come since this server was started; one that is sent
        # all data does not count yet, for it is not there (`spare`) before that ends.
        # (Of Valkey's two connections for that, which have a type, none is left out.)
        cdef int64_t come = 0
        for name in ("sync_full", "sync_partial_ok"):
            text = self.fields.get(name, "")
            if text.isdecimal() and len(text) < 16:
                come += int(text)
        for text in self.replicas():
            come -= text_has(text, SYNCED) and "-channel" not in text
        return come

    cdef list replicas(self):
        return [
            text for name, text in self.fields.items()
            if name.startswith("slave") and name[5:].isdecimal()
        ]

    cdef int64_t spare(self) except? -1:
        # So many of its replicas may have come lately; < 0: too few are there.
        cdef int64_t there = 0
        if self.needed == 0:
            return NEVER_NS
        for text in self.replicas():
            if "state=online" in text:
                lag = text.rpartition("lag=")[2].partition(",")[0]      # Valkey: type
                there += lag.isdecimal() and len(lag) < 9 and int(lag) <= self.lag_s
        return there - self.needed if self.needed > 0 else -(there == 0)

    def goes_on(self, str before):
        """Return whether no other server was the primary since it was `before`."""
        return self.is_after(before, True)

    cdef bint is_after(self, str before, bint counts) except -1:
        # Without `counts` its marker has the count, and the marker is asked. The script
        # `marker` has the same rule.
        cdef str now = self.known_as(True)
        cdef int64_t spare = self.spare() if counts else NEVER_NS
        if before is None or now is None:
            return before == now
        old, new = before.rsplit(":", 2), now.rsplit(":", 2)
        return len(old) == 3 and old[1].isdecimal() and (
            old[0] == new[0] and new[2] in ("", old[2])
            and (spare == NEVER_NS or 0 <= int(new[1]) - int(old[1]) <= spare)
        )

    def refusal(self):
        """Return why this server must not vote at all, or None."""
        return REFUSALS.get(self.role) or REFUSALS.get(self.mode)

    def warnings(self):
        """List the properties of this server that can lose locks."""
        found = []
        if self.mode == "cluster":
            found.append(
                "is a cluster node: its failover can lose locks; "
                "give independent masters, or redis+cluster://"
            )
        if self.policy not in (None, "noeviction") and (
            self.fields.get("maxmemory", "0") != "0"
        ):
            found.append(
                f"evicts keys with a ttl ({self.policy}): "
                "an evicted lock is a free lock; set maxmemory-policy noeviction"
            )
        return found


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
        if type(reply) is not list or len(reply) != 2 or (
            now_ns - sent_ns > <int64_t>CLOCK_NEAR_NS
        ):
            return False
        # The rest is in C: Python looks for signals when it multiplies integers of over
        # 30 bits (longobject.c, SIGCHECK), and an exception in here is a lost
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


# --- failover -------------------------------------------------------------------------
# For how long an old primary may go on granting after a replica was promoted. Pure.
#
# It stops once fewer replicas than `min-replicas-to-write` have acknowledged anything
# for `min-replicas-max-lag` (whole seconds; it looks once a second). If that is all
# replicas, a promoted one cannot write either before the old primary follows it.
#
# All but one are enough, R - 1 of R: so one server may stay away. Two primaries would
# need the same R - 1 servers, and a server follows one primary at a time. But they may
# go from one to the other: so each primary must have kept R - 1 replicas since its
# quarantine began, of which the client counts, each time it asks, those that are there
# less those that have come since it last asked (`goes_on`). A replica that has gone
# seems to be there for max-lag, at either primary: so the window has it twice. (With
# fewer than R - 1 the replicas that stay need not be the same ones all the time, and
# the count would prove nothing: three replicas that move one after the other.)
#
# In a cluster a primary stops when it has seen no majority of primaries for
# cluster-node-timeout.

cdef enum:
    LAG_S = 10                   # of min-replicas-max-lag where it is not known
    LAG_MARGIN_S = 2
    NODE_TIMEOUT_MS = 15_000     # of a cluster: its default


cdef dict settings_in(object reply):
    # The numbers of a reply to CONFIG GET.
    cdef dict found = {}
    pairs = ()
    if type(reply) is list:      # of RESP2
        pairs = zip(reply[::2], reply[1::2])
    elif isinstance(reply, dict):
        pairs = reply.items()
    for name, text in pairs:
        if type(name) is bytes and type(text) is bytes and (
            text.isdigit() and len(text) < 9
        ):
            found[name] = int(text)
    return found


def failover_of(config, ServerInfo server_info not None, int replicas=0):
    """Return the time (ns), and a warning or None, from a reply to CONFIG GET.

    `replicas`: how many its sentinels know; those that are connected count as well.
    """
    cdef int64_t lag_s, window_s
    cdef bint is_known = replicas > 0
    cdef dict found = settings_in(config)
    enough = found.get(b"min-replicas-to-write", 0)
    if server_info.mode == "cluster":
        lag_s = -(-<int64_t>found.get(b"cluster-node-timeout", NODE_TIMEOUT_MS) // 1000)
        return (lag_s + LAG_MARGIN_S) * NS_PER_S, (
            None if b"cluster-node-timeout" in found else
            "does not tell cluster-node-timeout (CONFIG GET): 15 s is assumed; give "
            "failover_window"
        )
    if b"min-replicas-max-lag" not in found:
        # It tells that it has min-replicas-to-write, and not how many.
        server_info.lag_s = LAG_S
        server_info.needed = -("min_slaves_good_slaves" in server_info.fields)
        return <int64_t>(LAG_S + LAG_MARGIN_S) * NS_PER_S, (
            "does not tell min-replicas-to-write (CONFIG GET): after a failover an old "
            "primary may go on granting; set it to the number of replicas, and "
            "failover_window"
        )
    lag_s = window_s = found[b"min-replicas-max-lag"]
    server_info.lag_s = lag_s
    connected = server_info.fields.get("connected_slaves", "0")[:9]
    if connected.isdecimal():
        replicas = max(replicas, int(connected))
    if lag_s:      # of a name: as many as it needs have to stay
        server_info.needed = min(enough, replicas - 1) if is_known else enough
    warning = None
    if lag_s == 0 or enough < max(1, replicas - 1):
        warning = (
            f"has {replicas} replicas and min-replicas-to-write {enough}: an old "
            "primary that a failover has cut off goes on granting, so that two may "
            f"hold one lock; set it to {max(1, replicas - 1)}, all replicas but one"
        )
    elif enough < replicas:
        window_s *= 2
    return ((window_s or LAG_S) + LAG_MARGIN_S) * NS_PER_S, warning


# --- rights ---------------------------------------------------------------------------
# The rights of a connection's user, and what its server can do. Pure: replies in, texts
# out.
#
# A user that may SET and may not run the release takes locks that last for their
# ttl; so does one of a server, or of a proxy before it, that has no scripts. So the
# handshake runs a script without keys, by its source and by its hash, which tries the
# commands of the release: an error is then about the command and never about a key
# that is forbidden to this user. Any other answer than the expected one is a refusal,
# but for those of the server's state: it has looked for the command, and for the right
# to it, before. (All servers check the command before its keys: Redis 6.2 and 7.0,
# Valkey 9.1.) With fencing it tries the commands of the numbers as well, without which
# a key would be set that does not count.


# Errors of Redis 6.0 and later, and of Valkey, have these texts: about a command as
# such (the second inside of a script, before Redis 7.2), and about anything.
cdef tuple OF_COMMANDS = (
    "permissions to run the", "can't run this command",
)
cdef tuple OF_ALL = (
    "NOPERM", "ERR ACL failure in script", "user executing the script can't",
)
# These are about the state of a server, or of a key. (Before Redis 7 the codes are in
# the middle of a script's error.)
cdef tuple OF_STATE = (
    "BUSY", "LOADING", "MASTERDOWN", "MISCONF", "NOREPLICAS", "OOM", "READONLY",
    "stale replica", "CLUSTERDOWN", "cluster is down", "non local key", FOREIGN,
)


cdef bint text_has(str text, tuple parts):
    return any([words in text for words in parts])


cdef bint text_forbids(str text):
    # Return whether an ACL has refused a command, or a command inside of a script.
    return text_has(text, OF_ALL)


cdef bint text_is_for_good(str text):
    # ...or the server has no such command.
    cdef str lower = text.lower()
    return text_forbids(text) or "unknown" in lower and "command" in lower


cdef bint text_is_of_command(str text):
    # Return whether an error refuses a command for good, whatever its keys are.
    return text_has(text, OF_COMMANDS) if text_forbids(text) else (
        not text_has(text, OF_STATE)
    )


@cython.final
cdef class Rights:
    """The right to run scripts, from the answers of one handshake."""

    cdef readonly dict refused      # by command, or "fencing": its name and the error

    def __cinit__(self):
        self.refused = {}

    def on_reply(self, str name, reply):
        """Take the answer to SCRIPT LOAD, or to the probe by EVAL or by EVALSHA."""
        if reply_is_error(reply):
            # The probe is loaded by its EVAL: without that, EVALSHA finds none.
            if name != "EVALSHA" or not reply_error(reply).startswith("NOSCRIPT"):
                self.refused[name] = f"{name}: {reply_text(reply)}"
        elif name == "SCRIPT LOAD" or type(reply) is int and reply == 1:
            return      # 1: of a release that is not ours, nothing else is tried
        elif type(reply) is list and all([type(each) is bytes for each in reply]):
            for each in reply:      # the commands refused inside of it
                text = each.decode("utf-8", "replace")[:SHOWN_REPLY_LENGTH]
                if text_is_of_command(text):
                    name = text.partition(":")[0]
                    self.refused[name] = text.removeprefix("fencing: ")
        else:
            self.refused[name] = f"{name}: {reply_text(reply)}"

    def script_error(self):
        """Return why no script of ours can be run, or None."""
        if "EVAL" in self.refused and "SCRIPT LOAD" in self.refused:
            return self.refused.get("EVALSHA", self.refused["EVAL"])
        return self.refused.get("EVALSHA")

    def refusal(self):
        """Return why no lock can be released, or none gets a number, or None."""
        error = self.script_error()
        if error is not None:
            rights = ["+evalsha"] * ("EVALSHA" in self.refused)
            rights += ["+eval"] * ("EVAL" in self.refused)
            return unreleased_text(error, " ".join(rights))
        for name, error in self.refused.items():
            if name not in ("EVAL", "SCRIPT LOAD", "PEXPIRE", "fencing"):
                return unreleased_text(error, "+get +del")
        if "fencing" in self.refused:
            return (
                f"its user may not write numbers of grants ({self.refused['fencing']}),"
                " so it gets no vote: grant +zadd +zscore +pexpire"
            )
        return None

    def warnings(self, bint is_native):
        """List what cannot be done where a vote is not refused."""
        found = []
        if "EVAL" in self.refused:
            found.append(
                f"may not run EVAL ({self.refused['EVAL']}): a release that finds its "
                "script flushed has to wait for a new connection; grant +eval"
            )
        if "PEXPIRE" in self.refused and not is_native:
            found.append(
                f"cannot extend leases ({self.refused['PEXPIRE']}): grant +pexpire"
            )
        return found


cdef str unreleased_text(str error, str right):
    if text_forbids(error):
        return (
            f"its user may not release locks ({error}), so it gets no vote: "
            f"grant {right}"
        )
    return (
        f"cannot release locks ({error}), so it gets no vote: this server, or a proxy "
        f"before it, has to allow {right.replace('+', '').upper()}"
    )


# --- handshake ------------------------------------------------------------------------
# The first commands of a new connection: pure, replies in and bytes out.
#
# HELLO goes alone, because its answer decides how the rest is spoken: a server before
# Redis 6, or a proxy, has no HELLO, says so in words of its own, and gets AUTH and
# RESP2. (Valkey 9 answers an unknown command of a client that has not logged in with
# NOAUTH, also where HELLO is renamed.) AUTH is repeated without the user's name if the
# server has only passwords. The rest is one write: SELECT, CLIENT SETNAME, INFO,
# COMMAND INFO (native), SCRIPT EXISTS, and a script that tries what a release needs
# (rights). Then SCRIPT LOAD of what is missing: a crowd that connects again does not
# send each script a thousand times. The four before the probe, and SCRIPT LOAD, may
# fail: a server whose ACL forbids them still locks; scripts are then loaded by EVAL
# when first needed, and nothing is known of the server (server_info). Where no script
# can be run, the native release is tried. Then other clients' names are read (lists).
# Last, where there is a `max_ttl`, the marker is asked for, which takes the run id from
# INFO (marker).
#
# A server that loads its data or runs a slow script answers HELLO, and refuses all that
# a lock needs. Its connection cannot be used yet: the releases that wait for it would
# be refused as well, and would not be sent again. The next connection asks it again.


cdef bytes PROBE_KEY = b"fastredlock:probe"
cdef bytes MARKER_KEY = b"fastredlock:voter"
cdef bytes LINEAGE_KEY = b"fastredlock:lineage"      # its marker, of an endpoint...
cdef bytes REPLID_KEY = b"fastredlock:lineage:replid"      # ...that forgets promotions
cdef bytes QUARANTINE_KEY = b"fastredlock:quarantine"
cdef int64_t LONGEST_LEFT_MS = 1_000_000_000_000_000      # in ns far inside of int64
cdef str MARKER_NAME = "marker"
cdef str TOO_FEW_REPLICAS = \
    "NOREPLICAS: too few replicas follow it, so it refuses all writes"
cdef str NATIVE_NAME = "native release"
cdef str OTHER_CLUSTER = (
    "is a node of another cluster by now, or has lost its own (nodes.conf)"
)
cdef set CODES_OF_NOW = {"BUSY", "CLUSTERDOWN", "LOADING"}
# They refuse HELLO to this client, or to all for now. (NOPERM forbids only HELLO.)
cdef set CODES_OF_HELLO = CODES_OF_NOW | {"MASTERDOWN", "NOAUTH", "WRONGPASS", "DENIED"}


cdef dict LOGIN_REMEDIES = {      # by code; to a HELLO, NOAUTH has 200 characters
    "NOAUTH": "NOAUTH no password was given: redis://user:password@host",
    "WRONGPASS":
        "WRONGPASS invalid username-password pair: correct it, or enable the user",
}


cdef bint text_is_of_now(str text) except -1:
    # Return whether by this error the server refuses everything for a while.
    return text.partition(" ")[0] in CODES_OF_NOW


cdef bint text_is_passing(str text) except -1:
    # Return whether by this error a slot is being moved, or a primary replaced.
    return text.startswith(("ASK ", "MOVED ")) or text_is_of_replica(text) or (
        text_has(text, ("TRYAGAIN", "CLUSTERDOWN", "cluster is down", "NOREPLICAS"))
    )


cdef bint text_is_of_replica(str text) except -1:
    # Return whether by this error the primary is another server by now.
    return text.partition(" ")[0] in ("READONLY", "MASTERDOWN") or (
        "-READONLY" in text      # of a script, before Redis 7
    )


cdef bint hello_is_missing(str text, bint has_password) except -1:
    # The code decides, because each proxy has words of its own. NOAUTH for a HELLO that
    # has the password shows that it was not understood.
    cdef str code = text.partition(" ")[0]
    if code == "NOAUTH" and has_password:
        return True
    return code not in CODES_OF_HELLO and "max number of clients" not in text


def refusal_text(reply):
    """Return the text of a refused command; of a login, the remedy as well."""
    text = reply_text(reply)
    return LOGIN_REMEDIES.get(text.partition(" ")[0], text)


@cython.final
cdef class Handshake:
    cdef bytes username
    cdef bytes password          # None: no AUTH
    cdef int db
    cdef bytes client_name
    cdef Lists lists             # of masters; None: they are not compared
    cdef bint has_asked_lists
    cdef list met                # warnings: of other clients' lists
    cdef Scripts scripts
    cdef bint has_tried_native   # release
    cdef int64_t max_ttl_ns      # 0: no marker
    cdef readonly int64_t failover_ns    # < 0: as the server's settings say
    cdef int replicas                    # that its sentinels know
    cdef int64_t backlog_ttl_ns          # of a promotion's mark; 0: not known
    cdef str failover_warning
    cdef str place_warning       # of those who gave its address
    cdef list awaited            # (command name, whether its failure ends it), in order
    cdef list to_load            # the scripts that the server lacks; None: asked yet
    cdef Rights rights
    cdef readonly ServerInfo server_info
    cdef readonly int64_t client_id      # the server's, of this connection; 0: unknown
    cdef readonly Mark mark      # None: left out
    cdef readonly bint speaks_resp3
    cdef readonly int native     # FORM_SCRIPT: it has no such command
    cdef readonly bint is_native_alone   # no script can be run, and none is needed
    cdef readonly bint is_done
    cdef readonly str failure    # why the connection cannot be used, or None
    cdef bytes tag               # of its keys on a node; b"": ask for the map; or None
    cdef str known               # the identity of the server that was met here before
    cdef bytes expected          # its id as the map says, or None
    cdef readonly bytes node_id  # its own, or None: it is not told...
    cdef str id_error            # ...for this reason
    cdef readonly bint is_member     # of the cluster, or of none
    cdef readonly object cluster_map     # the reply to CLUSTER SLOTS, or None

    def __init__(
        self, bytes username, bytes password, int db, bytes client_name not None,
        Scripts scripts not None, int64_t max_ttl_ns=0, int64_t failover_ns=0,
        int replicas=0, Lists lists=None,
    ):
        self.username = username
        self.password = password
        self.db = db
        self.client_name = client_name
        self.scripts = scripts
        self.max_ttl_ns = max_ttl_ns
        self.failover_ns = failover_ns
        self.replicas = replicas
        self.lists = lists
        self.met = []
        self.awaited = []
        self.is_member = True
        self.rights = Rights()
        self.server_info = ServerInfo(None)

    def be_of_cluster(self, bytes tag not None, str known, bytes expected=None):
        """Ask for the map (tag b""); or keep the marker under this tag, and not where
        this server is `known`: then its slot has moved. A node without the `expected`
        id is refused; without both ids its map is there, and `on_member` goes on."""
        self.tag = tag
        self.known = known
        self.expected = expected
        self.is_member = tag == b""

    def on_member(self, str fault, bytes tag not None):
        """Go on with a node of the cluster, or with the fault in its map."""
        self.tag = tag
        self.failure = fault
        self.is_member = True
        return self._conclude() if fault is None else b""

    def start(self):
        """Return the first bytes to send."""
        words = (b"HELLO", b"3")
        if self.password is not None:
            words += (b"AUTH", self.username or b"default", self.password)
        return self._ask(("HELLO", True, words))

    def on_reply(self, reply):
        """Take one reply; return what to send next (b"" if nothing)."""
        if not self.awaited:
            self.failure = "a reply nobody asked for"
            return b""
        name, is_required = self.awaited.pop(0)
        if name == "HELLO":
            return self._on_hello(reply)
        if name == "AUTH" and not reply_is_error(reply):
            return self._introduce()
        if name == "AUTH" and self.username and (
            "wrong number of arg" in reply_error(reply)
        ):      # a server before Redis 6, or a proxy: it has no users
            self.username = None
            return self._log_in()
        if reply_is_error(reply) and (
            text_has(reply_error(reply), OF_STATE) if name.startswith("EVAL")
            else text_is_of_now(reply_error(reply))
        ):
            self.failure = f"{name}: {reply_text(reply)}"
        elif name == "INFO":
            self.server_info = ServerInfo(reply)
        elif name == "CONFIG GET":
            window_ns, warning = failover_of(reply, self.server_info, self.replicas)
            if self.failover_ns < 0 or settings_in(reply).get(b"min-replicas-to-write"):
                self.failover_warning = warning      # else who gave it answers for it
            if self.failover_ns < 0:
                self.failover_ns = window_ns
        elif name == "CONFIG GET repl-backlog-ttl":
            ttl_s = settings_in(reply).get(b"repl-backlog-ttl")
            if ttl_s is not None:      # 0: for ever
                self.backlog_ttl_ns = ttl_s * NS_PER_S or NEVER_NS
        elif name == "CLIENT LIST":
            self._on_clients(reply)
        elif name == "COMMAND INFO":
            self.native = native_form(reply)
        elif name == MARKER_NAME:
            self.mark = Mark(reply)
            if self.failover_ns != 0 and self.mark.is_alone:
                self.failure = TOO_FEW_REPLICAS
        elif name == NATIVE_NAME:
            self.is_native_alone = not reply_is_error(reply) or (
                not text_is_of_command(reply_error(reply))
            )
        elif name == "CLUSTER MYID":
            self.node_id = reply if type(reply) is bytes else None
            self.id_error = None if type(reply) is bytes else reply_text(reply)
        elif name == "CLUSTER SLOTS" and not reply_is_error(reply):
            self.cluster_map = reply
            self.is_done = self.tag == b""
        elif is_required and reply_is_error(reply):
            self.failure = f"{name}: {refusal_text(reply)}"
        elif name == "SCRIPT EXISTS":
            known = reply if type(reply) is list else []
            self.to_load = [
                script for place, script in enumerate(scripts_to_load(self.scripts))
                if known[place:place + 1] != [1]
            ]
        elif name in ("SCRIPT LOAD", "EVAL", "EVALSHA"):
            self.rights.on_reply(name, reply)
        if self.awaited or self.failure is not None or self.is_done:
            return b""
        to_load, self.to_load = self.to_load, None
        if to_load is not None and "EVAL" in self.rights.refused:
            to_load = scripts_to_load(self.scripts)      # has it at least this right?
        if to_load:
            return self._ask(*[
                ("SCRIPT LOAD", False, (b"SCRIPT", b"LOAD", (<Script>script).source))
                for script in to_load
            ])
        return self._conclude()

    def warnings(self):
        """List the missing rights of this user that may lose locks."""
        refusal = None if self.failover_ns else self.server_info.refusal()
        found = [refusal or self.rights.refusal()]      # an endpoint's may change
        if self.is_native_alone:
            found = [
                f"runs no scripts ({self.rights.script_error()}): fencing, several "
                "resources at once, holders() and waiting in turn cannot be used here"
            ]
        elif found[0] is None:
            found = self.rights.warnings(self.native != FORM_SCRIPT)
        if self.is_done and self.max_ttl_ns and (
            self.server_info.run_id is None or self.server_info.uptime_s is None
        ):
            found.append(
                "does not tell its run id and uptime (INFO), so max_ttl withholds its "
                "vote for max_ttl + 1 s after each connect, or may miss a restart with "
                "its data; grant +info"
            )
        if self.mark is not None:
            found.append(self.mark.warning(self.failover_ns != 0))
        if self.id_error is not None:
            found.append(
                f"does not tell its id (CLUSTER MYID: {self.id_error}): whether its "
                "address belongs to another cluster by now is seen by maps only; grant "
                "+cluster|myid"
            )
        found += [self.failover_warning, self.place_warning, *self.met]
        return [text for text in found if text is not None]

    def _conclude(self):
        cdef Script marker = self.scripts.named.get("marker")
        cdef bytes key
        self.failure = self.server_info.refusal()
        if self.failure is not None:
            if self.failure == IS_REPLICA and self.failover_ns != 0:
                self.failure = FAILED_OVER
            return b""
        if self.lists is not None and not self.has_asked_lists and (
            self.lists.is_to_ask(
                self.client_id, self.server_info.fields.get("connected_clients", "")
            )
        ):
            self.has_asked_lists = True
            return self._ask(("CLIENT LIST", False, (b"CLIENT", b"LIST")))
        if self.native != FORM_SCRIPT and not self.has_tried_native and (
            self.rights.script_error() is not None
            and self.scripts.releases_natively and not self.scripts.is_fencing
        ):
            self.has_tried_native = True
            key = self.scripts.name_prefix + PROBE_KEY
            return self._ask(
                (NATIVE_NAME, False, (b"DELIFEQ", key, b"-"))
                if self.native == FORM_DELIFEQ
                else (NATIVE_NAME, False, (b"DELEX", key, b"IFEQ", b"-"))
            )
        if not self.is_native_alone:
            self.failure = self.rights.refusal()
        if self.failure is not None:
            return b""
        if not self.is_member and self.cluster_map is not None:      # on_member
            return b""
        if not self.is_member and (self.expected is None or self.node_id is None):
            return self._ask(("CLUSTER SLOTS", True, (b"CLUSTER", b"SLOTS")))
        if not self.is_member and self.node_id != self.expected:
            self.failure = OTHER_CLUSTER
            return b""
        if marker is None or self.max_ttl_ns == 0 or self.mark is not None:
            self.is_done = True
            return b""
        if self.server_info.spare() < 0:      # no quarantine: perhaps they are slow
            self.failure = TOO_FEW_REPLICAS
            return b""
        self.server_info.keeps_promotion = self.failover_ns != 0 and (
            self.server_info.run_id is not None
            and self.backlog_ttl_ns > self.max_ttl_ns + NS_PER_S + self.failover_ns
        )
        if self.tag and self.server_info.is_after(self.known, True):
            self.is_done = True
            return b""
        return self._ask((MARKER_NAME, False, marker_words(
            self.server_info, marker, self.max_ttl_ns, self.failover_ns,
            self.tag or b"",
        )))

    def _on_clients(self, reply):
        if self.lists.is_strict and type(reply) is not bytes:
            self.met.append(
                f"strict_masters cannot see which masters others have (CLIENT LIST: "
                f"{reply_text(reply)}); grant +client|list"
            )
        strange, other = self.lists.met(reply, decimal_bytes(self.db).decode())
        if self.lists.is_strict:
            self.failure, strange = strange, None
        self.met += [strange, other]

    def _on_hello(self, reply):
        is_missing = reply_is_error(reply) and (
            hello_is_missing(reply_error(reply), self.password is not None)
        )
        if isinstance(reply, (dict, list)):
            self.client_id = client_id_of(reply)
            self.speaks_resp3 = isinstance(reply, dict)
        elif not is_missing:
            self.failure = f"HELLO: {refusal_text(reply)}"
            return b""
        if is_missing and self.password is not None:
            return self._log_in()
        return self._introduce()

    def _log_in(self):
        user = (self.username,) if self.username else ()
        return self._ask(("AUTH", True, (b"AUTH", *user, self.password)))

    def _introduce(self):
        commands = []
        if self.db:
            commands.append(("SELECT", True, (b"SELECT", decimal_bytes(self.db))))
        words = (b"CLIENT", b"SETNAME", self.client_name)
        commands.append(("CLIENT SETNAME", False, words))
        if self.tag is not None:
            commands.append(("CLUSTER MYID", False, (b"CLUSTER", b"MYID")))
        if self.tag == b"":
            return self._ask(
                *commands, ("CLUSTER SLOTS", True, (b"CLUSTER", b"SLOTS"))
            )
        commands += [
            ("INFO", False, (b"INFO",)),
            ("COMMAND INFO", False, (b"COMMAND", b"INFO", *NATIVE_NAMES)),
        ]
        if self.failover_ns < 0 or self.failover_ns and self.tag is None:
            name = b"min-replicas-*" if self.tag is None else b"cluster-node-timeout"
            words = (b"CONFIG", b"GET", name)
            commands.append(("CONFIG GET", False, words))
        if self.failover_ns != 0 and self.max_ttl_ns:
            words = (b"CONFIG", b"GET", b"repl-backlog-ttl")
            commands.append(("CONFIG GET repl-backlog-ttl", False, words))
        names = [(<Script>script).sha1 for script in scripts_to_load(self.scripts)]
        if names:
            words = (b"SCRIPT", b"EXISTS", *names)
            commands.append(("SCRIPT EXISTS", False, words))
        probe = self.scripts.named.get("probe")
        if probe is not None:
            commands.append(("EVAL", False, (b"EVAL", probe.source, b"0")))
            commands.append(("EVALSHA", False, (b"EVALSHA", probe.sha1, b"0")))
        return self._ask(*commands)

    def _ask(self, *commands):
        # Each has a name, whether its failure ends the handshake, and its words.
        self.awaited = [(name, is_required) for name, is_required, _ in commands]
        return b"".join([command_encode(words) for _, _, words in commands])


cdef int64_t client_id_of(object hello) except -1:
    # Return the id that HELLO replies in a map, or in RESP2 in a list of its items.
    if type(hello) is list:
        pairs = zip(hello[::2], hello[1::2])
        hello = {name: value for name, value in pairs if type(name) is bytes}
    client_id = hello.get(b"id")
    return client_id if type(client_id) is int and 0 < client_id < NEVER_NS else 0


# --- the marker of the restart guard ------------------------------------------------
#
# A key on each server names the run id of its keeper, and another one the quarantine of
# a server that has lost its keys. How they are used: restart_guard.


cdef tuple marker_words(
    ServerInfo server_info, Script marker, int64_t max_ttl_ns, int64_t failover_ns,
    bytes tag,
):
    # A server without a run id in its INFO gets one that is drawn: good enough to see
    # that two names are one server, and that the marker has gone.
    cdef bint is_endpoint = failover_ns != 0
    cdef int64_t span_ms = -(-(max_ttl_ns + NS_PER_S + failover_ns) // NS_PER_MS)
    cdef bytes key = MARKER_KEY, name = b"drawn:" + draw_token(), how = b"any"
    if is_endpoint:
        key = LINEAGE_KEY if server_info.keeps_promotion else REPLID_KEY
    if server_info.run_id is not None:
        name = server_info.known_as(is_endpoint).encode("utf-8", "surrogateescape")
        how = decimal_bytes(server_info.spare()) if is_endpoint else b"exact"
    return (
        b"EVAL", marker.source, b"2", key + tag, QUARANTINE_KEY + tag, name,
        decimal_bytes(span_ms), how,
    )


@cython.final
cdef class Mark:
    """A server's answer to the marker script."""

    cdef readonly str holder         # the name in the marker; None: unknown
    cdef readonly int64_t left_ms    # of the quarantine; < 0: there is none...
    cdef bint is_lifted              # ...as an operator has said of this run id
    cdef readonly str error          # why it cannot be kept, or None
    cdef readonly bint is_forbidden  # by an ACL: for good, and not at this moment
    cdef bint is_alone               # its server has too few replicas to write

    def __init__(self, reply):
        self.left_ms = -1
        if type(reply) is list and len(reply) == 2 and type(reply[0]) is int and (
            type(reply[1]) is bytes
        ):
            self.holder = (<bytes>reply[1]).decode("utf-8", "replace")
            self.left_ms = min(max(reply[0], -1), LONGEST_LEFT_MS)
            self.is_lifted = reply[0] == -3
            return
        self.error = reply_text(reply)
        self.is_forbidden = text_forbids(self.error)
        self.is_alone = "NOREPLICAS" in self.error

    cdef str warning(self, bint is_endpoint):
        # Name the loss of safety where the marker cannot be kept; None: it can be, or
        # its slot is moved away at this moment.
        if self.error is None or is_endpoint and self.is_alone or (
            self.error.startswith(("MOVED ", "ASK ", "TRYAGAIN"))
        ):
            return None
        key = LINEAGE_KEY if is_endpoint else MARKER_KEY
        text = f"cannot keep the marker {key.decode()} ({self.error}): "
        if is_endpoint:
            return text + (
                "it gets no vote for max_ttl + 1 s and the failover window after each "
                "connect; let its user have ~fastredlock:* +eval +get +set +pttl"
            )
        if self.is_forbidden:
            return text + (
                "max_ttl trusts its uptime, so a new client does not see that an empty "
                "server has taken its place, or that its clock was set forward; grant "
                "~fastredlock:* +eval +get +set +pttl"
            )
        return text + "it gets no vote for max_ttl + 1 s after each connect"
