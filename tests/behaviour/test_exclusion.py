"""At most one holder, by rounds on five masters under a token that nobody else has.

Split votes, roll-back, late grants; the value that is stored; what other processes and
people may see and do.
"""

from __future__ import annotations

import os
import re
import time
from hashlib import sha256
from types import SimpleNamespace

import pytest
from redis.client import Monitor

from fastredlock import (
    ConfigurationError,
    FastRedlock,
    Lease,
    ReleaseStatus,
    Vote,
)
from fastredlock._options.keys import new_token_source
from fastredlock.testing import LocalMasters
from tests.support.calls import QUICK, connected, granted
from tests.support.fixtures import MakeLocks, Servers, blocking
from tests.support.keys import KEY, NOBODY, set_all, settled_values, values
from tests.support.lock_process import line_of, take, worker
from tests.support.processes import Fork
from tests.support.waiters import Waiters, gate_of, is_over


def test_second_acquire_when_the_first_holds_then_is_none(
    locks: FastRedlock, make_locks: MakeLocks, urls: list[str]
) -> None:
    other = make_locks(urls)
    for name, same in ((KEY, KEY), ("größe", "größe".encode())):
        assert locks.acquire(name, timeout=0)
        assert locks.acquire(same, timeout=0) is None
        assert other.acquire(same, timeout=0) is None
    assert other.acquire("another", timeout=0)


@blocking
@pytest.mark.parametrize("call", ["acquire", "lock", "holders"])
def test_resource_when_it_is_none_then_is_refused_and_nothing_is_asked(
    make_locks: MakeLocks, urls: list[str], call: str
) -> None:
    """Seen: `lock(order.ref)` took one lock of all programs where that was None."""
    locks = make_locks(urls)
    with pytest.raises(ConfigurationError, match=r"NoneType: .* default resource"):
        getattr(locks, call)(None).__enter__()
    locks.adopt(KEY, b"token")  # asks nothing either
    assert locks.stats().rounds == locks.stats().connects == 0


def test_default_resource_when_none_is_named_then_is_the_one_locked(
    make_locks: MakeLocks, urls: list[str], servers: Servers
) -> None:
    locks = connected(make_locks(urls, "nightly", ttl=7))
    lease = granted(locks.acquire())
    assert (lease.resource, lease.ttl) == ("nightly", 7)
    assert settled_values(servers, [lease.token] * 5, "nightly") == [lease.token] * 5
    assert {vote.vote for vote in locks.holders()} == {Vote.TAKEN}


@pytest.mark.parametrize("key", [b"raw \xff\r\n bytes", "x" * 300_000])
def test_key_when_taken_then_is_the_resource_and_its_value_the_token_everywhere(
    locks: FastRedlock, servers: Servers, key: str | bytes
) -> None:
    with locks.lock(key) as lease:
        wanted = [lease.token] * 5
        assert settled_values(servers, wanted, key) == wanted
        assert [server.dbsize() for server in servers] == [1] * 5
    assert settled_values(servers, NOBODY, key) == NOBODY


# --- rounds ---------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 3])
def test_acquire_when_some_are_taken_then_a_quorum_decides_and_a_lost_one_is_undone(
    locks: FastRedlock, servers: Servers, count: int
) -> None:
    set_all(servers[:count], b"another")
    lease = locks.acquire(KEY, timeout=0)
    assert (lease is None) is (count == 3)
    rest = [lease.token if lease else None] * (5 - count)
    wanted = [b"another"] * count + rest
    assert settled_values(servers, wanted) == wanted
    assert [server.pttl(KEY) for server in servers[:count]] == [-1] * count


def commands_until(monitor: Monitor, last: list[str]) -> list[list[str]]:
    words: list[list[str]] = []
    while words[-1:] != [last]:
        words.append(monitor.next_command()["command"].split())
    return words


# --- the token ------------------------------------------------------------------------

RANDOM = rb"[A-Za-z0-9_-]{27}"
SECOND = rb"~[0-9]{10}"


def test_token_when_drawn_then_is_random_with_the_host_and_process_behind(
    locks: FastRedlock,
) -> None:
    lease = granted(locks.acquire(KEY))
    host = os.uname().nodename.partition(".")[0].encode()
    ending = b"@%b:%d" % (host, os.getpid())
    assert re.fullmatch(RANDOM + re.escape(ending) + SECOND, lease.token)
    assert {vote.owner for vote in locks.holders(KEY)} == {
        f"{host.decode()}:{os.getpid()}"
    }
    assert {vote.token_hash for vote in locks.holders(KEY)} == {lease.token_hash}


