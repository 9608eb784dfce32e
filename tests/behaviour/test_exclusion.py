"""At most one holder: between calls, objects, threads, processes and broken masters."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis

from fastredlock import ConfigurationError, FastRedlock
from fastredlock.testing import LocalMasters
from tests.support.calls import connected, granted
from tests.support.fixtures import MakeLocks, blocking
from tests.support.keys import KEY, settled_values
from tests.support.lock_process import increment, line_of, take, worker
from tests.support.threads import in_threads, later


def run_incrementers(urls: list[str], counter: Path, count: int, times: int) -> int:
    """Let so many processes increment the counter; return what it says at the end."""
    counter.write_text("0")
    with ExitStack() as running:
        calls = [worker(increment, urls, str(counter), times) for _ in range(count)]
        for process in [running.enter_context(call) for call in calls]:
            assert process.wait(60) == 0
    return int(counter.read_text())


@pytest.mark.slow
def test_processes_when_they_increment_under_the_lock_then_lose_nothing(
    urls: list[str], tmp_path: Path
) -> None:
    assert run_incrementers(urls, tmp_path / "counter", 4, 25) == 100


@pytest.mark.slow
def test_processes_when_a_master_stops_and_others_pause_then_lose_nothing(
    masters: LocalMasters, tmp_path: Path
) -> None:
    # The stopped one stays away: one that came back empty would have forgotten its
    # votes, which Redlock allows only after the longest ttl.
    def trouble() -> None:
        masters.stop(1)
        for i in (2, 3, 2, 3):
            masters.pause(i)
            time.sleep(0.1)
            masters.resume(i)

    with later(0.3, trouble):
        assert run_incrementers(masters.urls, tmp_path / "counter", 3, 50) == 150


@pytest.mark.slow
def test_threads_when_they_share_one_fast_redlock_then_exclude_each_other(
    locks: FastRedlock,
) -> None:
    counter = [0]

    def increment_often() -> None:
        for _ in range(25):
            with locks.lock(KEY):
                value = counter[0]
                time.sleep(0.0005)
                counter[0] = value + 1

    in_threads([increment_often] * 4)
    assert counter == [100]


def test_second_acquire_when_the_first_holds_then_is_none(locks: FastRedlock) -> None:
    assert locks.acquire(KEY, timeout=0)
    assert locks.acquire(KEY, timeout=0) is None


def test_another_fast_redlock_when_one_holds_then_gets_none(
    make_locks: MakeLocks, urls: list[str]
) -> None:
    assert make_locks(urls).acquire(KEY, timeout=0)
    assert make_locks(urls).acquire(KEY, timeout=0) is None


def test_another_process_when_it_holds_then_we_get_none(
    locks: FastRedlock, urls: list[str]
) -> None:
    with worker(take, urls, KEY, 10.0) as holder:
        assert line_of(holder)
        assert locks.acquire(KEY, timeout=0) is None


def test_two_resources_when_both_are_wanted_then_do_not_exclude_each_other(
    locks: FastRedlock,
) -> None:
    assert locks.acquire("a", timeout=0)
    assert locks.acquire("b", timeout=0)


def test_resource_when_given_as_bytes_then_is_the_same_as_its_text(
    locks: FastRedlock,
) -> None:
    assert locks.acquire("größe", timeout=0)
    assert locks.acquire("größe".encode(), timeout=0) is None


@blocking
@pytest.mark.parametrize("call", ["acquire", "lock", "holders"])
def test_resource_when_it_is_none_then_is_refused_and_nothing_is_asked(
    make_locks: MakeLocks, urls: list[str], call: str
) -> None:
    """Seen: `lock(order.ref)` took one lock of all programs where that was None."""
    locks = make_locks(urls)
    with pytest.raises(ConfigurationError, match=r"NoneType: .* default resource"):
        getattr(locks, call)(None).__enter__()
    assert locks.stats().rounds == locks.stats().connects == 0


def test_default_resource_when_none_is_named_then_is_the_one_locked(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis]
) -> None:
    lease = granted(connected(make_locks(urls, "nightly", ttl=7)).acquire())
    assert (lease.resource, lease.ttl) == ("nightly", 7)
    assert settled_values(servers, [lease.token] * 5, "nightly") == [lease.token] * 5


def test_key_when_taken_then_is_the_resource_and_its_value_the_token_everywhere(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    lease = granted(locks.acquire(b"raw \xff\r\n bytes"))
    wanted = [lease.token] * 5
    assert settled_values(servers, wanted, b"raw \xff\r\n bytes") == wanted
    assert [server.dbsize() for server in servers] == [1] * 5


def test_resource_when_it_is_longer_than_any_buffer_then_is_locked(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    long = "x" * 300_000
    with locks.lock(long) as lease:
        assert settled_values(servers, [lease.token] * 5, long) == [lease.token] * 5
    assert settled_values(servers, [None] * 5, long) == [None] * 5
