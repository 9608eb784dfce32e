"""A lease that nobody refers to any more, and that nobody has released."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from fastredlock import FastRedlock, Lease
from fastredlock.testing import MemoryLocks
from tests.support.calls import granted
from tests.support.keys import KEY
from tests.support.processes import Fork, run_to_its_end

NOT_RELEASED = f"'{KEY}': its lease is dropped while it is valid, and was not released"

pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture(autouse=True)
def no_older_garbage() -> None:
    """Let no warning of what an earlier test has left come in this one."""
    with warnings.catch_warnings(action="ignore"):
        gc.collect()


def test_lease_when_dropped_alive_then_a_warning_names_it_and_no_token() -> None:
    locks = MemoryLocks()
    with pytest.warns(ResourceWarning, match=NOT_RELEASED) as noted:
        locks.acquire(KEY)
    (vote, *_) = locks.holders(KEY)  # it is not released by that
    assert vote.token_hash is not None
    lease = granted(noted[0].source)
    assert lease.token.decode() not in str(noted[0].message)
    lease.release()


def in_a_block(locks: MemoryLocks) -> None:
    with locks.lock(KEY) as lease:
        lease.extend()


def over(locks: MemoryLocks) -> None:
    lease = granted(locks.acquire(KEY, ttl=1))
    locks.advance(2)
    del lease


def lost(locks: MemoryLocks) -> None:
    lease = granted(locks.acquire(KEY))
    locks.steal(KEY)
    with pytest.raises(Exception, match="lost"):
        lease.extend()


@pytest.mark.parametrize(
    "use",
    [
        lambda locks: locks.acquire(KEY, keep_alive=True) and None,
        lambda locks: locks.acquire(KEY).token,  # it is shown to somebody
        lambda locks: locks.adopt(KEY, locks.acquire(KEY).token).extend(),
        lambda locks: locks.acquire(KEY).release(),
        *(in_a_block, over, lost),
    ],
    ids=["kept", "shown", "adopted", "released", "in a block", "over", "lost"],
)
def test_lease_when_dropped_otherwise_then_is_silent(
    use: Callable[[MemoryLocks], Any],
) -> None:
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        use(MemoryLocks())
        gc.collect()
    assert noted == []


def drop(held: list[Any]) -> None:
    """Let nobody refer to what is in a list any more."""
    held.clear()
    gc.collect()


@pytest.mark.parametrize("is_in_a_cycle", [False, True])
def test_lease_when_extended_or_in_a_cycle_and_dropped_alive_then_warns_as_well(
    is_in_a_cycle: bool,
) -> None:
    lease: Any = granted(MemoryLocks().acquire(KEY))
    lease.extend()
    held = [[lease]]
    if is_in_a_cycle:
        held[0].append(held[0])
    del lease
    with pytest.warns(ResourceWarning, match=NOT_RELEASED):
        drop(held)


def test_forked_child_when_it_drops_its_parents_lease_then_is_silent(
    urls: list[str],
) -> None:
    with FastRedlock(urls) as locks:
        lease: Lease | None = granted(locks.acquire(KEY))

        def forget() -> int:
            nonlocal lease
            with warnings.catch_warnings(record=True) as noted:
                warnings.simplefilter("always")
                lease = None
            return len(noted)

        assert Fork(forget).result() == 0
        granted(lease).release()


@pytest.mark.slow
def test_program_when_it_ends_with_leases_then_prints_nothing(urls: list[str]) -> None:
    code = f"""
import fastredlock
class self: pass
locks = fastredlock.FastRedlock({urls!r})
lease = locks.acquire("a", ttl=0.5)
self.lease = locks.acquire("b", ttl=0.5)
cycle = [locks.acquire("c", ttl=0.5)]
cycle.append(cycle)
"""
    ended = run_to_its_end(code, options=("-W", "always"))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
