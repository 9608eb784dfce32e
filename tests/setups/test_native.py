"""Compare-and-delete as a command: it means what the script means, to the letter.

One body of tests for the servers here: some have it, in either form, some have not.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest
import redis

from fastredlock import (
    FastRedlock,
    LeaseLostError,
    ReleaseStatus,
)
from fastredlock.testing import LocalMasters
from tests.support.calls import connected, granted
from tests.support.fixtures import MakeLocks, Raw, blocking
from tests.support.keys import KEY
from tests.support.local_servers import PROGRAMS
from tests.support.waiters import Waiters


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


# --- the tests ------------------------------------------------------------------------


pytestmark = blocking
COMMANDS = {"DELIFEQ": "delifeq", "DELEX": "delex"}
ANOTHERS = "another's"


class Place(NamedTuple):
    kind: str
    url: str
    server: redis.Redis

    def counts(self, name: str) -> int:
        stats = self.server.info("commandstats")
        return int(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"])


@pytest.fixture(scope="module", params=["script", "DELIFEQ", "DELEX"])
def running(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    program = program_with(request.param)
    if program is None:
        pytest.skip(f"no server with {request.param} on this machine")
    with LocalMasters(1, server=program) as masters:
        yield request.param, masters.urls[0]


@pytest.fixture
def place(running: tuple[str, str], raw: Raw) -> Place:
    server = raw(running[1])
    server.flushall()
    server.config_resetstat()
    return Place(*running, server)


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
    with pytest.raises(LeaseLostError):
        lease.extend(60)
    assert lease.release() is ReleaseStatus.GONE
    assert (place.server.pttl(KEY) == -1) is isinstance(value, list)
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


def test_server_that_has_the_command_is_asked_by_it_and_once_in_a_write_who_waits(
    place: Place, locks: FastRedlock
) -> None:
    if place.kind not in COMMANDS:
        pytest.skip("asks by script")
    before = place.counts("evalsha") + place.counts("eval")
    for lease in locks.acquire_each([f"{KEY}:{i}" for i in range(20)]):
        granted(lease).extend(10)
    for _ in range(20):
        granted(locks.acquire(KEY)).release()
    assert place.counts("exists") == 20
    assert locks.release_each(locks.acquire_each([f"{KEY}:a", f"{KEY}:b"]))
    assert place.counts("exists") == 21
    assert place.counts("evalsha") + place.counts("eval") == before
    assert place.counts(COMMANDS[place.kind]) == 22


@pytest.fixture(params=[1, 3])
def native_urls(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    program = program_with("DELIFEQ") or program_with("DELEX")
    if program is None:
        pytest.skip("no server with DELIFEQ or DELEX on this machine")
    with LocalMasters(request.param, server=program) as masters:
        yield list(masters.urls)


# A process that waits asks again by itself, after 250 ms.
TOLD = 0.1  # s


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


def test_user_when_the_command_is_forbidden_then_the_script_does_it(
    place: Place, make_locks: MakeLocks
) -> None:
    # The answer to COMMAND INFO names it still.
    forbidden = [f"-{COMMANDS[place.kind]}"] if place.kind in COMMANDS else []
    rules = ["reset", "on", ">pw", "~*", "&*", "+@all", *forbidden]
    place.server.execute_command("ACL", "SETUSER", "ann", *rules)
    locks = connected(make_locks([place.url.replace("//", "//ann:pw@")]))
    for _ in range(3):
        leases = locks.acquire_each([f"{KEY}:{i}" for i in range(8)])
        assert locks.extend_each(leases, 20) == [pytest.approx(20, abs=1)] * 8
        assert set(locks.release_each(leases)) == {ReleaseStatus.RELEASED}
    assert not place.server.keys(f"{KEY}:*")