def test_owner_when_the_host_has_a_long_name_then_shows_both_its_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From: kubernetes/kubernetes#4825: the names of pods differ at their ends."""
    pod = "payments-settlement-reconciliation-worker-7d9f8b6c5d-x2x4k"
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(nodename=f"{pod}.example"))
    token = new_token_source(None).draw()
    shown = b"@payments-set..on-worker-7d9f8b6c5d-x2x4k:%d~" % os.getpid()
    assert token[27:-10] == shown


@pytest.mark.parametrize(
    "owner", ["", "invoices/7", "Käse", "a~1764400000", "x" * 53, "x" * 54, "x" * 64]
)
def test_owner_when_given_then_stands_in_each_token_and_is_shown(
    make_locks: MakeLocks, urls: list[str], owner: str
) -> None:
    locks = connected(make_locks(urls, owner=owner))
    leases = [locks.acquire(KEY), *locks.acquire_each(["a", "b"])]
    behind = re.escape(b"@" + owner.encode() if owner else b"")
    behind += SECOND if 0 < len(owner) <= 53 else b""  # older versions read 64 bytes
    for lease in leases:
        assert re.fullmatch(RANDOM + behind, granted(lease).token)
    assert {vote.owner for vote in locks.holders("b")} == {owner or None}
    told = f" (held by {owner})" if owner else ""
    assert str(locks.holders("b")[0]).endswith(f" ms{told}")


@pytest.mark.parametrize(
    "value",
    [
        "secret@ann",
        f"{'x' * 26}@ann",
        f"{'x' * 13}+{'x' * 13}@ann",
        f"{'x' * 27}:ann",
        f"{'x' * 27}@{'y' * 65}",
        f"{'x' * 27}@{'y' * 54}~1764400000",
        f"{'x' * 27}@",
        f"{'x' * 27}@a\nb",
    ],
)
def test_owner_when_a_value_is_no_token_of_ours_then_nothing_of_it_is_shown(
    locks: FastRedlock, servers: Servers, value: str
) -> None:
    set_all(servers, value.encode())
    assert {vote.owner or None for vote in locks.holders(KEY)} == {None}


@pytest.mark.parametrize(
    ("behind", "owner", "since"),
    [
        ("ann~1764400000", "ann", 1764400000),
        ("ann", "ann", None),  # of an older version
        ("~1764400000", "~1764400000", None),
        ("ann~176440000", "ann~176440000", None),
        ("ann:1764400000", "ann:1764400000", None),
    ],
)
def test_since_when_an_owner_ends_in_a_second_then_is_that_and_no_part_of_it(
    locks: FastRedlock, servers: Servers, behind: str, owner: str, since: int | None
) -> None:
    set_all(servers, f"{'x' * 27}@{behind}".encode())
    assert {(v.owner, v.since) for v in locks.holders(KEY)} == {(owner, since)}


def test_since_when_granted_then_is_that_second_and_stays_it_while_it_is_kept(
    locks: FastRedlock,
) -> None:
    before = int(time.time())
    lease = granted(locks.acquire(KEY))
    after = time.time()
    assert lease.extend()
    since = {vote.since for vote in locks.holders(KEY) if vote.since is not None}
    assert len(since) == 1
    assert before <= since.pop() <= after


def test_tokens_when_drawn_on_both_sides_of_a_fork_then_differ_and_name_their_process(
    locks: FastRedlock,
) -> None:
    def draw(side: str) -> list[str]:
        leases = [locks.acquire(f"{side} {i}") for i in range(5)]
        tokens = [lease.token.decode() for lease in leases if lease]
        assert {token[27:-11].rpartition(":")[2] for token in tokens} == {
            f"{os.getpid()}"
        }
        return tokens

    drawn = [*draw("before"), *Fork(lambda: draw("child")).result(), *draw("parent")]
    assert len(set(drawn)) == 15


def test_callers_when_each_waits_for_its_turn_then_each_round_has_its_own_token(
    make_locks: MakeLocks, urls: list[str], servers: Servers
) -> None:
    """One that waits draws its token where its round is opened."""
    holder, *clients = [connected(make_locks(urls, cohort=0)) for _ in range(3)]
    server = servers[(gate_of(5) + 1) % 5]  # where each ACQUIRE is a SET
    with server.monitor() as monitor:
        with Waiters() as waiters:
            lease = granted(holder.acquire(KEY))
            for i in range(8):
                waiters.come(f"{i}", clients[i % 2])
            lease.release()
        server.echo("over")
        words = commands_until(monitor, ["ECHO", "over"])
    tokens = [each[2].encode() for each in words if each[:2] == ["SET", KEY]]
    assert len(set(tokens)) == len(tokens) > 8
    own = RANDOM + b"@.+:%d" % os.getpid() + SECOND
    assert [each for each in tokens if not re.fullmatch(own, each)] == []
    assert is_over(servers)


