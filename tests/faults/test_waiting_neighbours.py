"""Bad input and bad neighbours of a queue: they cost time, never exclusion."""

from __future__ import annotations

import logging
import time

import pytest
import redis

from fastredlock import FastRedlock
from tests.support.calls import connected, granted
from tests.support.fixtures import MakeLocks
from tests.support.waiters import (
    Waiters,
    is_over,
)

PAIR = "+set +get +del +pexpire +eval +evalsha +script +hello +info +client"


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """List the warnings, without those of a server's own set-up."""
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


def two_wait_for(holder: FastRedlock, others: list[FastRedlock], key: str) -> float:
    """Let others wait for what one holds, then release it; say how long they took."""
    with Waiters() as waiters:
        lease = granted(holder.acquire(key, ttl=30))
        for i, each in enumerate(others):
            waiters.start(
                lambda i=i, each=each: waiters.take(f"{i}", each, key=key, timeout=9)
            )
        time.sleep(0.1)
        began = time.monotonic()
        lease.release()
        waiters.end()
        assert len(waiters.served) == len(others)
    return max(waiters.at.values()) - began


# --- names ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["queue", "turn", "waiter"])
@pytest.mark.parametrize("n", [1, 5])
def test_resource_when_named_as_a_key_of_its_neighbours_queue_then_both_exclude(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis], kind: str,
    n: int,
) -> None:  # fmt: skip
    """Seen: to tell a waiter of x wrote over a lock named fastredlock:turn:x."""
    clients = [connected(make_locks(urls[:n])) for _ in range(3)]
    neighbour = f"fastredlock:{kind}:x"
    lease = granted(clients[0].acquire(neighbour, ttl=30))
    for _ in range(2):
        assert two_wait_for(clients[0], clients[1:], "x") < 9
    assert [server.get(neighbour) for server in servers[:n]] == [lease.token] * n
    assert min(server.pttl(neighbour) for server in servers[:n]) > 11_000
    assert clients[1].acquire(neighbour, timeout=0) is None
    lease.release()
    assert is_over(servers[:n], neighbour)


@pytest.mark.parametrize("n", [1, 5])
def test_resources_when_each_is_the_others_neighbour_then_all_waiters_get_theirs(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis], n: int
) -> None:
    clients = [connected(make_locks(urls[:n])) for _ in range(2)]
    keys = ["x", "fastredlock:queue:x", "fastredlock:turn:x"]
    with Waiters() as waiters:
        leases = {key: clients[0].acquire(key, ttl=30, timeout=0) for key in keys}
        for key in keys:
            for i, each in enumerate(clients):
                waiters.start(
                    lambda key=key, i=i, each=each: waiters.take(
                        f"{key}{i}", each, key=key, timeout=9
                    )
                )
        time.sleep(0.1)
        for lease in leases.values():
            granted(lease).release()
        waiters.end()
    assert len(waiters.served) == 6
