"""`fastredlock renumber`: numbers of a lock that have come to their end."""

from __future__ import annotations

import pytest
import redis

from fastredlock import FastRedlock, QuorumUnreachableError
from fastredlock.testing import LocalMasters
from tests.support.calls import connected, granted
from tests.support.fixtures import MakeLocks
from tests.support.keys import KEY
from tests.support.waiting import wait_until

from .conftest import Call

LAST = 2**53 - 1
TOO_LARGE = 5_000_000_000_000_000  # us: beyond the year 2112
FENCE = f"fastredlock:fence:{KEY}"


@pytest.fixture
def locks(make_locks: MakeLocks, urls: list[str]) -> FastRedlock:
    """A client with numbers, on the three masters of the commands."""
    return connected(make_locks(urls[:3], fencing=True))


def set_numbers(servers: list[redis.Redis], *numbers: float, name: str = FENCE) -> None:
    for server, number in zip(servers, numbers, strict=False):
        server.zadd(name, {"f": number})


def numbers_of(servers: list[redis.Redis]) -> list[float | None]:
    return [server.zscore(FENCE, "f") for server in servers[:3]]


def test_numbers_when_a_quorum_is_at_the_end_then_go_on_from_the_largest_other(
    call: Call, locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    lease = granted(locks.acquire(KEY))
    lease.release()
    set_numbers(servers, LAST, LAST)
    with pytest.raises(QuorumUnreachableError, match="no number to count on"):
        locks.acquire(KEY, timeout=0)
    assert wait_until(lambda: not any(servers[i].get(KEY) for i in range(3)))
    fence = int(numbers_of(servers)[2] or 0)  # raised by that acquire
    assert lease.fence < fence < TOO_LARGE
    status, out, err = call("renumber", KEY, "--yes")
    assert (status, err) == (0, "")
    assert out.startswith(f"'{KEY}' is free\n")
    assert out.count(f"  {LAST}  too large\n") == 2
    assert out.endswith(f"numbers go on from {fence}\n")
    assert numbers_of(servers) == [fence] * 3
    assert [server.ttl(FENCE) > 80_000 for server in servers[:2]] == [True] * 2
    assert granted(locks.acquire(KEY, timeout=0)).fence > fence


def test_numbers_when_all_are_too_large_then_go_on_from_the_clocks(
    call: Call, locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    set_numbers(servers, LAST, float("inf"), TOO_LARGE)
    status, out, _ = call("renumber", KEY, "--yes")
    assert (status, numbers_of(servers)) == (0, [0.0] * 3)
    assert out.endswith("numbers go on from the clocks of the clients\n")
    assert 0 < granted(locks.acquire(KEY, timeout=0)).fence < TOO_LARGE


@pytest.mark.parametrize("number", [7, TOO_LARGE])
def test_numbers_when_they_can_go_on_then_are_left_as_they_are(
    call: Call, servers: list[redis.Redis], number: int
) -> None:
    set_numbers(servers, number, number)
    status, out, _ = call("renumber", KEY, "--yes")
    assert (status, numbers_of(servers)) == (1, [number, number, None])
    assert out.endswith("nothing was changed: the numbers can go on\n")


def test_numbers_when_the_lock_is_held_then_are_left_as_they_are(
    call: Call, make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis]
) -> None:
    set_numbers(servers, LAST, LAST)
    granted(connected(make_locks(urls[:3])).acquire(KEY))
    status, out, _ = call("renumber", KEY, "--yes")
    assert (status, numbers_of(servers)) == (1, [LAST, LAST, None])
    assert "nothing was changed: it is held" in out


def test_numbers_when_the_lock_is_taken_meanwhile_then_are_left_as_they_are(
    call: Call, servers: list[redis.Redis], monkeypatch: pytest.MonkeyPatch
) -> None:
    from fastredlock._cli import numbers

    def take(question: str) -> bool:
        servers[0].set(KEY, "another's")
        set_numbers(servers[1:], LAST + 9)
        return True

    set_numbers(servers, LAST, LAST, LAST)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr(numbers, "agrees", take)
    status, _, err = call("renumber", KEY)
    assert (status, numbers_of(servers)) == (69, [LAST, LAST + 9, 0])
    assert "not changed: the lock is held by now" in err
    assert "not changed: another number by now" in err


def test_numbers_when_the_user_says_no_then_are_left_as_they_are(
    call: Call, servers: list[redis.Redis], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_numbers(servers, LAST, LAST)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stdin.readline", lambda: "\n", raising=False)
    status, out, _ = call("renumber", KEY)
    assert (status, numbers_of(servers)) == (1, [LAST, LAST, None])
    assert out.endswith("smaller (see --help)? [y/N] ")


def test_numbers_when_a_master_is_away_then_is_named(
    call: Call, masters: LocalMasters
) -> None:
    given = ("--masters", ",".join(masters.urls[:3]), KEY, "--yes")
    with redis.Redis.from_url(masters.urls[1]) as server:
        server.zadd(FENCE, {"f": LAST})
    masters.stop(0)
    status, out, err = call("renumber", *given)
    assert status == 0
    assert "Connection refused" in out
    assert err.count("not changed") == 1
    masters.stop(2)
    assert call("renumber", *given).status == 69


def test_numbers_when_there_is_a_prefix_then_are_those_behind_it(
    call: Call, servers: list[redis.Redis]
) -> None:
    name = f"app:fastredlock:fence:app:{KEY}"
    set_numbers(servers, LAST, LAST, name=name)
    assert call("renumber", KEY, "--yes").status == 1
    assert call("renumber", "--key-prefix", "app:", KEY, "--yes").status == 0
    assert servers[0].zscore(name, "f") == 0


def test_numbers_when_their_key_has_another_use_then_are_left_to_the_user(
    call: Call, servers: list[redis.Redis]
) -> None:
    servers[0].set(FENCE, "another program's")
    set_numbers(servers[1:], LAST)
    status, out, err = call("renumber", KEY, "--yes")
    assert status == 0  # of three masters two can go on
    assert "ZSCORE: WRONGTYPE" in out
    assert "WRONGTYPE" in err
    assert servers[0].get(FENCE) == b"another program's"
