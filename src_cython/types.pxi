# The words of the core: what is done, what a master answered, how a round ended, how a
# connection is. The C names serve the core, the IntEnums everyone else; both are
# spelled once, here.

from enum import IntEnum

cdef enum:
    MAX_MASTERS = 64            # a set of masters is one uint64
    FEW_MASTERS = 5             # so many need no allocation for a round
    NS_PER_MS = 1_000_000
    NS_PER_S = 1_000_000_000

cdef extern from *:
    ctypedef bint byte_bint "unsigned char"      # in a field: a bint has four bytes

cdef int64_t NEVER_NS = 0x7FFFFFFFFFFFFFFF


class ClosedError(ValueError):
    """The engine is closed. A type of its own: signal handlers raise what they like."""


class StateError(RuntimeError):
    """A state that the code rules out."""


cdef enum:
    OPERATION_ACQUIRE, OPERATION_EXTEND, OPERATION_RELEASE, OPERATION_INSPECT
    OPERATION_BREAK, OPERATION_PING, OPERATION_ASK_TURN, OPERATION_LEAVE_QUEUE
    OPERATIONS               # how many there are

cdef enum:                   # what is true of which operations: a bit for each, from 0
    OPERATION_GIVES_TTL = 0b00000011     # so it has a validity: ACQUIRE, EXTEND
    OPERATION_SENDS_TTL = 0b00100011     # as an argument: and PING
    OPERATION_COMPARES = 0b00010110      # key and token: EXTEND, RELEASE, BREAK
    OPERATION_CHANGES_KEY = 0b00000111   # of a lease: and RELEASE
    OPERATION_HAS_VOTES = 0b00111111     # and the next three; the last ask one master
    OPERATION_NEEDS_ALL = 0b11111000     # it closes when all that it asks have answered
    OPERATION_IS_OF_GATE = 0b11000000    # ASK_TURN, LEAVE_QUEUE

cdef enum:                   # the kinds of locks
    KIND_ONE                     # of one key
    KIND_SEVERAL                 # of all of several keys
    KIND_SLOT                    # of any slot of a semaphore: one key
    KIND_SHARED                  # of one key, which others may read as well
    KINDS                        # how many there are

cdef enum:                   # what is true of which kinds: a bit for each, from 0
    KIND_IS_NATIVE = 0b101       # commands of a server may replace its scripts
    KIND_IS_HANDED_ON = 0b101    # to the next caller of this process
    KIND_MAY_BE_IDLE = 0b001     # its key may, for the next caller of this process

cdef enum:
    VOTE_PENDING, VOTE_GRANTED, VOTE_TAKEN, VOTE_FAILED, VOTE_SILENT
    VOTE_GONE                # for people; it counts as TAKEN
    VOTES

cdef enum:
    VERDICT_OPEN, VERDICT_WON, VERDICT_TAKEN, VERDICT_UNREACHABLE, VERDICT_TOO_LATE

cdef enum:
    MASTER_CLOSED, MASTER_CONNECTING, MASTER_HANDSHAKE, MASTER_READY, MASTER_BACKOFF


cdef inline bint operation_is(int operation, int which) noexcept nogil:
    return (which >> operation) & 1


cdef inline bint kind_is(int kind, int which) noexcept nogil:
    return (which >> kind) & 1


class Operation(IntEnum):
    """What a round asks of every master."""

    ACQUIRE = OPERATION_ACQUIRE
    EXTEND = OPERATION_EXTEND
    RELEASE = OPERATION_RELEASE
    INSPECT = OPERATION_INSPECT
    BREAK = OPERATION_BREAK                # a lock of another
    PING = OPERATION_PING                  # a SET that expires at once: would it vote?
    ASK_TURN = OPERATION_ASK_TURN          # of one master alone, the gate
    LEAVE_QUEUE = OPERATION_LEAVE_QUEUE    # so is this


class Vote(IntEnum):
    """What one master answered in one round."""

    PENDING = VOTE_PENDING    # not heard yet; it may still come
    GRANTED = VOTE_GRANTED    # did what was asked
    TAKEN = VOTE_TAKEN        # answered no: the key is another's
    FAILED = VOTE_FAILED      # not connected, connection lost, or an error reply
    SILENT = VOTE_SILENT      # no answer before the deadline; it may still come
    GONE = VOTE_GONE          # of an extension: the key is nobody's any more


class Verdict(IntEnum):
    """How a round ended."""

    OPEN = VERDICT_OPEN
    WON = VERDICT_WON                  # a quorum granted, and validity is left
    TAKEN = VERDICT_TAKEN              # a quorum could answer, too few granted
    UNREACHABLE = VERDICT_UNREACHABLE  # fewer than a quorum could answer
    TOO_LATE = VERDICT_TOO_LATE        # a quorum granted, but no validity is left


class MasterState(IntEnum):
    """The state of the connection to one master."""

    CLOSED = MASTER_CLOSED            # never tried, or closed by us
    CONNECTING = MASTER_CONNECTING    # name look-up or connect(2) under way
    HANDSHAKE = MASTER_HANDSHAKE      # HELLO, AUTH, SELECT, SCRIPT LOAD under way
    READY = MASTER_READY              # takes commands
    BACKOFF = MASTER_BACKOFF          # failed; waits before it is tried again
