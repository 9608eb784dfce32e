"""Leases of `ScriptedLocks`, and the times and results that tests compare with."""

import pytest

from fastredlock import FastRedlock, Lease, ReleaseStatus
from tests.support.rounds import MS

VALIDITY_NS = 9_898 * MS
RELEASED, GONE = ReleaseStatus.RELEASED, ReleaseStatus.GONE


def taken(locks: FastRedlock, ttl: float | None = None) -> Lease:
    lease = locks.acquire("orders:42", ttl=ttl, timeout=0)
    assert lease is not None
    return lease


def seconds(ns: int) -> object:
    return pytest.approx(ns / 1e9, abs=1e-9)
