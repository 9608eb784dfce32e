"""Compare-and-delete as a command: it means what the script means, to the letter.

One body of tests for servers that have it, in either form, and for one that has not.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple

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
from fastredlock.asyncio import FastRedlock as AsyncFastRedlock
from fastredlock.testing import LocalMasters
from tests.support.calls import connected, granted
from tests.support.fixtures import MakeLocks, Raw, blocking
from tests.support.keys import KEY
from tests.support.native_servers import (
    KINDS,
    RedisWithDelex,
    native_server,
    program_with,
)
from tests.support.waiting import wait_until

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


@dataclass
class Waiters:
    """Others that wait for resources, and by how much (ms) they got them later."""

    locks: FastRedlock
    gates: list[redis.Redis]
    pool: ThreadPoolExecutor
    ended: dict[str, float] = field(default_factory=dict)
    waiting: list[Future[None]] = field(default_factory=list)

    def wait_for(self, *resources: str) -> None:
        for resource in resources:
            self.waiting.append(self.pool.submit(self._take, resource))
            queue = f"fastredlock:queue:{resource}"
            assert wait_until(
                lambda queue=queue: any(gate.exists(queue) for gate in self.gates)
            )

    def _take(self, resource: str) -> None:
        with granted(self.locks.acquire(resource, timeout=5)):
            self.ended[resource] = time.monotonic()

    def late_ms(self, released: dict[str, float]) -> list[float]:
        for each in self.waiting:
            each.result()
        return sorted(1000 * (self.ended[key] - at) for key, at in released.items())


@pytest.fixture
def waiters(
    native_urls: list[str], make_locks: MakeLocks, raw: Raw
) -> Iterator[Waiters]:
    with ThreadPoolExecutor(40) as pool:
        locks = connected(make_locks(native_urls))
        yield Waiters(locks, [raw(url) for url in native_urls], pool)


# A process that waits asks again by itself, after 250 ms.
TOLD_MS = 100


def test_waiter_is_told_by_a_process_that_then_rests(
    native_urls: list[str], waiters: Waiters, make_locks: MakeLocks
) -> None:
    locks = connected(make_locks(native_urls))
    released = {}
    for key in (f"{KEY}:{i}" for i in range(9)):
        lease = granted(locks.acquire(key, ttl=10))
        waiters.wait_for(key)
        released[key] = time.monotonic()
        assert lease.release() is ReleaseStatus.RELEASED
    assert waiters.late_ms(released)[6] < TOLD_MS


def test_waiters_are_told_by_a_batch(
    native_urls: list[str], waiters: Waiters, make_locks: MakeLocks
) -> None:
    """Seen: nobody waited for what their gates say, and they came 240 ms later."""
    locks = connected(make_locks(native_urls))
    leases = locks.acquire_each([f"{KEY}:{i}" for i in range(200)], ttl=10)
    waited_for = [f"{KEY}:{i}" for i in range(0, 200, 10)]
    waiters.wait_for(*waited_for)
    locks.release_each(leases)
    released = dict.fromkeys(waited_for, time.monotonic())
    assert waiters.late_ms(released)[15] < TOLD_MS


def test_waiter_is_told_by_a_loop_that_then_stands_still(
    native_urls: list[str], waiters: Waiters
) -> None:
    released = {}

    async def run() -> None:
        async with AsyncFastRedlock(native_urls) as locks:
            for key in (f"{KEY}:{i}" for i in range(5)):
                lease = await locks.acquire(key, ttl=10)
                assert lease is not None
                await asyncio.to_thread(waiters.wait_for, key)
                released[key] = time.monotonic()
                await lease.release()
                time.sleep(0.3)  # noqa: ASYNC251  # the loop stands still: the subject

    asyncio.run(run())
    assert waiters.late_ms(released)[3] < TOLD_MS


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
