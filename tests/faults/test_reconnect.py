"""Reconnects: jittered, capped, in nobody's way. In virtual time, without sockets."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable

import pytest
from behaviour.helpers import granted, in_threads, stopwatch
from proxy import Proxy

from fastredlock import FastRedlock, FastRedlockError, ReleaseStatus
from fastredlock import _core as core

MakeLocks = Callable[..., FastRedlock]
MS = 1_000_000


def pauses(locks: FastRedlock, times: int) -> list[int]:
    """Fail to connect again and again; return the ms until each next try is due."""
    engine, now, found = locks._engine, MS, []
    for _ in range(times):
        assert core.engine_due(engine, False, now) == [0]
        core.engine_on_lost(engine, 0, "refused", now)
        lost = now
        while not core.engine_due(engine, False, now):
            now += MS
        core.engine_on_lost(engine, 0, "refused", now)
        found.append((now - lost) // MS)
        now += 5_000 * MS
    return found


def test_reconnect_when_it_fails_then_pauses_double_up_to_a_second_and_differ(
    make_locks: MakeLocks,
) -> None:
    many = [pauses(make_locks(["redis://127.0.0.1:1"]), 8) for _ in range(10)]
    for found in many:
        # Two failures are counted per entry: 50 ms, 200 ms, 800 ms, then the cap.
        for pause, longest in zip(found, [50, 200, 800, *[1000] * 5], strict=True):
            assert longest // 2 <= pause <= longest + 1
    assert len({tuple(found) for found in many}) > 1


def test_reconnect_when_a_quorum_is_missing_then_tries_are_20_ms_apart(
    make_locks: MakeLocks,
) -> None:
    engine = make_locks(["redis://127.0.0.1:1"])._engine
    core.engine_due(engine, True, MS)
    core.engine_on_lost(engine, 0, "refused", MS)
    assert core.engine_due(engine, True, 20 * MS) == []
    assert core.engine_due(engine, True, 21 * MS) == [0]


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


@pytest.mark.slow
def test_threads_when_a_thousand_share_one_then_each_gets_its_lock(
    make_locks: MakeLocks, urls: list[str]
) -> None:
    locks = make_locks(urls)

    def pair(number: int) -> ReleaseStatus:
        return granted(locks.acquire(f"r{number}", timeout=20)).release()

    bodies = [lambda number=number: pair(number) for number in range(1000)]
    assert in_threads(bodies) == [ReleaseStatus.RELEASED] * 1000


@pytest.mark.slow
def test_close_when_another_thread_waits_then_it_gets_a_clear_error(
    make_locks: MakeLocks, urls: list[str]
) -> None:
    locks = make_locks(urls)
    granted(make_locks(urls).acquire("r"))
    tried = threading.Event()
    found: list[BaseException] = []

    def wait() -> None:
        try:
            tried.set()
            locks.acquire("r")
        except FastRedlockError as error:
            found.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    tried.wait()
    locks.close()
    thread.join(5)
    assert [str(error) for error in found] == ["this FastRedlock is closed"]


@pytest.mark.slow
def test_deadline_when_signals_interrupt_every_wait_then_holds(
    proxies: list[Proxy], proxied: Callable[..., FastRedlock]
) -> None:
    locks = proxied(round_timeout=0.2)
    for proxy in proxies:
        proxy.set(holds_down=True)
    calls: list[int] = []
    old = signal.signal(signal.SIGALRM, lambda *_: calls.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
    try:
        with stopwatch() as elapsed, pytest.raises(FastRedlockError):
            locks.acquire("r", timeout=0)
        assert 0.2 <= elapsed() < 0.6
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert len(calls) > 20
