"""A key of another program under a resource's name: an error, not "taken for ever"."""

from __future__ import annotations

import time
from collections.abc import Callable
from hashlib import sha256
from types import SimpleNamespace
from typing import Any

import pytest
import redis

from fastredlock import (
    FastRedlock,
    ForeignKeyError,
    ReleaseStatus,
    Retry,
    Vote,
)
from fastredlock._cli.holding import Holding
from fastredlock._locking import attempt
from fastredlock._reports import log
from tests.docs.documents import ROOT, blocks
from tests.support.calls import granted
from tests.support.fixtures import MakeLocks, Servers
from tests.support.keys import KEY, delete, set_all
from tests.support.threads import in_threads
from tests.support.waiters import Section
from tests.support.waiting import stopwatch

Put = Callable[[redis.Redis], object]

QUEUE, POLL = Retry(), Retry(delay=0.02)
FOREIGN: list[tuple[Put, str, Retry]] = [
    (lambda server: server.hset(KEY, "field", "value"), "WRONGTYPE", QUEUE),
    (lambda server: server.rpush(KEY, "item"), "WRONGTYPE", POLL),
    (lambda server: server.set(KEY, b""), "an empty value: no token", QUEUE),
    (lambda server: server.set(KEY, b"x" * 300_000), "a value of 300000 bytes", POLL),
]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look after a fifth of a second, not after a whole one."""
    monkeypatch.setattr(attempt, "LOOK_AFTER_NS", 200_000_000)


@pytest.mark.parametrize(
    ("put", "said", "retry"), FOREIGN, ids=["hash", "list", "empty", "big"]
)
def test_acquire_that_waits_for_a_foreign_key_raises_with_that_word(
    make_locks: MakeLocks, servers: Servers, urls: list[str],
    put: Put, said: str, retry: Retry,
) -> None:  # fmt: skip
    for server in servers[:3]:
        put(server)
    locks = make_locks(urls, retry=retry)
    with stopwatch() as seconds, pytest.raises(ForeignKeyError) as raised:
        locks.acquire(KEY, timeout=20)  # far longer than it takes to find out
    assert 0.15 < seconds() < 8
    assert "a foreign key, which is no lock" in str(raised.value)
    assert said in str(raised.value)
    with pytest.raises(ForeignKeyError):  # known by now
        locks.acquire(KEY, timeout=0)
    delete(servers)
    granted(locks.acquire(KEY, timeout=0)).release()


def test_acquire_of_one_try_tells_of_a_foreign_key_when_some_time_has_passed(
    locks: FastRedlock, servers: Servers
) -> None:
    for server in servers:
        server.sadd(KEY, "member")
    rounds = locks.stats().rounds
    assert locks.acquire(KEY, timeout=0) is None
    assert locks.stats().rounds == rounds + 1  # nothing more is asked at first
    time.sleep(0.2)  # so long a key may be one of a lock
    with pytest.raises(ForeignKeyError, match="WRONGTYPE"):
        locks.acquire(KEY, timeout=0)
    with pytest.raises(ForeignKeyError) as raised:
        locks.acquire_all(["free", KEY])
    assert raised.value.resource == ("free", KEY)


def test_lock_that_is_held_long_stays_taken_and_without_expiry_is_warned_of(
    make_locks: MakeLocks, servers: Servers, urls: list[str],
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    locks = make_locks(urls)
    held = granted(make_locks(urls).acquire("held", ttl=60))
    assert locks.acquire("held", timeout=0.3) is None
    assert caplog.messages == []
    set_all(servers, "cached")
    monkeypatch.setattr(log, "logged", set[str]())
    for _ in range(2):
        assert locks.acquire(KEY, timeout=0.3) is None
    assert caplog.messages == [
        f"{KEY!r}: taken by a key without expiry: if it is no lock (NO_EXPIRY), it "
        "stays until it is deleted"
    ]
    held.release()


# --- what `holders()` makes of values that were never meant for it --------------------


SETNX_VALUES: list[tuple[Callable[[], str | int], str | None]] = [
    (lambda: f"{time.time() - 3600:.6f}", "a SETNX lock, its time ended 36"),
    (lambda: int(time.time() - 60.1) * 1000, "a SETNX lock, its time ended 6"),
    (lambda: int(time.time() + 995), "a SETNX lock, its time ends in 99"),
    (lambda: 12345, None),
    (lambda: "175400000x", None),
    (lambda: 2**62 + 7, None),
]


@pytest.mark.parametrize(("value", "told"), SETNX_VALUES)
def test_holders_when_the_value_is_a_time_then_name_a_lock_of_setnx(
    locks: FastRedlock, servers: Servers, value: Callable[[], str | int],
    told: str | None,
) -> None:  # fmt: skip
    for server in servers:
        server.set(KEY, value())
    for vote in locks.holders(KEY):
        assert vote.text == told or f"no expiry: {told}" in str(vote.text)


@pytest.mark.parametrize(
    "value",
    [
        b"*1234567",
        b"a\n*1234567\r\n",
        b"\n=\n\n*1\n",
        b"=",
        b"#7",
        b"!",
        b"\n" * 262_144,
    ],
    ids=["header", "line", "escapes", "mark", "length", "kind", "longest"],
)
def test_holders_when_the_value_looks_like_something_else_then_its_hash_is_told(
    locks: FastRedlock, servers: Servers, value: bytes
) -> None:
    set_all(servers, value)
    told = {(vote.vote, vote.token_hash, vote.text) for vote in locks.holders(KEY)}
    assert told == {(Vote.TAKEN, sha256(value).hexdigest()[:16], None)}
    assert locks.stats().losses == 0


# --- locks of SETNX and GETSET, by the functions of their page ------------------------


PAGE = ROOT / "docs" / "migration" / "setnx.md"


@pytest.fixture
def page(urls: list[str]) -> Any:
    """Run the program of the page on one master; return its names."""
    (code,) = blocks(PAGE, "python")
    names: dict[str, Any] = {}
    exec(code.replace("redis://localhost:7001", urls[0]), names)
    return SimpleNamespace(**names)


@pytest.fixture
def new(page: Any, make_locks: MakeLocks, urls: list[str]) -> FastRedlock:
    return make_locks(urls[:1], new_token=page.far_time)


def test_old_and_new_when_in_one_fleet_then_one_at_a_time_is_inside(
    page: Any, new: FastRedlock, servers: Servers
) -> None:
    section, seen = Section(0.002), []
    until = time.monotonic() + 1

    def old() -> None:
        while time.monotonic() < until:
            end = page.old_acquire(servers[0], KEY, 10)
            if end is not None:
                with section:
                    seen.append("old")
                page.old_release(servers[0], KEY, end)

    def ours() -> None:
        while time.monotonic() < until:
            with new.lock(KEY, ttl=10), section:
                seen.append("new")

    calls: list[Callable[[], None]] = [old, old, ours, ours]
    in_threads(calls)
    section.assert_exclusive()
    assert {*seen} == {"old", "new"}


def test_stale_key_when_broken_by_its_hash_then_one_alone_frees_it(
    new: FastRedlock, servers: Servers
) -> None:
    servers[0].set(KEY, time.time() - 60)
    holding = Holding(KEY, new.holders(KEY))
    assert ", no expiry: a SETNX lock, its time ended 60 s ago?)" in str(holding)
    (stale,) = holding.tokens
    assert new.break_(KEY, token_hash=stale) is ReleaseStatus.RELEASED
    lease = granted(new.acquire(KEY, timeout=0))
    assert new.break_(KEY, token_hash=stale) is ReleaseStatus.GONE
    assert lease.extend() > 0
