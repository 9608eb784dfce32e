"""The replies of the model server, and the words of a command."""

from __future__ import annotations

OK, NIL, ONE, ZERO = b"+OK\r\n", b"$-1\r\n", b":1\r\n", b":0\r\n"
TWO, THREE, FOUR, FIVE = b":2\r\n", b":3\r\n", b":4\r\n", b":5\r\n"
NOSCRIPT = b"-NOSCRIPT No matching script. Please use EVAL.\r\n"
WRITES_REFUSED = b"-MISCONF Redis is configured to save RDB snapshots\r\n"
WRONG_TYPE = b"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"
SUBSCRIBE_REFUSED = (
    b"-NOPERM User default has no permissions to run the 'subscribe' command\r\n"
)
SETS_REFUSED = b"-OOM command not allowed when used memory > 'maxmemory'.\r\n"


def bulk(data: bytes) -> bytes:
    """Encode a bulk string."""
    return b"$%d\r\n%b\r\n" % (len(data), data)


def keys_and_arguments(words: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    """Take an EVAL or EVALSHA apart: its keys, then its token, and a ttl if any."""
    first = 3 + int(words[2])
    return words[3:first], words[first:]
