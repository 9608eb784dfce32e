"""Locks of SETNX and GETSET, by the functions of their page, beside ours."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from fastredlock import FastRedlock, LeaseLostError, ReleaseStatus
from fastredlock._cli.holding import Holding
from tests.docs.documents import ROOT, blocks
from tests.support.calls import granted
from tests.support.fixtures import MakeLocks, Servers
from tests.support.keys import KEY
from tests.support.threads import in_threads
from tests.support.waiters import Section

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


def test_far_time_when_read_as_any_number_then_is_in_the_future(page: Any) -> None:
    tokens = {page.far_time() for _ in range(1000)}
    assert len(tokens) == 1000
    assert all(time.time_ns() < int(each) < 2**63 for each in tokens)
    assert all(time.time() < float(each) for each in tokens)


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


def test_stale_key_when_an_old_client_takes_it_over_then_it_is_not_broken(
    page: Any, new: FastRedlock, servers: Servers
) -> None:
    servers[0].set(KEY, time.time() - 60)
    (stale,) = Holding(KEY, new.holders(KEY)).tokens
    assert page.old_acquire(servers[0], KEY, 10) is not None
    assert new.break_(KEY, token_hash=stale) is ReleaseStatus.GONE
    assert new.acquire(KEY, timeout=0) is None


def test_old_client_when_it_overwrites_ours_then_neither_holds(
    page: Any, new: FastRedlock, servers: Servers
) -> None:
    class Late:
        """A client that is paused between the two commands."""

        def __getattr__(self, name: str) -> Any:
            if name == "getset":
                (stale,) = Holding(KEY, new.holders(KEY)).tokens
                new.break_(KEY, token_hash=stale)
                leases.append(granted(new.acquire(KEY, ttl=10)))
            return getattr(servers[0], name)

    leases: list[Any] = []
    servers[0].set(KEY, time.time() - 60)
    assert page.old_acquire(Late(), KEY, 10) is None
    with pytest.raises(LeaseLostError):
        leases[0].extend()
