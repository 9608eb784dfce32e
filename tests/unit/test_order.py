"""Which master is written to first."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from itertools import count

import pytest

from fastredlock import FastRedlock
from fastredlock.testing import LocalMasters
from tests.support.calls import connected, granted
from tests.support.fixtures import Raw
from tests.support.waiters import gate_of
from tests.support.waiting import wait_until


@pytest.fixture
def masters() -> Iterator[LocalMasters]:
    """Start five masters."""
    with LocalMasters(5) as masters:
        yield masters


def key_of_gate(gate: int) -> str:
    return next(f"order{i}" for i in count() if gate_of(5, f"order{i}") == gate)


def do_rounds(locks: FastRedlock, rounds: int, gate: int) -> None:
    # At the master that is the first anyhow: a pause of this machine changes nothing.
    for _ in range(rounds // 2):
        with locks.lock(key_of_gate(gate)):
            pass


def test_turns_are_as_configured_but_for_detours(masters: LocalMasters) -> None:
    with FastRedlock(masters.urls) as locks:
        seen = [locks._driver.engine.first_written]
        for pair in range(1, 3 * 32 + 1):
            detour, other = divmod(pair, 32)
            do_rounds(locks, 2, 0 if other else detour)
            seen.append(locks._driver.engine.first_written)
    assert [first for first in seen if first] == [1, 2, 3]
    assert seen[-1] == 3


@pytest.mark.parametrize("gate", range(5))
def test_release_when_the_last_round_is_long_ago_then_goes_to_its_gate_first(
    masters: LocalMasters, gate: int
) -> None:
    with FastRedlock(masters.urls) as locks:
        lease = granted(connected(locks).acquire(key_of_gate(gate)))
        time.sleep(0.01)
        lease.release()
        assert locks._driver.engine.first_written == gate


def test_release_when_somebody_waits_then_goes_to_its_gate_first(
    masters: LocalMasters,
) -> None:
    key = key_of_gate(4)
    with FastRedlock(masters.urls) as locks, FastRedlock(masters.urls) as others:
        lease = granted(locks.acquire(key))
        waiter = threading.Thread(target=lambda: granted(others.acquire(key)).release())
        waiter.start()
        assert wait_until(lambda: others.stats().waits == 1)
        lease.release()
        granted(locks.acquire(key)).release()  # right after one that was told
        assert locks._driver.engine.first_written == 4
        waiter.join()


def test_release_when_the_last_round_was_just_now_then_keeps_the_order_or_checks_first(
    masters: LocalMasters, raw: Raw
) -> None:
    """A native release asks its gate for a queue, and waits for it: so it is first."""
    found = raw(masters.urls[0]).execute_command("COMMAND INFO", "DELIFEQ", "DELEX")
    with FastRedlock(masters.urls) as locks:
        do_rounds(locks, 10, 0)
        seen = set()
        for _ in range(10):  # in some of which this machine may stand still
            time.sleep(0.002)
            do_rounds(locks, 4, 0)
            do_rounds(locks, 2, 4)
            seen.add(locks._driver.engine.first_written == 4)
    assert seen == {True} if any(found) else False in seen
