"""The errors of aioredlock, under its names, and which of them the votes mean."""

from __future__ import annotations

from typing import Any

from ... import MasterVote, QuorumUnreachableError, ResourceTakenError, Vote
from ..._reports.votes import is_quorum

__all__ = ["AioredlockError", "LockAcquiringError", "LockError", "LockRuntimeError"]


class AioredlockError(Exception):
    """Catch every error of this module."""


class LockError(AioredlockError):
    """Report that a lock was not acquired, extended or released."""


class LockAcquiringError(LockError):
    """Report that others hold the lock, or that it is gone."""


class LockRuntimeError(LockError):
    """Report that fewer than a quorum of the masters could answer."""


def error_of(
    text: str, resource: Any, votes: tuple[MasterVote, ...], ours: str = ""
) -> LockError:
    """Return the error of a call that no quorum agreed to.

    As theirs, it is first that a master could not answer. Other than theirs, not where
    others hold the lock on a majority: then it is taken.
    """
    refusals = Vote.TAKEN, Vote.GONE
    answers = (vote.vote in (*refusals, Vote.GRANTED) for vote in votes)

    def is_of_others(vote: MasterVote) -> bool:
        return vote.vote in refusals and vote.token_hash != ours

    failure: LockError = LockAcquiringError(text)
    failure.__cause__ = ResourceTakenError(resource, votes, 1, 0.0)
    if not (all(answers) or is_quorum(votes, is_of_others)):
        failure = LockRuntimeError(text)
        failure.__cause__ = QuorumUnreachableError(resource, votes, 1, 0.0)
    return failure
