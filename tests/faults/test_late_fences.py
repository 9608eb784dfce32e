"""A second write that is late or lost: no two holders have the same number, or less."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import redis

from fastredlock import FastRedlock, QuorumUnreachableError
from tests.support.calls import connected, granted
from tests.support.fixtures import MakeLocks
from tests.support.keys import KEY, values
from tests.support.proxy import Proxy
from tests.support.threads import later
from tests.support.waiting import wait_until

FENCE = f"fastredlock:fence:{KEY}"
TTL = 0.8  # s, of the one whose write is late


@pytest.fixture
def three(servers: list[redis.Redis]) -> list[redis.Redis]:
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


def stand_everywhere(three: list[redis.Redis]) -> bool:
    return all(server.exists(KEY) for server in three)


def places(three: list[redis.Redis], token: bytes) -> list[bool]:
    return [value == token for value in values(three)]


def hold_up_the_write(ways: list[Proxy], three: list[redis.Redis]) -> None:
    """Let the SETs through, and then their replies; nothing that follows them."""
    wait_until(lambda: stand_everywhere(three))
    for way in ways:
        way.set(holds_up=True)
    for way in ways[:2]:  # the third would need no write, where it has the largest
        way.set(holds_down=False)


def lose_by_a_late_write(
    slow: FastRedlock, ways: list[Proxy], three: list[redis.Redis]
) -> None:
    """Take the lock but for the second write, which is not through in time."""
    for i, server in enumerate(three):  # each another number, far ahead of the clock
        server.set(FENCE, 4_000_000_000_000_000 + 10 * i)
    for way in ways:
        way.set(holds_down=True)
    with (
        later(0, lambda: hold_up_the_write(ways, three)),
        pytest.raises(QuorumUnreachableError) as raised,
    ):
        slow.acquire(KEY, ttl=TTL, timeout=0)
    assert "did not confirm its number" in str(raised.value)
    assert slow.stats().fences_written == 1


def test_second_write_when_it_comes_late_then_changes_nothing_of_the_next_holder(
    slow: FastRedlock, other: FastRedlock, ways: list[Proxy], three: list[redis.Redis]
) -> None:
    lose_by_a_late_write(slow, ways, three)
    holder = granted(other.acquire(KEY, ttl=30, timeout=10))  # when its keys are over
    other.holders(KEY)  # answered behind its SETs
    held, numbers = places(three, holder.token), values(three, FENCE)
    for way in ways:
        way.heal()
    slow.holders(KEY)  # answered behind all that was held up
    assert (places(three, holder.token), values(three, FENCE)) == (held, numbers)
    assert sum(held) >= 2
    assert sum(int(number or 0) >= holder.fence for number in numbers) >= 2
    holder.release()
    assert granted(other.acquire(KEY)).fence > holder.fence


def test_second_write_when_it_is_lost_then_the_next_holder_has_a_larger_number(
    slow: FastRedlock, other: FastRedlock, ways: list[Proxy], three: list[redis.Redis]
) -> None:
    before = granted(other.acquire(KEY))
    before.release()
    lose_by_a_late_write(slow, ways, three)
    for way in ways:
        way.set(swallows=True, holds_up=False)
    holder = granted(other.acquire(KEY, timeout=10))
    assert holder.fence > before.fence
    holder.release()
    assert granted(other.acquire(KEY)).fence > holder.fence
