"""The value stored on the masters: fresh for every round, and shown to nobody."""

from __future__ import annotations

import itertools
import logging
import os
import re
from contextlib import suppress
from types import SimpleNamespace

import pytest
import redis

from fastredlock import (
    FastRedlock,
    QuorumUnreachableError,
    ReleaseStatus,
    ResourceTakenError,
    Retry,
)
from fastredlock._options.keys import new_token_source
from tests.support.calls import connected, granted
from tests.support.fixtures import MakeLocks
from tests.support.keys import KEY, set_all, settled_values, values
from tests.support.processes import Fork

RANDOM = rb"[A-Za-z0-9_-]{27}"


def test_token_when_drawn_then_is_random_with_the_host_and_process_behind(
    locks: FastRedlock,
) -> None:
    lease = granted(locks.acquire(KEY))
    host = os.uname().nodename.partition(".")[0].encode()
    assert re.fullmatch(RANDOM + b"@%b:%d" % (host, os.getpid()), lease.token)
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
    assert token.endswith(b"@payments-set..on-worker-7d9f8b6c5d-x2x4k:%d" % os.getpid())


@pytest.mark.parametrize("owner", ["", "invoices/7", "Käse", "x" * 64])
def test_owner_when_given_then_stands_in_each_token_and_is_shown(
    make_locks: MakeLocks, urls: list[str], owner: str
) -> None:
    locks = connected(make_locks(urls, owner=owner))
    leases = [locks.acquire(KEY), *locks.acquire_each(["a", "b"])]
    behind = b"@" + owner.encode() if owner else b""
    for lease in leases:
        assert re.fullmatch(RANDOM + re.escape(behind), granted(lease).token)
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
        f"{'x' * 27}@a\nb",
    ],
)
def test_owner_when_a_value_is_no_token_of_ours_then_nothing_of_it_is_shown(
    locks: FastRedlock, servers: list[redis.Redis], value: str
) -> None:
    set_all(servers, value.encode())
    assert {vote.owner for vote in locks.holders(KEY)} == {None}


def test_owner_when_forked_then_names_the_child(locks: FastRedlock) -> None:
    def owner() -> str:
        lease = granted(locks.acquire("of the child"))
        return f"{lease.token.decode().rpartition(':')[2]} {os.getpid()}"

    in_token, pid = Fork(owner).result().split()
    assert in_token == pid != str(os.getpid())


def test_tokens_when_many_are_taken_then_are_all_different(locks: FastRedlock) -> None:
    leases = [locks.acquire(f"r{i}") for i in range(100)]
    assert len({lease.token for lease in leases if lease}) == 100


def test_tokens_when_drawn_on_both_sides_of_a_fork_then_are_different(
    locks: FastRedlock,
) -> None:
    def draw(side: str) -> list[str]:
        leases = [locks.acquire(f"{side} {i}") for i in range(5)]
        return [lease.token.decode() for lease in leases if lease]

    drawn = [*draw("before"), *Fork(lambda: draw("child")).result(), *draw("parent")]
    assert len(set(drawn)) == 15


def test_new_token_when_rounds_are_repeated_then_is_called_for_each(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis]
) -> None:
    numbers = itertools.count()
    locks = make_locks(urls, new_token=lambda: f"token {next(numbers)}")
    set_all(servers, b"another")
    assert locks.acquire(KEY, timeout=0.1) is None
    assert next(numbers) == locks.stats().rounds > 1


@pytest.mark.parametrize(
    "token", ["grüße", "grüße".encode(), b"\x00\r\n\xff", "x" * 70_000]
)
def test_new_token_when_given_then_is_what_is_stored(
    make_locks: MakeLocks,
    urls: list[str],
    servers: list[redis.Redis],
    token: str | bytes,
) -> None:
    stored = token.encode() if isinstance(token, str) else token
    lease = granted(connected(make_locks(urls, new_token=lambda: token)).acquire(KEY))
    assert lease.token == stored
    assert settled_values(servers, [stored] * 5) == [stored] * 5
    assert lease.release() is ReleaseStatus.RELEASED


def test_new_token_when_it_raises_then_acquire_raises_that(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis]
) -> None:
    def new_token() -> bytes:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        make_locks(urls, new_token=new_token).acquire(KEY)
    assert values(servers) == [None] * 5


def test_token_when_anything_is_shown_or_logged_then_is_not_in_it(
    make_locks: MakeLocks, urls: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    locks = make_locks(urls, new_token=lambda: "sesame")
    with locks.lock(KEY) as lease:
        with pytest.raises(ResourceTakenError) as raised, locks.lock(KEY, timeout=0):
            pass
        shown = [
            lease,
            lease.votes,
            raised.value,
            locks.holders(KEY),
            locks,
            locks.stats(),
        ]
        shown.append(locks.adopt(KEY, "sesame"))
    told = [*map(repr, shown), *map(str, shown), caplog.text]
    assert "orders:42" in told[0]
    assert "sesame" not in "\n".join(told)


def test_acquire_when_cut_and_another_uses_the_same_token_then_is_not_granted(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis]
) -> None:
    """A round that is asked again must not take another's key for its own."""
    retry = Retry(unreachable_tries=1)
    locks = make_locks(urls, new_token=lambda: b"worker-7", retry=retry)
    locks.connect()
    set_all(servers, b"worker-7")
    for server in servers:
        server.client_kill_filter(_type="normal", skipme=True)
    with suppress(QuorumUnreachableError):
        assert locks.acquire(KEY, timeout=0) is None
