"""A service of Sentinel on real servers: found, lost, switched, found again."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import redis

from fastredlock import (
    FastRedlock,
    LeaseLostError,
    NotExtendedError,
    QuorumUnreachableError,
)
from fastredlock._endpoints import sentinel
from fastredlock._options import scripts
from fastredlock.testing import LocalMasters, LocalSentinels
from tests.support.calls import granted, insisted
from tests.support.local_servers import PROGRAMS
from tests.support.waiting import wait_until

LOADED = 60.0  # s; a machine that is
QUARANTINE = 1 + 1 + 2 + 2  # s: max_ttl, 1 s, twice min-replicas-max-lag, its margin


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
def test_service_when_read_then_its_primary_has_the_readers(
    service: LocalSentinels,
) -> None:
    with new_locks(service) as locks, new_locks(service) as other:
        acquired_by(locks, 30)
        acquired_by(other, 5)
        leases = [
            granted(each.acquire("read", shared=True, timeout=1))
            for each in (locks, other)
        ]
        assert service.command(service.primary(), "ZCARD", "read") == ":2"
        for lease in leases:
            assert lease.extend() > 0
            assert locks.acquire("read", timeout=0) is None
            lease.release()
        assert service.command(service.primary(), "EXISTS", "read") == ":0"


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
        assert re.search(r"votes in [1-6]\.\d s", text)
        assert time.monotonic() < promoted + 3
        for each in (locks, other, new_locks(service)):
            assert acquired_by(each, 30) > promoted + QUARANTINE - 1


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("TAKE_TURN", (1, "order", "token", 30_000, "process", 0, 0)),
        ("ACQUIRE_ALL", (2, "order", "stock", "token", 30_000)),
        ("ACQUIRE_AGAIN", (1, "order", "token", 30_000)),
    ],
)
def test_script_when_its_server_has_too_few_replicas_then_grants_nothing(
    program: str, script: str, words: tuple[object, ...]
) -> None:
    """Whether min-replicas-to-write holds scripts is the business of a server."""
    options = "--min-replicas-to-write", "1", "--min-replicas-max-lag", "1"
    with (
        LocalMasters(1, server=program, options=options) as master,
        redis.Redis.from_url(master.urls[0]) as server,
    ):
        with pytest.raises(redis.RedisError, match="good replicas"):
            server.execute_command("EVAL", getattr(scripts, script), *words)
        assert server.dbsize() == 0


@pytest.mark.slow
@pytest.mark.parametrize("program", [one for one in PROGRAMS if "valkey" in str(one)])
def test_service_when_of_valkey_with_two_replicas_then_locks_and_fails_over(
    program: str,
) -> None:
    """Seen: a line of its INFO was not understood, and nobody ever locked."""
    with (
        LocalSentinels(replicas=2, max_lag=1, server=program) as service,
        new_locks(service) as locks,
    ):
        acquired_by(locks, 30)
        promoted = switch(service)
        assert acquired_by(locks, 40) > promoted + QUARANTINE - 1


def switch(service: LocalSentinels) -> float:
    """Let a replica take over, and the old primary follow it; return when (s)."""
    old = service.primary()
    for _ in range(3):  # sentinels that are not served in time give a failover up
        service.fail_over()
        if wait_until(lambda: service.primary() != old, LOADED / 3):
            break
    assert service.primary() != old
    promoted = time.monotonic()
    service.follow(old)
    return promoted


@pytest.mark.slow
@pytest.mark.parametrize(("shared", "getter"), [(False, "GET"), (True, "ZRANGE")])
def test_lease_when_its_service_keeps_all_writes_then_outlives_a_failover(
    service: LocalSentinels, shared: bool, getter: str
) -> None:
    url = f"{service.url}?lossless_failover=true"  # of a lock that was copied long ago
    with FastRedlock([url], ttl=60) as locks, FastRedlock([url]) as new:
        lease = granted(locks.acquire("kept", timeout=5, shared=shared))
        switch(service)
        texts = insisted(lease.extend)
        words = ("0", "-1") if shared else ()
        found = service.command(service.primary(), getter, "kept", *words)
        assert lease.token.decode() in found
        found_by_new: list[object] = []
        insisted(lambda: found_by_new.append(new.acquire("kept", timeout=0)))
        assert found_by_new == [None]
        lease.release()
        texts += insisted(lambda: granted(new.acquire("kept", timeout=1)).release())
    assert "votes in" not in texts


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
    assert text.count("did not answer") == 2


def health_of(locks: FastRedlock) -> str:
    locks.ping()
    return locks.health()[0].last_error or ""


@pytest.mark.slow
def test_client_when_an_address_is_a_sentinel_of_another_service_then_stays_at_its_own(
    service: LocalSentinels,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Seen: it waited for a quarantine and locked there, beside all the others."""
    monkeypatch.setattr(sentinel, "SECOND_OPINION", LOADED)
    with LocalSentinels(replicas=1, sentinels=1) as other, ExitStack() as stack:
        here, there = service.sentinels.ports, other.sentinels.ports
        for ports in (here[:2] + there, there + here[:2]):
            places = ",".join(f"127.0.0.1:{port}" for port in ports)
            url = f"redis+sentinel://:local@{places}/mymaster"
            locks = stack.enter_context(FastRedlock([url], ttl=1, max_ttl=1))
            acquired_by(locks, 30)
            for _ in range(4):
                service.command(service.primary(), "CLIENT", "KILL", "TYPE", "normal")
                with granted(locks.acquire("order", timeout=30)):
                    assert service.command(service.primary(), "GET", "order") != "$-1"
            assert other.command(other.primary(), "KEYS", "*") == "*0"
        assert f"127.0.0.1:{there[0]} is of another service of this name" in caplog.text


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
