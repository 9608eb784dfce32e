# A reply -> a vote: the closed table. Any other reply is a failed vote with its text.
#
#   kind (scripts)   reply        vote
#   REPLY_OF_SET     OK           GRANTED
#   REPLY_OF_SET     nil          TAKEN      the key exists: NX refused; of an EXTEND
#                                            (native): gone, or another's
#   REPLY_OF_EXTEND  1            GRANTED
#   REPLY_OF_EXTEND  0            TAKEN      another's
#   REPLY_OF_EXTEND  2            GONE       nobody's: it counts as TAKEN
#   REPLY_OF_EXTEND  "!..."       GONE       broken, by whom
#   REPLY_OF_SCRIPT  1            GRANTED    our token was found; of an ACQUIRE: no key
#   REPLY_OF_SCRIPT  0            TAKEN      gone, or another's; of an ACQUIRE: a key
#   REPLY_OF_INSPECT [n]          GRANTED    the key is free there; n processes wait
#   REPLY_OF_INSPECT [[token, ms], ..., n]  TAKEN   a row of its holder, or each reader
#   REPLY_OF_TAKE_TURN  1, 3, 5   GRANTED    5: and the queue is at the next master
#   REPLY_OF_TAKE_TURN  0, 2, 4   TAKEN      2: somebody waits longer; 4: as 5
#   REPLY_OF_NOTIFY     1, 2, 5   GRANTED    2: and another was notified; 5: too
#   REPLY_OF_NOTIFY     0, 3, 4   TAKEN      3: and another was notified; 4: as 5
#   REPLY_OF_ASK_TURN   [4 ints]  GRANTED
#   REPLY_OF_FENCED     n > 0     GRANTED    n: the number that the key got
#   REPLY_OF_FENCED     0         TAKEN
#   REPLY_OF_FENCED_TURN  [1, 3 or 5, n > 0]  GRANTED
#   REPLY_OF_FENCED_TURN  [0, 2 or 4, 0]      TAKEN
#   of EXTEND, RELEASE  WRONGTYPE  TAKEN     another's: of readers, or no lock (FOREIGN)
#   any              error        FAILED     NOSCRIPT is repeated first, by the master
#   any              else         FAILED     and nothing is known of its effect
#
# TAKEN of a RELEASE that is sent again, on a later connection, is GRANTED (master).


from hiredis import ProtocolError, Reader, ReplyError

# The sentinel of "no whole reply yet": None is an answer (nil) to SET NX.
cdef object INCOMPLETE = object()

cdef str KEY_GONE_OR_TAKEN = "gone or taken"      # of an EXTEND that is TAKEN
cdef str FOREIGN = "WRONGTYPE"      # at its begin; in a script's, before Redis 7

cdef enum:
    SHOWN_REPLY_LENGTH = 200     # a script error of Redis 6 has its cause at its end


cdef enum:
    ELEMENTS_MOST = 999_999      # of an array or a map


cdef struct ReplyScan:       # where the scan for their headers is
    char mark                # in a line that begins so; 0: at the start of one
    uint64_t number          # ...the digits of it so far
    uint64_t bulk            # or so many bytes before the end of a bulk string


cdef bint reply_is_giant(ReplyScan *scan, const char *data, size_t size) noexcept:
    # Return whether an array or a map of a million elements is announced: no reply to
    # our commands is one. hiredis makes the whole list at once: of 10^9 elements it has
    # 8 GB, which takes seconds to give back. Bulk strings are skipped: a push has the
    # name of a resource, which may contain what looks like a header.
    cdef size_t i = 0, skipped
    while i < size:
        skipped = min(scan.bulk, size - i)
        scan.bulk -= skipped
        i += skipped
        if i == size:
            break
        if data[i] == c'\n':
            if scan.mark == c'$':
                scan.bulk = scan.number + 2      # and the line end behind it
            scan.mark = 0
        elif scan.mark == 0:
            scan.mark = data[i]
            scan.number = 0
        elif c'0' <= data[i] <= c'9':
            scan.number = min(10 * scan.number + (data[i] - c'0'), <uint64_t>1 << 40)
            if scan.number > ELEMENTS_MOST and scan.mark in b"*%~>|":
                return True
        elif data[i] != c'\r':      # $-1 is none
            scan.mark = c'+'
        i += 1
    return False


