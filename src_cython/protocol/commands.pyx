# What is sent in a round: the table of its commands, and their bytes, by scripts or by
# commands of the server that do the same.

# --- scripts --------------------------------------------------------------------------
# THE TABLE of the commands of a round: operation x kind x role -> script, reply.
#
# A new operation, a new kind of lock, or another script is a row of ROWS; its text is
# in fastredlock/_options/*.lua. What else is true of a kind: KIND_... (types). The
# rows say how it is sent. Whether it waits, is handed on or is entered twice does not
# stand here, and numbers (fencing) have a script of their own beside the rows.
# The key is the resource and the value is the token, without prefix: so every other
# client that follows the Redlock page excludes us, and we exclude it.
#
# An ACQUIRE of one key is a SET; all else is a script, known to the server since the
# handshake (SCRIPT LOAD), or a command in the place of one (native). Two more scripts
# belong to the handshake itself: `probe` (rights) and `marker`.
#
# At the gate of its queue (waiting/gate) a round may send another script than to the
# other masters: `take_turn` of an ACQUIRE, `release_and_notify` of a RELEASE.
#
# With fencing (round/fencing) an ACQUIRE is a script, of one key as of several, of
# another text, and returns the number that it gave them.

from itertools import product

cdef enum:
    REPLY_OF_SET             # OK: done; nil: refused, the key exists
    REPLY_OF_SCRIPT          # 1: done; 0: refused, and nothing was changed
    REPLY_OF_INSPECT         # [n]: the key is free; [[token, ms], ..., n]: held
    REPLY_OF_TAKE_TURN       # 1, 3: done; 0, 2: refused, 2: another waits longer
    REPLY_OF_NOTIFY          # 1, 2: done; 0, 3: refused; 2, 3: another was notified
    #                          ...of both, 5: done, 4: refused; the queue is elsewhere
    REPLY_OF_ASK_TURN        # [1: our turn, 2: another's; ms, place, how many wait]
    REPLY_OF_FENCED          # with fencing: n: set, with this number; 0: refused
    REPLY_OF_FENCED_TURN     # [as take_turn, the number or 0]
    REPLY_OF_EXTEND          # 1: done; 0: refused, another's; 2: refused, gone; a text
    #                          that begins with "!": broken, by whom
    REPLY_OF_LOOK            # of a semaphore: for each slot "1", taken, or "0"


@cython.final
cdef class Script:
    """One Lua script: its source, and the EVALSHA head that is sent instead."""

    cdef readonly bytes source
    cdef readonly bytes sha1
    cdef bytes evalsha

    def __init__(self, bytes source not None, bytes sha1 not None):
        if len(sha1) != 40:
            raise ValueError("sha1 must be 40 hex digits")
        self.source = source
        self.sha1 = sha1
        self.evalsha = b"$7\r\nEVALSHA\r\n$40\r\n" + sha1 + b"\r\n"


cdef enum:                   # when a command is sent, and where
    ROLE_FIRST = 0
    ROLE_AGAIN = 1               # on a later connection: it may have been executed
    ROLE_GATE = 2                # first, at the gate of its queue
    ROLES = 3

cdef tuple ROWS = (
    # operation, kinds, for each role (script or "SET", reply); left out: as the first
    (OPERATION_ACQUIRE, (KIND_ONE, KIND_SLOT), ("SET", REPLY_OF_SET),
        ("acquire_again", REPLY_OF_SCRIPT), ("take_turn", REPLY_OF_TAKE_TURN)),
    (OPERATION_ACQUIRE, (KIND_SEVERAL,), ("acquire_all", REPLY_OF_SCRIPT),
        ("acquire_again", REPLY_OF_SCRIPT)),
    (OPERATION_ACQUIRE, (KIND_SHARED,), ("acquire_shared", REPLY_OF_SCRIPT),
        ("acquire_shared", REPLY_OF_SCRIPT), ("take_turn_shared", REPLY_OF_TAKE_TURN)),
    (OPERATION_EXTEND, (KIND_SHARED,), ("extend_shared", REPLY_OF_EXTEND)),
    (OPERATION_RELEASE, (KIND_SHARED,), ("release_shared", REPLY_OF_SCRIPT),
        ("release_shared", REPLY_OF_SCRIPT),
        ("release_shared_and_notify", REPLY_OF_NOTIFY)),
    (OPERATION_EXTEND, (KIND_ONE, KIND_SLOT), ("extend", REPLY_OF_EXTEND)),
    (OPERATION_EXTEND, (KIND_SEVERAL,), ("extend_all", REPLY_OF_EXTEND)),
    (OPERATION_RELEASE, (KIND_ONE, KIND_SLOT), ("release", REPLY_OF_SCRIPT),
        ("release", REPLY_OF_SCRIPT), ("release_and_notify", REPLY_OF_NOTIFY)),
    (OPERATION_RELEASE, (KIND_SEVERAL,), ("release_all", REPLY_OF_SCRIPT)),
    (OPERATION_INSPECT, (KIND_ONE, KIND_SHARED), ("inspect", REPLY_OF_INSPECT)),
    (OPERATION_INSPECT, (KIND_SLOT,), ("look", REPLY_OF_LOOK)),
    (OPERATION_BREAK, (KIND_ONE,), ("break_lock", REPLY_OF_SCRIPT)),
    (OPERATION_PING, (KIND_ONE,), ("SET", REPLY_OF_SET)),
    (OPERATION_ASK_TURN, (KIND_ONE,), ("ask_turn", REPLY_OF_ASK_TURN)),
    (OPERATION_LEAVE_QUEUE, (KIND_ONE,), ("leave_queue", REPLY_OF_SCRIPT)),
)
cdef set FOR_QUEUES = {"ask_turn", "leave_queue", "take_turn", "release_and_notify"}
cdef tuple SHARED_SCRIPTS = (      # by the first reader of a connection (turns)
    "acquire_shared", "extend_shared", "release_shared", "take_turn_shared",
    "release_shared_and_notify",
)
cdef tuple UNLOADED = (      # at first
    "acquire_again", "look", "break_lock", *SHARED_SCRIPTS
)

