# THE TABLE of the commands of a round: operation x kind x role -> script, reply.
#
# A new operation, a new kind of lock, or another script is a row of ROWS; its text is
# in fastredlock/_options/scripts.py. What else is true of a kind: KIND_... (types).
# The key is the resource and the value is the token, without prefix: whatever other
# client follows the Redlock page excludes us, and we exclude it.
#
# An ACQUIRE of one key is a SET; all else is a script, known to the server since the
# handshake (SCRIPT LOAD), or a command in the place of one (native). Two more scripts
# belong to the handshake itself: `probe` (rights) and `marker`.
#
# At the gate of its queue (engine/gate) a round may send another script than to the
# other masters: `take_turn` of an ACQUIRE, `release_and_notify` of a RELEASE.
#
# With fencing (round/fencing) an ACQUIRE of one key is a SET and a ZADD. Where it is a
# script, of several keys, at a gate, repeated, or without expiry, that is of another
# text, and returns the number that it gave them.

from itertools import product

cdef enum:
    REPLY_OF_SET = 0         # OK: done; nil: refused, the key exists
    REPLY_OF_SCRIPT = 1      # 1: done; 0: refused, and nothing was changed
    REPLY_OF_INSPECT = 2     # [nil, ms, n]: the key is free; [token, ms, n]: held
    REPLY_OF_TAKE_TURN = 3   # 1, 3: done; 0, 2: refused, 2: another waits longer
    REPLY_OF_NOTIFY = 4      # 1, 2: done; 0, 3: refused; 2, 3: another was notified
    #                          ...of both, 5: done, 4: refused; the queue is elsewhere
    REPLY_OF_ASK_TURN = 5    # [1: our turn, 2: another's; ms, place, how many wait]
    REPLY_OF_FENCED = 6      # with fencing: n: set, with this number; 0: refused
    REPLY_OF_FENCED_TURN = 7     # [as take_turn, the number or 0]
    REPLY_OF_ASK_TURNS = 8       # of several keys: the same four of each
    REPLY_OF_EXTEND = 9      # 1: done; 0: refused, another's; 2: refused, gone
    REPLY_OF_LOOK = 10       # of a semaphore: for each slot "1", taken, or "0"

cdef enum:
    OPERATIONS = 7


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
cdef tuple FOR_FENCES = ("write_fence", "next_fence")
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
    found = dict.fromkeys((*names, *FOR_FENCES))
    return tuple([
        self.named[name] for name in found
        if name in self.named and name not in UNLOADED
    ])