@pytest.mark.parametrize(
    "token", ["grüße", "grüße".encode(), b"\x00\r\n\xff", "x" * 70_000]
)
def test_new_token_when_given_then_is_what_is_stored(
    make_locks: MakeLocks, urls: list[str], servers: Servers, token: str | bytes
) -> None:
    stored = token.encode() if isinstance(token, str) else token
    lease = granted(connected(make_locks(urls, new_token=lambda: token)).acquire(KEY))
    assert lease.token == stored
    assert settled_values(servers, [stored] * 5) == [stored] * 5
    assert lease.release() is ReleaseStatus.RELEASED


# --- in another process, and seen by people -------------------------------------------


def test_adopt_when_another_process_took_it_then_extends_and_releases_it(
    locks: FastRedlock, urls: list[str], servers: Servers
) -> None:
    with worker(take, urls, KEY, 30.0) as holder:
        token = line_of(holder)
        assert locks.acquire(KEY, timeout=0) is None
        lease = locks.adopt(KEY, token, ttl=60)
    assert (lease.remaining(), lease.is_valid) == (0.0, False)
    assert 50 < lease.extend() < 60
    assert lease.is_valid
    assert lease.release() is ReleaseStatus.RELEASED
    assert settled_values(servers, NOBODY) == NOBODY


def test_holders_when_held_then_tell_hash_and_time_and_not_the_token(
    locks: FastRedlock, servers: Servers
) -> None:
    lease = granted(locks.acquire(KEY, ttl=30))
    held = sha256(lease.token).hexdigest()[:16]
    for _ in range(3):
        holders = locks.holders(KEY)
        assert {(vote.vote, vote.token_hash) for vote in holders} == {
            (Vote.TAKEN, held)
        }
        assert all(20_000 < (vote.remaining_ms or 0) <= 30_000 for vote in holders)
        assert lease.token.decode() not in f"{holders} {list(map(str, holders))}"
    assert values(servers) == [lease.token] * 5  # nothing was changed
    free = locks.holders("nobodys")
    assert {(vote.vote, vote.token_hash) for vote in free} == {(Vote.GRANTED, None)}


# --- broken by people, for a holder that cannot ---------------------------------------


UNKNOWN_HASH = "0123456789abcdef"


@pytest.fixture
def breaker(make_locks: MakeLocks, urls: list[str]) -> FastRedlock:
    """Another client than the holder's."""
    return connected(make_locks(urls, **QUICK))


def test_break_when_the_hash_is_the_holders_then_frees_the_lock_on_all_masters(
    breaker: FastRedlock, lease: Lease, servers: Servers
) -> None:
    (token_hash,) = {str(vote.token_hash) for vote in breaker.holders(KEY)}
    assert token_hash == lease.token_hash
    assert breaker.break_(KEY, token_hash=token_hash) is ReleaseStatus.RELEASED
    assert values(servers) == [None] * 5
    assert breaker.break_(KEY, token_hash=token_hash) is ReleaseStatus.GONE
    assert lease.release() is ReleaseStatus.GONE


def test_break_when_a_minority_has_a_token_then_deletes_that_alone(
    breaker: FastRedlock, lease: Lease, servers: Servers
) -> None:
    servers[3].set(KEY, b"left over")
    stranger = str(breaker.holders(KEY)[3].token_hash)
    assert breaker.break_(KEY, token_hash=stranger) is ReleaseStatus.RELEASED
    assert values(servers) == [lease.token] * 3 + [None, lease.token]
    assert lease.extend() > 0


def test_break_when_fewer_than_a_quorum_answer_then_is_unknown(
    make_locks: MakeLocks, masters: LocalMasters
) -> None:
    locks = connected(make_locks(masters.urls, **QUICK))
    lease = granted(locks.acquire(KEY, ttl=10))
    for index in (2, 3, 4):
        masters.stop(index)
    for token_hash in (lease.token_hash, UNKNOWN_HASH):
        status = locks.break_(KEY, token_hash=token_hash)
        assert status is ReleaseStatus.UNKNOWN
