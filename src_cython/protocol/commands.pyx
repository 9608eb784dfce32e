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
    REPLY_OF_INSPECT         # [nil, ms, n]: the key is free; [token, ms, n]: held
    REPLY_OF_TAKE_TURN       # 1, 3: done; 0, 2: refused, 2: another waits longer
    REPLY_OF_NOTIFY          # 1, 2: done; 0, 3: refused; 2, 3: another was notified
    #                          ...of both, 5: done, 4: refused; the queue is elsewhere
    REPLY_OF_ASK_TURN        # [1: our turn, 2: another's; ms, place, how many wait]
    REPLY_OF_FENCED          # with fencing: n: set, with this number; 0: refused
    REPLY_OF_FENCED_TURN     # [as take_turn, the number or 0]
    REPLY_OF_ASK_TURNS       # of several keys: the same four of each
    REPLY_OF_EXTEND          # 1: done; 0: refused, another's; 2: refused, gone
    REPLY_OF_LOOK            # of a semaphore: for each slot "1", taken, or "0"


@cython.final
cdef class Script:
    """One Lua script: its source, and the EVALSHA head that is sent instead."""

    cdef readonly bytes source
    cdef readonly bytes sha1
    cdef bytes evalsha     # the line end of the array header, EVALSHA, sha1

    def __init__(self, bytes source not None, bytes sha1 not None):
        if len(sha1) != 40:
            raise ValueError("sha1 must be 40 hex digits")
        self.source = source
        self.sha1 = sha1
        self.evalsha = b"\r\n$7\r\nEVALSHA\r\n$40\r\n" + sha1 + b"\r\n"


cdef enum:                   # when a command is sent, and where
    ROLE_FIRST = 0
    ROLE_AGAIN = 1               # on a later connection: it may have been executed
    ROLE_GATE = 2                # first, at the gate of its queue
    ROLES = 3

cdef tuple ROWS = (
    # operation, kinds, is the ttl an argument,
    #     for each role: script or "SET", reply; left out: as for the first
    (OPERATION_ACQUIRE, (KIND_ONE, KIND_SLOT), True, ("SET", REPLY_OF_SET),
        ("acquire_again", REPLY_OF_SCRIPT), ("take_turn", REPLY_OF_TAKE_TURN)),
    (OPERATION_ACQUIRE, (KIND_SEVERAL,), True, ("acquire_all", REPLY_OF_SCRIPT),
        ("acquire_again", REPLY_OF_SCRIPT)),
    (OPERATION_EXTEND, (KIND_ONE, KIND_SLOT), True, ("extend", REPLY_OF_EXTEND)),
    (OPERATION_EXTEND, (KIND_SEVERAL,), True, ("extend_all", REPLY_OF_EXTEND)),
    (OPERATION_RELEASE, (KIND_ONE, KIND_SLOT), False, ("release", REPLY_OF_SCRIPT),
        ("release", REPLY_OF_SCRIPT), ("release_and_notify", REPLY_OF_NOTIFY)),
    (OPERATION_RELEASE, (KIND_SEVERAL,), False, ("release_all", REPLY_OF_SCRIPT)),
    (OPERATION_INSPECT, (KIND_ONE,), False, ("inspect", REPLY_OF_INSPECT)),
    (OPERATION_INSPECT, (KIND_SLOT,), False, ("look", REPLY_OF_LOOK)),
    (OPERATION_PING, (KIND_ONE,), True, ("SET", REPLY_OF_SET)),
    (OPERATION_ASK_TURN, (KIND_ONE,), False, ("ask_turn", REPLY_OF_ASK_TURN)),
    (OPERATION_ASK_TURN, (KIND_SEVERAL,), False, ("ask_turn", REPLY_OF_ASK_TURNS)),
    (OPERATION_LEAVE_QUEUE, (KIND_ONE,), False, ("leave_queue", REPLY_OF_SCRIPT)),
)
cdef set FOR_QUEUES = {"ask_turn", "leave_queue", "take_turn", "release_and_notify"}
cdef tuple UNLOADED = ("acquire_again", "look")      # rare: not by the handshake

cdef struct Row:
    bint is_there
    bint takes_ttl
    bint is_set                      # its first command is SET, and no script
    int replies[ROLES]

cdef Row rows[OPERATIONS][KINDS]     # ROWS, to be looked up without Python objects


