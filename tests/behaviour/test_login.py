"""Every way to reach a master and to log in there, and servers that are no Redis; no
text shows a password.
"""

from __future__ import annotations

import logging

import pytest

from fastredlock import FastRedlock, QuorumUnreachableError, ReleaseStatus
from fastredlock.testing import LocalMasters
from tests.support.calls import granted, reason
from tests.support.fake_server import HTTP_REFUSAL, Stranger
from tests.support.fixtures import MakeLocks
from tests.support.keys import KEY
from tests.support.local_servers import PROGRAMS

SECRET = "pa55-word"
# What a server before Redis 6 says to HELLO is said by every server without HELLO.
NO_HELLO = ("--rename-command", "HELLO", "")


def with_login(url: str, login: str) -> str:
    return url.replace("redis://", f"redis://{login}@")


def assert_works(locks: FastRedlock) -> None:
    lease = granted(locks.acquire(KEY, timeout=0))
    assert lease.extend(5) > 0
    assert lease.release() is ReleaseStatus.RELEASED


# --- passwords and users --------------------------------------------------------------


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("options", [(), NO_HELLO], ids=["RESP3", "no HELLO"])
def test_password_when_right_then_locks_and_when_wrong_the_vote_says_wrongpass(
    make_locks: MakeLocks, options: tuple[str, ...], program: str
) -> None:
    """Valkey 9 answers NOAUTH to whatever it does not know before a login."""
    options = ("--requirepass", SECRET, *options)
    with LocalMasters(1, options=options, server=program) as masters:
        assert_works(make_locks([with_login(masters.urls[0], f":{SECRET}")]))
        told = reason(make_locks([with_login(masters.urls[0], ":wrong")]))
    assert "WRONGPASS invalid username-password pair: correct it, or enable" in told


def test_password_when_anything_fails_then_is_in_no_message_repr_or_log(
    make_locks: MakeLocks, urls: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with LocalMasters(1, options=("--requirepass", "other")) as masters:
        url = with_login(masters.urls[0], f"user:{SECRET}")
        locks = make_locks([url])
        with pytest.raises(QuorumUnreachableError) as raised:
            locks.acquire(KEY, timeout=0)
        with pytest.raises(QuorumUnreachableError) as refused:
            locks.connect()
        assert_works(make_locks([*urls[:2], url]))  # a minority
    told = [str(raised.value), repr(raised.value), repr(refused.value), repr(locks)]
    told += [str(refused.value), caplog.text, repr(raised.value.votes)]
    assert SECRET not in "\n".join(told)
    assert "WRONGPASS" in told[0]


# --- addresses ------------------------------------------------------------------------


def test_address_when_nothing_is_there_then_the_vote_says_so(
    make_locks: MakeLocks, urls: list[str]
) -> None:
    locks = make_locks([urls[0].replace("/0", "/99")])
    assert reason(locks) == "SELECT: ERR DB index is out of range"
    locks = make_locks(["unix:///nowhere/redis.sock"])
    assert reason(locks) == "no such file or directory"
    # Over 63 characters between two dots: refused without asking anybody.
    locks = make_locks([f"redis://{'x' * 64}.invalid:1"], connect_timeout=10, ttl=100)
    assert "name look-up" in reason(locks)


# --- strangers ------------------------------------------------------------------------

NO_RESP = "speaks something else than RESP"


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (HTTP_REFUSAL, NO_RESP),
        (b"SSH-2.0-OpenSSH_9.2\r\n", NO_RESP),
        (b"\x16\x03\x01\x02\x00", NO_RESP),
        (b"220 hello\r\n", NO_RESP),
        (b"+OK\r\n", "HELLO: unexpected reply of type bytes"),
        (b":1\r\n", "HELLO: unexpected reply of type int"),
        (b"-ERR max number of clients reached\r\n", "max number of clients reached"),
        (b"-LOADING Redis is loading the dataset in memory\r\n", "HELLO: LOADING"),
        (b"", "the server closed the connection"),
    ],
    ids=["HTTP", "SSH", "TLS", "SMTP", "OK", "1", "full", "loading", "nothing"],
)
def test_handshake_when_answered_wrongly_then_the_vote_says_how(
    make_locks: MakeLocks, said: bytes, text: str
) -> None:
    with Stranger(said) as stranger:
        assert text in reason(make_locks([stranger.address]))
