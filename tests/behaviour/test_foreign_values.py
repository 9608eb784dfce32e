"""`holders()` reads values that were never meant for it."""

from __future__ import annotations

from hashlib import sha256

import pytest
import redis

from fastredlock import FastRedlock, Vote
from fastredlock.testing import LocalMasters
from tests.support.fixtures import MakeLocks, Raw
from tests.support.keys import KEY, set_all


@pytest.mark.parametrize(
    "value",
    [
        b"*1234567",
        b"a\n*1234567\r\n",
        b"\n=\n\n*1\n",
        b"=",
        b"#7",
        b"!",
        b"\n" * 262_144,
    ],
    ids=["header", "line", "escapes", "mark", "length", "kind", "longest"],
)
def test_holders_when_the_value_looks_like_something_else_then_its_hash_is_told(
    locks: FastRedlock, servers: list[redis.Redis], value: bytes
) -> None:
    set_all(servers, value)
    told = {(vote.vote, vote.token_hash, vote.text) for vote in locks.holders(KEY)}
    assert told == {(Vote.TAKEN, sha256(value).hexdigest()[:16], None)}
    assert locks.stats().losses == 0


@pytest.mark.slow
def test_holders_when_the_value_is_no_token_then_says_what_it_is(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    set_all(servers, b"x" * 2_000_000)
    servers[0].delete(KEY)
    servers[0].hset(KEY, "field", "value")
    servers[1].set(KEY, b"")
    wrong, empty, *long = locks.holders(KEY)
    assert wrong.vote is Vote.FAILED
    assert (wrong.text or "").startswith("WRONGTYPE")
    assert empty.token_hash == sha256(b"").hexdigest()[:16]
    text = "a value of 2000000 bytes: no token"
    assert {vote[1:3] + vote[4:] for vote in long} == {
        (Vote.TAKEN, text, None, -1, 0, None)
    }
    assert locks.acquire(KEY, timeout=0) is None
    assert locks.stats().losses == 0


def test_holders_when_an_acl_refuses_what_it_asks_then_says_so_or_does_without(
    make_locks: MakeLocks, masters: LocalMasters, raw: Raw
) -> None:
    server = raw(masters.urls[0])
    server.set(KEY, b"token")
    rights = ("resetchannels", "allkeys", "on", ">p", "+@all")
    server.execute_command("ACL", "SETUSER", "a", *rights, "-strlen")
    server.execute_command("ACL", "SETUSER", "b", *rights, "-get")
    host = masters.urls[0].removeprefix("redis://")
    (vote,) = make_locks([f"redis://a:p@{host}"]).holders(KEY)
    assert vote.token_hash == sha256(b"token").hexdigest()[:16]
    (vote,) = make_locks([f"redis://b:p@{host}"]).holders(KEY)
    assert vote.vote is Vote.FAILED