# The replies of ROWS, to be looked up without Python objects.
cdef uint8_t replies_of[OPERATIONS][KINDS][ROLES]


cdef list rows_fill():
    listed = [
        (operation, kind, role, *commands[role if role < len(commands) else 0])
        for operation, kinds, *commands in ROWS
        for kind, role in product(kinds, range(ROLES))
    ]
    for operation, kind, role, _, reply in listed:
        replies_of[<int>operation][<int>kind][<int>role] = reply
    return listed


# For each operation and kind: (operation, kind, role, script or "SET", reply).
cdef list LISTED_ROWS = rows_fill()


@cython.final
cdef class Scripts:
    """The scripts of the table, and those of the handshake, by their names.

    Without those of queues (`ask_turn`...) no queue is kept; without those of fences
    (`write_fence`...) nothing is numbered.
    """

    cdef readonly dict named
    cdef readonly bint keeps_queues
    cdef readonly bint is_fencing
    cdef readonly bint releases_natively    # a command may replace `release`
    cdef readonly bytes name_prefix         # of queues and channels, as in the scripts
    cdef list by_role                       # scripts_at

    def __init__(
        self, dict named not None, bint releases_natively=False, bytes name_prefix=b"",
    ):
        self.named = {name: <Script?>script for name, script in named.items()}
        self.keeps_queues = named.keys() >= FOR_QUEUES
        self.is_fencing = "write_fence" in named
        self.releases_natively = releases_natively
        self.name_prefix = name_prefix
        self.by_role = [None] * (OPERATIONS * KINDS * ROLES)
        for operation, kind, role, name, _ in LISTED_ROWS:
            self.by_role[scripts_at(operation, kind, role)] = named.get(name)


cdef inline int scripts_at(int operation, int kind, int role) noexcept:
    return (operation * KINDS + kind) * ROLES + role


cdef inline Script scripts_of(Scripts self, int operation, int kind, int role):
    return <Script>self.by_role[scripts_at(operation, kind, role)]


cdef tuple scripts_to_load(Scripts self):
    # Return the scripts that each new connection loads.
    names = dict.fromkeys([row[3] for row in LISTED_ROWS] + ["write_fence"])
    return tuple([
        self.named[name] for name in names
        if name in self.named and name not in UNLOADED
    ])


# --- command --------------------------------------------------------------------------
# The commands of the rounds and of the handshake, as RESP: pure, bytes out.

cdef enum:                   # in which form a round's command is sent to a master
    FORM_SCRIPT = 0          # ...or as SET NX, of an ACQUIRE
    FORM_DELIFEQ = 1         # native
    FORM_DELEX = 2
    FORM_GATE = 3            # by the script of its gate
    FORM_FENCE = 4           # the second write of an ACQUIRE with fencing
    FORMS = 5
    HEAD_SIZE = 23           # of a length: its mark, 20 digits, a line end


cdef int check_keys(tuple keys) except -1:
    if not keys:
        raise ValueError("no keys")
    for key in keys:
        if type(key) is not bytes:
            raise TypeError("a key that is not bytes")


cdef inline int put_head(Buffer *out, char mark, size_t length) except -1:
    # "<mark><length>\r\n"
    cdef char *at
    if buffer_reserve(out, HEAD_SIZE) != 0:
        raise MemoryError
    at = out.data + out.end
    at[0] = mark
    at += 1 + decimal_digits(length, at + 1)
    at[0] = c'\r'
    at[1] = c'\n'
    out.end = at + 2 - out.data