# The usual replies, to the byte. To compare costs a tenth of what it costs to have
# hiredis make an object of each, and that is a third of a batch's time.
cdef object REPLY_OK = b"OK"
cdef tuple REPLY_DIGITS = (0, 1, 2, 3)

cdef enum:
    DIGITS_MOST = 18


cdef object usual_reply(const char *at, Py_ssize_t size, int *length):
    # One of those where it is whole at `at`, and its length; else INCOMPLETE: then
    # hiredis parses it.
    cdef int64_t number = 0
    cdef int end
    if size >= 4 and at[0] == c':' and at[2] == c'\r' and at[3] == c'\n':
        length[0] = 4
        if c'0' <= at[1] <= c'3':
            return REPLY_DIGITS[at[1] - c'0']
    elif size >= 5 and at[0] == c':':      # the number of a grant
        end = 1
        while end < size and end < DIGITS_MOST and c'0' <= at[end] <= c'9':
            number = 10 * number + (at[end] - c'0')
            end += 1
        if end > 1 and end + 1 < size and at[end] == c'\r' and at[end + 1] == c'\n':
            length[0] = end + 2
            return number
    elif size >= 5 and memcmp(at, b"+OK\r\n", 5) == 0:
        length[0] = 5
        return REPLY_OK
    elif size >= 3 and memcmp(at, b"_\r\n", 3) == 0:     # nil of RESP3
        length[0] = 3
        return None
    elif size >= 5 and memcmp(at, b"$-1\r\n", 5) == 0:   # nil of RESP2
        length[0] = 5
        return None
    return INCOMPLETE


# The others are parsed by hiredis. Every reply that ends in the bytes that it is fed
# ends a line of them, so there are no more replies than lines. Where there were as
# many, nothing is left in the reader, not even half a reply, and the next bytes are the
# beginning of one.


@cython.final
@cython.internal
cdef class Incoming:
    cdef object feed, gets           # of one connection's hiredis.Reader
    cdef bint is_between_replies     # the next byte begins one
    cdef size_t unparsed             # bytes fed since the last whole reply
    cdef Py_ssize_t lines            # that no reply has ended yet; < 0: not counted
    cdef ReplyScan scan

    def __cinit__(self):
        reader = Reader(notEnoughData=INCOMPLETE)
        self.feed, self.gets = reader.feed, reader.gets


cdef bint reply_feed(Incoming self, bytes data, bint counts) except -1:
    # Return whether the replies that begin in these bytes can be ours.
    cdef size_t size = <size_t>PyBytes_GET_SIZE(data)
    if reply_is_giant(&self.scan, PyBytes_AS_STRING(data), size):
        return False
    self.is_between_replies = False
    self.lines = data.count(b"\n") if counts and data.endswith(b"\n") else -1
    self.feed(data)
    self.unparsed += size
    return True


cdef object reply_next(Incoming self):
    # The next one that is whole, or INCOMPLETE.
    try:
        reply = self.gets()
    except (TypeError, ValueError, OverflowError, MemoryError) as error:
        # hiredis makes Python objects at once: of a map with a list for a key, or of an
        # array that announces 2^32 elements, it cannot.
        raise ProtocolError(f"{type(error).__name__} in a reply") from error
    if reply is not INCOMPLETE:
        self.unparsed = 0
        self.lines -= 1
        self.is_between_replies = self.lines == 0
    return reply


cdef inline int reply_kind(Round round, int form, bint is_second) noexcept:
    if round.fencing is not None:
        if form == FORM_GATE:
            return REPLY_OF_FENCED_TURN
        return REPLY_OF_SCRIPT if form == FORM_FENCE else REPLY_OF_FENCED
    if form_is_native(form) and round.operation_code == OPERATION_EXTEND:
        return REPLY_OF_SET
    return replies_of[round.operation_code][round.kind][
        ROLE_GATE if form == FORM_GATE else ROLE_AGAIN if is_second else ROLE_FIRST
    ]


cdef bint reply_is_numbers(object reply, Py_ssize_t count) noexcept:
    if type(reply) is not list or len(<list>reply) != count:
        return False
    for each in <list>reply:
        if type(each) is not int:
            return False
    return True


