"""`in_memory()`: every FastRedlock of a program, those of module heads as well."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from fastredlock import (
    ConfigurationError,
    FastRedlock,
    FastRedlockError,
    LeaseLostError,
)
from fastredlock._locking.driver import Driver
from fastredlock.asyncio import FastRedlock as LoopFastRedlock
from fastredlock.compat import redlock
from fastredlock.testing import MemoryLocks, in_memory
from fastredlock.testing._model import runtime
from tests.support.noted import Noted
from tests.support.processes import run_to_its_end

pytestmark = pytest.mark.usefixtures("thawed")
NOWHERE = [f"redis://nobody:secret@127.0.0.1:{port}" for port in (1, 2, 3)]
locks = FastRedlock(NOWHERE, ttl=10)
loop_locks = LoopFastRedlock(NOWHERE, ttl=10)
stock = locks.lock("stock", timeout=0)


@locks.lock(lambda order: f"orders:{order}", timeout=0)
def ship(order: int) -> bool:
    return locks.acquire(f"orders:{order}", timeout=0) is None


@loop_locks.lock("report", timeout=0)
async def report() -> bool:
    return await loop_locks.acquire("report", timeout=0) is None


def test_locks_of_module_heads_when_in_memory_then_hold_there() -> None:
    with in_memory():
        assert ship(42)
        assert asyncio.run(report())
        with stock as lease:
            assert lease.is_valid
            assert FastRedlock(NOWHERE).acquire("stock", timeout=0) is None


def test_blocking_and_awaitable_when_same_masters_then_exclude_each_other() -> None:
    async def taken() -> bool:
        return await loop_locks.acquire("r", timeout=0) is None

    with in_memory(), locks.lock("r"):
        assert asyncio.run(taken())


@pytest.mark.parametrize("face", [FastRedlock, LoopFastRedlock])
def test_cluster_when_in_memory_then_refuses_what_a_cluster_refuses(face: Any) -> None:
    """Seen: `acquire_all(["a", "b"])` was granted in each test, and never in life."""
    before = face(["redis+cluster://c"], max_ttl=60)
    with in_memory():
        for clustered in (before, face(["redis+cluster://c"], max_ttl=60)):
            with pytest.raises(ConfigurationError, match="several hash slots"):
                clustered.lock_all(["a", "b"])
            with pytest.raises(ConfigurationError, match="a closing brace needs"):
                clustered.lock("a}b")
            assert clustered.lock_all(["{a}:1", "{a}:2"])
        assert FastRedlock(["redis://c"]).acquire_all(["a", "b"]) is not None
        with FastRedlock(["redis+cluster://c"], max_ttl=60).semaphore("a", 2) as lease:
            assert lease.slot in (0, 1)


def test_other_masters_when_in_memory_then_have_keys_of_their_own() -> None:
    with in_memory() as masters:
        other = FastRedlock([("elsewhere", 1)])
        with locks.lock("r"), other.lock("r"):
            masters.stop("elsewhere:1")
            assert not other.ping()[0].votes
            assert all(each.votes for each in locks.ping())
        masters.start("elsewhere:1")
        with pytest.raises(ConfigurationError, match=r"no master 'b:2': .*elsewhere:1"):
            masters.stop("b:2")


def test_clock_and_thief_when_in_memory_then_are_those_of_all() -> None:
    with in_memory() as masters:
        lease = locks.acquire("r", keep_alive=True)
        assert lease is not None
        masters.advance(60)
        assert lease.is_valid
        masters.steal("r")
        masters.advance(10)
        with pytest.raises(LeaseLostError):
            lease.check()


def test_replaced_library_when_in_memory_then_locks_there() -> None:
    with in_memory():
        dlm = redlock.Redlock([{"host": "127.0.0.1", "port": 1}], retry_count=1)
        held = dlm.lock("r", 1000)
        assert held
        assert not dlm.lock("r", 1000)
        dlm.unlock(held)


def test_end_when_reached_then_all_are_on_their_own_masters_again() -> None:
    before = locks._driver
    with in_memory() as masters:
        made = FastRedlock(NOWHERE, ttl=3)
        memory = MemoryLocks()
        other = made.lock("r")
        masters.steal("r")
    assert locks._driver is before is stock._driver
    assert type(made._driver) is type(before)
    assert other._driver is made._driver
    assert made._driver.settings.endpoints == before.settings.endpoints
    assert memory.acquire("r", timeout=0)
    with in_memory():  # and empty at the next time
        assert made.acquire("r", timeout=0)


def test_observer_when_in_memory_then_is_notified_of_all() -> None:
    before, noting = Noted(), Noted()
    observed = FastRedlock(NOWHERE, observer=before)
    with in_memory():
        observed.acquire("a").release()  # type: ignore[union-attr]
        FastRedlock(NOWHERE, observer=noting).acquire("b").release()  # type: ignore[union-attr]
    assert [values[0] for values in before.of("released")] == ["a"]
    assert [values[0] for values in noting.of("released")] == ["b"]


def test_in_memory_when_nested_then_is_refused_and_the_outer_one_stays() -> None:
    with in_memory(), locks.lock("r"):
        with pytest.raises(FastRedlockError, match="one block at a time"), in_memory():
            pytest.fail("entered")
        assert locks.acquire("r", timeout=0) is None


def test_masters_in_memory_without_lupa_then_name_its_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runtime.cache_clear()
    monkeypatch.setitem(sys.modules, "lupa.lua51", None)
    for enter in (MemoryLocks, in_memory().__enter__):
        with pytest.raises(ImportError, match=r"install 'fastredlock\[memory\]'"):
            enter()
    assert FastRedlock._new_driver is Driver


def test_import_of_the_servers_loads_no_lua() -> None:
    code = "import sys, fastredlock.testing; print('lupa' in sys.modules)"
    assert run_to_its_end(code).stdout == "False\n"
