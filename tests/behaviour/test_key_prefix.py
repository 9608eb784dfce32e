"""`key_prefix=`: in front of every key and name, and in nothing that callers see."""

from __future__ import annotations

from typing import Any

import pytest

from fastredlock import ConfigurationError, ReleaseStatus, ResourceTakenError, Vote
from tests.support.calls import all_granted, granted
from tests.support.fixtures import MakeLocks, Servers
from tests.support.settings import new_settings
from tests.support.waiting import wait_until

PREFIX = 'app":'


def names(servers: Servers) -> set[bytes]:
    return {
        name
        for server in servers
        for name in [*server.keys(), *server.pubsub_channels()]
    }


def test_leases_of_a_prefix_have_their_resources_and_the_masters_the_keys(
    make_locks: MakeLocks, servers: Servers, urls: list[str]
) -> None:
    locks = make_locks(urls, key_prefix=PREFIX)
    locks.connect()
    lease = granted(locks.acquire("r"))
    both = granted(locks.acquire_all(["b", "a"]))
    each = all_granted(locks.acquire_each(["c", b"d"]))
    resources = [one.resource for one in (lease, both, *each)]
    assert resources == ["r", ("b", "a"), "c", b"d"]
    keys = {b'app":%b' % name for name in (b"r", b"a", b"b", b"c", b"d")}
    assert wait_until(lambda: names(servers) == keys)
    assert [vote.vote for vote in locks.holders("r")] == [Vote.TAKEN] * 5
    with pytest.raises(ResourceTakenError) as raised, locks.lock("r", timeout=0):
        raise AssertionError
    assert str(raised.value).startswith("'r': held by others")
    assert min(lease.extend(5), both.extend(5)) > 4
    assert locks.adopt("r", lease.token).release() is ReleaseStatus.RELEASED
    assert locks.release_each([both, *each]) == [ReleaseStatus.RELEASED] * 3
    assert wait_until(lambda: names(servers) == set())


@pytest.mark.parametrize(
    ("prefix", "said"),
    [
        (5, "key_prefix=5: allowed is text or bytes"),
        (None, "key_prefix=None"),
        ("\ud800", "key_prefix="),
        ("x" * 1025, "up to 1024"),
        ("fastredlock:", "keys of fastredlock's own have such names"),
        ("app:fastredlock:", "keys of fastredlock's own have such names"),
        (b"fastredlock:fen", "keys of fastredlock's own have such names"),
        ("app:fastredlock:turn:x", "keys of fastredlock's own have such names"),
    ],
)
def test_prefix_that_is_wrong_is_refused(prefix: Any, said: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        new_settings(key_prefix=prefix)
    assert said in str(raised.value)
