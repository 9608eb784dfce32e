"""What a command asks, and which vote its answer is.

Plain ints: an enum's members are slow to make and to hash.
"""

from __future__ import annotations

from fastredlock._core import Operation, Vote
from fastredlock._options import scripts

OK, NIL, NULL, ONE, ZERO = b"+OK\r\n", b"$-1\r\n", b"_\r\n", b":1\r\n", b":0\r\n"
TWO, THREE, FOUR, FIVE = b":2\r\n", b":3\r\n", b":4\r\n", b":5\r\n"
ACQUIRE, EXTEND = int(Operation.ACQUIRE), int(Operation.EXTEND)
RELEASE, INSPECT = int(Operation.RELEASE), int(Operation.INSPECT)
WRITE_FENCE = 100  # no operation: a further command of an ACQUIRE with fencing
SCRIPT_OF = {
    text: operation
    for operation, names in (
        (ACQUIRE, "ACQUIRE_ALL ACQUIRE_AGAIN TAKE_TURN"),
        (ACQUIRE, "FENCED_ACQUIRE_ALL FENCED_ACQUIRE_AGAIN FENCED_TAKE_TURN"),
        (ACQUIRE, "ACQUIRE_SHARED TAKE_TURN_SHARED"),
        (EXTEND, "EXTEND EXTEND_ALL EXTEND_SHARED"),
        (RELEASE, "RELEASE RELEASE_AND_NOTIFY RELEASE_ALL"),
        (RELEASE, "RELEASE_SHARED RELEASE_SHARED_AND_NOTIFY"),
        (WRITE_FENCE, "WRITE_FENCE"),
    )
    for name in names.split()
    for text in (getattr(scripts, name), getattr(scripts, f"{name}_SHA1"))
}
GRANTED, TAKEN, FAILED = int(Vote.GRANTED), int(Vote.TAKEN), int(Vote.FAILED)
PENDING, SILENT = int(Vote.PENDING), int(Vote.SILENT)
VOTE_OF = {
    # 4 and 5: of a gate whose queue is at the next master
    **dict.fromkeys((OK, ONE, THREE, FIVE), GRANTED),
    **dict.fromkeys((NIL, NULL, ZERO, FOUR), TAKEN),
}

FENCE_LIFE_MS = 90_000_000

Question = tuple[int, bytes, int]  # operation, token, ttl in ms or 0


LONGEST_CODE = 4  # bytes; numbers of grants are microseconds since 1970


def said_of_gate(reply: bytes) -> bytes:
    """Return the reply of a gate without its number; any other as it is."""
    return reply[4:8] if reply[:4] == b"*2\r\n" else reply


def vote_of(operation: int, reply: bytes) -> int:
    reply = said_of_gate(reply)
    if reply[:1] == b":" and len(reply) > LONGEST_CODE:  # the number of a grant
        return GRANTED
    if reply == TWO:  # the gate: another waits longer; or, of a release, it was told
        return GRANTED if operation == RELEASE else TAKEN
    if reply == THREE and operation == RELEASE:  # it was told, and nothing deleted
        return TAKEN
    if reply.startswith(b"-WRONGTYPE") and operation in (EXTEND, RELEASE):
        return TAKEN
    return VOTE_OF.get(reply, FAILED)


def question_of(words: list[bytes]) -> Question | None:
    """Return what a command asks of a lock, None for others than ours.

    To enter a queue, to ask how it stands and to leave it asks nothing of the lock.
    """
    name = words[0]
    if name == b"SET":
        if words[3] == b"IFEQ":
            return EXTEND, words[4], int(words[6])
        return ACQUIRE, words[2], int(words[5])
    if name == b"DELIFEQ" or name == b"DELEX":
        return RELEASE, words[-1], 0
    if name == b"EVALSHA" or name == b"EVAL":
        operation = SCRIPT_OF.get(words[1])
        if operation is not None:
            first = 3 + int(words[2])  # the first word behind the keys
            if operation == WRITE_FENCE:
                return operation, words[first], int(words[first + 2]) - FENCE_LIFE_MS
            has_ttl = operation != RELEASE and len(words) > first + 1
            return operation, words[first], int(words[first + 1]) if has_ttl else 0
    return None
