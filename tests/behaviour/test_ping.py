"""`locks.ping()` and `has_quorum`: what a readiness probe is to know."""

from __future__ import annotations

import re
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from fastredlock import ConfigurationError, FastRedlock, FastRedlockError
from fastredlock.testing import LocalMasters
from tests.support.calls import connected
from tests.support.fixtures import MakeLocks, Raw, Servers
from tests.support.keys import KEY, is_empty
from tests.support.masters import pause, resume, start, stop
from tests.support.waiting import stopwatch


def votes(locks: FastRedlock, timeout: float = 1.0) -> list[bool]:
    """Ask all masters; health() and has_quorum say the same as the answer."""
    told = locks.ping(timeout)
    found = [master.votes for master in told]
    assert locks.has_quorum is (sum(found) >= 3)
    return found


def test_ping_when_nothing_was_connected_or_after_an_outage_then_finds_the_servers(
    make_locks: MakeLocks, masters: LocalMasters
) -> None:
    locks = make_locks(masters.urls)
    assert not locks.has_quorum
    assert votes(locks) == [True] * 5
    assert [master.votes for master in locks.health()] == [True] * 5
    stop(masters, 5)
    for _ in range(4):  # each failure makes the back-off longer
        assert votes(locks) == [False] * 5
    assert locks.stats().losses == 5  # what was refused was never made
    start(masters, 5)
    assert not locks.has_quorum  # nobody has asked
    assert votes(locks) == [True] * 5
    assert re.search(r" \(\d+ s ago\)$", locks.health()[0].last_error or "")


def test_ping_when_servers_are_frozen_then_they_do_not_vote_until_they_go_on(
    make_locks: MakeLocks, masters: LocalMasters
) -> None:
    locks = connected(make_locks(masters.urls))
    pause(masters, 3)
    with stopwatch() as seconds:
        told = locks.ping(0.2)
    assert seconds() < 1
    assert [master.votes for master in told] == [False] * 3 + [True] * 2
    assert (told[0].last_error or "").startswith("no reply within")
    assert not locks.has_quorum
    assert [master.votes for master in locks.health()] == [False] * 3 + [True] * 2
    fresh = make_locks(masters.urls)
    for _ in range(2):  # the second time their connections were given up
        assert votes(fresh, 0.4) == [False] * 3 + [True] * 2
    assert fresh.stats().round_trip == 0.0  # it is none of a lock
    resume(masters, 3)
    assert votes(locks) == [True] * 5


def page_probe(urls: list[str]) -> dict[str, Any]:
    """Run the readiness probe of docs/operations.md on these masters."""
    page = Path("docs/operations.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n((?:(?!```).)*class Probes.*?)```", page, re.S)
    masters = '(f"redis://localhost:{port}" for port in (7001, 7002, 7003))'
    assert masters in block
    found: dict[str, Any] = {"urls": urls, "__name__": "page"}
    exec(block.partition("with urllib")[0].replace(masters, "(urls)"), found)
    return found


def status_of(probe: dict[str, Any]) -> int:
    connection = HTTPConnection("127.0.0.1", probe["probes"].server_port, timeout=5)
    with closing(connection):
        connection.request("GET", "/ready")
        return connection.getresponse().status


@pytest.mark.parametrize(
    ("refuse", "allow", "code"),
    [
        ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0", "OOM"),
        ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE", "READONLY"),
        (
            "CONFIG SET min-replicas-to-write 1",
            "CONFIG SET min-replicas-to-write 0",
            "NOREPLICAS",
        ),
    ],
)
def test_readiness_when_a_quorum_refuses_to_write_then_is_what_an_acquire_finds(
    raw: Raw, refuse: str, allow: str, code: str
) -> None:
    """The page's probe: it said 200 while every acquire failed."""
    with LocalMasters(3) as masters, ExitStack() as ends:
        probe = page_probe(masters.urls)
        ends.callback(probe["locks"].close)
        ends.callback(probe["probes"].server_close)
        ends.callback(probe["probes"].shutdown)
        assert status_of(probe) == 200
        for url in masters.urls[:2]:
            raw(url).execute_command(*refuse.split())
        with pytest.raises(FastRedlockError):
            probe["locks"].acquire(KEY, timeout=0)
        health = probe["locks"].health()
        assert not probe["locks"].has_quorum
        assert sum(code in (each.last_error or "") for each in health) == 2
        assert status_of(probe) == 503
        for url in masters.urls[:2]:
            raw(url).execute_command(*allow.split())
        assert status_of(probe) == 200


def test_ping_when_the_key_is_forbidden_then_the_server_votes_and_not_without_set(
    make_locks: MakeLocks, masters: LocalMasters, raw: Raw
) -> None:
    raw(masters.urls[0]).execute_command("ACL SETUSER default resetkeys ~orders:*")
    locks = make_locks(masters.urls)
    assert votes(locks) == [True] * 5
    raw(masters.urls[1]).execute_command("ACL SETUSER default -set")
    told = locks.ping()
    assert [master.votes for master in told] == [True, False, True, True, True]
    assert "NOPERM" in (told[1].last_error or "")


def test_ping_when_the_restart_guard_withholds_then_says_for_how_long(
    make_locks: MakeLocks, masters: LocalMasters
) -> None:
    locks = make_locks(masters.urls, ttl=1, max_ttl=1)
    told = locks.ping()
    assert [master.votes for master in told] == [False] * 5
    for master in told:
        assert master.votes_in is not None
        assert 0 < master.votes_in <= 2.1


@pytest.mark.parametrize("timeout", [0, -1, True, "1", None])
def test_ping_when_the_timeout_is_no_time_or_it_is_closed_then_is_refused(
    locks: FastRedlock, servers: Servers, timeout: object
) -> None:
    with pytest.raises(ConfigurationError, match="timeout="):
        locks.ping(timeout)  # type: ignore[arg-type]
    locks.ping()
    assert is_empty(servers)  # it leaves no key
    locks.close()
    with pytest.raises(FastRedlockError, match="closed"):
        locks.ping()
