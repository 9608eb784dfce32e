"""Reconnects: jittered, capped, in nobody's way. In virtual time, without sockets."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from fastredlock import FastRedlock, ReleaseStatus
from fastredlock import _core as core
from tests.support.calls import granted
from tests.support.fixtures import MakeLocks, blocking
from tests.support.proxy import Proxy

MS = 1_000_000


def pauses(locks: FastRedlock, times: int) -> list[int]:
    """Fail to connect again and again; return the ms until each next try is due."""
    engine, now, found = locks._driver.engine, MS, []
    for _ in range(times):
        assert core.by_hand_open_due(engine, False, now) == [0]
        core.by_hand_lost(engine, 0, "refused", now)
        lost = now
        while not core.by_hand_open_due(engine, False, now):
            now += MS
        core.by_hand_lost(engine, 0, "refused", now)
        found.append((now - lost) // MS)
        now += 5_000 * MS
    return found


@blocking  # in virtual time
def test_reconnect_when_it_fails_then_pauses_double_up_to_a_second_and_differ(
    make_locks: MakeLocks,
) -> None:
    many = [pauses(make_locks(["redis://127.0.0.1:1"]), 8) for _ in range(10)]
    for found in many:
        # Two failures are counted per entry: 50 ms, 200 ms, 800 ms, then the cap.
        for pause, longest in zip(found, [50, 200, 800, *[1000] * 5], strict=True):
            assert longest // 2 <= pause <= longest + 1
    assert len({tuple(found) for found in many}) > 1


@blocking  # in virtual time
def test_reconnect_when_a_quorum_is_missing_then_tries_are_20_ms_apart(
    make_locks: MakeLocks,
) -> None:
    engine = make_locks(["redis://127.0.0.1:1"])._driver.engine
    core.by_hand_open_due(engine, True, MS)
    core.by_hand_lost(engine, 0, "refused", MS)
    assert core.by_hand_open_due(engine, True, 20 * MS) == []
    assert core.by_hand_open_due(engine, True, 21 * MS) == [0]


@pytest.mark.slow
def test_reconnect_when_a_minority_refuses_for_long_then_few_tries_are_made(
    proxies: list[Proxy], proxied: Callable[..., FastRedlock]
) -> None:
    locks = proxied()
    proxies[0].set(closes_accepted=True)
    proxies[0].reset()
    before = proxies[0].connections
    ended = time.monotonic() + 1.2
    while time.monotonic() < ended:
        assert granted(locks.acquire("r", timeout=0)).release() is (
            ReleaseStatus.RELEASED
        )
    assert 2 <= proxies[0].connections - before <= 8
