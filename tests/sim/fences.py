"""The numbers of grants on a model server, by the scripts of fence_scripts and ZADD.

A number is a key like the others, with a ttl of its own, and gone where they are lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastredlock._options import fence_scripts as scripts

from .replies import ONE, ZERO

if TYPE_CHECKING:
    from .server import Server

FENCE = b"fastredlock:fence:"
GATE = scripts.TAKE_TURN_SHA1
PROBE = scripts.PROBE_SHA1
GRANTED = (b":1\r\n", b":3\r\n")
NUMBERED = {
    scripts.ACQUIRE_ALL_SHA1,
    scripts.ACQUIRE_AGAIN_SHA1,
    scripts.WRITE_FENCE_SHA1,
    scripts.NEXT_FENCE_SHA1,
}


def number_at(server: Server, key: bytes) -> int:
    """Return the last number of a resource, 0 where there is none."""
    return int(server.token_at(FENCE + key) or 0)


def run(server: Server, digest: bytes, keys: list[bytes], words: list[bytes]) -> bytes:
    """Run one of the scripts but that of the gate; return its reply."""
    token = words[0]
    if digest == scripts.WRITE_FENCE_SHA1:
        return _write(server, keys, token, int(words[1]), int(words[2]))
    if digest == scripts.NEXT_FENCE_SHA1:
        return _next(server, keys, token, int(words[1]), int(words[2]))
    free = (None,) if digest == scripts.ACQUIRE_ALL_SHA1 else (None, token)
    if any(server.token_at(key) not in free for key in keys):
        return ZERO
    if server.refuses:
        return server.refuses
    number = give(server, keys, int(words[2]), int(words[3]))
    for key in keys:
        server.keys[key] = (token, server.wall_ms() + int(words[1]))
    return b":%d\r\n" % number


def count(server: Server, name: bytes, number: int) -> bytes:
    """Raise a number; say whether it was less. A new one has no expiry yet."""
    standing = server.token_at(name)
    if standing is not None and int(standing) >= number:
        return ZERO
    until_ms = server.keys[name][1] if standing is not None else 1 << 62
    server.keys[name] = (b"%d" % number, until_ms)
    return ONE


def take_turn(server: Server, key: bytes, words: list[bytes]) -> bytes:
    """Run that of the gate, around the one without numbers."""
    number = 0
    if server.token_at(key) is None:
        if server.refuses:
            return server.refuses
        number = give(server, [key], int(words[5]), int(words[6]))
    said = server.queues.run_as(GATE, key, words[:5], number > 0)
    if said.startswith(b"-"):
        return said
    return b"*2\r\n%b:%d\r\n" % (said, number if said in GRANTED else 0)


def give(server: Server, keys: list[bytes], proposed: int, life_ms: int) -> int:
    """Return the number of these keys, which they have from now on."""
    number = max(proposed, *(number_at(server, key) + 1 for key in keys))
    _keep(server, keys, number, life_ms)
    return number


def _write(
    server: Server, keys: list[bytes], token: bytes, number: int, life_ms: int
) -> bytes:
    if any(server.token_at(key) != token for key in keys):
        return ZERO
    smaller = [key for key in keys if number_at(server, key) < number]
    if smaller and server.refuses:
        return server.refuses
    _keep(server, smaller, number, life_ms)
    return ONE


def _next(
    server: Server, keys: list[bytes], token: bytes, proposed: int, life_ms: int
) -> bytes:
    if server.token_at(keys[0]) != token:
        return ZERO
    if server.refuses:
        return server.refuses
    return b":%d\r\n" % give(server, keys, proposed, life_ms)


def _keep(server: Server, keys: list[bytes], number: int, life_ms: int) -> None:
    for key in keys:
        server.keys[FENCE + key] = (b"%d" % number, server.wall_ms() + life_ms)
