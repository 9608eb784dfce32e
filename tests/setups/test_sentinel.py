"""A service of Sentinel on real servers: found, lost, switched, found again."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterator

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

QUARANTINE = 1 + 1 + 1 + 2  # s: max_ttl, 1 s, min-replicas-max-lag, its margin


@pytest.fixture(scope="module")
def service() -> Iterator[LocalSentinels]:
    with LocalSentinels(max_lag=1) as service:
        yield service


def until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60  # of a loaded machine
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def new_locks(service: LocalSentinels) -> FastRedlock:
    return FastRedlock([service.url], ttl=1, max_ttl=1)


def refused_with(locks: FastRedlock) -> str:
    """Try until too few masters could answer; return what was said."""
    while True:
        try:
            lease = locks.acquire("service", timeout=1)
        except QuorumUnreachableError as error:
            return str(error)
        assert lease is not None
        lease.release()


def acquired_by(locks: FastRedlock, seconds: float) -> float:
    """Try until the lock is had; return when (s)."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            lease = locks.acquire("service", timeout=0.3)
        except QuorumUnreachableError:
            assert time.monotonic() < deadline
            continue
        assert lease is not None
        lease.release()
        return time.monotonic()


@pytest.mark.slow
def test_service_when_locked_then_its_primary_has_the_key(
    service: LocalSentinels,
) -> None:
    with new_locks(service) as locks:
        acquired_by(locks, 30)
        lease = locks.acquire("order", timeout=1)
        assert lease is not None
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
        until(lambda: service.primary() != old)
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
        until(lambda: "knows no such name" in refused_with(locks))
    assert time.monotonic() < began + 15


def test_service_when_no_sentinel_answers_then_the_error_names_each() -> None:
    with LocalMasters(2) as masters:
        ports = masters.ports
        masters.stop(0)
        masters.stop(1)
        places = ",".join(f"127.0.0.1:{port}" for port in ports)
        with FastRedlock(
            [f"redis+sentinel://{places}/name"], ttl=1, max_ttl=1
        ) as locks:
            text = ""
            until(lambda: "no primary of 'name'" in health_of(locks))
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
        lease = locks.acquire("order", timeout=1)
        assert lease is not None
        old = service.primary()
        service.servers.pause(old)
        until(lambda: service.primary() != old)
        with pytest.raises((LeaseLostError, NotExtendedError)):
            lease.extend()
        assert not lease.is_valid
        service.servers.resume(old)
        service.follow(old)
