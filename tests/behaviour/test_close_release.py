"""`close(release=True)`: what a client still holds is released."""

from __future__ import annotations

import gc
import time

import pytest
import redis

from fastredlock import FastRedlockError, Lease, ReleaseStatus
from fastredlock._locking.locks import held_leases
from fastredlock.testing import LocalMasters
from tests.support import ending_programs
from tests.support.calls import all_granted, granted
from tests.support.fixtures import MakeLocks
from tests.support.keys import KEY, NOBODY, settled_values
from tests.support.processes import run_to_its_end
from tests.support.waiting import stopwatch, wait_until


def keys(servers: list[redis.Redis]) -> set[bytes]:
    return {key for server in servers for key in server.keys()}  # noqa: SIM118


def test_close_with_release_frees_every_lease_of_this_client_and_no_other(
    make_locks: MakeLocks, servers: list[redis.Redis], urls: list[str]
) -> None:
    locks, other = make_locks(urls), make_locks(urls)
    others = granted(other.acquire("other"))
    held = [
        granted(locks.acquire(KEY, ttl=60)),
        granted(locks.acquire_all(["a", "b"])),
        *all_granted(locks.acquire_each([f"each{i}" for i in range(100)])),
        granted(locks.acquire("kept", keep_alive=True)),
    ]
    extended = granted(locks.acquire("extended"))
    extended.extend(30)
    locks.close(release=True)
    assert wait_until(lambda: keys(servers) == {b"other"})
    assert not any(lease.is_valid for lease in [*held, extended])
    assert others.is_valid
    with pytest.raises(FastRedlockError, match="closed"):
        locks.acquire(KEY)


def test_close_without_release_leaves_the_leases(
    make_locks: MakeLocks, servers: list[redis.Redis], urls: list[str]
) -> None:
    locks = make_locks(urls)
    lease = granted(locks.acquire(KEY))
    locks.close()
    assert lease.is_valid
    assert settled_values(servers, [lease.token] * 5) == [lease.token] * 5
    lease.release()


def test_close_with_release_leaves_what_was_adopted_or_released_alone(
    make_locks: MakeLocks, servers: list[redis.Redis], urls: list[str]
) -> None:
    locks, taker = make_locks(urls), make_locks(urls)
    lease = granted(taker.acquire(KEY))
    adopted = locks.adopt(KEY, lease.token)
    granted(locks.acquire("r")).release()
    locks.close(release=True)
    assert settled_values(servers, [lease.token] * 5) == [lease.token] * 5
    assert adopted.release().value == "released"


def test_with_block_whose_client_was_closed_with_release_ends_without_an_error(
    make_locks: MakeLocks, servers: list[redis.Redis], urls: list[str]
) -> None:
    locks = make_locks(urls)
    with locks.lock(KEY) as lease:
        locks.close(release=True)
        assert not lease.is_valid
        assert settled_values(servers, NOBODY) == NOBODY


def test_close_with_release_when_masters_are_silent_still_ends(
    make_locks: MakeLocks, masters: LocalMasters
) -> None:
    locks = make_locks(masters.urls, round_timeout=0.1)
    lease = granted(locks.acquire(KEY))
    for i in range(5):
        masters.pause(i)
    with stopwatch() as seconds:
        locks.close(release=True)
    assert seconds() < 4
    assert not lease.is_valid


def test_lease_that_is_dropped_is_not_kept_alive_to_be_found(
    make_locks: MakeLocks, urls: list[str]
) -> None:
    locks = make_locks(urls)
    granted(locks.acquire(KEY))
    gc.collect()
    assert held_leases(locks._driver, Lease) == []
    began = time.monotonic()
    locks.close(release=True)
    assert time.monotonic() - began < 5


@pytest.mark.slow
def test_close_with_release_when_two_threads_close_then_both_end(
    urls: list[str], servers: list[redis.Redis]
) -> None:
    """Seen: one for ever, with the GIL, as the other one let go of the waker."""
    words = (ending_programs.__name__, "close_by_two_threads", *urls)
    done = run_to_its_end(*words, within=30)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")
    assert keys(servers) == set()


def test_release_each_of_nothing_when_closed_then_is_done(
    make_locks: MakeLocks, urls: list[str]
) -> None:
    locks = make_locks(urls)
    leases = locks.acquire_each(["a", "b"])
    locks.close(release=True)
    assert locks.release_each([]) == []
    assert locks.release_each(leases) == [ReleaseStatus.GONE] * 2
