"""The scripts of several keys, and those with a number, on every server program here.

What they promise must not depend on the server's version: an ACL, an error inside a
script and a key of a wrong type were told differently by Redis 6 and 7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from hashlib import sha1
from typing import Any, cast

import pytest
import redis

from fastredlock._options import scripts
from fastredlock.testing import LocalMasters
from tests.support.local_servers import PROGRAMS

OURS, THEIRS = b"ours", b"theirs"
KEYS = [b"a", b"b", b"c"]
FORBIDDEN = "permission|can't run"  # Redis 7 | 6
LARGEST = 2**53 - 1
LIFE_MS = 90_010_000  # of a number


@pytest.fixture(scope="module", params=PROGRAMS)
def started(request: pytest.FixtureRequest) -> Iterator[redis.Redis]:
    with (
        LocalMasters(1, server=request.param) as masters,
        closing(redis.Redis.from_url(masters.urls[0])) as server,
    ):
        yield server


@pytest.fixture
def server(started: redis.Redis) -> Iterator[redis.Redis]:
    """One empty server of each version, with our scripts loaded."""
    started.flushall()
    for source in (scripts.ACQUIRE_ALL, scripts.EXTEND_ALL, scripts.RELEASE_ALL):
        assert started.script_load(source) == sha1(source).hexdigest()
    yield started
    started.config_set("maxmemory", 0)


def acquire(
    server: redis.Redis, keys: Sequence[bytes] = KEYS, ttl_ms: int = 9000
) -> Any:
    sha1 = scripts.ACQUIRE_ALL_SHA1.decode()
    return server.evalsha(sha1, len(keys), *keys, OURS, ttl_ms)


def extend(server: redis.Redis, ttl_ms: int = 60_000) -> Any:
    sha1 = scripts.EXTEND_ALL_SHA1.decode()
    return server.evalsha(sha1, len(KEYS), *KEYS, OURS, ttl_ms)


def release(server: redis.Redis) -> Any:
    return server.evalsha(scripts.RELEASE_ALL_SHA1.decode(), len(KEYS), *KEYS, OURS)


def held(server: redis.Redis) -> list[bytes | None]:
    return cast("list[bytes | None]", server.mget(KEYS))


def ttls_ms(server: redis.Redis) -> list[int]:
    return [server.pttl(key) for key in KEYS]


def become(server: redis.Redis, key: bytes, became: str) -> None:
    """Let something happen to a key that may have been ours."""
    server.delete(key)
    if became == "theirs":
        server.set(key, THEIRS, px=9000)
    elif became == "a list":
        server.rpush(key, "x")
        server.pexpire(key, 9000)


def user(server: redis.Redis, *rules: str) -> redis.Redis:
    rules = ("on", ">pw", "resetkeys", *rules)
    server.execute_command("ACL", "SETUSER", "limited", "reset", *rules)
    port = server.connection_pool.connection_kwargs["port"]
    return redis.Redis(port=port, username="limited", password="pw")


# ---- acquire


@pytest.mark.parametrize("taken", KEYS)
@pytest.mark.parametrize("became", ["theirs", "a list"])
def test_acquire_of_all_when_one_key_is_taken_then_sets_nothing_at_all(
    server: redis.Redis, taken: bytes, became: str
) -> None:
    become(server, taken, became)
    assert acquire(server) == 0
    assert server.keys() == [taken]


def test_acquire_again_when_its_first_was_executed_then_is_granted(
    server: redis.Redis,
) -> None:
    acquire(server)
    server.delete(KEYS[1])
    source, count = scripts.ACQUIRE_AGAIN.decode(), len(KEYS)
    assert server.eval(source, count, *KEYS, OURS, 60_000) == 1
    assert held(server) == [OURS] * 3
    assert min(ttls_ms(server)) > 50_000
    for became in ("theirs", "a list"):
        become(server, KEYS[2], became)
        assert server.eval(source, count, *KEYS, OURS, 9000) == 0


def test_acquire_again_when_the_user_has_the_rights_of_the_readme_then_is_granted(
    server: redis.Redis,
) -> None:
    """Of one key it needs no EXISTS: its error left the key of the first standing."""
    rights = ("~*", "+set", "+get", "+del", "+pexpire", "+eval", "+evalsha")
    source = scripts.ACQUIRE_AGAIN.decode()
    with closing(user(server, *rights)) as limited:
        server.set(KEYS[0], OURS)
        assert limited.eval(source, 1, KEYS[0], OURS, 60_000) == 1
        assert limited.eval(source, 1, KEYS[0], OURS) == 1
        assert server.pttl(KEYS[0]) == -1  # as a SET without PX


def test_acquire_of_all_when_there_is_no_memory_then_is_an_error_and_sets_nothing(
    server: redis.Redis,
) -> None:
    server.config_set("maxmemory", 1)
    for call in (acquire, lambda server: fenced(server, 7)):
        with pytest.raises(redis.RedisError, match="maxmemory"):
            call(server)
    server.config_set("maxmemory", 0)
    assert server.keys() == []


@pytest.mark.parametrize(
    "rules", [("+@all", "~a", "~b"), ("+@all", "allkeys", "-set")], ids=["key", "set"]
)
def test_acquire_of_all_when_an_acl_forbids_a_part_then_is_an_error_and_sets_nothing(
    server: redis.Redis, rules: tuple[str, ...]
) -> None:
    with closing(user(server, *rules)) as limited, pytest.raises(redis.RedisError):
        acquire(limited)
    assert held(server) == [None] * 3


# ---- extend and release


@pytest.mark.parametrize("lost", KEYS)
@pytest.mark.parametrize("became", ["gone", "theirs", "a list"])
def test_keys_when_one_was_lost_then_none_is_extended_and_ours_alone_are_deleted(
    server: redis.Redis, lost: bytes, became: str
) -> None:
    acquire(server)
    become(server, lost, became)
    before = server.exists(*KEYS)
    if became == "a list":  # which is taken, as protocol/replies.pyx has it
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            extend(server)
    else:
        assert extend(server) == (2 if became == "gone" else 0)
    assert max(ttls_ms(server)) <= 9000
    assert server.exists(*KEYS) == before
    assert release(server) == 0
    assert server.keys() == ([] if became == "gone" else [lost])


@pytest.mark.parametrize("call", [extend, release])
def test_keys_when_it_may_not_look_then_is_an_error_and_not_a_no(
    server: redis.Redis, call: Callable[[redis.Redis], Any]
) -> None:
    acquire(server)
    with (
        closing(user(server, "+@all", "allkeys", "-get")) as limited,
        pytest.raises(redis.RedisError, match=FORBIDDEN),
    ):
        call(limited)
    assert held(server) == [OURS] * 3
    assert max(ttls_ms(server)) <= 9000


# ---- with a number

KINDS = ["acquire", "again", "gate"]
TAKE_TURN = scripts.FENCED_TAKE_TURN.decode()


def fenced(
    server: redis.Redis, proposed: int, *keys: str, ttl_ms: int = 9000, again: int = 0
) -> Any:
    script = scripts.FENCED_ACQUIRE_AGAIN if again else scripts.FENCED_ACQUIRE_ALL
    keys = keys or ("k",)
    arguments = (OURS, ttl_ms, proposed, LIFE_MS)
    return server.eval(script.decode(), len(keys), *keys, *arguments)


def take_turn(server: redis.Redis, proposed: int, our_next_us: int = -1) -> Any:
    arguments = (OURS, 9000, b"p", 0, our_next_us, proposed, LIFE_MS)
    return server.eval(TAKE_TURN, 1, "k", *arguments)


def numbered(server: redis.Redis, kind: str, proposed: int) -> Any:
    if kind != "gate":
        return fenced(server, proposed, again=kind == "again")
    taken, number = take_turn(server, proposed)
    assert taken == 1
    return number


def write(server: redis.Redis, fence: int, *keys: str, token: bytes = OURS) -> Any:
    keys = keys or ("k",)
    script = scripts.WRITE_FENCE.decode()
    return server.eval(script, len(keys), *keys, token, fence, LIFE_MS)


def fence(server: redis.Redis, key: str = "k") -> int:
    return int(server.zscore(f"fastredlock:fence:{key}", "f") or 0)


def have(server: redis.Redis, last: float | str, key: str = "k") -> None:
    server.zadd(f"fastredlock:fence:{key}", {"f": last})


@pytest.mark.parametrize(
    ("last", "proposed", "given"),
    [
        (None, 1000, 1000),
        (7, 1000, 1000),
        (999, 1000, 1000),
        (1000, 1000, 1001),
        (2000, 1000, 2001),
        (1_800_000_000_000_000, 1, 1_800_000_000_000_001),
        (LARGEST - 1, 1, LARGEST),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_number_is_what_is_proposed_or_one_more_than_the_last(
    server: redis.Redis, kind: str, last: int | None, proposed: int, given: int
) -> None:
    if last is not None:
        have(server, last)
    assert numbered(server, kind, proposed) == given
    assert (server.get("k"), fence(server)) == (OURS, given)
    assert 8000 < server.pttl("k") <= 9000
    assert LIFE_MS - 1000 < server.pttl("fastredlock:fence:k") <= LIFE_MS


@pytest.mark.parametrize("value", [LARGEST, 1e300, "inf", None])
@pytest.mark.parametrize("kind", KINDS)
def test_number_when_there_is_none_to_count_on_then_nothing_is_changed(
    server: redis.Redis, kind: str, value: float | str | None
) -> None:
    if value is None:
        server.set("fastredlock:fence:k", "a token")  # of another use
    else:
        have(server, value)
    before = server.dump("fastredlock:fence:k")
    with pytest.raises(redis.ResponseError, match=r"is no number|WRONGTYPE"):
        numbered(server, kind, 7)
    assert server.get("k") is None
    assert server.dump("fastredlock:fence:k") == before


@pytest.mark.parametrize("kind", KINDS)
def test_number_when_it_cannot_be_written_then_the_key_is_not_set(
    server: redis.Redis, kind: str
) -> None:
    rights = ("+@all", "~k", "%R~fastredlock:fence:*", "~fastredlock:queue:*")
    if server.info()["redis_version"] < "7":  # no rights to read alone
        rights = ("+@all", "~k", "~fastredlock:queue:*", "~fastredlock:turn:*")
    with closing(user(server, *rights)) as limited, pytest.raises(redis.ResponseError):
        numbered(limited, kind, 7)
    assert server.keys() == []


@pytest.mark.parametrize("kind", KINDS)
def test_number_when_it_cannot_be_kept_then_the_key_is_not_set(
    server: redis.Redis, kind: str
) -> None:
    rights = ("+@all", "-pexpire", "~*")
    with closing(user(server, *rights)) as limited, pytest.raises(redis.ResponseError):
        numbered(limited, kind, 7)
    assert server.get("k") is None


def test_probe_changes_nothing(server: redis.Redis) -> None:
    assert server.eval(scripts.FENCED_PROBE.decode(), 0) == []
    assert server.keys() == []


def test_acquire_with_a_number_when_a_key_is_held_then_changes_nothing_or_is_granted(
    server: redis.Redis,
) -> None:
    server.set("b", THEIRS)
    assert fenced(server, 7, "a", "b") == 0
    assert fenced(server, 7, "a", "b", again=1) == 0
    assert server.keys() == [b"b"]
    assert fenced(server, 7) == 7
    assert fenced(server, 7, again=1) == 8  # our own: under one more


def test_turn_when_the_key_is_held_or_another_waits_longer_then_has_no_number(
    server: redis.Redis,
) -> None:
    server.set("k", THEIRS)
    assert take_turn(server, 7) == [0, 0]
    server.delete("k")
    server.zadd("fastredlock:queue:k", {"another": 1})
    with closing(server.pubsub()) as waiter:
        waiter.subscribe("fastredlock:waiter:another")
        waiter.get_message(timeout=5)
        assert take_turn(server, 7) == [2, 0]
    assert server.get("k") is None


def test_turn_when_our_next_waits_longest_then_says_so_with_the_number(
    server: redis.Redis,
) -> None:
    assert take_turn(server, 7, our_next_us=5) == [3, 7]
    assert server.zrange("fastredlock:queue:k", 0, -1) == [b"p"]


@pytest.mark.parametrize(("last", "kept"), [(7, 9), (9, 9), (12, 12), (None, 9)])
def test_second_write_raises_the_number_and_never_lowers_it(
    server: redis.Redis, last: int | None, kept: int
) -> None:
    server.set("k", OURS)
    if last is not None:
        have(server, last)
    assert write(server, 9) == 1
    assert fence(server) == kept


@pytest.mark.parametrize("held", [None, THEIRS])
def test_second_write_when_the_token_does_not_stand_then_changes_nothing(
    server: redis.Redis, held: bytes | None
) -> None:
    """It is a late one: the key is free, or another's, whose number is not ours."""
    have(server, 7)
    if held:
        server.set("k", held)
    assert write(server, 9) == 0
    assert fence(server) == 7


def test_second_write_of_several_keys_is_of_all_or_none(server: redis.Redis) -> None:
    server.mset({"a": OURS, "b": THEIRS})
    assert write(server, 9, "a", "b") == 0
    assert fence(server, "a") == 0
    server.set("b", OURS)
    assert write(server, 9, "a", "b") == 1
    assert (fence(server, "a"), fence(server, "b")) == (9, 9)


@pytest.mark.parametrize("is_shared", [False, True])
def test_release_when_the_key_is_of_the_other_kind_then_our_entry_leaves(
    is_shared: bool, server: redis.Redis
) -> None:
    server.zadd("fastredlock:queue:k", {"p": 1, "q": 2})
    if is_shared:
        server.set("k", THEIRS)
    else:
        server.zadd("k", {THEIRS: 1})
    name = "RELEASE_SHARED_AND_NOTIFY" if is_shared else "RELEASE_AND_NOTIFY"
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        server.eval(getattr(scripts, name), 1, "k", OURS, "p")
    assert server.zrange("fastredlock:queue:k", 0, -1) == [b"q"]