cdef int rows_fill() except -1:
    cdef Row *row
    cdef int role
    for operation, kinds, takes_ttl, *commands in ROWS:
        for kind in kinds:
            row = &rows[<int>operation][<int>kind]
            row.is_there = True
            row.takes_ttl = takes_ttl
            row.is_set = commands[0][0] == "SET"
            for role in range(ROLES):
                row.replies[role] = commands[role if role < len(commands) else 0][1]
    for operation, kind in product(range(OPERATIONS), range(KINDS)):
        if operation_is(operation, OPERATION_CHANGES_KEY) and (
            not rows[<int>operation][<int>kind].is_there
        ):
            raise StateError(f"no command of operation {operation} for kind {kind}")
    return 0


rows_fill()


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
        for operation, kinds, _, *commands in ROWS:
            for kind, role in product(kinds, range(ROLES)):
                name = commands[role if role < len(commands) else 0][0]
                self.by_role[scripts_at(operation, kind, role)] = named.get(name)


cdef inline int scripts_at(int operation, int kind, int role) noexcept:
    return (operation * KINDS + kind) * ROLES + role


cdef inline Script scripts_of(Scripts self, int operation, int kind, int role):
    return <Script>self.by_role[scripts_at(operation, kind, role)]


cdef tuple scripts_to_load(Scripts self):
    """List the scripts that each new connection loads."""
    names = [command[0] for row in ROWS for command in row[3:]]
    found = dict.fromkeys((*names, "write_fence"))
    return tuple([
        self.named[name] for name in found
        if name in self.named and name not in UNLOADED
    ])


# --- command --------------------------------------------------------------------------
# The commands of the rounds and of the handshake, as RESP: pure, bytes out.

# The size of a command without its resource, token and script: array and bulk heads,
# fixed words, numbers. Reserved once; the pieces are then copied without a check.
cdef enum:
    COMMAND_OVERHEAD = 256
    BULK_OVERHEAD = 25     # of each further key: "$", 20 digits, two line ends


cdef int check_keys(tuple keys) except -1:
    # They are copied without a further check, so they must be bytes.
    if not keys:
        raise ValueError("no keys")
    for key in keys:
        if type(key) is not bytes:
            raise TypeError("a key that is not bytes")
    return 0


cdef void put_bulk(Buffer *out, const char *data, size_t size) noexcept nogil:
    # "$<size>\r\n<data>\r\n"
    cdef char *at = out.data + out.end
    at[0] = c'$'
    at += 1 + decimal_digits(size, at + 1)
    at[0] = c'\r'
    at[1] = c'\n'
    memcpy(at + 2, data, size)
    at += 2 + size
    at[0] = c'\r'
    at[1] = c'\n'
    out.end = at + 2 - out.data


cdef void put_bulk_bytes(Buffer *out, bytes data) noexcept:
    put_bulk(out, PyBytes_AS_STRING(data), <size_t>PyBytes_GET_SIZE(data))


cdef void put_number(Buffer *out, uint64_t value) noexcept nogil:
    cdef char text[20]
    put_bulk(out, text, <size_t>decimal_digits(value, text))


cdef int command_acquire(
    Buffer *out, bytes resource, bytes token, int64_t ttl_ms
) noexcept:
    # ttl_ms is 0 for a key without expiry.
    cdef int error = buffer_reserve(
        out,
        COMMAND_OVERHEAD
        + <size_t>PyBytes_GET_SIZE(resource) + <size_t>PyBytes_GET_SIZE(token),
    )
    if error != 0:
        return error
    buffer_put(out, b"*6\r\n" if ttl_ms else b"*4\r\n", 4)
    buffer_put(out, b"$3\r\nSET\r\n", 9)
    put_bulk_bytes(out, resource)
    put_bulk_bytes(out, token)
    buffer_put(out, b"$2\r\nNX\r\n", 8)
    if ttl_ms:
        buffer_put(out, b"$2\r\nPX\r\n", 8)
        put_number(out, <uint64_t>ttl_ms)
    return 0


