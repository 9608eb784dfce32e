"""Bad input and bad neighbours of a queue: they cost time, never exclusion."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import redis

from fastredlock import FastRedlock, ReleaseStatus
from fastredlock._options import scripts
from fastredlock.cli import main
from fastredlock.testing import LocalMasters
from tests.support.calls import connected, granted
from tests.support.fixtures import MakeLocks, Raw, Servers, blocking
from tests.support.keys import KEY, NOBODY, settled_values
from tests.support.local_servers import allow
from tests.support.waiters import (
    Waiters,
    counter,
    gate_of,
    hand_over,
    is_over,
    is_prompt,
    queue_key,
    queued_at,
)
from tests.support.waiting import wait_until

PAIR = "+set +get +del +pexpire +eval +evalsha +script +hello +info +client"


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """List the warnings, without those of a server's own set-up."""
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


def two_wait_for(holder: FastRedlock, others: list[FastRedlock], key: str) -> float:
    """Let others wait for what one holds, then release it; say how long they took."""
    with Waiters() as waiters:
        lease = granted(holder.acquire(key, ttl=30))
        for i, each in enumerate(others):
            waiters.start(
                lambda i=i, each=each: waiters.take(f"{i}", each, key=key, timeout=9)
            )
        time.sleep(0.1)  # nothing shows that a caller polls
        began = time.monotonic()
        lease.release()
        waiters.end()
        assert len(waiters.served) == len(others)
    return max(waiters.at.values()) - began


# --- names ----------------------------------------------------------------------------


@blocking  # the scripts are the same
@pytest.mark.parametrize("kind", ["queue", "turn", "waiter"])
@pytest.mark.parametrize("n", [1, 5])
def test_resource_when_named_as_a_key_of_its_neighbours_queue_then_both_exclude(
    make_locks: MakeLocks, urls: list[str], servers: Servers, kind: str, n: int
) -> None:
    """Seen: to tell a waiter of x wrote over a lock named fastredlock:turn:x.

    A client of ours refuses such a name; another library's does not.
    """
    clients = [connected(make_locks(urls[:n])) for _ in range(3)]
    neighbour = f"fastredlock:{kind}:x"
    for server in servers[:n]:
        server.set(neighbour, "theirs", px=30_000)
    for _ in range(2):
        assert two_wait_for(clients[0], clients[1:], "x") < 9
    assert [server.get(neighbour) for server in servers[:n]] == [b"theirs"] * n
    assert min(server.pttl(neighbour) for server in servers[:n]) > 11_000


# --- the queue's key ------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["string", "list"])
def test_queue_when_its_key_is_of_another_type_then_callers_poll_and_each_client_warns(
    holder: FastRedlock, locks: FastRedlock, servers: Servers,
    caplog: pytest.LogCaptureFixture, kind: str,
) -> None:  # fmt: skip
    """Each once, whether its callers waited or its release found the key (Valkey 9)."""
    gate = servers[gate_of(5)]
    if kind == "string":
        gate.set(queue_key(), "another's")
    else:
        gate.rpush(queue_key(), "another's")
    for _ in range(2):
        assert two_wait_for(holder, [locks, locks], KEY) < 9
        assert two_wait_for(locks, [holder, holder], KEY) < 9
    text, of_the_other = told(caplog)
    assert text == of_the_other
    assert "callers cannot wait in turn" in text
    assert "WRONGTYPE" in text
    assert "is there another use of its key fastredlock:queue:" in text
    assert gate.type(queue_key()) == kind.encode()
    assert gate.pttl(queue_key()) == -1  # seen: it was to expire, a minute later
    gate.delete(queue_key())
    assert is_over(servers)


