"""Replies that come late, in pieces, twice or never: none is read as another's."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fastredlock import QuorumUnreachableError, ReleaseStatus, Vote
from fastredlock import _core as core
from fastredlock.testing import LocalMasters
from tests.support.calls import granted
from tests.support.fake_server import FakeServer
from tests.support.fixtures import MakeLocks, Servers, blocking
from tests.support.keys import KEY, NOBODY, set_all, settled_values, values
from tests.support.proxy import Proxy, set_each

MS = 1_000_000
QUICK = {"round_timeout": 0.1, "connect_timeout": 0.5}


# --- in pieces ------------------------------------------------------------------------


def recorded(url: str, make_locks: MakeLocks) -> bytes:
    """Return what a real server says to a handshake, a SET and a release."""
    with Proxy(url) as proxy:
        locks = make_locks([proxy.url])
        assert granted(locks.acquire(KEY)).release() is ReleaseStatus.RELEASED
        locks.close()
        return proxy.sent_down


def replies_of(conversation: bytes) -> tuple[bytes, bytes, bytes]:
    """Split it: the handshake; +OK (SET), two bulks in an array (TIME); :1."""
    start, end = conversation.rindex(b"+OK\r\n*2\r\n"), conversation.rindex(b":1\r\n")
    return conversation[:start], conversation[start:end], conversation[end:]


def replayed(pieces: list[bytes], make_locks: MakeLocks) -> tuple[str, str]:
    """Feed the engine the pieces, without a socket; return both verdicts."""
    engine = make_locks(["redis://127.0.0.1:1/0"])._driver.engine
    terms = core.Terms(10_000, 2 * MS, 100 * MS)
    acquire = engine.new_round(int(core.Operation.ACQUIRE), b"k", b"t", terms)
    release = engine.new_release(acquire, terms)
    core.by_hand_open_due(engine, True, 10_000 * MS)
    core.by_hand_connected(engine, 0, 10_000 * MS)
    for piece in pieces:
        core.by_hand_receive(engine, 0, piece, 10_001 * MS)
        if engine.states[0][0].name == "READY" and not acquire.is_opened:
            core.by_hand_start(engine, acquire, 10_001 * MS)
            release = engine.new_release(acquire, terms)
        elif acquire.is_won and not release.is_opened:
            core.by_hand_start(engine, release, 10_001 * MS)
    return acquire.verdict.name, release.verdict.name


@pytest.mark.slow
@blocking  # without a socket
def test_replies_when_cut_at_every_byte_then_each_goes_to_its_command(
    shared_masters: LocalMasters, servers: Servers, make_locks: MakeLocks
) -> None:
    handshake, first, last = replies_of(recorded(shared_masters.urls[0], make_locks))
    cuts = [
        [handshake[:k], handshake[k:], first, last] for k in range(0, len(handshake), 7)
    ]
    cuts += [[handshake, first[:k], first[k:], last] for k in range(len(first))]
    cuts += [[handshake, first, last[:k], last[k:]] for k in range(len(last))]
    for pieces in cuts:
        assert replayed(pieces, make_locks) == ("WON", "WON"), pieces
    drip = [bytes([byte]) for byte in handshake + first + last]
    assert replayed(drip, make_locks) == ("WON", "WON")


def test_replies_when_they_come_byte_by_byte_then_the_driver_reads_them(
    shared_masters: LocalMasters,
    servers: Servers,
    make_locks: MakeLocks,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = str(tmp_path_factory.mktemp("drip") / "s")
    with Proxy(shared_masters.urls[0], path) as proxy:
        locks = make_locks([proxy.url])
        locks.connect()
        proxy.set(slice_size=1)
        lease = granted(locks.acquire(KEY, timeout=0))
        assert lease.extend() > 0
        assert lease.release() is ReleaseStatus.RELEASED


# --- one too many ---------------------------------------------------------------------


@pytest.mark.parametrize("name", [b"SET", b"EVALSHA", b"TIME"])
def test_connection_when_a_reply_fits_no_question_then_is_given_up(
    make_fake: Callable[..., FakeServer], make_locks: MakeLocks, name: bytes
) -> None:
    # Read on, it would answer every command with the reply of the one before.
    fake = make_fake({name: b"+STRANGE\r\n"})
    locks = make_locks([fake.url], **QUICK)
    locks.connect()
    try:
        lease = locks.acquire(KEY, timeout=0)
    except QuorumUnreachableError:
        lease = None
    if lease is not None:
        lease.release()
    fake.answers.update({name: b"*0\r\n" if name == b"TIME" else b":1\r\n"})
    fake.answers[b"SET"] = b"+OK\r\n"
    assert granted(locks.acquire(KEY, timeout=2)).release() is ReleaseStatus.RELEASED
    assert fake.connections >= 2
    assert "fits no question" in (locks.health()[0].last_error or "")


# --- late and lost --------------------------------------------------------------------


def test_replies_when_held_past_the_deadline_then_count_for_their_own_rounds(
    proxies: list[Proxy], proxied: MakeLocks, servers: Servers
) -> None:
    locks = proxied(**QUICK)
    set_all(servers[:2], b"theirs", "taken")
    set_each(proxies, holds_down=True)
    for resource in ("taken", "free"):
        with pytest.raises(QuorumUnreachableError) as raised:
            locks.acquire(resource, timeout=0)
        assert {vote.vote for vote in raised.value.votes} == {Vote.SILENT}
    for proxy in proxies:
        proxy.heal()
    # The late OK of "free" stands before the answer to this one in every stream.
    set_all(servers, b"theirs", "now")
    assert locks.acquire("now", timeout=0) is None
    assert settled_values(servers, NOBODY, "free") == NOBODY
    lease = granted(locks.acquire("free", timeout=0))  # it does not meet the orphan
    assert lease.release() is ReleaseStatus.RELEASED
    assert values(servers, "taken") == [b"theirs"] * 2 + [None] * 3
