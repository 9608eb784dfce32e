"""Replies that come late, twice or never: none is read as another's."""

from __future__ import annotations

import pytest

from fastredlock import QuorumUnreachableError, ReleaseStatus, Vote
from tests.support.calls import granted
from tests.support.fixtures import MakeLocks, Servers
from tests.support.keys import NOBODY, set_all, settled_values, values
from tests.support.proxy import Proxy, set_each

QUICK = {"round_timeout": 0.1, "connect_timeout": 0.5}


# --- late and lost --------------------------------------------------------------------


def test_replies_when_held_past_the_deadline_then_count_for_their_own_rounds(
    proxies: list[Proxy], proxied: MakeLocks, servers: Servers
) -> None:
    locks = proxied(**QUICK)
    set_all(servers[:2], b"theirs", "taken")
    set_each(proxies, holds_down=True)
    for resource in ("taken", "free"):
        with pytest.raises(QuorumUnreachableError) as raised:
            locks.acquire(resource, timeout=0)
        assert {vote.vote for vote in raised.value.votes} == {Vote.SILENT}
    for proxy in proxies:
        proxy.heal()
    # The late OK of "free" stands before the answer to this one in every stream.
    set_all(servers, b"theirs", "now")
    assert locks.acquire("now", timeout=0) is None
    assert settled_values(servers, NOBODY, "free") == NOBODY
    lease = granted(locks.acquire("free", timeout=0))  # it does not meet the orphan
    assert lease.release() is ReleaseStatus.RELEASED
    assert values(servers, "taken") == [b"theirs"] * 2 + [None] * 3
