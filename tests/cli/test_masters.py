"""`fastredlock masters`: which masters clients have, and which step is safe now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from math import inf
from typing import Any

import pytest

from fastredlock import FastRedlock
from fastredlock._cli.masters import BOTH, NEW, OLD, OTHER, step_of
from fastredlock.testing import LocalCluster, LocalMasters
from tests.support.calls import connected, granted
from tests.support.fixtures import MakeLocks
from tests.support.waiting import wait_until

from .conftest import Call, as_user

List = tuple[int, ...]
FIRST, SECOND, LAST = (0, 1, 2), (0, 1, 3), (0, 3, 4)
Make = Callable[..., FastRedlock]


@pytest.fixture
def five() -> Iterator[LocalMasters]:
    with LocalMasters(5) as masters:
        yield masters


@pytest.fixture
def make(make_locks: MakeLocks, five: LocalMasters) -> Make:
    def make(old: List, new: List | None = None, **options: Any) -> FastRedlock:
        if new is not None:
            options["changing_to"] = [five.urls[i] for i in new]
        return connected(make_locks([five.urls[i] for i in old], **options))

    return make


@pytest.fixture
def ask(call: Call, five: LocalMasters) -> Callable[..., tuple[int, list[str]]]:
    """Return what asks for the step from one list to another: status and lines."""

    def ask(old: List, new: List = (), *words: str) -> tuple[int, list[str]]:
        lists = (",".join(five.urls[i] for i in each) for each in (old, new))
        options = [*zip(("--masters", "--changing-to"), lists, strict=True)]
        given = [word for option in options if option[1] for word in option]
        status, out, err = call("masters", *given, *words)
        assert err == ""
        return status, out.splitlines()

    return ask


Ask = Callable[..., tuple[int, list[str]]]


@pytest.mark.parametrize(
    ("counts", "before", "status", "said"),
    [
        ({}, 0, 1, "step 1: deploy both lists: no client is connected"),
        ({OLD: 2}, 0, 1, "step 1: deploy both lists: 2 clients have the old one"),
        ({OLD: 1, BOTH: 9}, 0, 1, "wait: 1 client has only the old list"),
        ({BOTH: 9}, 9.44, 1, "wait: the longest lease from before ends in 9.4 s"),
        ({BOTH: 9}, inf, 1, "wait: the longest lease from before never ends: release"),
        ({BOTH: 9}, None, 1, "wait for the longest ttl: leases from before cannot"),
        ({BOTH: 9}, 0, 0, "step 3: deploy the new list"),
        ({BOTH: 8, NEW: 1}, 0, 1, "wait: 8 clients have both lists: keep the old"),
        ({NEW: 9}, 0, 0, "step 4: no client has the old list: stop c:6379"),
        ({NEW: 9, OTHER: 1}, 0, 1, "wait: 1 client has another list: end that"),
    ],
)
def test_step_is_the_one_that_is_safe_for_the_lists_that_are_in_use(
    counts: dict[str, int], before: float | None, status: int, said: str
) -> None:
    found, text = step_of(Counter(counts), before, "c:6379")
    assert found == status
    assert text.startswith(said)


def test_masters_through_a_change_then_names_each_client_and_the_next_step(
    make: Make, ask: Ask, five: LocalMasters
) -> None:
    def says(text: str) -> bool:  # a server may not have seen yet that one is closed
        return wait_until(lambda: ask(FIRST, SECOND)[1][-1] == text)

    old = make(FIRST, client_name="orders-1", owner="ann")
    status, lines = ask(FIRST, SECOND)
    assert (status, lines[-1][:6]) == (1, "step 1")
    assert any(
        "orders-1@ann  127.0.0.1:" in line and "old list" in line for line in lines
    )
    both = make(FIRST, SECOND, client_name="orders-2")
    assert says("wait: 1 client has only the old list")
    old.close()
    assert says("step 3: deploy the new list")
    new = make(SECOND, client_name="orders-3")
    assert says("wait: 1 client has both lists: keep the old masters running")
    both.close()
    name = five.urls[2].removeprefix("redis://").removesuffix("/0")
    assert says(f"step 4: no client has the old list: stop {name}")
    assert new.has_quorum


def test_masters_when_a_lease_is_from_before_then_says_when_it_ends(
    make: Make, ask: Ask
) -> None:
    """All its masters are of the old list: the new one does not know it."""
    old, both = make(FIRST), make(FIRST, LAST)
    granted(old.acquire("from before", ttl=60))
    granted(both.acquire("of both", ttl=600))
    old.close(release=False)
    said = "wait: the longest lease from before ends in "
    assert wait_until(lambda: ask(FIRST, LAST)[1][-1].startswith(said))
    status, lines = ask(FIRST, LAST)
    assert status == 1
    assert 40 < float(lines[-1].removeprefix(said).removesuffix(" s")) <= 60


def test_masters_when_two_lists_do_not_fit_then_names_who_has_them(
    make: Make, ask: Ask, call: Call, five: LocalMasters
) -> None:
    make(FIRST, client_name="orders-1", owner="ann")
    make(SECOND, client_name="orders-2", owner="")
    status, lines = ask(FIRST, SECOND)
    assert (status, ask(FIRST)[0]) == (2, 2)
    assert "two lists that do not fit are in use" in lines[-1]
    assert "orders-1@ann at 127.0.0.1:" in lines[-1]
    assert "orders-2 at 127.0.0.1:" in lines[-1]
    status, out, _ = call("check", "--masters", ",".join(five.urls[:3]))
    assert status == 1
    assert "warning: two lists that do not fit are in use" in out
    assert "orders-2 at 127.0.0.1:" in out


def test_check_when_clients_differ_in_max_ttl_then_names_who_has_which(
    make: Make, call: Call, five: LocalMasters
) -> None:
    make(FIRST, client_name="orders-1")
    make(FIRST, client_name="orders-2", owner="ann", max_ttl=600, ttl=1)
    status, out, _ = call("check", "--masters", ",".join(five.urls[:3]))
    assert status == 1
    assert "clients differ in their max_ttl (0: none): " in out
    assert "600 s: orders-2@ann at 127.0.0.1:" in out


def test_masters_when_new_ones_are_in_quarantine_then_says_when_they_vote(
    make: Make, ask: Ask
) -> None:
    make(FIRST, LAST, max_ttl=600, ttl=1)
    status, lines = ask(FIRST, LAST)
    assert status == 1
    waiting = [line for line in lines if "has no vote yet: in quarantine for" in line]
    assert len(waiting) == 2


@pytest.mark.parametrize("without", ["+client|list", "a master"])
def test_masters_when_a_quorum_says_nothing_then_is_no_success(
    make: Make, call: Call, five: LocalMasters, without: str
) -> None:
    make(FIRST)
    urls = [*five.urls[:3]]
    if without == "a master":
        five.stop(0)
    urls[1:] = [as_user(url, "~* +@all -client|list") for url in urls[1:]]
    status, out, err = call("masters", "--masters", ",".join(urls))
    assert (status, err) == (69, "")
    assert out.count("does not say who its clients are") == 2 + (without == "a master")
    assert out.count("grant +client|list") == 2


@pytest.mark.slow
def test_masters_when_one_is_a_cluster_then_its_clients_are_seen(
    make_locks: MakeLocks, call: Call
) -> None:
    with LocalCluster() as cluster:
        locks = make_locks(
            [cluster.url + "?lossless_failover=true"], client_name="orders-1"
        )
        connected(locks)
        status, out, _ = call("masters", "--masters", cluster.url)
    assert status == 0
    assert "orders-1" in out
