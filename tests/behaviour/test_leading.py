"""`lead`: one caller at a time leads, term after term."""

from __future__ import annotations

import asyncio
import logging
from contextlib import ExitStack, suppress
from typing import Any

import pytest

from fastredlock import FastRedlock, LeaseLostError, Retry
from fastredlock.asyncio import FastRedlock as AwaitableFastRedlock
from fastredlock.testing import MemoryLocks, MemoryMasters
from fastredlock.testing.asyncio import MemoryLocks as LoopMemoryLocks
from tests.support.awaited import run_on
from tests.support.calls import granted
from tests.support.fixtures import MakeLocks, Servers, blocking
from tests.support.keys import KEY, NOBODY, settled_values
from tests.support.loop_calls import until_cancelled
from tests.support.masters import stop
from tests.support.proxy import Proxy, set_each

TTL = 2.0  # s


@blocking
def test_lead_when_the_body_ends_or_is_left_then_the_lease_is_released(
    locks: FastRedlock, servers: Servers
) -> None:
    terms = []
    for lease in locks.lead(KEY, ttl=TTL):
        terms.append(lease)
        assert [each.is_valid for each in terms] == [False] * (len(terms) - 1) + [True]
        assert locks.current(KEY) is lease
        if len(terms) == 3:
            break
    assert not lease.is_valid
    assert settled_values(servers, NOBODY) == NOBODY
    with suppress(ZeroDivisionError):
        for lease in locks.lead(KEY, ttl=TTL):  # noqa: B007
            raise ZeroDivisionError
    assert not lease.is_valid
    campaign = locks.lead(KEY, ttl=TTL)
    lease = next(campaign)
    campaign.close()
    assert not lease.is_valid


def test_lead_when_its_lease_is_lost_then_campaigns_again() -> None:
    masters = MemoryMasters(auto_advance=True)
    locks = MemoryLocks(masters, ttl=10, fencing=True)
    losses: list[Any] = []
    terms = []
    campaign = locks.lead("r", on_lost=lambda lease, error: losses.append(lease))
    for lease in campaign:
        terms.append(lease.fence)
        masters.advance(60)
        assert lease.is_valid  # it is kept
        if len(terms) == 2:
            break
        masters.steal("r", ttl=30)
        assert lease.lost.wait(10)
        with pytest.raises(LeaseLostError):
            lease.check()
        began = masters.time()
    assert terms == sorted({*terms})
    assert len(losses) == 1
    assert 80 < masters.time() - began < 91  # until the thief's end, and 60 s of a term


def test_lead_when_the_masters_are_away_then_waits_and_logs_it_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    masters = MemoryMasters(auto_advance=True)
    stop(masters, 2)

    class Starting(Retry):
        def after_unreachable(self, draw: float) -> float:
            if masters.time() > 5:
                masters.start(0)
            return super().after_unreachable(draw)

    locks = MemoryLocks(masters, ttl=10, retry=Starting())
    with caplog.at_level(logging.WARNING, "fastredlock"):
        assert next(locks.lead("r"))
    assert masters.time() > 5
    assert sum(each.message.startswith("lead") for each in caplog.records) == 1


class Fast(Retry):
    """Let the masters of these proxies answer at once, from the second try on."""

    proxies: list[Proxy]

    def after_unreachable(self, draw: float) -> float:
        for proxy in self.proxies:
            proxy.set(delay=0)
        return super().after_unreachable(draw)


@blocking
def test_lead_when_a_quorum_answers_too_late_then_tries_again(
    make_locks: MakeLocks, urls: list[str]
) -> None:
    """Seen: ValidityExhaustedError out of the loop, once a process had stood still."""
    with ExitStack() as opened:
        retry = Fast()
        proxies = [opened.enter_context(Proxy(url)) for url in urls]
        object.__setattr__(retry, "proxies", proxies)
        masters = [proxy.url for proxy in proxies]
        locks = make_locks(masters, round_timeout=5, retry=retry)
        granted(locks.acquire(KEY)).release()
        set_each(proxies, delay=0.6)
        campaign = locks.lead(KEY, ttl=0.5)
        assert next(campaign).is_valid
        campaign.close()
        locks.close()


@pytest.mark.parametrize("leave", ["break", "error", "aclose"])
def test_awaitable_lead_when_left_then_the_release_is_sent_before_a_close(
    kind: str, urls: list[str], servers: Servers, leave: str
) -> None:
    async def main() -> None:
        async with AwaitableFastRedlock(urls) as locks:
            kept = locks.lead(KEY, ttl=TTL)
            with suppress(ZeroDivisionError):
                async for lease in kept if leave == "aclose" else locks.lead(KEY):
                    terms.append(lease)
                    if leave == "error":
                        raise ZeroDivisionError
                    break
            if leave == "aclose":
                assert terms[0].is_valid
                await kept.aclose()
            assert not terms[0].is_valid

    terms: list[Any] = []
    run_on(kind, main())
    assert settled_values(servers, NOBODY) == NOBODY


def test_awaitable_lead_when_lost_then_the_task_goes_on_and_campaigns_again() -> None:
    async def main() -> list[str]:
        locks = LoopMemoryLocks(ttl=10)
        said = []
        async for lease in locks.lead("r"):
            if "lost" in said:
                said.append("again")
                break
            locks.lose("r")
            task = asyncio.ensure_future(lease.lost.wait())
            await locks.advance(10)
            assert await task
            said.append("lost")
        async for lease in locks.lead("r"):
            with suppress(LeaseLostError):
                async with lease:  # cancelled where it is lost
                    locks.lose("r")
                    await locks.advance(10)
                    await until_cancelled()
                    said.append("not cancelled")
            break
        return said

    assert asyncio.run(main()) == ["lost", "again"]
