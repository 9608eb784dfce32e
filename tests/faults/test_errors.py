"""Error replies: a failed vote with the server's text, never a grant, never taken."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis

from fastredlock import QuorumUnreachableError, ReleaseStatus, Vote
from fastredlock.testing import LocalMasters
from tests.support.calls import failed_votes, granted
from tests.support.fake_server import FakeServer
from tests.support.fixtures import MakeLocks
from tests.support.keys import KEY

ERRORS = (
    "LOADING Redis is loading the dataset in memory",
    "OOM command not allowed when used memory > 'maxmemory'.",
    "READONLY You can't write against a read only replica.",
    "MISCONF Redis is configured to save RDB snapshots, but it cannot",
    "NOREPLICAS Not enough good replicas to write.",
    "WRONGTYPE Operation against a key holding the wrong kind of value",
    "NOAUTH Authentication required.",
    "NOPERM this user has no permissions to run the 'set' command",
    "BUSY Redis is busy running a script.",
    "CLUSTERDOWN Hash slot not served",
    "MOVED 3999 127.0.0.1:6381",
    "MASTERDOWN Link with MASTER is down",
    "TRYAGAIN Multiple keys request during rehashing of slot",
    "ERR max number of clients reached",
)


@pytest.mark.parametrize("text", ERRORS)
def test_command_when_answered_by_an_error_then_the_vote_is_failed_with_its_text(
    make_fake: Callable[..., FakeServer], make_locks: MakeLocks, text: str
) -> None:
    error = b"-%b\r\n" % text.encode()
    fake = make_fake({b"SET": error})
    locks = make_locks([fake.url])
    (vote,) = failed_votes(locks)
    assert (vote.vote, vote.text) == (Vote.FAILED, text[:80])
    assert b"EVALSHA" not in fake.names()  # it did nothing: there is nothing to undo
    fake.answers.update({b"SET": b"+OK\r\n", b"EVALSHA": error})
    lease = granted(locks.acquire(KEY, timeout=0))
    assert lease.release() is ReleaseStatus.UNKNOWN
    fake.answers[b"EVALSHA"] = b":1\r\n"
    assert lease.release() is ReleaseStatus.RELEASED


def test_set_when_two_of_five_answer_by_an_error_then_the_caller_does_not_notice(
    make_fake: Callable[..., FakeServer], make_locks: MakeLocks, urls: list[str]
) -> None:
    error = {b"SET": b"-%b\r\n" % ERRORS[0].encode()}
    locks = make_locks([*(make_fake(error).url for _ in range(2)), *urls[:3]])
    assert granted(locks.acquire(KEY, timeout=0)).release() is ReleaseStatus.RELEASED


PROVOKED = {  # the commands by which a server is brought to it
    "OOM": "CONFIG SET maxmemory 1",
    "is a replica": "REPLICAOF 127.0.0.1 1",
    "NOREPLICAS": "CONFIG SET min-replicas-to-write 1",
    "NOAUTH": "CONFIG SET requirepass secret",
    "NOPERM": "ACL SETUSER default -set",
}


@pytest.mark.slow
@pytest.mark.parametrize("word", PROVOKED)
def test_real_server_when_it_refuses_then_the_vote_says_what_it_said(
    make_locks: MakeLocks, raw: Callable[..., redis.Redis], word: str
) -> None:
    with LocalMasters(1) as masters:
        server = raw(masters.urls[0])
        server.execute_command(*PROVOKED[word].split())
        (vote,) = failed_votes(make_locks(masters.urls))
        assert vote.vote is Vote.FAILED
        assert word in (vote.text or "")


def test_real_server_when_the_key_is_a_list_then_release_fails_with_wrongtype(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis]
) -> None:
    locks = make_locks(urls[:1])
    lease = granted(locks.acquire(KEY, timeout=0))
    servers[0].delete(KEY)
    servers[0].lpush(KEY, "not ours")
    assert lease.release() is ReleaseStatus.UNKNOWN
    assert locks.acquire(KEY, timeout=0) is None  # it exists: taken by somebody
    assert "WRONGTYPE" in (locks.holders(KEY)[0].text or "")
    assert servers[0].lrange(KEY, 0, -1) == [b"not ours"]


def test_hello_when_the_server_is_full_then_the_vote_says_so(
    make_fake: Callable[..., FakeServer], make_locks: MakeLocks
) -> None:
    fake = make_fake({b"HELLO": b"-ERR max number of clients reached\r\n"})
    with pytest.raises(QuorumUnreachableError, match="max number of clients reached"):
        make_locks([fake.url]).acquire(KEY, timeout=0)
