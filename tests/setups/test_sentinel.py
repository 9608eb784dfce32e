"""A service of Sentinel on real servers: found, lost, switched, found again."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator

import pytest
from redis.sentinel import Sentinel

from fastredlock import (
    FastRedlock,
    LeaseLostError,
    NotExtendedError,
    QuorumUnreachableError,
)
from fastredlock import asyncio as awaited
from fastredlock.testing import LocalMasters, LocalSentinels
from tests.support.calls import granted
from tests.support.waiting import wait_until

LOADED = 60.0  # s; a machine that is
QUARANTINE = 1 + 1 + 1 + 2  # s: max_ttl, 1 s, min-replicas-max-lag, its margin


@pytest.fixture(scope="module")
def service() -> Iterator[LocalSentinels]:
    with LocalSentinels(max_lag=1) as service:
        yield service


def new_locks(service: LocalSentinels) -> FastRedlock:
    return FastRedlock([service.url], ttl=1, max_ttl=1)


def refused_with(locks: FastRedlock) -> str:
    """Try until too few masters could answer; return what was said."""
    while True:
        try:
            granted(locks.acquire("service", timeout=1)).release()
        except QuorumUnreachableError as error:
            return str(error)


def acquired_by(locks: FastRedlock, seconds: float) -> float:
    """Try until the lock is had; return when (s)."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            granted(locks.acquire("service", timeout=0.3)).release()
        except QuorumUnreachableError:
            assert time.monotonic() < deadline
        else:
            return time.monotonic()


@pytest.mark.slow
def test_service_when_locked_then_its_primary_has_the_key(
    service: LocalSentinels,
) -> None:
    with new_locks(service) as locks:
        acquired_by(locks, 30)
        lease = granted(locks.acquire("order", timeout=1))
        found = service.command(service.primary(), "GET", "order")
        assert lease.token.decode() in found
        lease.extend()
        lease.release()
        assert service.command(service.primary(), "GET", "order") == "$-1"


@pytest.mark.slow
def test_service_when_locked_by_a_task_then_it_is_found_as_well(
    service: LocalSentinels,
) -> None:
    places = [("127.0.0.1", port) for port in service.sentinels.ports]
    client = Sentinel(places).master_for(service.name, password=service.password)
    with new_locks(service) as locks:
        acquired_by(locks, 30)

    async def lock() -> bool:
        async with (
            awaited.FastRedlock([client], ttl=1, max_ttl=1) as locks,
            locks.lock("task", timeout=5) as lease,
        ):
            return lease.is_valid

    assert asyncio.run(lock())


@pytest.mark.slow
def test_service_when_switched_then_nobody_locks_until_all_leases_have_ended(
    service: LocalSentinels,
) -> None:
    with new_locks(service) as locks, new_locks(service) as other:
        acquired_by(locks, 30)
        acquired_by(other, 5)
        old = service.primary()
        service.fail_over()
        assert wait_until(lambda: service.primary() != old, LOADED)
        promoted = time.monotonic()
        service.follow(old)
        # At first its connections are to the old one, which does not know it yet.
        text = refused_with(locks)
        assert re.search(r"votes in [1-5]\.\d s", text)
        assert time.monotonic() < promoted + 3
        for each in (locks, other, new_locks(service)):
            assert acquired_by(each, 30) > promoted + QUARANTINE - 1


@pytest.mark.slow
def test_service_when_its_name_is_unknown_then_the_error_says_so_in_time(
    service: LocalSentinels,
) -> None:
    url = service.url.replace(service.name, "nobody")
    began = time.monotonic()
    with FastRedlock([url], ttl=1, max_ttl=1) as locks:
        assert wait_until(lambda: "knows no such name" in refused_with(locks), LOADED)
    assert time.monotonic() < began + 15


def test_service_when_no_sentinel_answers_then_the_error_names_each() -> None:
    with LocalMasters(2) as masters:
        ports = masters.ports
        masters.stop(0)
        masters.stop(1)
        places = ",".join(f"127.0.0.1:{port}" for port in ports)
        url = f"redis+sentinel://{places}/name"
        with FastRedlock([url], ttl=1, max_ttl=1) as locks:
            assert wait_until(lambda: "no primary of 'name'" in health_of(locks))
            text = health_of(locks)
    assert all(f"127.0.0.1:{port} " in text for port in ports)
    assert text.count("ConnectionError") == 2


def health_of(locks: FastRedlock) -> str:
    locks.ping()
    return locks.health()[0].last_error or ""


@pytest.mark.slow
def test_lease_when_its_primary_is_replaced_then_is_not_extended_elsewhere(
    service: LocalSentinels,
) -> None:
    with new_locks(service) as locks:
        acquired_by(locks, 30)
        lease = granted(locks.acquire("order", timeout=1))
        old = service.primary()
        service.servers.pause(old)
        assert wait_until(lambda: service.primary() != old, LOADED)
        with pytest.raises((LeaseLostError, NotExtendedError)):
            lease.extend()
        assert not lease.is_valid
        service.servers.resume(old)
        service.follow(old)
