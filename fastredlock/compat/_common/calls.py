"""The calls of the blocking replacements: to FastRedlock, as patient as redis-py's."""

from __future__ import annotations

import time
from collections.abc import Iterator

from ... import (
    FastRedlock,
    Lease,
    LeaseLostError,
    MasterVote,
    NotExtendedError,
    QuorumUnreachableError,
    ReleaseStatus,
    TokenReusedError,
    ValidityExhaustedError,
)
from .redis_errors import (
    not_settled,
    out_of_time,
    redis_error,
    unanswered,
    unconfirmed,
)
from .redis_py import PAUSES, answered, unanswered_releases, unsettled
from .shared import token_source

RELEASED, GONE, UNKNOWN = ReleaseStatus


def take(locks: FastRedlock, key: bytes, token: bytes, ttl: float) -> Lease | None:
    """Try once to take the key with this token; None if others hold it.

    Raises redis-py's errors; the cause of one that may be tried again, best with
    another token, is a QuorumUnreachableError.
    """
    mark = token_source.set(lambda: token)
    try:
        return locks.acquire(key, ttl=ttl, timeout=0)
    except QuorumUnreachableError as error:
        raise redis_error(error) from error
    except ValidityExhaustedError as error:
        raise out_of_time(error) from error
    except TokenReusedError as error:
        raise not_settled(error) from error
    finally:
        token_source.reset(mark)


def ask(locks: FastRedlock, key: bytes) -> tuple[MasterVote, ...]:
    """Return the holders once a quorum has answered; raise redis-py's errors."""
    for _ in tries():
        votes = locks.holders(key)
        if answered(votes):
            return votes
    raise unanswered(key, votes)


def prolong(lease: Lease, ttl: float) -> bool:
    """Set the ttl (s) anew; return False if the lease was lost."""
    for _ in tries():
        try:
            lease.extend(ttl)
            return True
        except (LeaseLostError, NotExtendedError) as error:
            failure = error
        unsettled.add(lease)
        if answered(failure.votes) or not failure.votes:
            return False
    raise redis_error(failure) from failure


def give_back(lease: Lease) -> bool:
    """Release; return False if it was lost before.

    Raises if it is not confirmed. It may then be called again.
    """
    was_valid = lease.is_valid
    for _ in tries():
        status = lease.release()
        if status is RELEASED:
            return True
        if status is GONE:
            return lease in unanswered_releases
        unsettled.add(lease)
        if was_valid:
            unanswered_releases.add(lease)
    raise unconfirmed(lease.resource)


def tries() -> Iterator[int]:
    """Count the tries, with a pause before those that need one."""
    for attempt, pause in enumerate(PAUSES, 1):
        if pause:
            time.sleep(pause)
        yield attempt
