"""Interrupts and signal handlers inside ssl, which is Python code in mid-command."""

from __future__ import annotations

import ssl
from collections.abc import Iterator

import pytest

from fastredlock import FastRedlock, Lease, ReleaseStatus
from tests.support.calls import granted
from tests.support.certificates import Certificates, tls_master
from tests.support.fixtures import MakeLocks, blocking
from tests.support.keys import KEY

pytestmark = blocking  # an interrupt inside ssl ends a loop


@pytest.fixture
def locks(
    tmp_path_factory: pytest.TempPathFactory, make_locks: MakeLocks
) -> Iterator[FastRedlock]:
    certificates = Certificates(tmp_path_factory.mktemp("certificates"))
    with tls_master(certificates) as (_, port):
        options = f"?ssl_ca_certs={certificates.authority}"
        yield make_locks([f"rediss://127.0.0.1:{port}/0{options}"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["write", "read"])
def test_interrupt_when_it_comes_inside_ssl_then_no_reply_is_anothers(
    locks: FastRedlock, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    assert granted(locks.acquire(KEY)).release() is ReleaseStatus.RELEASED
    original = getattr(ssl.SSLObject, name)

    def interrupt(*_: object) -> None:
        monkeypatch.setattr(ssl.SSLObject, name, original)
        raise KeyboardInterrupt

    monkeypatch.setattr(ssl.SSLObject, name, interrupt)
    with pytest.raises(KeyboardInterrupt):
        locks.acquire(KEY, ttl=60)
    lease = granted(locks.acquire(KEY, ttl=60, timeout=2))
    assert locks.acquire(KEY, timeout=0) is None
    assert lease.extend() > 0
    assert lease.release() is ReleaseStatus.RELEASED


@pytest.mark.slow
def test_interrupt_when_it_ends_the_connection_then_the_release_has_another_one(
    locks: FastRedlock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen: the release was carried to a connection that nobody opened any more."""
    granted(locks.acquire(KEY)).release()
    original = ssl.SSLObject.read

    def interrupt(*_: object) -> None:
        monkeypatch.setattr(ssl.SSLObject, "read", original)
        raise KeyboardInterrupt

    monkeypatch.setattr(ssl.SSLObject, "read", interrupt)
    before = locks.stats().connects
    with pytest.raises(KeyboardInterrupt):
        locks.acquire(KEY, ttl=60)
    assert (locks.stats().losses, locks.stats().connects) == (1, before + 1)
    assert [vote.vote.name for vote in locks.holders(KEY)] == ["GRANTED"]


@pytest.mark.slow
def test_handler_when_it_takes_a_lock_inside_ssl_then_commands_keep_their_order(
    locks: FastRedlock, monkeypatch: pytest.MonkeyPatch
) -> None:
    granted(locks.acquire(KEY)).release()
    original = ssl.SSLObject.write
    inner: list[Lease | None] = []

    def write(self: ssl.SSLObject, data: bytes) -> int:
        # What a signal handler does that runs at the start of this function.
        monkeypatch.setattr(ssl.SSLObject, "write", original)
        try:
            inner.append(locks.acquire("inner", timeout=0))
        except Exception:
            inner.append(None)  # its master is busy: no vote, but no wrong one either
        return original(self, data)

    monkeypatch.setattr(ssl.SSLObject, "write", write)
    lease = granted(locks.acquire(KEY, ttl=60, timeout=2))
    assert len(inner) == 1
    assert locks.acquire(KEY, timeout=0) is None
    assert lease.release() is ReleaseStatus.RELEASED
    assert granted(locks.acquire("inner", timeout=2)).release() is (
        ReleaseStatus.RELEASED
    )