def test_queue_when_its_server_takes_no_writes_then_callers_poll_and_no_use_is_blamed(
    holder: FastRedlock, locks: FastRedlock, servers: Servers,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """Seen: "is there another use of its key" where a server took no writes."""
    gate = servers[gate_of(5)]
    lease = granted(holder.acquire(KEY, ttl=30))
    gate.config_set("min-replicas-to-write", 1)
    try:
        assert locks.acquire(KEY, timeout=0.3) is None
    finally:
        gate.config_set("min-replicas-to-write", 0)
    (text,) = told(caplog)
    assert "callers cannot wait in turn for a resource here (" in text
    assert text.endswith(", and poll instead")
    assert lease.release() is ReleaseStatus.RELEASED
    assert is_over(servers)


@pytest.mark.slow
@pytest.mark.parametrize(("window", "warnings"), [("", 1), ("failover_window=1", 0)])
def test_queue_when_a_failover_refuses_it_then_that_is_no_warning(
    make_locks: MakeLocks, one_master: LocalMasters, raw: Raw, window: str,
    warnings: int, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    server, url = raw(one_master.urls[0]), f"{one_master.urls[0]}?{window}"
    options = "--masters", url, "--max-ttl", "60"
    assert main(["quarantine", *options, "--lift", "--yes"]) == 0
    holder, waiter = (make_locks([url], max_ttl=60, ttl=30) for _ in range(2))
    granted(holder.acquire(KEY))
    with ThreadPoolExecutor(1) as pool:
        waited = pool.submit(waiter.acquire, KEY, timeout=1)
        assert wait_until(lambda: server.exists(queue_key()) == 1)
        server.config_set("min-replicas-to-write", 1)
        error = waited.exception()
        server.config_set("min-replicas-to-write", 0)
    assert window == "" or "NOREPLICAS" in str(error)
    refused = [text for text in told(caplog) if "wait in turn" in text]
    assert len(refused) == warnings


def test_queue_when_full_of_entries_that_nobody_answers_for_then_costs_time_at_most(
    holder: FastRedlock, locks: FastRedlock, servers: Servers
) -> None:
    """10,000 that claim to have waited for years: a script drops a hundred of them."""
    gate = servers[gate_of(5)]
    gate.zadd(queue_key(), {f"foreign {i}": i for i in range(10_000)})
    assert hand_over(holder, [locks]) < 3  # after a second of a free key, untold
    assert settled_values(servers, NOBODY) == NOBODY
    left = queued_at(gate)
    assert all(entry.startswith(b"foreign ") for entry in left)
    assert gate.pttl(queue_key()) > 0  # and those are gone with their queue


@contextmanager
def listening(server: redis.Redis, *processes: str) -> Iterator[Any]:
    """Listen as these processes would, which wait."""
    channels = [f"fastredlock:waiter:{process}" for process in processes]
    with server.pubsub(ignore_subscribe_messages=True) as listener:
        listener.subscribe(*channels)
        while not all(count for _, count in server.pubsub_numsub(*channels)):
            listener.get_message(timeout=0.05)
        yield listener


def test_release_when_the_first_is_old_then_the_last_four_are_asked_to_look(
    servers: Servers,
) -> None:
    """Seen: 0.5 s where the last one, which alone was asked, was frozen as well."""
    server, processes = servers[0], [f"process{i}" for i in range(6)]
    channels = [f"fastredlock:waiter:{process}" for process in processes]
    for place, process in enumerate(processes):
        server.zadd(queue_key(), {process: 1000 + place})
    server.set(KEY, "token")
    asked = (scripts.RELEASE_AND_NOTIFY, 1, KEY, "token")
    heard: list[tuple[str, str]] = []
    wanted = [(channels[0], KEY), *((each, "?" + KEY) for each in channels[2:])]
    with listening(server, *processes) as listener:
        assert server.execute_command("EVAL", *asked) == 2

        def hear() -> list[tuple[str, str]]:
            while message := listener.get_message(timeout=0.05):
                heard.append((message["channel"].decode(), message["data"].decode()))
            return heard

        assert wait_until(lambda: hear() == wanted)
    server.delete(queue_key(), "fastredlock:turn:" + KEY)


# --- rights ---------------------------------------------------------------------------


@blocking
@pytest.mark.parametrize(
    ("rules", "keys", "right"),
    [
        ("+@all -publish", "~* &*", "+publish"),
        ("+@all -subscribe", "~* &*", "+subscribe"),
        ("+@all -time", "~* &*", "+time"),
        ("+@all -zadd", "~* &*", "+@sortedset"),
        ("+@all -pexpire", "~* &*", "+pexpire"),
        ("+@all", f"~{KEY} &*", "~fastredlock:*"),
        ("+@all", "~* resetchannels", "&fastredlock:*"),
        (PAIR, f"~{KEY}", "~fastredlock:*"),
    ],
)
def test_right_when_it_is_missing_then_callers_poll_and_one_warning_names_it(
    make_locks: MakeLocks, one_master: LocalMasters, raw: Raw, rules: str, keys: str,
    right: str, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    server = raw(one_master.urls[0])
    locks = connected(make_locks([allow(server, one_master, f"{keys} {rules}")]))
    for _ in range(2):
        assert two_wait_for(locks, [locks, locks], KEY) < 9
    # Without +pexpire leases cannot be extended either, which a server's set-up tells.
    (text,) = [each for each in told(caplog) if "cannot extend" not in each]
    assert "cannot wait in turn" in text
    assert right in text
    assert server.exists(KEY) == 0
    assert -1 not in [server.pttl(key) for key in server.keys("fastredlock:*")]


def test_rights_that_the_warning_names_when_given_then_callers_queue(
    make_locks: MakeLocks, one_master: LocalMasters, raw: Raw,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    server = raw(one_master.urls[0])
    rules = (
        f"~{KEY} ~fastredlock:* resetchannels &fastredlock:* {PAIR} +subscribe "
        "+publish +time +exists +pttl +@sortedset"
    )
    url = allow(server, one_master, rules)
    holder, locks = [connected(make_locks([url])) for _ in range(2)]
    assert is_prompt(lambda: hand_over(holder, [locks], queues_at=[server]))
    assert told(caplog) == []


def test_right_to_exists_when_it_is_missing_then_a_try_out_of_turn_is_no_error(
    make_locks: MakeLocks, one_master: LocalMasters, raw: Raw
) -> None:
    """Seen: QuorumUnreachableError; ASK_TURN did without that right."""
    server = raw(one_master.urls[0])
    url = allow(server, one_master, "~* &* +@all -exists")
    holder, first, hasty = [connected(make_locks([url])) for _ in range(3)]
    with Waiters() as waiters:
        lease = granted(holder.acquire(KEY, ttl=30))
        waiters.come("first", first)
        assert hasty.acquire(KEY, timeout=0.1) is None
        lease.release()
    assert waiters.served == ["first"]
    assert is_over([server])


def test_server_when_it_speaks_no_resp3_then_callers_poll_and_nothing_is_said(
    make_locks: MakeLocks, caplog: pytest.LogCaptureFixture
) -> None:
    with LocalMasters(1, options=("--rename-command", "HELLO", "")) as masters:
        clients = [connected(make_locks(masters.urls)) for _ in range(2)]
        assert two_wait_for(clients[0], clients, KEY) < 9
        assert [counter(each, "waits") for each in clients] == [0, 0]
        for each in clients:
            each.close()
    assert not any("wait in turn" in text for text in told(caplog))
