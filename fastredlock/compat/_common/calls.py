"""The calls of locks on redis-py clients: to FastRedlock, as patient as redis-py's.

`locks` is a FastRedlock, blocking or awaitable, `lease` one of its leases.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from redis.exceptions import RedisError

from ... import (
    LeaseLostError,
    MasterVote,
    NotExtendedError,
    QuorumUnreachableError,
    ReleaseStatus,
    TokenReusedError,
    ValidityExhaustedError,
)
from .first_try import noted
from .redis_errors import (
    not_settled,
    out_of_time,
    redis_error,
    unanswered,
    unconfirmed,
)
from .redis_py import PAUSES, unanswered_releases, unsettled
from .shared import answered, token_source
from .steps import Steps

RELEASED, GONE, UNKNOWN = ReleaseStatus


def take(
    granted: list[Any], locks: Any, key: bytes, token: bytes, ttl: float
) -> Steps[Any]:
    """Try once to take the key with this token; return a lease, None if others hold it.

    Raises redis-py's errors; the cause of one that may be tried again, best with
    another token, is a QuorumUnreachableError.
    """
    mark = token_source.set(lambda: token)
    try:
        return (yield partial(noted, granted, locks, key, ttl))
    except QuorumUnreachableError as error:
        raise redis_error(error) from error
    except ValidityExhaustedError as error:
        raise out_of_time(error) from error
    except TokenReusedError as error:
        raise not_settled(error) from error
    finally:
        token_source.reset(mark)


def try_again(attempt: Callable[[], Any]) -> Steps[Any]:
    """Make an attempt; again where too few masters could answer, as redis-py does."""
    failure: Any = None
    for pause in PAUSES:
        yield pause
        try:
            return (yield attempt)
        except RedisError as error:
            cause = error.__cause__
            if isinstance(cause, QuorumUnreachableError):
                failure = error
            elif failure is None or not isinstance(cause, TokenReusedError):
                raise  # and not a given token that met the roll-back of its last try
    raise failure


def ask(locks: Any, key: bytes) -> Steps[tuple[MasterVote, ...]]:
    """Return the holders once a quorum has answered; raise redis-py's errors."""
    for pause in PAUSES:
        yield pause
        votes: tuple[MasterVote, ...] = yield partial(locks.holders, key)
        if answered(votes):
            return votes
    raise unanswered(key, votes)


def prolong(lease: Any, ttl: float) -> Steps[bool]:
    """Set the ttl (s) anew; return False if the lease was lost."""
    for pause in PAUSES:
        yield pause
        try:
            yield partial(lease.extend, ttl)
            return True
        except (LeaseLostError, NotExtendedError) as error:
            failure = error
        unsettled.add(lease)
        if answered(failure.votes) or not failure.votes:
            return False
    raise redis_error(failure) from failure


def give_back(lease: Any) -> Steps[bool]:
    """Release; return False if it was lost before.

    Raises if it is not confirmed. It may then be called again.
    """
    was_valid = lease.is_valid
    for pause in PAUSES:
        yield pause
        status = yield lease.release
        if status is RELEASED:
            return True
        if status is GONE:
            return lease in unanswered_releases
        unsettled.add(lease)
        if was_valid:
            unanswered_releases.add(lease)
    raise unconfirmed(lease.resource)
