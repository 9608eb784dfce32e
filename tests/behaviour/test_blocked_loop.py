"""A FastRedlock that blocks, waiting inside an event loop: one warning says so."""

from __future__ import annotations

import asyncio

import pytest

from fastredlock import FastRedlock, Retry
from fastredlock._locking import attempt
from fastredlock._reports import log
from tests.support.awaited import run_on
from tests.support.calls import granted
from tests.support.keys import KEY
from tests.support.loop_calls import taken


@pytest.fixture(autouse=True)
def _first_of_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "logged", set())


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize("kind", ["asyncio", "uvloop"])
@pytest.mark.parametrize("retry", [Retry(), Retry(delay=0.01)], ids=["turn", "delay"])
def test_wait_when_in_a_running_loop_then_is_warned_of_once(
    urls: list[str], caplog: pytest.LogCaptureFixture, kind: str, retry: Retry
) -> None:
    async def main() -> None:
        with FastRedlock(urls, retry=retry) as locks:
            lease = granted(locks.acquire(KEY))
            for _ in range(3):
                assert locks.acquire(KEY, timeout=0.02) is None
            lease.release()

    run_on(kind, main())
    assert said(caplog) == [attempt.BLOCKED_LOOP]


def test_wait_when_in_a_running_loop_then_is_warned_of_before_it(
    urls: list[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(text: str, *values: object) -> None:
        raise TimeoutError

    async def main() -> None:
        with FastRedlock(urls) as locks:
            lease = granted(locks.acquire(KEY))
            monkeypatch.setattr(attempt, "warn_once", end)
            with pytest.raises(TimeoutError):  # and not after 60 s
                locks.acquire(KEY, timeout=60)
            lease.release()

    asyncio.run(main())


def test_call_when_it_does_not_wait_then_is_not_warned_of(
    urls: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        with FastRedlock(urls) as locks, locks.lock(KEY):
            granted(locks.acquire("other", timeout=5)).release()
            assert locks.acquire(KEY, timeout=0) is None

    asyncio.run(main())
    assert said(caplog) == []


def test_wait_when_in_a_thread_or_awaited_then_is_not_warned_of(
    urls: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    from fastredlock.asyncio import FastRedlock as AwaitedLocks

    async def main() -> None:
        async with AwaitedLocks(urls) as awaited:
            lease = await taken(awaited)
            assert await awaited.acquire(KEY, timeout=0.02) is None
            with FastRedlock(urls) as locks:
                assert await asyncio.to_thread(locks.acquire, KEY, timeout=0.02) is None
            await lease.release()

    asyncio.run(main())
    assert said(caplog) == []
