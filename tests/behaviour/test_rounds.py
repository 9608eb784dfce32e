"""One round on five masters: split votes, roll-back, late grants, error replies."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256

import pytest
import redis
from redis.client import Monitor

from fastredlock import (
    FastRedlock,
    QuorumUnreachableError,
    ResourceTakenError,
    Retry,
    Vote,
)
from fastredlock.testing import LocalMasters
from tests.support.calls import connected, granted
from tests.support.fixtures import MakeLocks, Raw
from tests.support.keys import KEY, NOBODY, set_all, settled_values, values
from tests.support.waiting import wait_until


def test_acquire_when_two_of_five_are_taken_then_is_granted(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    set_all(servers[:2], b"another")
    lease = granted(locks.acquire(KEY, timeout=0))
    wanted = [b"another"] * 2 + [lease.token] * 3
    assert values(servers) == wanted


def test_acquire_when_three_of_five_are_taken_then_is_none_and_undone(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    set_all(servers[:3], b"another")
    assert locks.acquire(KEY, timeout=0) is None
    wanted = [b"another"] * 3 + [None] * 2
    assert settled_values(servers, wanted) == wanted
    assert [server.pttl(KEY) for server in servers[:3]] == [-1] * 3


def test_acquire_when_all_are_split_among_others_then_leaves_every_key_alone(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    wanted = [b"a", b"a", b"b", b"b", b"c"]
    for server, value in zip(servers, wanted, strict=True):
        server.set(KEY, value, px=60_000)
    assert locks.acquire(KEY, timeout=0) is None
    locks.holders()  # answered after the roll-back
    assert values(servers) == wanted
    assert all(server.pttl(KEY) > 30_000 for server in servers)


@pytest.mark.slow
def test_lost_round_when_the_next_attempt_is_far_off_then_is_undone_before_the_delay(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis]
) -> None:
    set_all(servers[:3], b"another")
    locks = make_locks(urls, retry=Retry(delay=60, jitter=0))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(locks.acquire, KEY, timeout=1.5)
        assert wait_until(lambda: locks.stats().rolled_back == 1)
        assert settled_values(servers[3:], NOBODY[3:]) == NOBODY[3:]
        assert not waiting.done()
    assert waiting.result() is None


def commands_until(monitor: Monitor, last: list[str]) -> list[list[str]]:
    """Return what the server was asked, in the order in which it did it."""
    words: list[list[str]] = []
    while words[-1:] != [last]:
        words.append(monitor.next_command()["command"].split())
    return words


def test_lost_rounds_when_watched_by_a_master_then_each_is_released_before_the_next(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis]
) -> None:
    set_all(servers[:3], b"another")
    locks = connected(make_locks(urls, retry=Retry(delay=0.005)))
    with servers[4].monitor() as monitor:
        assert locks.acquire(KEY, timeout=0.1) is None
        locks.holders("else")  # answered after the last release
        servers[4].echo("over")
        words = commands_until(monitor, ["ECHO", "over"])
    ours = [w for w in words if w[:2] == ["SET", KEY] or w[-2:-1] == [KEY]]
    ours = [w for w in ours if w[0] != "EVALSHA"]  # at the gate, of a key at rest
    assert len(ours) > 2
    for sent, undone in zip(ours[::2], ours[1::2], strict=True):
        assert (sent[0], undone[0], undone[-1]) == ("SET", "EVAL", sent[2])


def test_votes_when_a_master_is_slow_then_its_grant_counts_once_it_comes(
    masters: LocalMasters, make_locks: MakeLocks
) -> None:
    locks = connected(make_locks(masters.urls, ttl=60))
    masters.pause(4)
    lease = granted(locks.acquire(KEY))
    assert lease.votes[4].vote is Vote.PENDING
    masters.resume(4)
    assert wait_until(lambda: locks.holders(KEY)[4].vote is Vote.TAKEN)
    assert [vote.vote for vote in lease.votes] == [Vote.GRANTED] * 5
    assert (lease.votes[4].elapsed_ms or 0) > 0


def test_votes_when_granted_then_have_name_time_and_configured_order(
    locks: FastRedlock, urls: list[str]
) -> None:
    lease = granted(locks.acquire(KEY))
    names = [url.removeprefix("redis://").removesuffix("/0") for url in urls]
    assert [vote.master for vote in lease.votes] == names
    heard = [vote for vote in lease.votes if vote.vote is Vote.GRANTED]
    assert len(heard) >= 3
    assert all((vote.elapsed_ms or 0) > 0 and vote.text is None for vote in heard)


def test_late_replies_when_the_next_round_runs_then_are_not_read_as_its_own(
    masters: LocalMasters, make_locks: MakeLocks, raw: Raw
) -> None:
    set_all([raw(url) for url in masters.urls], b"another")
    locks = connected(make_locks(masters.urls, ttl=60))
    masters.pause(4)
    with locks.lock("answered late"):
        pass
    masters.resume(4)
    held = sha256(b"another").hexdigest()[:16]
    assert [vote.token_hash for vote in locks.holders(KEY)] == [held] * 5


def test_late_grant_when_its_round_was_lost_then_is_undone(
    masters: LocalMasters, make_locks: MakeLocks, raw: Raw
) -> None:
    servers = [raw(url) for url in masters.urls]
    locks = connected(make_locks(masters.urls, ttl=60))
    set_all(servers[:3], b"another")
    masters.pause(4)
    assert locks.acquire(KEY, timeout=0) is None
    masters.resume(4)
    wanted = [b"another"] * 3 + [None] * 2
    assert settled_values(servers, wanted) == wanted
    assert locks.acquire(KEY, timeout=0) is None
    assert settled_values(servers, wanted) == wanted


def test_late_grant_when_the_lease_was_released_then_is_undone(
    masters: LocalMasters, make_locks: MakeLocks, raw: Raw
) -> None:
    locks = connected(make_locks(masters.urls, ttl=60))
    masters.pause(4)
    with locks.lock(KEY):
        pass
    masters.resume(4)
    servers = [raw(url) for url in masters.urls]
    assert settled_values(servers, NOBODY) == NOBODY


def test_list_at_the_resource_when_acquired_then_is_taken_and_untouched(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    for server in servers:
        server.rpush(KEY, "work")
    with pytest.raises(ResourceTakenError) as raised, locks.lock(KEY, timeout=0):
        pass
    assert [vote.vote for vote in raised.value.votes].count(Vote.TAKEN) >= 3
    assert [server.lrange(KEY, 0, -1) for server in servers] == [[b"work"]] * 5


@pytest.mark.parametrize(
    ("options", "reply"),
    [
        (("--maxmemory", "100kb"), "OOM command not allowed"),
        (("--min-replicas-to-write", "1"), "NOREPLICAS Not enough good replicas"),
    ],
)
def test_error_reply_when_a_master_refuses_then_is_a_failed_vote_with_its_text(
    make_locks: MakeLocks, options: tuple[str, ...], reply: str
) -> None:
    with LocalMasters(1, options=options) as masters:
        locks = make_locks(masters.urls)
        with pytest.raises(QuorumUnreachableError, match=reply) as raised:
            locks.acquire(KEY, timeout=0)
        vote = raised.value.votes[0]
        assert vote.vote is Vote.FAILED
        assert str(vote.text).startswith(reply)


def test_error_reply_when_a_minority_refuses_then_the_others_grant(
    make_locks: MakeLocks, urls: list[str]
) -> None:
    with LocalMasters(2, options=("--maxmemory", "100kb")) as full:
        locks = connected(make_locks([*urls[:3], *full.urls]))
        lease = granted(locks.acquire(KEY, timeout=0))
        locks.holders(KEY)  # waits for the last replies
        votes = [vote.vote for vote in lease.votes]
        assert votes == [Vote.GRANTED] * 3 + [Vote.FAILED] * 2
