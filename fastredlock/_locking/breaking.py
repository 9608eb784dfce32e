"""To break a lock that another holds: by its token, which the masters return.

Nothing is deleted but the token whose hash the caller was shown: each master compares.
"""

from __future__ import annotations

from .._core import Round, Vote
from .._reports.votes import hash_of, lingers, value_of
from ..errors import ConfigurationError
from .driver import BaseDriver
from .lease import ReleaseStatus

HASH_LENGTH = 16
RECALLED = 0.05  # s; by then a process that runs has given up a key that rests in it


def checked_hash(token_hash: str) -> str:
    """Return the hash as holders() shows it; raise ConfigurationError for others."""
    if not isinstance(token_hash, str):
        raise ConfigurationError(
            f"token_hash of type {type(token_hash).__name__}: allowed is str, as "
            "holders() shows it"
        )
    shown = token_hash.strip().lower()
    if len(shown) != HASH_LENGTH or shown.strip("0123456789abcdef"):
        raise ConfigurationError(
            f"token_hash={token_hash[:40]!r}: allowed is the token_hash that holders() "
            f"shows, {HASH_LENGTH} hex digits"
        )
    return shown


def breaking(
    driver: BaseDriver, key: bytes, inspected: Round, token_hash: str
) -> Round | None:
    """Return the release to run, on all masters; None: no master shows that token.

    `key` is the resource's, without the key_prefix that `inspected` has.
    """
    for _, details, _ in inspected.votes():
        token = value_of(details)
        if token is not None and hash_of(token) == token_hash:
            held = driver.engine.new_adopted(key, token, inspected.terms)
            release = driver.engine.new_release(held, inspected.terms)
            release.wait_for_all()
            return release
    return None


def rests(inspected: Round, token_hash: str) -> bool:
    """Return whether that token may rest in its process, to be recalled first."""
    tokens = [value_of(details) for _, details, _ in inspected.votes()]
    return any(
        token is not None and lingers(token) and hash_of(token) == token_hash
        for token in tokens
    )


def broken(round: Round) -> ReleaseStatus:
    """Return how it ended, from the votes of the release.

    A master that deleted the token, and one that does not have it, are sure of the
    same: they will not count for it any more.
    """
    votes = [vote for vote, _, _ in round.votes()]
    sure = votes.count(Vote.GRANTED) + votes.count(Vote.TAKEN)
    if sure < len(votes) // 2 + 1:
        return ReleaseStatus.UNKNOWN
    is_deleted = Vote.GRANTED in votes
    return ReleaseStatus.RELEASED if is_deleted else ReleaseStatus.GONE


def not_seen(inspected: Round) -> ReleaseStatus:
    """Return what follows where no master that answered has that token."""
    return ReleaseStatus.GONE if inspected.is_won else ReleaseStatus.UNKNOWN
