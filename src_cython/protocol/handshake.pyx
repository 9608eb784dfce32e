# The first commands of a new connection: pure, replies in and bytes out.
#
# HELLO goes alone, because its answer decides how the rest is spoken: a server before
# Redis 6, or a proxy, has no HELLO, says so in words of its own, and gets AUTH and
# RESP2. (Valkey 9 answers an unknown command of a client that has not logged in with
# NOAUTH, also where HELLO is renamed.) The rest is one write: AUTH (only there),
# SELECT, CLIENT SETNAME, INFO, COMMAND INFO (native), SCRIPT LOAD, and a script that
# tries what a release needs (rights). The four before it may fail: a server whose ACL
# forbids them still locks; scripts are then loaded by EVAL when first needed, and
# nothing is known of the server (server_info). Where no script can be run, the native
# release is tried. Last, where there is a `max_ttl`, the marker is asked for, which
# takes the run id from INFO (marker).
#
# A server that loads its data or runs a slow script answers HELLO, and refuses all that
# a lock needs. Its connection cannot be used yet: the releases that wait for it would
# be refused as well, and would not be sent again. The next connection asks it again.


cdef bytes MARKER_KEY = b"fastredlock:voter"
cdef bytes QUARANTINE_KEY = b"fastredlock:quarantine"
cdef int64_t LONGEST_LEFT_MS = 1_000_000_000_000_000      # in ns far inside of int64
cdef str MARKER_NAME = "marker"
cdef str NATIVE_NAME = "native release"
cdef set CODES_OF_NOW = {"BUSY", "LOADING"}
# To HELLO: not now, or not you. (NOPERM to it forbids HELLO alone.)
cdef set CODES_OF_HELLO = CODES_OF_NOW | {"MASTERDOWN", "NOAUTH", "WRONGPASS", "DENIED"}


cdef bint text_is_of_now(str text) except -1:
    # Of an error: the server refuses everything, for a while.
    return text.partition(" ")[0] in CODES_OF_NOW


cdef bint hello_is_missing(str text, bint has_password) except -1:
    # By its code, for each proxy has words of its own. NOAUTH of a HELLO that carries
    # the password: so it was not understood.
    cdef str code = text.partition(" ")[0]
    if code == "NOAUTH" and has_password:
        return True
    return code not in CODES_OF_HELLO and "max number of clients" not in text


def refusal_text(reply):
    """Return the text of a refused command; of a login, the remedy as well."""
    text = reply_text(reply)
    if text.startswith("NOAUTH"):        # and over 200 characters for a HELLO
        return "NOAUTH no password was given: redis://user:password@host"
    if text.startswith("WRONGPASS"):
        return (
            "WRONGPASS invalid username-password pair: correct it, or enable the user"
        )
    return text