cdef int command_script(
    Buffer *out, Script script, bint by_source, bytes resource, tuple keys, bytes token,
    int64_t ttl_ms, tuple more=None,
) noexcept:
    # Of one key, the resource, where `keys` is None; else of keys that check_keys has
    # seen. EVAL, with the source, is the answer to NOSCRIPT: it runs the script and
    # loads it. ttl_ms is 0 where the script takes no ttl. `more` are arguments behind.
    cdef size_t count = 1 if keys is None else <size_t>len(keys)
    cdef size_t size = (
        COMMAND_OVERHEAD + <size_t>PyBytes_GET_SIZE(script.source)
        + <size_t>PyBytes_GET_SIZE(token)
    )
    cdef int error
    if keys is None:
        size += <size_t>PyBytes_GET_SIZE(resource)
    else:
        for key in keys:
            size += BULK_OVERHEAD + <size_t>PyBytes_GET_SIZE(<bytes>key)
    if more is not None:
        for argument in more:
            size += BULK_OVERHEAD + <size_t>PyBytes_GET_SIZE(<bytes>argument)
    error = buffer_reserve(out, size)
    if error != 0:
        return error
    count += (5 if ttl_ms else 4) + (0 if more is None else len(more))
    buffer_put(out, b"*", 1)
    out.end += decimal_digits(count, out.data + out.end)
    if by_source:
        buffer_put(out, b"\r\n$4\r\nEVAL\r\n", 12)
        put_bulk_bytes(out, script.source)
    else:
        buffer_put(
            out, PyBytes_AS_STRING(script.evalsha),
            <size_t>PyBytes_GET_SIZE(script.evalsha),
        )
    if keys is None:
        buffer_put(out, b"$1\r\n1\r\n", 7)
        put_bulk_bytes(out, resource)
    else:
        put_number(out, len(keys))
        for key in keys:
            put_bulk_bytes(out, <bytes>key)
    put_bulk_bytes(out, token)
    if ttl_ms:
        put_number(out, <uint64_t>ttl_ms)
    if more is not None:
        for argument in more:
            put_bulk_bytes(out, <bytes>argument)
    return 0


cdef tuple STAYING = (b"",)


cdef int command_of_gate(
    Buffer *out, Round round, Scripts scripts, bint by_source, tuple leaving
) except -1:
    # At the gate of its queue, a round that is first sent there. `leaving`: the name of
    # this process, as the argument of a release that takes its entry out.
    cdef tuple keys = (round.resource, round_queue(round)) if round.permits else None
    cdef tuple arguments = None
    if round.operation_code != OPERATION_RELEASE:
        arguments = (<Turn>round.turn).arguments
        if round.fencing is not None:
            arguments += fencing_proposal(<Fencing>round.fencing)
    elif round.our_entry != OUR_ENTRY_AS_IS:
        arguments = leaving if round.our_entry == OUR_ENTRY_LEAVES else STAYING
    return command_script(
        out, scripts_of(scripts, round.operation_code, round.kind, ROLE_GATE),
        by_source, round.resource, keys, round.token, 0, arguments,
    )


