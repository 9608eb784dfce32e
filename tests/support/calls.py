"""Calls of a FastRedlock whose outcome a test takes for granted."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import pytest
from redis import RedisError

from fastredlock import (
    FastRedlock,
    Lease,
    MasterVote,
    NotExtendedError,
    QuorumUnreachableError,
    ReleaseStatus,
    Vote,
)
from tests.support.keys import KEY

QUICK = {"round_timeout": 0.1, "connect_timeout": 0.2}  # s


def connected(locks: FastRedlock) -> FastRedlock:
    """Wait for all masters: without, a first acquire goes on once a quorum is ready."""
    locks.connect()
    return locks


def granted(taken: Lease | None) -> Lease:
    assert taken is not None
    return taken


def all_granted(leases: Sequence[Lease | None]) -> list[Lease]:
    return [granted(lease) for lease in leases]


def failed_votes(locks: FastRedlock) -> tuple[MasterVote, ...]:
    """Try once, without a quorum; return what the error says for each master."""
    with pytest.raises(QuorumUnreachableError) as raised:
        locks.acquire(KEY, timeout=0)
    return raised.value.votes


def reason(locks: FastRedlock) -> str:
    """Try once; return why the only master voted FAILED."""
    (vote,) = failed_votes(locks)
    assert vote.vote is Vote.FAILED
    return vote.text or ""


def insisted(call: Callable[[], object], within: float = 60) -> str:
    """Call until too few masters answer no more (s); return what was said before."""
    texts, deadline = "", time.monotonic() + within
    while True:
        try:
            call()
        except (QuorumUnreachableError, NotExtendedError, RedisError) as error:
            texts += f"{error}\n"
            if time.monotonic() > deadline:
                raise
        else:
            return texts


def take_and_release(locks: FastRedlock, times: int = 10) -> None:
    """Do so, one try each; every one succeeds."""
    for _ in range(times):
        assert granted(locks.acquire(KEY, timeout=0)).release() is (
            ReleaseStatus.RELEASED
        )
