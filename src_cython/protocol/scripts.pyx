# THE TABLE of the commands of a round: operation x keys -> script, arguments, reply.
#
# A new operation, or a script of another one, is one row of ROWS and one argument of
# Scripts. The key is the resource and the value is the token, without prefix: whatever
# other client follows the Redlock page excludes us, and we exclude it.
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


cdef tuple ROWS = (
    # operation, several keys, script (None: SET), is the ttl an argument, reply
    (OPERATION_ACQUIRE, False, None, True, REPLY_OF_SET),
    (OPERATION_EXTEND, False, "extend", True, REPLY_OF_EXTEND),
    (OPERATION_RELEASE, False, "release", False, REPLY_OF_SCRIPT),
    (OPERATION_INSPECT, False, "inspect", False, REPLY_OF_INSPECT),
    (OPERATION_PING, False, None, True, REPLY_OF_SET),
    (OPERATION_ACQUIRE, True, "acquire_all", True, REPLY_OF_SCRIPT),
    (OPERATION_EXTEND, True, "extend_all", True, REPLY_OF_EXTEND),
    (OPERATION_RELEASE, True, "release_all", False, REPLY_OF_SCRIPT),
    (OPERATION_ASK_TURN, False, "ask_turn", False, REPLY_OF_ASK_TURN),
    (OPERATION_ASK_TURN, True, "ask_turn", False, REPLY_OF_ASK_TURNS),
    (OPERATION_LEAVE_QUEUE, False, "leave_queue", False, REPLY_OF_SCRIPT),
)

cdef struct Row:
    bint takes_ttl
    int reply

cdef Row rows[OPERATIONS][2]         # ROWS, to be looked up without Python objects


cdef int rows_fill() except -1:
    cdef Row *row
    for operation, is_of_several, _, takes_ttl, reply in ROWS:
        row = &rows[<int>operation][<int>is_of_several]
        row.takes_ttl = takes_ttl
        row.reply = reply
    return 0


rows_fill()


@cython.final
cdef class Scripts:
    """The scripts of the table, and those of the handshake."""

    cdef readonly Script extend, release, inspect
    cdef readonly Script look               # at a semaphore, by INSPECT; not loaded
    cdef readonly Script acquire_all, extend_all, release_all     # of several keys
    cdef readonly Script acquire_again      # of one key or several; rare: not loaded
    cdef readonly Script ask_turn, leave_queue       # None: no queue is kept...
    cdef readonly Script take_turn, release_and_notify   # ...these two at its gate
    cdef readonly Script probe, marker      # of the handshake; None: left out
    cdef readonly Script write_fence        # None: without fencing...
    cdef readonly Script next_fence         # ...and this
    cdef readonly bint releases_natively    # a command may replace `release`
    cdef readonly bytes name_prefix         # of queues and channels, as in the scripts
    cdef tuple by_row                       # [2 * operation + several]

    def __init__(self, Script extend not None, Script release not None,
                 Script inspect not None, Script acquire_all not None,
                 Script extend_all not None, Script release_all not None,
                 Script acquire_again not None,
                 Script probe=None, Script marker=None, Script ask_turn=None,
                 Script leave_queue=None, Script take_turn=None,
                 Script release_and_notify=None, Script write_fence=None,
                 Script next_fence=None,
                 bint releases_natively=False, bytes name_prefix=b"",
                 Script look=None):
        self.extend = extend
        self.release = release
        self.inspect = inspect
        self.look = look
        self.acquire_all = acquire_all
        self.extend_all = extend_all
        self.release_all = release_all
        self.acquire_again = acquire_again
        self.probe = probe
        self.marker = marker
        self.ask_turn = ask_turn
        self.leave_queue = leave_queue
        self.take_turn = take_turn
        self.release_and_notify = release_and_notify
        self.write_fence = write_fence
        self.next_fence = next_fence
        self.releases_natively = releases_natively
        self.name_prefix = name_prefix
        by_row = [None] * (2 * OPERATIONS)
        for operation, is_of_several, name, _, _ in ROWS:
            if name is not None:
                by_row[2 * operation + is_of_several] = getattr(self, name)
        self.by_row = tuple(by_row)


cdef tuple scripts_to_load(Scripts self):
    """List the scripts that each new connection loads."""
    names = [row[2] for row in ROWS if row[2] is not None]
    names += ["take_turn", "release_and_notify", "write_fence", "next_fence"]
    named = [getattr(self, name) for name in dict.fromkeys(names)]
    return tuple([script for script in named if script is not None])
