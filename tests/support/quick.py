"""What several fault tests need, beside behaviour/helpers.py."""

from __future__ import annotations

from behaviour.helpers import KEY, granted

from fastredlock import FastRedlock, ReleaseStatus

QUICK = {"round_timeout": 0.1, "connect_timeout": 0.2}  # s
SLACK = 0.4  # s; what a loaded machine may add to a time that is asserted


def take_and_release(locks: FastRedlock, times: int = 10) -> None:
    """Do so, one try each; every one succeeds."""
    for _ in range(times):
        assert granted(locks.acquire(KEY, timeout=0)).release() is (
            ReleaseStatus.RELEASED
        )
