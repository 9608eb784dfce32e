"""Another server behind a master's name: it knows nothing of the votes from before.

The restart guard trusted INFO's uptime alone. A server that has been up, empty, for
long takes a dead master's address; or a restarted one's clock is set forward.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import redis

from fastredlock import FastRedlock, QuorumUnreachableError, Vote
from fastredlock._options import scripts
from fastredlock.testing import LocalMasters
from tests.support.calls import granted
from tests.support.fixtures import MakeLocks, Servers
from tests.support.keys import flush
from tests.support.local_servers import PROGRAMS
from tests.support.proxy import Proxy

KEY = "orders:42"
MAX_TTL = 1.0  # s; so that servers are old enough after 2 s
MARKER, QUARANTINE = "fastredlock:voter", "fastredlock:quarantine"


@pytest.fixture(scope="module")
def old_masters() -> Iterator[LocalMasters]:
    """Three masters and two spare ones, up for longer than the guard asks for."""
    with LocalMasters(5) as masters:
        time.sleep(MAX_TTL + 1.1)  # the uptime of a server is real time
        yield masters


@pytest.fixture
def servers(old_masters: LocalMasters) -> Iterator[Servers]:
    """Raw access to the five, emptied; all but the spare ones have their markers."""
    with ExitStack() as opened:
        servers = [
            opened.enter_context(redis.Redis.from_url(url, protocol=2))
            for url in old_masters.urls
        ]
        flush(servers)
        for server in servers[:3]:
            mark(server)
        yield servers


@pytest.fixture
def proxies(old_masters: LocalMasters, servers: Servers) -> Iterator[list[Proxy]]:
    """Stand a proxy before each of the three, for their names to lead elsewhere."""
    with ExitStack() as opened:
        yield [opened.enter_context(Proxy(url)) for url in old_masters.urls[:3]]


def mark(server: redis.Redis) -> None:
    """Write the server's own marker, as a client with max_ttl did long ago."""
    server.set(MARKER, server.info("server")["run_id"])


def guarded(make_locks: MakeLocks, proxies: list[Proxy]) -> FastRedlock:
    locks = make_locks([p.url for p in proxies], ttl=MAX_TTL, max_ttl=MAX_TTL)
    locks.connect()
    return locks


def hold_on_two(holder: FastRedlock, servers: Servers) -> None:
    """Let the holder have masters 0 and 1; then 2 is free."""
    servers[2].set(KEY, "somebody")
    lease = granted(holder.acquire(KEY, timeout=0))
    assert [vote.vote for vote in lease.votes].count(Vote.GRANTED) == 2
    servers[2].delete(KEY)


def refused(locks: FastRedlock) -> str:
    """Try once, in vain; return what master 1 said, "" where the lock is held."""
    try:
        assert locks.acquire(KEY, timeout=0) is None
    except QuorumUnreachableError as error:
        return str(error.votes[1].text)
    return ""  # over the connections from before: the cut is not seen yet


def test_replaced_when_the_client_is_new_then_the_missing_marker_tells(
    make_locks: MakeLocks, proxies: list[Proxy], servers: Servers,
    old_masters: LocalMasters,
) -> None:  # fmt: skip
    """The same, and a wall clock set forward after an empty restart."""
    hold_on_two(guarded(make_locks, proxies), servers)
    proxies[1].lead_to(old_masters.urls[3])
    proxies[0].refuse()
    for _ in range(2):  # the second one finds the marker, and the quarantine
        other = guarded(make_locks, proxies)
        assert "in quarantine (fastredlock quarantine), votes in" in refused(other)
    assert servers[3].get(MARKER) == servers[3].info("server")["run_id"].encode()
    assert MAX_TTL * 1000 < servers[3].pttl(QUARANTINE) <= (MAX_TTL + 1) * 1000


@pytest.mark.parametrize("spoil", ["flushall", "another's marker"])
def test_marker_when_not_its_own_then_the_next_client_does_not_ask_the_master(
    make_locks: MakeLocks, proxies: list[Proxy], servers: Servers, spoil: str
) -> None:
    """F2's siblings: FLUSHALL; a restart with the data, a promoted replica."""
    if spoil == "flushall":
        servers[1].flushall()
    else:
        servers[1].set(MARKER, servers[2].info("server")["run_id"])
    locks = guarded(make_locks, proxies)
    votes = granted(locks.acquire(KEY, timeout=0)).votes
    assert [vote.vote for vote in votes].count(Vote.GRANTED) == 2
    assert "in quarantine" in str(votes[1].text)


# --- the script -----------------------------------------------------------------------


@pytest.fixture(scope="module", params=PROGRAMS)
def program_server(request: pytest.FixtureRequest) -> Iterator[redis.Redis]:
    """Run each program that this machine has."""
    with ExitStack() as opened:
        masters = opened.enter_context(LocalMasters(1, server=request.param))
        url = masters.urls[0]
        yield opened.enter_context(redis.Redis.from_url(url, protocol=2))


def ask(server: redis.Redis, run_id: str, ms: int, kind: str = "exact") -> list[object]:
    left, holder = server.eval(
        scripts.MARKER.decode(), 2, MARKER, QUARANTINE, run_id, ms, kind
    )
    return [round(left / 1000, 1), holder]


def test_marker_script_when_asked_by_many_then_keeps_the_longest_quarantine(
    program_server: redis.Redis,
) -> None:
    server = program_server
    server.flushall()
    assert ask(server, "a", 5000) == [5.0, b"a"]
    assert ask(server, "a", 3000) == [5.0, b"a"]
    assert ask(server, "a", 9000) == [9.0, b"a"]  # from when the first one set it
    assert ask(server, "x", 7000, "any") == [9.0, b"a"]
    assert ask(server, "b", 2000) == [9.0, b"b"]  # never shortened
    assert ask(server, "b", 9500) == [9.5, b"b"]
    server.pexpire(QUARANTINE, 6500)  # 3 s later
    assert ask(server, "b", 10_000) == [7.0, b"b"]
    assert server.get(QUARANTINE) == b"10000"
    server.persist(QUARANTINE)
    assert ask(server, "b", 3000) == [3.0, b"b"]
    server.delete(QUARANTINE)
    assert ask(server, "b", 3000) == [-0.0, b"b"]  # -2: none stands
    server.flushall()
    assert ask(server, "drawn:1", 5000, "any") == [5.0, b"drawn:1"]
    assert ask(server, "drawn:2", 5000, "any") == [5.0, b"drawn:1"]