cdef bint reply_is_rows(object reply) noexcept:
    cdef Py_ssize_t i
    if type(reply) is not list or not <list>reply or type((<list>reply)[-1]) is not int:
        return False
    for i in range(len(<list>reply) - 1):
        row = (<list>reply)[i]
        if type(row) is not list or len(<list>row) != 2 or (
            type((<list>row)[0]) is not bytes or type((<list>row)[1]) is not int
        ):
            return False
    return True


cdef int vote_of(int operation, int shape, object reply) except -1:
    # `shape` is the reply's in the table of scripts.
    cdef const char *votes = b"------"      # from 0: Granted, Taken, or gone
    if shape == REPLY_OF_SET:
        if type(reply) is bytes and <bytes>reply == b"OK":
            return VOTE_GRANTED
        if reply is None:
            return VOTE_TAKEN
    elif shape == REPLY_OF_SCRIPT:
        votes = b"TG----"
    elif shape == REPLY_OF_EXTEND:
        if type(reply) is bytes and PyBytes_AS_STRING(<bytes>reply)[0] == c"!":
            return VOTE_GONE
        votes = b"TGX---"
    elif shape == REPLY_OF_TAKE_TURN:
        votes = b"TGTGTG"
    elif shape == REPLY_OF_NOTIFY:
        votes = b"TGGTTG"
    elif shape == REPLY_OF_FENCED:
        if type(reply) is int and 0 <= reply <= FENCE_MOST:
            return VOTE_GRANTED if reply > 0 else VOTE_TAKEN
    elif shape == REPLY_OF_FENCED_TURN:
        if reply_is_numbers(reply, 2):
            if 0 <= reply[1] <= FENCE_MOST and (
                (reply[1] > 0) == (reply[0] in (1, 3, 5))
            ):
                return vote_of(operation, REPLY_OF_TAKE_TURN, reply[0])
    elif shape == REPLY_OF_ASK_TURN:
        if reply_is_numbers(reply, 4):
            return VOTE_GRANTED
    elif shape == REPLY_OF_LOOK:
        if type(reply) is bytes:
            return VOTE_GRANTED
    elif reply_is_rows(reply):
        return VOTE_GRANTED if len(<list>reply) == 1 else VOTE_TAKEN
    if type(reply) is int and 0 <= reply < 6 and votes[<int>reply] != c"-":
        return (
            VOTE_GRANTED if votes[<int>reply] == c"G"
            else VOTE_TAKEN if votes[<int>reply] == c"T" else VOTE_GONE
        )
    if operation_is(operation, OPERATION_COMPARES) and reply_is_error(reply) and (
        reply_is_foreign(reply_text(reply))
    ):
        return VOTE_TAKEN
    return VOTE_FAILED


cdef bint reply_is_error(object reply) noexcept:
    return isinstance(reply, ReplyError)


cdef str reply_error(object error):
    # The text of an error reply: str(error), but CPython runs signal handlers in that.
    return <str?>error.args[0]


cdef bint reply_is_foreign(str text) except -1:
    return text.startswith(FOREIGN) or f": {FOREIGN} " in text


def is_foreign(str text not None):
    """Return whether a failed vote has this text because its key is no lock."""
    return reply_is_foreign(text)


cdef str reply_text(object reply):
    # The text for a reply that is not in the table. An error is the server's own text.
    # Of anything else only the type is shown: it may hold a token.
    if isinstance(reply, ReplyError):
        # "ERR unknown command ..., with args beginning with: ..." repeats what we sent.
        return reply_error(reply).partition(", with args")[0][:SHOWN_REPLY_LENGTH]
    return f"unexpected reply of type {type(reply).__name__}"


def vote_of_reply(
    int operation, reply, bint is_of_all=False, bint is_at_gate=False,
    bint is_fenced=False,
):
    """Look a parsed reply up in the table: (Vote, text or None)."""
    cdef int shape
    if not 0 <= operation < OPERATIONS:
        raise ValueError("no such operation")
    shape = replies_of[operation][KIND_SEVERAL if is_of_all else KIND_ONE][
        ROLE_GATE if is_at_gate else ROLE_FIRST
    ]
    if is_fenced:
        shape = REPLY_OF_FENCED_TURN if is_at_gate else REPLY_OF_FENCED
    vote = Vote(vote_of(operation, shape, reply))
    return vote, reply_text(reply) if vote is Vote.FAILED else None
