"""The replies of a model server, and the words of a command."""

from __future__ import annotations

from typing import Any

OK = b"+OK\r\n"

Reply = int | bytes | list[Any] | None


def bulk(data: bytes) -> bytes:
    """Encode a bulk string."""
    return b"$%d\r\n%b\r\n" % (len(data), data)


def push(kind: bytes, channel: bytes, last: bytes) -> bytes:
    """Encode what a subscriber is sent; `last` is encoded already."""
    return b">3\r\n" + bulk(kind) + bulk(channel) + last


def encode(reply: Reply, nil: bytes) -> bytes:
    """Encode what a script returns; `nil` is None, by the connection's protocol."""
    if isinstance(reply, int):
        return b":%d\r\n" % reply
    if reply is None:
        return nil
    if isinstance(reply, bytes):
        return bulk(reply)
    return b"*%d\r\n" % len(reply) + b"".join([encode(each, nil) for each in reply])


def keys_and_arguments(words: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    """Take an EVAL or EVALSHA apart: its keys, and its arguments."""
    first = 3 + int(words[2])
    return words[3:first], words[first:]
