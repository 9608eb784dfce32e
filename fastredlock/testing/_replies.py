"""The replies of a master in memory, and the words of a command."""

from __future__ import annotations

OK, NIL, ONE, ZERO = b"+OK\r\n", b"$-1\r\n", b":1\r\n", b":0\r\n"
TWO, THREE, FOUR, FIVE = b":2\r\n", b":3\r\n", b":4\r\n", b":5\r\n"
NOSCRIPT = b"-NOSCRIPT No matching script. Please use EVAL.\r\n"


def bulk(data: bytes) -> bytes:
    """Encode a bulk string."""
    return b"$%d\r\n%b\r\n" % (len(data), data)


def integer(number: int) -> bytes:
    """Encode an integer."""
    return b":%d\r\n" % number


def push(kind: bytes, channel: bytes, last: bytes) -> bytes:
    """Encode what a subscriber is sent; `last` is encoded already."""
    return b">3\r\n" + bulk(kind) + bulk(channel) + last


def keys_and_arguments(words: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    """Take an EVAL or EVALSHA apart: its keys, and its arguments."""
    first = 3 + int(words[2])
    return words[3:first], words[first:]
