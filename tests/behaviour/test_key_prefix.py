"""`key_prefix=`: in front of every key and name, and in nothing that callers see."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fastredlock import ConfigurationError, ReleaseStatus, ResourceTakenError, Vote
from fastredlock.testing import LocalMasters
from tests.support.calls import all_granted, granted
from tests.support.fixtures import MakeLocks, Raw, Servers
from tests.support.settings import new_settings
from tests.support.threads import later
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


@pytest.fixture
def narrow(raw: Raw) -> Iterator[LocalMasters]:
    """Three servers whose user may touch nothing but what has the prefix."""
    with LocalMasters(3) as masters:
        for url in masters.urls:
            raw(url).execute_command(
                "ACL", "SETUSER", "app", "on", "nopass", "+@all", "-@dangerous",
                *("+info", "resetchannels", '~app":*', '&app":*'),
            )  # fmt: skip
        yield masters


def test_user_of_the_prefix_alone_waits_in_turn_and_is_told(
    make_locks: MakeLocks, narrow: LocalMasters, raw: Raw
) -> None:
    urls = [url.replace("://", "://app@") for url in narrow.urls]
    locks, other = (make_locks(urls, key_prefix=PREFIX) for _ in range(2))
    assert [master.votes for master in locks.ping()] == [True] * 3
    held = granted(locks.acquire("r"))
    seen: list[Any] = []
    with later(0, lambda: seen.append(other.acquire("r", timeout=20))):
        servers = [raw(url) for url in narrow.urls]
        queue = b'app":fastredlock:queue:app":r'
        assert wait_until(lambda: queue in names(servers))
        assert {name[:5] for name in names(servers)} == {PREFIX.encode()}
        assert locks.holders("r")[0].waiting in (0, 1)
        held.release()
    assert seen[0].resource == "r"
    assert other.stats().turns_told == 1
    assert [master.warnings for master in other.health()] == [()] * 3


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