cdef inline int put(Buffer *out, const char *data, size_t size) except -1:
    if buffer_append(out, data, size) != 0:
        raise MemoryError


cdef int put_text(Buffer *out, const char *text, size_t size) except -1:
    put_head(out, c'$', size)
    put(out, text, size)
    return put(out, b"\r\n", 2)


cdef int put_bulk(Buffer *out, bytes data) except -1:
    return put_text(out, PyBytes_AS_STRING(data), <size_t>PyBytes_GET_SIZE(data))


cdef int put_number(Buffer *out, uint64_t value) except -1:
    cdef char text[20]
    return put_text(out, text, <size_t>decimal_digits(value, text))


cdef int command_acquire(
    Buffer *out, bytes resource, bytes token, int64_t ttl_ms
) except -1:
    # ttl_ms is 0 for a key without expiry.
    put_head(out, c'*', 6 if ttl_ms else 4)
    put(out, b"$3\r\nSET\r\n", 9)
    put_bulk(out, resource)
    put_bulk(out, token)
    put(out, b"$2\r\nNX\r\n", 8)
    if ttl_ms:
        put(out, b"$2\r\nPX\r\n", 8)
        put_number(out, <uint64_t>ttl_ms)


cdef int command_script(
    Buffer *out, Script script, bint by_source, bytes resource, tuple keys, bytes token,
    int64_t ttl_ms, tuple more=None,
) except -1:
    # It is of one key, the resource, if `keys` is None; else of keys that check_keys
    # has seen. EVAL, with the source, is the answer to NOSCRIPT: it runs the script and
    # loads it. ttl_ms is 0 where the script takes no ttl. `more` are arguments behind.
    cdef size_t count = 1 if keys is None else <size_t>len(keys)
    if more is None:
        more = ()
    put_head(out, c'*', count + (5 if ttl_ms else 4) + <size_t>len(more))
    if by_source:
        put(out, b"$4\r\nEVAL\r\n", 10)
        put_bulk(out, script.source)
    else:
        put(out, PyBytes_AS_STRING(script.evalsha), len(script.evalsha))
    put_number(out, count)
    if keys is None:
        put_bulk(out, resource)
    else:
        for key in keys:
            put_bulk(out, <bytes>key)
    put_bulk(out, token)
    if ttl_ms:
        put_number(out, <uint64_t>ttl_ms)
    for argument in more:
        put_bulk(out, <bytes>argument)


cdef int command_of_form(
    Buffer *out, Round round, Scripts scripts, int form, bint by_source,
    bint is_second, tuple leaving,
) except -1:
    # is_second: it was sent on an earlier connection, and may have been executed. Then
    # an ACQUIRE goes by a script that takes its own token for a grant. `leaving`: the
    # name of this process, as the argument of a release that takes its entry out.
    if form == FORM_GATE:
        return command_of_gate(out, round, scripts, by_source, leaving)
    if form_is_native(form):
        return command_native(out, round, form)
    if round.fencing is not None:
        return command_fenced(out, round, scripts, form, by_source, is_second)
    return command_of_round(out, round, scripts, by_source, is_second)


cdef int command_of_gate(
    Buffer *out, Round round, Scripts scripts, bint by_source, tuple leaving
) except -1:
    cdef tuple keys = (round.resource, round_queue(round)) if round.permits else None
    cdef tuple arguments = None
    if round.operation_code != OPERATION_RELEASE:
        arguments = (<Turn>round.turn).arguments
        if round.fencing is not None:
            arguments += fencing_proposal(<Fencing>round.fencing)
    elif round.our_entry != OUR_ENTRY_AS_IS:
        if round.kind == KIND_SHARED:
            leaving = (<bytes>leaving[0] + AS_READER,)
        arguments = leaving if round.our_entry >= OUR_ENTRY_LEAVES else (b"",)
    return command_script(
        out, scripts_of(scripts, round.operation_code, round.kind, ROLE_GATE),
        by_source, round.resource, keys, round.token, 0, arguments,
    )


cdef int command_fenced(
    Buffer *out, Round round, Scripts scripts, int form, bint by_source, bint is_second
) except -1:
    cdef tuple proposal = fencing_proposal(<Fencing>round.fencing)
    name = "write_fence"
    if form != FORM_FENCE:
        name = "acquire_again" if is_second else "acquire_all"
        by_source |= is_second
        proposal = (round_ttl(round),) + proposal
    return command_script(
        out, scripts.named[name], by_source, round.resource, round.keys, round.token,
        0, proposal,
    )