@cython.final
cdef class Handshake:
    """The first commands of one connection, and what their answers mean."""

    cdef bytes username
    cdef bytes password          # None: no AUTH
    cdef int db
    cdef bytes client_name
    cdef tuple scripts
    cdef Script probe, marker    # None: left out
    cdef bytes native_key        # to try a native release with; None: none will do
    cdef int64_t max_ttl_ns      # 0: no marker
    cdef list awaited            # (command name, whether its failure ends it), in order
    cdef Rights rights
    cdef readonly ServerInfo server_info
    cdef readonly int64_t client_id      # the server's, of this connection; 0: unknown
    cdef readonly Mark mark      # None: left out
    cdef readonly bint speaks_resp3
    cdef readonly int native     # FORM_SCRIPT: it has no such command
    cdef readonly bint is_native_alone   # no script can be run, and none is needed
    cdef readonly bint is_done
    cdef readonly str failure    # why the connection cannot be used, or None

    def __init__(
        self, bytes username, bytes password, int db, bytes client_name not None,
        tuple scripts not None, Script probe=None, Script marker=None,
        int64_t max_ttl_ns=0, bytes native_key=None,
    ):
        self.username = username
        self.password = password
        self.db = db
        self.client_name = client_name
        self.scripts = scripts
        self.probe = probe
        self.marker = marker
        self.max_ttl_ns = max_ttl_ns
        self.native_key = native_key
        self.awaited = []
        self.rights = Rights()
        self.server_info = ServerInfo(None)

    def start(self):
        """Return the first bytes to send."""
        words = (b"HELLO", b"3")
        if self.password is not None:
            words += (b"AUTH", self.username or b"default", self.password)
        self.awaited.append(("HELLO", True))
        return command_encode(words)

    def on_reply(self, reply):
        """Take one reply; return what to send next (b"" if nothing)."""
        if not self.awaited:
            self.failure = "a reply nobody asked for"
            return b""
        name, is_required = self.awaited.pop(0)
        if name == "HELLO":
            return self._on_hello(reply)
        if reply_is_error(reply) and (
            text_is_of_state(reply_error(reply)) if name.startswith("EVAL")
            else text_is_of_now(reply_error(reply))
        ):
            self.failure = f"{name}: {reply_text(reply)}"
        elif name == "INFO":
            self.server_info = ServerInfo(reply)
        elif name == "COMMAND INFO":
            self.native = native_form(reply)
        elif name == MARKER_NAME:
            self.mark = Mark(reply)
        elif name == NATIVE_NAME:
            self.is_native_alone = not reply_is_error(reply) or (
                not text_is_of_command(reply_error(reply))
            )
        elif is_required and reply_is_error(reply):
            self.failure = f"{name}: {refusal_text(reply)}"
        else:
            self.rights.on_reply(name, reply)
        return b"" if self.awaited or self.failure is not None else self._conclude()

    def warnings(self):
        """List the missing rights of this user that may lose locks."""
        found = [self.server_info.refusal() or self.rights.refusal()]
        if self.is_native_alone:
            found = [
                f"runs no scripts ({self.rights.script_error()}): fencing, several "
                "resources at once, holders() and waiting in turn cannot be used here"
            ]
        elif found[0] is None:
            found = self.rights.warnings(self.native != FORM_SCRIPT)
        if self.is_done and self.max_ttl_ns:
            found.append(server_info_warning(self.server_info))
        if self.mark is not None:
            found.append(self.mark.warning())
        return [text for text in found if text is not None]

    def _conclude(self):
        self.failure = self.server_info.refusal()
        if self.failure is not None:
            return b""
        if self.native_key is not None and self.native != FORM_SCRIPT and (
            self.rights.script_error() is not None
        ):
            key, self.native_key = self.native_key, None
            self.awaited.append((NATIVE_NAME, False))
            if self.native == FORM_DELIFEQ:
                return command_encode((b"DELIFEQ", key, b"-"))
            return command_encode((b"DELEX", key, b"IFEQ", b"-"))
        if not self.is_native_alone:
            self.failure = self.rights.refusal()
        if self.failure is not None:
            return b""
        if self.marker is None or self.max_ttl_ns == 0 or self.mark is not None:
            self.is_done = True
            return b""
        self.awaited.append((MARKER_NAME, False))
        return command_encode(
            marker_command(self.marker, self.server_info, self.max_ttl_ns)
        )

    def _on_hello(self, reply):
        if isinstance(reply, (dict, list)):
            self.client_id = client_id_of(reply)
            self.speaks_resp3 = isinstance(reply, dict)
            return self._introduce(is_authenticated=True)
        if reply_is_error(reply) and (
            hello_is_missing(reply_error(reply), self.password is not None)
        ):
            return self._introduce(is_authenticated=False)
        self.failure = f"HELLO: {refusal_text(reply)}"
        return b""

    def _introduce(self, is_authenticated):
        commands = []
        if not is_authenticated and self.password is not None:
            user = () if self.username is None else (self.username,)
            commands.append(("AUTH", True, (b"AUTH", *user, self.password)))
        if self.db:
            commands.append(("SELECT", True, (b"SELECT", decimal_bytes(self.db))))
        commands.append(
            ("CLIENT SETNAME", False, (b"CLIENT", b"SETNAME", self.client_name))
        )
        commands.append(("INFO", False, (b"INFO",)))
        commands.append(
            ("COMMAND INFO", False, (b"COMMAND", b"INFO", *NATIVE_NAMES))
        )
        commands += [
            ("SCRIPT LOAD", False, (b"SCRIPT", b"LOAD", (<Script>script).source))
            for script in self.scripts
        ]
        if self.probe is not None:
            source, sha1 = self.probe.source, self.probe.sha1
            commands.append(("EVAL", False, (b"EVAL", source, b"0")))
            commands.append(("EVALSHA", False, (b"EVALSHA", sha1, b"0")))
        self.awaited = [(name, is_required) for name, is_required, _ in commands]
        return b"".join([command_encode(words) for _, _, words in commands])


cdef int64_t client_id_of(object hello) except -1:
    # From the reply to HELLO: a map, or in RESP2 a list of its names and values.
    if type(hello) is list:
        pairs = zip(hello[::2], hello[1::2])
        hello = {name: value for name, value in pairs if type(name) is bytes}
    client_id = hello.get(b"id")
    if type(client_id) is not int or not 0 < client_id < NEVER_NS:
        return 0
    return client_id


# --- the marker of the restart guard ------------------------------------------------
#
# A key on each server names the run id of its keeper, and another one the quarantine of
# a server that has lost its keys. How they are used: restart_guard.

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
    cdef readonly int64_t left_ms    # of the quarantine; < 0: there is none
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
