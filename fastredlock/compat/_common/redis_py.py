"""What the replacements of locks on redis-py clients share: votes in, answers out.

The client's settings are copied and its sockets left alone, so what redis-py would have
said has to be said here: which error, and how often to try. It repeats a command whose
connection broke; we do, too, three times in all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from os import urandom
from typing import Any
from weakref import WeakSet

from redis import exceptions

from ... import (
    AcquireError,
    FastRedlock,
    LeaseLostError,
    MasterVote,
    TokenReusedError,
    ValidityExhaustedError,
    Vote,
)

# s before each try of what too few masters answered: a connection that was cut while
# idle is replaced at once, a server that restarts needs about that long.
PAUSES = (0.0, 0.0, 0.15)
PATIENCE = 5.0  # s; what redis-py waits for a reply where its client names no time

# Leases that were valid when their release was sent, and nobody answered: one that is
# gone at the next try was released by the one before.
unanswered_releases: WeakSet[Any] = WeakSet()

# Leases of which a release or an extension was not answered once: it may arrive late,
# so their token must not be used again, whatever a later try brought.
unsettled: WeakSet[Any] = WeakSet()

_ERRORS: dict[str, type[exceptions.RedisError]] = {
    "NOAUTH": exceptions.AuthenticationError,
    "WRONGPASS": exceptions.AuthenticationError,
    "NOPERM": exceptions.NoPermissionError,
    "LOADING": exceptions.BusyLoadingError,
    "OOM": exceptions.OutOfMemoryError,
    "READONLY": exceptions.ReadOnlyError,
}


def clients_of(redis: Any) -> list[Any]:
    """Return the clients: one, or a list of many independent masters."""
    return list(redis) if isinstance(redis, list | tuple) else [redis]


def patient_options(clients: Sequence[Any], options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a FastRedlock that waits as redis-py does on one master.

    There is no other master to ask there, so its only reply is worth waiting for, as
    long as the client would. On many, what FastRedlock does by itself is better.
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
    text goes out as UTF-8 whatever their encoding. An awaitable client encodes it.
    """
    return name.encode() if isinstance(name, str) else encoded(client, name)


def draw_token() -> bytes:
    """Draw 16 bytes in hex: as long as redis-py's uuid1().hex, and not predictable."""
    return urandom(16).hex().encode()


# --- what the masters say ---------------------------------------------------------


def answered(votes: Sequence[MasterVote]) -> bool:
    """Tell whether a quorum of the masters could answer."""
    voted = sum(vote.vote in (Vote.GRANTED, Vote.TAKEN) for vote in votes)
    return voted > len(votes) // 2


def is_held(votes: Sequence[MasterVote]) -> bool:
    """Tell whether a majority has the key, whoever holds it."""
    return sum(vote.vote is Vote.TAKEN for vote in votes) > len(votes) // 2


def times_left_ms(votes: Sequence[MasterVote], token: bytes) -> list[int]:
    """Return what each master gives this token, in ms; -1 is a key without expiry.

    Empty where fewer than a majority has it: the lock is not this token's.
    """
    token_hash = sha256(token).hexdigest()[:16]
    left = [vote.remaining_ms or 0 for vote in votes if vote.token_hash == token_hash]
    return left if len(left) > len(votes) // 2 else []


# --- which error redis-py would have raised -----------------------------------------


def redis_error(error: AcquireError | LeaseLostError) -> exceptions.RedisError:
    """Return the error of redis-py for what too few masters could answer."""
    return _class_of(error.votes)(str(error))


def unanswered(key: bytes, votes: Sequence[MasterVote]) -> exceptions.RedisError:
    """Return the same for a question to all masters."""
    said = "; ".join(map(str, votes))
    return _class_of(votes)(f"{_shown(key)}: fewer than a quorum answered [{said}]")


def unconfirmed(key: object) -> exceptions.RedisError:
    """Return the same for a release."""
    return exceptions.ConnectionError(
        f"{_shown(key)}: release not confirmed by a quorum; it goes out again to "
        "masters that come back, and may be tried again"
    )


def out_of_time(error: ValidityExhaustedError) -> exceptions.RedisError:
    """Return the error of a lock that was over when the reply came."""
    return exceptions.TimeoutError(str(error))


def not_settled(error: TokenReusedError) -> exceptions.RedisError:
    """Return the error of an id or token that was given, and given again too early."""
    return exceptions.ConnectionError(
        f"{_shown(error.resource)}: not acquired: the release of the last lock with "
        "this id or token is not confirmed, and would delete the new one; try again "
        "later, or with another"
    )


def _shown(key: object) -> str:
    return repr(
        key.decode(errors="backslashreplace") if isinstance(key, bytes) else key
    )


def _class_of(votes: Iterable[MasterVote]) -> type[exceptions.RedisError]:
    failed = [vote for vote in votes if vote.vote in (Vote.FAILED, Vote.SILENT)]
    for vote in failed:
        code = _code_of(vote.text or "")
        if vote.vote is Vote.FAILED and code.isupper():
            return _ERRORS.get(code, exceptions.ResponseError)
    if any(vote.vote is Vote.SILENT for vote in failed):
        return exceptions.TimeoutError
    return exceptions.ConnectionError


def _code_of(text: str) -> str:
    """Return the first word: a server's error begins with its code in capitals."""
    command, _, rest = text.partition(": ")
    return (rest if command.isupper() else text).partition(" ")[0]
