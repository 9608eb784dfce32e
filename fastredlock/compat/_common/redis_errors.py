"""The errors of redis-py, as it would have raised them for the votes of the masters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from redis import exceptions

from ... import (
    AcquireError,
    LeaseLostError,
    MasterVote,
    NotExtendedError,
    TokenReusedError,
    ValidityExhaustedError,
    Vote,
)

_ERRORS: dict[str, type[exceptions.RedisError]] = {
    "NOAUTH": exceptions.AuthenticationError,
    "WRONGPASS": exceptions.AuthenticationError,
    "NOPERM": exceptions.NoPermissionError,
    "LOADING": exceptions.BusyLoadingError,
    "OOM": exceptions.OutOfMemoryError,
    "READONLY": exceptions.ReadOnlyError,
}
_LATE = "owed a reply", "no answer to the handshake"  # of a server that has paused


def redis_error(
    error: AcquireError | LeaseLostError | NotExtendedError,
) -> exceptions.RedisError:
    """Return the error of a call that too few masters could answer."""
    return _class_of(error.votes)(str(error))


def unanswered(key: bytes, votes: Sequence[MasterVote]) -> exceptions.RedisError:
    """Return the same for `holders`."""
    each = "; ".join(map(str, votes))
    return _class_of(votes)(f"{_shown(key)}: fewer than a quorum answered [{each}]")


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
    late = [(vote.text or "").startswith(_LATE) for vote in failed]
    if any(late) or any(vote.vote is Vote.SILENT for vote in failed):
        return exceptions.TimeoutError
    return exceptions.ConnectionError


def _code_of(text: str) -> str:
    """Return the first word: a server's error begins with its code in capitals."""
    text = text.partition(" release locks (")[2] or text  # of a user who may not
    command, _, rest = text.partition(": ")
    return (rest if command.isupper() else text).partition(" ")[0]
