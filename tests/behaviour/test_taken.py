"""What ResourceTakenError says of the holder: another process, or this one itself."""

from __future__ import annotations

import pickle
import re
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fastredlock import FastRedlock, ReleaseStatus, ResourceTakenError, Vote
from fastredlock.testing import LocalMasters, MemoryLocks
from tests.support.calls import connected, granted
from tests.support.fixtures import MakeLocks, Servers, blocking
from tests.support.keys import KEY, delete, set_all
from tests.support.waiting import stopwatch

OWNER = "web-7:4711"
ENTRIES: dict[str, Callable[[Any], Any]] = {
    "lock": lambda locks: locks.lock(KEY, timeout=0.05),
    "all": lambda locks: locks.lock_all(["another", KEY], timeout=0.05),
    "shared": lambda locks: locks.lock(KEY, timeout=0.05, shared=True),
}


@pytest.fixture
def token(make_locks: MakeLocks, urls: list[str]) -> bytes:
    """Hold KEY on all masters as another process would: no lease of it is here."""
    lease = granted(make_locks(urls, owner=OWNER).acquire(KEY, ttl=30))
    return bytes(lease.token)


def refused(lock: Any) -> ResourceTakenError:
    with pytest.raises(ResourceTakenError) as raised, lock:
        pytest.fail("its body runs")
    return raised.value


@pytest.mark.parametrize("entry", ENTRIES)
def test_error_when_another_process_holds_then_names_its_owner(
    locks: FastRedlock, token: bytes, entry: str
) -> None:
    error = refused(ENTRIES[entry](locks))
    said = rf"\({OWNER} has held it since 20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ\): 0 of 5"
    assert re.search(said, str(error)), error
    assert {vote.owner for vote in error.votes} == {OWNER}
    assert {vote.vote for vote in error.votes} == {Vote.TAKEN}
    token_hash = error.votes[0].token_hash
    assert locks.break_(KEY, token_hash=str(token_hash)) is ReleaseStatus.RELEASED
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.votes) == (str(error), error.votes)
    assert token.decode() not in str(error)
    assert token[:27].decode() not in str(error)


def test_error_when_nothing_was_waited_for_then_nobody_was_asked(
    locks: FastRedlock, token: bytes, servers: Servers
) -> None:
    error = refused(locks.lock(KEY, timeout=0))
    assert {vote.owner for vote in error.votes} == {None}
    looks = [server.info("commandstats").get("cmdstat_zcount") for server in servers]
    refused(locks.lock(KEY, timeout=0))
    again = [server.info("commandstats").get("cmdstat_zcount") for server in servers]
    assert again == looks


def test_error_when_no_token_has_a_quorum_then_each_vote_names_its_own(
    locks: FastRedlock, token: bytes, servers: Servers
) -> None:
    set_all(servers[:3], "a client's that names no owner")
    error = refused(locks.lock(KEY, timeout=0.05))
    assert [vote.owner for vote in error.votes] == [None] * 3 + [OWNER] * 2
    assert error.hint == ""
    assert f"held by {OWNER}" in str(error)


@pytest.mark.parametrize("is_one_client", [True, False])
def test_error_when_a_lease_of_this_process_holds_then_says_so(
    make_locks: MakeLocks, urls: list[str], is_one_client: bool
) -> None:
    locks = make_locks(urls)
    holder = locks if is_one_client else make_locks(urls)
    lease = granted(holder.acquire(KEY, ttl=30))
    said = "(a lease without a block in this process has held it for "
    assert said in str(refused(locks.lock(KEY, timeout=0.05)))
    lease.release()
    with holder.lock(KEY, ttl=30) as lease:
        error = refused(make_locks(urls).lock(KEY, timeout=0.05))
        assert "(another caller in this process has held it for " in str(error)
        assert lease.token.decode() not in str(error)


def test_error_when_a_lease_of_this_process_was_broken_then_names_the_new_holder(
    locks: FastRedlock, token: bytes, servers: Servers
) -> None:
    delete(servers)
    lease = granted(locks.acquire(KEY, ttl=30))
    set_all(servers, token)
    assert lease.is_valid
    assert refused(locks.lock(KEY, timeout=0.05)).hint.startswith(OWNER)


@blocking
def test_error_when_this_process_has_adopted_the_lease_then_says_so(
    locks: FastRedlock, token: bytes
) -> None:
    adopted = locks.adopt(KEY, token)
    error = refused(locks.lock(KEY, timeout=0.05))
    assert error.hint == "a lease without a block in this process adopted it"
    adopted.release()


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start(20)
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("traced")
@blocking
def test_error_when_memory_is_traced_then_names_the_line_of_the_lease(
    locks: FastRedlock,
) -> None:
    lease = granted(locks.acquire(KEY, ttl=30))
    line = sys._getframe().f_lineno - 1
    error = refused(locks.lock(KEY, timeout=0.05))
    assert error.hint.endswith(f", taken at {__file__}:{line}"), error.hint
    lease.release()


@blocking
def test_error_when_a_master_stands_still_then_comes_in_time(
    make_locks: MakeLocks, masters: LocalMasters
) -> None:
    locks, holder = (connected(make_locks(masters.urls)) for _ in range(2))
    lease = granted(holder.acquire(KEY, ttl=30))
    masters.pause(4)
    with stopwatch() as took:
        error = refused(locks.lock(KEY, timeout=0.1))
    assert took() < 0.1 + 2.0
    assert "a lease without a block in this process" in error.hint
    masters.resume(4)
    lease.release()


def test_error_when_in_memory_then_names_the_holder_as_well() -> None:
    locks = MemoryLocks(owner=OWNER)
    token = granted(locks.acquire(KEY, ttl=30)).token
    error = refused(locks.lock(KEY, timeout=1))
    assert error.hint.startswith(f"{OWNER} has held it since ")
    assert token.decode() not in str(error)
