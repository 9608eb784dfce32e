"""Locks on redis-py clients: their settings, their encoding, and the votes they count.

The client's settings are copied and its sockets left alone. redis-py repeats a command
when its connection broke; so do we, three times in all.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from os import urandom
from typing import Any
from weakref import WeakSet

from ... import FastRedlock, MasterVote, Vote

# s before each try of a call that too few masters answered: a connection that was cut
# while idle is replaced at once, a server that restarts needs about that long.
PAUSES = (0.0, 0.0, 0.15)
PATIENCE = 5.0  # s; redis-py waits so long for a reply where its client has no timeout

# Leases that were valid when their release was sent, without an answer: one that is
# gone at the next try was released by the one before.
unanswered_releases: WeakSet[Any] = WeakSet()

# Leases of which a release or an extension was not answered once: it may arrive late,
# so their token must not be used again, however a later try ended.
unsettled: WeakSet[Any] = WeakSet()


def clients_of(redis: Any) -> list[Any]:
    """Return the clients: one, or a list of many independent masters."""
    return list(redis) if isinstance(redis, list | tuple) else [redis]


def patient_options(clients: Sequence[Any], options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a FastRedlock that waits as redis-py does on one master.

    There is no other master, so its reply is waited for as long as the client would. On
    many, the timeouts of FastRedlock are better.
    """
    if len(clients) > 1:
        return options
    pool = getattr(clients[0], "connection_pool", None)
    waits = getattr(pool, "connection_kwargs", {}).get("socket_timeout")
    return {**options, "round_timeout": float(waits) if waits else PATIENCE}


def new_locks(clients: Sequence[Any], **options: Any) -> FastRedlock:
    """Make the FastRedlock of a client, or of a list of them."""
    return FastRedlock(clients, **patient_options(clients, options))


def encoded(client: Any, value: object) -> bytes:
    """Return a value's bytes in the client's encoding."""
    return bytes(client.connection_pool.get_encoder().encode(value))


def key_of(client: Any, name: object) -> bytes:
    """Return the bytes that a blocking client sends for a name.

    Where hiredis is installed, and we need it, it packs the commands of those clients:
    text is sent as UTF-8 under every encoding. An awaitable client encodes it.
    """
    return name.encode() if isinstance(name, str) else encoded(client, name)


def draw_token() -> bytes:
    """Draw 16 bytes in hex: as long as redis-py's uuid1().hex, and not predictable."""
    return urandom(16).hex().encode()


# --- votes ------------------------------------------------------------------------


def is_held(votes: Sequence[MasterVote]) -> bool:
    """Return whether a majority has the key, with any token."""
    return sum(vote.vote is Vote.TAKEN for vote in votes) > len(votes) // 2


def times_left_ms(votes: Sequence[MasterVote], token: bytes) -> list[int]:
    """Return the ms left on each master with this token; -1 is a key without expiry.

    Empty where fewer than a majority has it: the lock is not this token's.
    """
    token_hash = sha256(token).hexdigest()[:16]
    left = [vote.remaining_ms or 0 for vote in votes if vote.token_hash == token_hash]
    return left if len(left) > len(votes) // 2 else []