cdef int command_of_round(
    Buffer *out, Round round, Scripts scripts, bint by_source, bint is_second
) except -1:
    cdef int operation = round.operation_code
    cdef int64_t ttl_ms = 0
    cdef bint acquires_again = is_second and operation == OPERATION_ACQUIRE
    cdef bint is_set = not acquires_again and (
        replies_of[operation][round.kind][ROLE_FIRST] == REPLY_OF_SET
    )
    cdef bytes token = round.token
    cdef Script script
    # A key without expiry: SET and acquire_again leave the ttl out, and the other
    # scripts are given the longest.
    if operation_is(operation, OPERATION_SENDS_TTL) and (
        round.terms.has_expiry or not (is_set or acquires_again)
    ):
        ttl_ms = round.terms.ttl_ms
    if is_set:
        return command_acquire(out, round.resource, token, ttl_ms)
    script = scripts_of(
        scripts, operation, round.kind, ROLE_AGAIN if is_second else ROLE_FIRST
    )
    if script is None:
        raise StateError("no script of this operation for this kind of lock")
    if operation == OPERATION_INSPECT and round.permits:
        token = decimal_bytes(round.permits)      # in its place: how many slots
    return command_script(
        out, script, by_source or acquires_again, round.resource, round.keys, token,
        ttl_ms,
        (<Turn>round.turn).arguments if operation >= OPERATION_ASK_TURN else None,
    )


cdef bytes command_encode(tuple words):
    # Encode any other command.
    cdef Buffer out
    memset(&out, 0, sizeof(Buffer))
    try:
        put_head(&out, c'*', <size_t>len(words))
        for word in words:
            put_bulk(&out, <bytes?>word)
        return out.data[:out.end]
    finally:
        buffer_free(&out)


def encode_round(Round round not None, Scripts scripts not None, bint by_source=False):
    """Encode the command of a round, as it is first sent."""
    cdef Buffer out
    memset(&out, 0, sizeof(Buffer))
    try:
        command_of_round(&out, round, scripts, by_source, False)
        return out.data[:out.end]
    finally:
        buffer_free(&out)


# --- native ---------------------------------------------------------------------------
# Compare-and-delete and compare-and-set as commands of the server, instead of scripts.
#
#   RELEASE   DELIFEQ key token                  Valkey from 9.0: 1 or 0, as the script
#             DELEX key IFEQ token               Redis from 8.4: the same
#   EXTEND    SET key token IFEQ token PX ttl    both: OK, or nil (gone, or another's)
#
# They mean what the scripts mean to the letter: no key is created, and one of another
# type is an error. They cost the server less than half of it. The gate of a release is
# sent its script, which notifies the next in the queue as well, if this client knows of
# somebody who may wait (waiting/gate).
#
# Each connection asks for them in its handshake, never by a version: a fleet may be
# mixed, and a proxy know other commands than the server behind it. An error that one of
# them gives has done nothing, and the script is asked instead (master/replies): an ACL,
# or a server without memory, may refuse the one and allow the other.

cdef tuple NATIVE_NAMES = (b"DELIFEQ", b"DELEX")      # in the order of the forms


cdef int native_form(object reply) except -1:
    # Return which of them a server has, by its answer to COMMAND INFO.
    if type(reply) is list and len(reply) == len(NATIVE_NAMES):
        for place, name in enumerate(NATIVE_NAMES):
            command = reply[place]
            if type(command) is list and command and type(command[0]) is bytes and (
                (<bytes>command[0]).upper() == name
            ):
                return FORM_DELIFEQ + place
    return FORM_SCRIPT


cdef inline bint form_is_native(int form) noexcept nogil:
    return form == FORM_DELIFEQ or form == FORM_DELEX


cdef inline bint native_replaces(Round round, Scripts scripts) noexcept:
    if not kind_is(round.kind, KIND_IS_NATIVE):
        return False
    if round.operation_code == OPERATION_RELEASE:
        return scripts.releases_natively
    return round.operation_code == OPERATION_EXTEND


cdef int command_native(Buffer *out, Round round, int form) except -1:
    cdef bint extends = round.operation_code == OPERATION_EXTEND
    if extends:
        put(out, b"*7\r\n$3\r\nSET\r\n", 13)
    elif form == FORM_DELIFEQ:
        put(out, b"*3\r\n$7\r\nDELIFEQ\r\n", 17)
    else:
        put(out, b"*4\r\n$5\r\nDELEX\r\n", 15)
    put_bulk(out, round.resource)
    if extends:
        put_bulk(out, round.token)
    if extends or form == FORM_DELEX:
        put(out, b"$4\r\nIFEQ\r\n", 10)
    put_bulk(out, round.token)
    if extends:
        put(out, b"$2\r\nPX\r\n", 8)
        put_number(out, <uint64_t>round.terms.ttl_ms)
