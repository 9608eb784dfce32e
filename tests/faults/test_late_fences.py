"""A further command that is late or lost: no two holders have the same number."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from fastredlock import FastRedlock, QuorumUnreachableError
from tests.support.calls import connected, granted
from tests.support.fixtures import MakeLocks, Servers
from tests.support.keys import KEY, values
from tests.support.proxy import Proxy
from tests.support.threads import later
from tests.support.waiting import wait_until

FENCE = f"fastredlock:fence:{KEY}"
TTL = 0.8  # s, of the one whose write is late


@pytest.fixture
def three(servers: Servers) -> Servers:
    return servers[:3]


@pytest.fixture
def ways(urls: list[str]) -> Iterator[list[Proxy]]:
    """What stands between the masters and the one whose write is late."""
    with ExitStack() as opened:
        yield [opened.enter_context(Proxy(url)) for url in urls[:3]]


@pytest.fixture
def slow(make_locks: MakeLocks, ways: list[Proxy]) -> FastRedlock:
    return connected(
        make_locks([way.url for way in ways], fencing=True, round_timeout=0.2)
    )


@pytest.fixture
def other(make_locks: MakeLocks, urls: list[str]) -> FastRedlock:
    return connected(make_locks(urls[:3], fencing=True))


def stand_everywhere(three: Servers) -> bool:
    return all(server.exists(KEY) for server in three)


def places(three: Servers, token: bytes) -> list[bool]:
    return [value == token for value in values(three)]


def numbers(three: Servers) -> list[float]:
    return [server.zscore(FENCE, "f") or 0 for server in three]


def hold_up(ways: list[Proxy], three: Servers, passing: int) -> None:
    """Let the SETs through, and then their replies; further commands at one alone."""
    wait_until(lambda: stand_everywhere(three))
    for i, way in enumerate(ways):
        way.set(holds_up=i != passing)
    for way in ways[:2]:  # the third would need no write, where it has the largest
        way.set(holds_down=False)


def lose_by_a_late_write(
    slow: FastRedlock, ways: list[Proxy], three: Servers, kind: str
) -> None:
    """Take the lock but for one of its further commands, which is not through in time.

    "write": the second master has a number that is far ahead of the clock, and the
    first is sent it. "next": all have, and are asked for one more.
    """
    for i, server in enumerate(three):
        if kind == "next" or i == 1:
            server.zadd(FENCE, {"f": 4_000_000_000_000_000 + 10 * i})
    for way in ways:
        way.set(holds_down=True)
    passing = 1 if kind == "write" else -1
    with (
        later(0, lambda: hold_up(ways, three, passing)),
        pytest.raises(QuorumUnreachableError) as raised,
    ):
        slow.acquire(KEY, ttl=TTL, timeout=0)
    if kind == "write":
        assert "did not confirm its number" in str(raised.value)
    assert slow.stats().fences_written == 1


@pytest.mark.parametrize("kind", ["write", "next"])
def test_further_command_when_it_comes_late_then_changes_nothing_of_the_next_holder(
    slow: FastRedlock, other: FastRedlock, ways: list[Proxy], three: Servers, kind: str
) -> None:
    lose_by_a_late_write(slow, ways, three, kind)
    holder = granted(other.acquire(KEY, ttl=30, timeout=10))  # when its keys are over
    other.holders(KEY)  # answered behind its SETs
    held, before = places(three, holder.token), numbers(three)
    for way in ways:
        way.heal()
    slow.holders(KEY)  # answered behind all that was held up
    assert (places(three, holder.token), numbers(three)) == (held, before)
    assert sum(held) >= 2
    assert sum(number >= holder.fence for number in before) >= 2
    holder.release()
    assert granted(other.acquire(KEY)).fence > holder.fence
