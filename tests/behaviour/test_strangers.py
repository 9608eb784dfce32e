"""Servers that are no Redis, and arguments that are refused before any visit."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from fastredlock import ConfigurationError, FastRedlock, FastRedlockError, Retry, Vote
from tests.support.calls import granted, reason
from tests.support.fake_server import HTTP_REFUSAL, Stranger, bare_listener, has_visitor
from tests.support.fixtures import MakeLocks
from tests.support.keys import KEY
from tests.support.waiting import stopwatch, wait_until


@pytest.mark.parametrize(
    "said",
    [
        HTTP_REFUSAL,
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x16\x03\x01\x02\x00",
        b"220 hello\r\n",
    ],
    ids=["HTTP", "SSH", "TLS", "SMTP"],
)
def test_stranger_when_it_is_the_only_master_then_the_vote_says_no_resp(
    make_locks: MakeLocks, said: bytes
) -> None:
    with Stranger(said) as stranger:
        told = reason(make_locks([stranger.address]))
    assert "speaks something else than RESP" in told


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (b"+OK\r\n", "HELLO: unexpected reply of type bytes"),
        (b":1\r\n", "HELLO: unexpected reply of type int"),
        (b"-ERR max number of clients reached\r\n", "max number of clients reached"),
        (b"-LOADING Redis is loading the dataset in memory\r\n", "HELLO: LOADING"),
        (b"", "the server closed the connection"),
    ],
)
def test_handshake_when_answered_wrongly_then_the_vote_says_how(
    make_locks: MakeLocks, said: bytes, text: str
) -> None:
    with Stranger(said) as stranger:
        assert text in reason(make_locks([stranger.address]))


def test_stranger_when_it_is_a_minority_then_the_others_grant(
    make_locks: MakeLocks, urls: list[str]
) -> None:
    with Stranger(HTTP_REFUSAL) as stranger:
        lease = granted(make_locks([stranger.address, *urls[:2]]).acquire(KEY))
        assert lease.votes[0].vote is not Vote.GRANTED


def test_vote_when_a_failing_master_is_being_reopened_then_still_says_why_it_failed(
    make_locks: MakeLocks, urls: list[str]
) -> None:
    with Stranger(HTTP_REFUSAL, None) as stranger:
        locks = make_locks([stranger.address, *urls[:2]], connect_timeout=30)
        assert wait_until(lambda: locks.holders() and stranger.answered == 2)
        lease = granted(locks.acquire("later", timeout=0))
        assert "speaks something else than RESP" in str(lease.votes[0].text)


def test_mute_server_when_it_is_the_only_master_then_the_vote_says_handshake(
    make_locks: MakeLocks,
) -> None:
    with Stranger(None) as stranger:
        locks = make_locks([stranger.address], connect_timeout=0.1)
        with stopwatch() as elapsed:
            assert "handshake" in reason(locks)
        assert elapsed() < 2


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with bare_listener() as listening:
        yield listening


NAN, INFINITE = float("nan"), float("inf")
BAD_OPTIONS: list[dict[str, Any]] = [
    *({"ttl": ttl} for ttl in (0, -1, NAN, INFINITE, 0.001, "10", None, True)),
    *({"drift_factor": factor} for factor in (-0.1, 1, NAN)),
    *({"round_timeout": timeout} for timeout in (0, -1, NAN)),
    *({"connect_timeout": timeout} for timeout in (0, -1, INFINITE, None)),
    *({"resource": resource} for resource in ("", b"", 42, None)),
    *({"max_ttl": longest} for longest in (0, 5)),
    *({"retry": 3}, {"new_token": "token"}),
]


@pytest.mark.parametrize("options", BAD_OPTIONS, ids=str)
def test_option_when_bad_then_is_refused_before_any_connection(
    listener: socket.socket, options: dict[str, Any]
) -> None:
    with pytest.raises(ConfigurationError) as raised:
        FastRedlock([listener.getsockname()], **options)
    assert isinstance(raised.value, ValueError)
    assert not has_visitor(listener)


BAD_CALLS: list[dict[str, Any]] = [
    *({"ttl": ttl} for ttl in (0, -1, NAN, INFINITE, 0.001, 31)),
    *({"timeout": timeout} for timeout in (-1, -0.001, NAN, "1")),
    *({"resource": resource} for resource in ("", b"", 42)),
]


@pytest.mark.parametrize("call", BAD_CALLS, ids=str)
def test_acquire_when_an_argument_is_bad_then_is_refused_before_any_connection(
    make_locks: MakeLocks, listener: socket.socket, call: dict[str, Any]
) -> None:
    locks = make_locks([listener.getsockname()], max_ttl=30)
    for take in (locks.acquire, lambda **call: locks.lock(**call).__enter__()):
        with pytest.raises(ConfigurationError):
            take(**call)
    assert not has_visitor(listener)


def test_message_when_a_ttl_is_too_long_then_names_value_and_range(
    make_locks: MakeLocks,
) -> None:
    locks = make_locks(["redis://127.0.0.1:1"], max_ttl=30)
    with pytest.raises(ConfigurationError, match=r"ttl=31: allowed is [\d.]+ to 30 s"):
        locks.acquire(KEY, ttl=31)


def test_masters_when_the_same_one_is_given_twice_then_are_refused_unvisited(
    listener: socket.socket,
) -> None:
    host, port = listener.getsockname()
    with pytest.raises(ConfigurationError, match="the same server"):
        FastRedlock([(host, port), f"redis://:pw@{host}:{port}/1"])
    assert not has_visitor(listener)


@pytest.mark.parametrize("masters", [[], "redis://127.0.0.1:1", ["http://a"], [42]])
def test_masters_when_empty_or_of_unknown_form_then_are_refused(masters: Any) -> None:
    with pytest.raises(ConfigurationError):
        FastRedlock(masters)


def test_master_when_asked_for_a_lock_then_is_visited(
    make_locks: MakeLocks, listener: socket.socket
) -> None:
    locks = make_locks([listener.getsockname()], connect_timeout=0.05)
    assert not has_visitor(listener)
    with pytest.raises(FastRedlockError):
        locks.acquire(KEY, timeout=0)
    assert has_visitor(listener)


@pytest.mark.parametrize("token", ["", b"", None, 42])
def test_new_token_when_it_returns_no_token_then_is_refused_before_any_connection(
    make_locks: MakeLocks, listener: socket.socket, token: Any
) -> None:
    locks = make_locks([listener.getsockname()], new_token=lambda: token)
    with pytest.raises(ConfigurationError, match="token"):
        locks.acquire(KEY, timeout=0)
    assert not has_visitor(listener)


def test_retry_when_bad_then_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="unreachable_tries=0"):
        Retry(unreachable_tries=0)
