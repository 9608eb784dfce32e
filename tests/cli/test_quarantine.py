"""`fastredlock quarantine`: who waits after a restart, and an end to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fastredlock import FastRedlock, QuorumUnreachableError
from fastredlock.testing import LocalCluster, LocalMasters, LocalSentinels
from tests.support.fixtures import Raw

from .conftest import Call, as_user

MAX_TTL = 3600  # s; no test waits for so long
LIFT = "--lift", "--yes", "--max-ttl", str(MAX_TTL)
NEW, WELL = "no marker of its own", "has its marker, and no quarantine"


def locks_at_once(*urls: str, names: int = 9) -> bool:
    """Whether a new client gets locks of so many names; of a cluster on all shards."""
    with FastRedlock(urls, max_ttl=MAX_TTL, ttl=5) as locks:
        try:
            for i in range(names):
                lease = locks.acquire(f"first:{i}", timeout=0.5)
                assert lease is not None
                lease.release()
        except QuorumUnreachableError:
            return False
    return True


SETUPS: dict[str, Any] = {
    "three masters": lambda: LocalMasters(3),
    "a service": LocalSentinels,
    "a cluster": lambda: LocalCluster(replicas=1),
}


@pytest.mark.slow
@pytest.mark.parametrize("setup", SETUPS)
def test_first_deployment_when_an_operator_says_so_then_locks_at_once(
    call: Call, setup: str
) -> None:
    with SETUPS[setup]() as servers:
        urls = servers.urls if isinstance(servers, LocalMasters) else [servers.url]
        masters = "--masters=" + ",".join(urls)
        status, out, _ = call("quarantine", masters)
        assert (status, out.count(NEW)) == (0, len(out.splitlines()))
        status, out, err = call("quarantine", masters, *LIFT)
        assert (status, err, out.count(WELL)) == (0, "", len(out.splitlines()))
        assert locks_at_once(*urls)
        assert locks_at_once(*urls)  # the next one finds the same


@pytest.fixture(scope="module")
def master() -> Iterator[LocalMasters]:
    with LocalMasters(1, options=("--appendonly", "yes")) as master:
        yield master


def test_quarantine_when_begun_by_mistake_then_is_shown_and_ended(
    call: Call, master: LocalMasters, raw: Raw
) -> None:
    masters = "--masters=" + master.urls[0]
    assert call("quarantine", masters, *LIFT).status == 0
    raw(master.urls[0]).flushall()
    assert not locks_at_once(*master.urls)
    status, out, _ = call("quarantine", masters)
    assert (status, "in quarantine for 36" in out) == (0, True)
    assert call("quarantine", masters, *LIFT).status == 0
    assert locks_at_once(*master.urls)


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("--lift", "--yes"), 64, "--lift needs --max-ttl"),
        (("--lift", "--max-ttl", "9"), 64, "nobody can be asked"),
        (("--lift", "--yes", "--max-ttl", "0"), 64, "is not a number from 0.003 on"),
        (("--masters=redis+sentinel://127.0.0.1:1/x", *LIFT), 69, "no primary of 'x'"),
        (("--masters=redis+cluster://127.0.0.1:1", *LIFT), 69, "no map of the cluster"),
    ],
)
def test_lift_when_it_cannot_be_done_then_says_why(
    call: Call, words: tuple[str, ...], status: int, said: str
) -> None:
    told = call("quarantine", *words)
    assert told.status == status
    assert said in told.out + told.err


@pytest.mark.parametrize(
    ("rights", "said"),
    [
        ("+@all -set", "SET: "),
        ("+@all -eval", NEW),  # the marker could not be written
        ("+@all -info", "INFO: "),
    ],
)
def test_lift_when_its_user_may_not_then_says_so_and_is_no_success(
    call: Call, rights: str, said: str
) -> None:
    with LocalMasters(1) as master:
        url = as_user(master.urls[0], f"~* &* {rights}")
        status, out, _ = call("quarantine", "--masters=" + url, *LIFT)
    assert (status, said in out) == (69, True)


def test_lift_when_it_is_a_replica_then_is_refused(call: Call, raw: Raw) -> None:
    with LocalMasters(2) as masters:
        replica = raw(masters.urls[1])
        replica.replicaof("127.0.0.1", masters.urls[0].rpartition(":")[2].rstrip("/0"))
        url = masters.urls[1]
        of_service = f"{url}{'&' if '?' in url else '?'}failover_window=2"
        for each in (url, of_service):
            status, out, _ = call("quarantine", "--masters=" + each, *LIFT)
            assert (status, "is a replica" in out) == (69, True)
        assert replica.exists("fastredlock:quarantine:lifted") == 0
