"""Compare-and-delete as a command: it means what the script means, to the letter.

One body of tests for servers that have it, in either form, and for one that has not.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple
from urllib.parse import urlsplit

import hiredis
import pytest
import redis

from fastredlock import (
    FastRedlock,
    LeaseLostError,
    NotExtendedError,
    ReleaseStatus,
    Retry,
    Vote,
)
from fastredlock._options import scripts
from fastredlock.asyncio import FastRedlock as AsyncFastRedlock
from fastredlock.testing import LocalMasters
from tests.support.calls import connected, granted
from tests.support.fake_server import FakeServer, Words
from tests.support.fixtures import MakeLocks, Raw, blocking
from tests.support.keys import KEY
from tests.support.local_servers import PROGRAMS
from tests.support.waiters import Waiters, hand_over
from tests.support.waiting import wait_until

# --- servers that compare and delete in one command -----------------------------------


KINDS = ("script", "DELIFEQ", "DELEX", "DELEX made")


class RedisWithDelex:
    """Stand before a real server, and have `DELEX` and `SET ... IFEQ` as Redis 8.4.

    No such Redis is at hand everywhere: it answers by the scripts that its commands
    stand for. Where a real one is on PATH, the tests run on it as well, and judge this.
    """

    def __init__(self, url: str) -> None:
        at = urlsplit(url)
        self._server = socket.create_connection((at.hostname, at.port or 6379))
        self._server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.refuses: dict[bytes, bytes] = {}  # by name, an error reply

    def answer(self, words: Words) -> bytes:
        """Return what it says to a command."""
        name = words[0].upper()
        if name in self.refuses:
            return self.refuses[name]
        if name == b"HELLO":
            return b"%1\r\n$6\r\nserver\r\n$5\r\nredis\r\n"
        if name == b"COMMAND":
            return b"*2\r\n*-1\r\n*1\r\n$5\r\ndelex\r\n"
        if name == b"DELEX":
            _, key, _, token = words
            return self._ask([b"EVAL", scripts.RELEASE, b"1", key, token])
        if name == b"SET" and words[3] == b"IFEQ":
            _, key, _, _, token, _, ttl = words
            said = self._ask([b"EVAL", scripts.EXTEND, b"1", key, token, ttl])
            return {
                b":1\r\n": b"+OK\r\n",
                b":0\r\n": b"_\r\n",
                b":2\r\n": b"_\r\n",
            }.get(said, said)
        return self._ask(words)

    def _ask(self, words: Words) -> bytes:
        parts = [b"$%d\r\n%b\r\n" % (len(word), word) for word in words]
        self._server.sendall(b"*%d\r\n" % len(words) + b"".join(parts))
        reader, said = hiredis.Reader(notEnoughData=self), b""
        while reader.gets() is self:
            data = self._server.recv(65536)
            if not data:
                raise ConnectionError("the server has closed its connection")
            said += data
            reader = hiredis.Reader(notEnoughData=self)
            reader.feed(said)
        return said

    def close(self) -> None:
        self._server.close()


def program_with(command: str) -> str | None:
    """Return a server program on this machine that has this command, or None."""
    for each in PROGRAMS:
        (program,) = each.values  # type: ignore[attr-defined]  # a ParameterSet
        asked = subprocess.run(
            [program, "--version"], capture_output=True, text=True, check=True
        )
        words = dict(w.split("=", 1) for w in asked.stdout.split() if "=" in w)
        version = tuple(int(part) for part in words["v"].split(".")[:2])
        is_valkey = asked.stdout.startswith("Valkey")
        least = (9, 0) if is_valkey else (8, 4)
        name = "DELIFEQ" if is_valkey else "DELEX"
        if (version >= least and name == command) or (
            command == "script" and version < least
        ):
            return str(program)
    return None


@contextmanager
def native_server(kind: str) -> Iterator[tuple[str, str, RedisWithDelex | None]]:
    """Run one; give the URL for clients, that of the real server, and what is made."""
    program = program_with("script" if kind == "DELEX made" else kind)
    if program is None:
        yield "", "", None
        return
    with LocalMasters(1, server=program) as masters:
        (url,) = masters.urls
        if kind != "DELEX made":
            yield url, url, None
            return
        made = RedisWithDelex(url)
        names = b"SET EVAL EVALSHA SCRIPT CLIENT INFO TIME HELLO COMMAND DELEX"
        answers = dict.fromkeys(names.split(), made.answer)
        with FakeServer({**answers, b"SUBSCRIBE": b"-NOPERM no\r\n"}) as fake:
            yield fake.url, url, made
        made.close()


# --- the tests ------------------------------------------------------------------------


pytestmark = blocking
COMMANDS = {"DELIFEQ": "delifeq", "DELEX": "delex"}
ANOTHERS = "another's"


class Place(NamedTuple):
    kind: str
    url: str
    server: redis.Redis
    made: RedisWithDelex | None

    def counts(self, name: str) -> int:
        """Say how often the server was asked so."""
        stats = self.server.info("commandstats")
        return int(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"])


@pytest.fixture(scope="module", params=KINDS)
def running(
    request: pytest.FixtureRequest,
) -> Iterator[tuple[str, str, str, RedisWithDelex | None]]:
    with native_server(request.param) as (url, real, made):
        if not url:
            pytest.skip(f"no server with {request.param} on this machine")
        yield request.param, url, real, made


@pytest.fixture
def place(
    running: tuple[str, str, str, RedisWithDelex | None], raw: Raw
) -> Iterator[Place]:
    kind, url, real, made = running
    server = raw(real)
    server.flushall()
    server.config_resetstat()
    yield Place(kind, url, server, made)
    if made is not None:
        made.refuses.clear()


@pytest.fixture
def locks(place: Place, make_locks: MakeLocks) -> FastRedlock:
    return connected(make_locks([place.url]))


def test_lease_when_extended_then_lives_for_the_new_ttl(
    place: Place, locks: FastRedlock
) -> None:
    with granted(locks.acquire(KEY, ttl=10)) as lease:
        assert 59 < lease.extend(60) < 60
        assert 59_000 < place.server.pttl(KEY) <= 60_000
        assert place.server.get(KEY) == lease.token
        assert lease.extend(5) < 5
        assert place.server.pttl(KEY) <= 5000
    assert not place.server.exists(KEY)


@pytest.mark.parametrize("value", [None, ANOTHERS, ["x"]])
def test_key_when_it_is_not_ours_then_is_left_as_it_is_and_never_made_again(
    place: Place, locks: FastRedlock, value: str | list[str] | None
) -> None:
    lease = granted(locks.acquire(KEY, ttl=10))
    place.server.delete(KEY)
    if isinstance(value, str):
        place.server.set(KEY, value, px=20_000)
    elif value:
        place.server.rpush(KEY, *value)
    before = place.server.dump(KEY)
    if isinstance(value, list):  # of another type: nothing is known
        with pytest.raises(NotExtendedError, match="WRONGTYPE") as caught:
            lease.extend(60)
        assert [vote.vote for vote in caught.value.votes] == [Vote.FAILED]
        assert place.server.pttl(KEY) == -1
    else:
        with pytest.raises(LeaseLostError):
            lease.extend(60)
        assert lease.release() is ReleaseStatus.GONE
        assert place.server.pttl(KEY) <= 20_000
    assert place.server.dump(KEY) == before


def test_tokens_when_one_begins_with_the_other_or_has_line_ends_then_are_not_confused(
    place: Place, make_locks: MakeLocks
) -> None:
    tokens = iter([b"t\r\n$1\r\n", b"t"])
    locks = connected(make_locks([place.url], new_token=lambda: next(tokens)))
    lease = granted(locks.acquire(KEY, ttl=10))
    other = locks.adopt(KEY, b"t")
    with pytest.raises(LeaseLostError):
        other.extend(10)
    assert other.release() is ReleaseStatus.GONE
    assert lease.extend(10) > 9
    assert lease.release() is ReleaseStatus.RELEASED


def test_lock_when_it_does_not_expire_then_is_extended_and_released(
    place: Place, locks: FastRedlock
) -> None:
    lease = granted(locks.acquire(KEY, ttl=10))
    place.server.persist(KEY)
    assert lease.extend(20) > 19
    assert 0 < place.server.pttl(KEY) <= 20_000
    assert lease.release() is ReleaseStatus.RELEASED


def test_server_when_it_has_no_memory_left_then_extends_and_releases(
    place: Place, locks: FastRedlock
) -> None:
    """PEXPIRE needs none, SET ... IFEQ does: then the script is asked."""
    leases = [granted(locks.acquire(f"{KEY}:{i}", ttl=10)) for i in range(5)]
    place.server.config_set("maxmemory", 1)
    try:
        assert all(lease.extend(60) > 59 for lease in leases)
        assert {lease.release() for lease in leases} == {ReleaseStatus.RELEASED}
    finally:
        place.server.config_set("maxmemory", 0)


def test_server_that_has_the_command_is_asked_by_it_and_a_gate_by_script(
    place: Place, locks: FastRedlock
) -> None:
    if place.kind not in COMMANDS:
        pytest.skip("asks by script")
    before = place.counts("evalsha")
    for lease in locks.acquire_each([f"{KEY}:{i}" for i in range(20)]):
        granted(lease).extend(10)
    assert place.counts("evalsha") == before
    before += place.counts("eval")
    for _ in range(20):
        granted(locks.acquire(KEY)).release()
    assert locks.release_each(locks.acquire_each([f"{KEY}:a", f"{KEY}:b"]))
    assert place.counts("evalsha") + place.counts("eval") == before + 22
    assert place.counts(COMMANDS[place.kind]) == 0


@pytest.fixture(params=[1, 3])
def native_urls(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    program = program_with("DELIFEQ") or program_with("DELEX")
    if program is None:
        pytest.skip("no server with DELIFEQ or DELEX on this machine")
    with LocalMasters(request.param, server=program) as masters:
        yield list(masters.urls)


def test_masters_that_are_no_gate_are_released_by_the_command(
    native_urls: list[str], make_locks: MakeLocks, raw: Raw
) -> None:
    locks = connected(make_locks(native_urls))
    masters = [raw(url) for url in native_urls]
    for each in masters:
        each.config_resetstat()
    for i in range(20):
        granted(locks.acquire(f"{KEY}:{i}", ttl=10)).release()
    assert wait_until(lambda: not any(each.dbsize() for each in masters))
    counted = Counter[str]()
    for each in masters:
        for name, stats in each.info("commandstats").items():
            counted[name.removeprefix("cmdstat_")] += stats["calls"]
    assert counted["evalsha"] == 20
    assert counted["delifeq"] + counted["delex"] == 20 * (len(masters) - 1)


# A process that waits asks again by itself, after 250 ms.
TOLD = 0.1  # s


def test_waiter_is_told_by_a_process_that_then_rests(
    native_urls: list[str], make_locks: MakeLocks
) -> None:
    holder, locks = [connected(make_locks(native_urls)) for _ in range(2)]
    late = sorted(hand_over(holder, [locks], f"{KEY}:{i}") for i in range(9))
    assert late[6] < TOLD


def test_waiters_are_told_by_a_batch(
    native_urls: list[str], make_locks: MakeLocks
) -> None:
    """Seen: nobody waited for what their gates say, and they came 240 ms later."""
    holder, locks = [connected(make_locks(native_urls)) for _ in range(2)]
    leases = holder.acquire_each([f"{KEY}:{i}" for i in range(200)], ttl=10)
    with Waiters() as waiters:
        for i in range(0, 200, 10):
            waiters.come(f"{i}", locks, key=f"{KEY}:{i}")
        holder.release_each(leases)
        released = time.monotonic()
    assert sorted(waiters.at.values())[15] - released < TOLD


def test_waiter_is_told_by_a_loop_that_then_stands_still(
    native_urls: list[str], make_locks: MakeLocks
) -> None:
    waiting, late = connected(make_locks(native_urls)), list[float]()

    async def run() -> None:
        async with AsyncFastRedlock(native_urls) as locks:
            for i in range(5):
                lease = await locks.acquire(KEY, ttl=10)
                assert lease is not None
                with Waiters() as waiters:
                    await asyncio.to_thread(waiters.come, f"{i}", waiting)
                    released = time.monotonic()
                    await lease.release()
                    time.sleep(0.3)  # noqa: ASYNC251  # it stands still: the subject
                    late.append(waiters.at[f"{i}"] - released)

    asyncio.run(run())
    assert sorted(late)[3] < TOLD


def url_of_user_without_it(place: Place) -> str:
    """Forbid the command to a user; the answer to COMMAND INFO names it still."""
    if place.made is not None:
        place.made.refuses = {b"DELEX": b"-NOPERM no\r\n"}
        return place.url
    forbidden = [f"-{COMMANDS[place.kind]}"] if place.kind in COMMANDS else []
    rules = ["reset", "on", ">pw", "~*", "&*", "+@all", *forbidden]
    place.server.execute_command("ACL", "SETUSER", "ann", *rules)
    return place.url.replace("//", "//ann:pw@")


def test_user_when_the_command_is_forbidden_then_the_script_does_it(
    place: Place, make_locks: MakeLocks
) -> None:
    locks = connected(make_locks([url_of_user_without_it(place)]))
    for _ in range(3):
        leases = locks.acquire_each([f"{KEY}:{i}" for i in range(8)])
        assert locks.extend_each(leases, 20) == [pytest.approx(20, abs=1)] * 8
        assert set(locks.release_each(leases)) == {ReleaseStatus.RELEASED}
    assert not place.server.keys(f"{KEY}:*")


@pytest.mark.slow
def test_fleet_when_it_is_mixed_then_each_master_is_asked_in_its_own_way(
    make_locks: MakeLocks, raw: Raw
) -> None:
    kinds = [k for k in ("script", "DELIFEQ", "DELEX") if program_with(k)]
    if len(kinds) < 2:
        pytest.skip("one kind of server on this machine")
    with (
        LocalMasters(2, server=program_with(kinds[0])) as one,
        LocalMasters(1, server=program_with(kinds[1])) as two,
    ):
        urls = [*one.urls, *two.urls]
        locks = connected(make_locks(urls, retry=Retry(delay=0.01)))
        for i in range(50):
            lease = granted(locks.acquire(f"{KEY}:{i}", ttl=10))
            assert lease.extend(20) > 19
            assert lease.release() is ReleaseStatus.RELEASED
        raws = [raw(url) for url in urls]
        assert wait_until(lambda: not any(each.keys(f"{KEY}*") for each in raws))
        assert [each.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"]
                > 50 for each in raws] == [True, True, False]  # fmt: skip