cdef int command_of_round(
    Buffer *out, Round round, Scripts scripts, bint by_source, bint is_second
) except -1:
    # is_second: it was sent on an earlier connection, and may have been executed. Then
    # an ACQUIRE goes by a script that takes its own token for a grant.
    cdef int operation = round.operation_code
    cdef int64_t ttl_ms = 0
    cdef Script script
    cdef Row row
    cdef bint acquires_again, is_set
    cdef bytes token = round.token
    if round.fencing is not None:
        return command_script(
            out, scripts.named["acquire_again" if is_second else "acquire_all"],
            by_source or is_second, round.resource, round.keys, round.token, 0,
            (round_ttl(round),) + fencing_proposal(<Fencing>round.fencing),
        )
    row = rows[operation][round.kind]
    acquires_again = is_second and operation == OPERATION_ACQUIRE
    is_set = row.is_set and not acquires_again
    # A key without expiry: SET and acquire_again leave the ttl out, and the other
    # scripts are given the longest.
    if row.takes_ttl and (
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


cdef int command_undo(
    Buffer *out, Round acquire, Scripts scripts, bint by_source
) except -1:
    # The release of what an ACQUIRE may take.
    return command_script(
        out, scripts_of(scripts, OPERATION_RELEASE, acquire.kind, ROLE_FIRST),
        by_source, acquire.resource, acquire.keys, acquire.token, 0,
    )


cdef int command_fence(
    Buffer *out, Round round, Scripts scripts, bint by_source
) except -1:
    # The second write of an ACQUIRE with fencing.
    return command_script(
        out, scripts.named["write_fence"], by_source, round.resource, round.keys,
        round.token, 0, fencing_proposal(<Fencing>round.fencing),
    )


cdef bytes command_encode(tuple words):
    # Any other command; for the handshake, where nanoseconds do not count.
    pieces = [b"*", decimal_bytes(len(words)), b"\r\n"]
    for word in words:
        pieces += (b"$", decimal_bytes(len(<bytes?>word)), b"\r\n", word, b"\r\n")
    return b"".join(pieces)


def encode_command(
    Script script, bint by_source, keys not None, bytes token not None, int64_t ttl_ms,
):
    """Encode `EVALSHA sha1 n key... token [ttl_ms]`, or EVAL where by_source.

    `keys` are one key, bytes, or a tuple of them. Without a script it is the SET of an
    ACQUIRE.
    """
    cdef Buffer out
    cdef int error
    cdef tuple several = keys if type(keys) is tuple else None
    cdef bytes resource = None if type(keys) is tuple else <bytes?>keys
    memset(&out, 0, sizeof(Buffer))
    try:
        if several is not None:
            check_keys(several)
        if script is None:
            error = command_acquire(&out, resource, token, ttl_ms)
        else:
            error = command_script(
                &out, script, by_source, resource, several, token, ttl_ms
            )
        if error != 0:
            raise MemoryError
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
# sent its script all the same, which notifies the next in the queue as well.
#
# Each connection asks for them in its handshake, never by a version: a fleet may be
# mixed, and a proxy know other commands than the server behind it. An error that one of
# them gives has done nothing, and the script is asked instead (master/replies): an ACL,
# or a server without memory, may refuse the one and allow the other.

cdef enum:                   # in which form a round's command is sent to a master
    FORM_SCRIPT = 0          # ...or as SET NX, of an ACQUIRE
    FORM_DELIFEQ = 1
    FORM_DELEX = 2
    FORM_GATE = 3            # by the script of its gate
    FORMS = 4

cdef tuple NATIVE_NAMES = (b"DELIFEQ", b"DELEX")      # in the order of the forms


cdef int native_form(object reply) except -1:
    # Which of them a server has, from its answer to COMMAND INFO.
    if type(reply) is list and len(reply) == len(NATIVE_NAMES):
        for place, name in enumerate(NATIVE_NAMES):
            command = reply[place]
            if type(command) is list and command and type(command[0]) is bytes and (
                (<bytes>command[0]).upper() == name
            ):
                return FORM_DELIFEQ + place
    return FORM_SCRIPT


cdef bytes native_probe_key(Scripts scripts):
    # For the handshake; None where locks need a script besides.
    if not scripts.releases_natively or scripts.is_fencing:
        return None
    return scripts.name_prefix + b"fastredlock:probe"


cdef inline bint native_replaces(Round round, Scripts scripts) noexcept:
    if not kind_is(round.kind, KIND_IS_NATIVE):
        return False
    if round.operation_code == OPERATION_RELEASE:
        return scripts.releases_natively
    return round.operation_code == OPERATION_EXTEND


cdef int native_command(Buffer *out, Round round, int form) noexcept:
    cdef bint extends = round.operation_code == OPERATION_EXTEND
    cdef int error = buffer_reserve(
        out,
        COMMAND_OVERHEAD + <size_t>PyBytes_GET_SIZE(round.resource)
        + 2 * <size_t>PyBytes_GET_SIZE(round.token),
    )
    if error != 0:
        return error
    if extends:
        buffer_put(out, b"*7\r\n$3\r\nSET\r\n", 13)
    elif form == FORM_DELIFEQ:
        buffer_put(out, b"*3\r\n$7\r\nDELIFEQ\r\n", 17)
    else:
        buffer_put(out, b"*4\r\n$5\r\nDELEX\r\n", 15)
    put_bulk_bytes(out, round.resource)
    if extends:
        put_bulk_bytes(out, round.token)
    if extends or form == FORM_DELEX:
        buffer_put(out, b"$4\r\nIFEQ\r\n", 10)
    put_bulk_bytes(out, round.token)
    if extends:
        buffer_put(out, b"$2\r\nPX\r\n", 8)
        put_number(out, <uint64_t>round.terms.ttl_ms)
    return 0
