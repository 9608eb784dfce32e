"""The scripts that set keys under a number, on every server program that is found."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from hashlib import sha1
from typing import Any

import pytest
import redis

from fastredlock._options import fence_scripts, scripts
from fastredlock._options.fence_scripts import FENCED
from fastredlock.testing import LocalMasters
from tests.behaviour.test_scripts_of_all import programs, user

OURS, THEIRS = b"ours", b"theirs"
LARGEST = 2**53 - 1
TAKE_TURN = fence_scripts.TAKE_TURN.decode()
LIFE_MS = 90_010_000


@pytest.fixture(scope="module", params=programs())
def started(request: pytest.FixtureRequest) -> Iterator[redis.Redis]:
    with (
        LocalMasters(1, server=request.param) as masters,
        closing(redis.Redis.from_url(masters.urls[0])) as server,
    ):
        yield server


@pytest.fixture
def server(started: redis.Redis) -> Iterator[redis.Redis]:
    """One empty server of each version."""
    started.flushall()
    yield started
    started.config_set("maxmemory", 0)


def acquire(
    server: redis.Redis, proposed: int, *keys: str, ttl_ms: int = 9000, again: int = 0
) -> Any:
    script = fence_scripts.ACQUIRE_AGAIN if again else fence_scripts.ACQUIRE_ALL
    keys = keys or ("k",)
    arguments = (OURS, ttl_ms, proposed, LIFE_MS)
    return server.eval(script.decode(), len(keys), *keys, *arguments)


def write(server: redis.Redis, fence: int, *keys: str, token: bytes = OURS) -> Any:
    keys = keys or ("k",)
    script = fence_scripts.WRITE_FENCE.decode()
    return server.eval(script, len(keys), *keys, token, fence, LIFE_MS)


def take_turn(server: redis.Redis, proposed: int, process: bytes = b"p") -> Any:
    arguments = (OURS, 9000, process, 0, -1, proposed, LIFE_MS)
    return server.eval(TAKE_TURN, 1, "k", *arguments)


def fence(server: redis.Redis, key: str = "k") -> int:
    return int(server.zscore(f"fastredlock:fence:{key}", "f") or 0)


def have(server: redis.Redis, last: float | str, key: str = "k") -> None:
    server.zadd(f"fastredlock:fence:{key}", {"f": last})


@pytest.mark.parametrize("name", FENCED)
def test_script_has_the_hash_that_the_server_computes(
    server: redis.Redis, name: str
) -> None:
    source, digest = FENCED[name]
    assert server.script_load(source) == digest.decode() == sha1(source).hexdigest()


# ---- the number


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
@pytest.mark.parametrize("kind", ["acquire", "again", "gate"])
def test_number_is_what_is_proposed_or_one_more_than_the_last(
    server: redis.Redis, kind: str, last: int | None, proposed: int, given: int
) -> None:
    if last is not None:
        have(server, last)
    if kind == "gate":
        assert take_turn(server, proposed) == [1, given]
    else:
        assert acquire(server, proposed, again=kind == "again") == given
    assert (server.get("k"), fence(server)) == (OURS, given)
    assert 8000 < server.pttl("k") <= 9000
    assert LIFE_MS - 1000 < server.pttl("fastredlock:fence:k") <= LIFE_MS


def test_number_of_several_keys_is_above_the_last_of_each(server: redis.Redis) -> None:
    have(server, 2000, "b")
    assert acquire(server, 1000, "a", "b") == 2001
    assert (fence(server, "a"), fence(server, "b")) == (2001, 2001)


def test_key_without_expiry_has_none_and_its_number_has(server: redis.Redis) -> None:
    assert acquire(server, 7, ttl_ms=0) == 7
    assert (server.pttl("k"), server.pttl("fastredlock:fence:k") > 0) == (-1, True)


@pytest.mark.parametrize("value", [LARGEST, 1e300, "inf"])
@pytest.mark.parametrize("kind", ["acquire", "again", "gate"])
def test_number_when_there_is_none_to_count_on_then_nothing_is_changed(
    server: redis.Redis, kind: str, value: float | str
) -> None:
    have(server, value)
    with pytest.raises(redis.ResponseError, match="is no number"):
        take_turn(server, 7) if kind == "gate" else acquire(
            server, 7, again=kind == "again"
        )
    assert server.get("k") is None
    assert server.zscore("fastredlock:fence:k", "f") == float(value)


@pytest.mark.parametrize("kind", ["acquire", "again", "gate"])
def test_number_when_its_key_is_used_for_something_else_then_nothing_is_changed(
    server: redis.Redis, kind: str
) -> None:
    server.set("fastredlock:fence:k", "a token")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        take_turn(server, 7) if kind == "gate" else acquire(
            server, 7, again=kind == "again"
        )
    assert server.get("k") is None
    assert server.get("fastredlock:fence:k") == b"a token"


@pytest.mark.parametrize("kind", ["acquire", "again", "gate"])
def test_number_when_it_cannot_be_written_then_the_key_is_not_set(
    server: redis.Redis, kind: str
) -> None:
    rights = ("+@all", "~k", "%R~fastredlock:fence:*", "~fastredlock:queue:*")
    if server.info()["redis_version"] < "7":  # no rights to read alone
        rights = ("+@all", "~k", "~fastredlock:queue:*", "~fastredlock:turn:*")
    with closing(user(server, *rights)) as limited, pytest.raises(redis.ResponseError):
        take_turn(limited, 7) if kind == "gate" else acquire(
            limited, 7, again=kind == "again"
        )
    assert server.keys() == []


def test_number_when_there_is_no_memory_then_the_key_is_not_set(
    server: redis.Redis,
) -> None:
    server.config_set("maxmemory", 1)
    with pytest.raises(redis.ResponseError, match="maxmemory"):
        acquire(server, 7)
    server.config_set("maxmemory", 0)
    assert (server.get("k"), fence(server)) == (None, 0)


# ---- one more


def test_probe_changes_nothing(server: redis.Redis) -> None:
    assert server.eval(fence_scripts.PROBE.decode(), 0) == []
    assert server.keys() == []


# ---- refused


def test_acquire_when_a_key_is_held_then_neither_key_nor_number_changes(
    server: redis.Redis,
) -> None:
    server.set("b", THEIRS)
    assert acquire(server, 7, "a", "b") == 0
    assert acquire(server, 7, "a", "b", again=1) == 0
    assert server.keys() == [b"b"]


def test_repeated_acquire_when_the_token_is_our_own_then_is_granted_under_one_more(
    server: redis.Redis,
) -> None:
    assert acquire(server, 7) == 7
    assert acquire(server, 7, again=1) == 8


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
    arguments = (OURS, 9000, b"p", 0, 5, 7, LIFE_MS)
    assert server.eval(TAKE_TURN, 1, "k", *arguments) == [3, 7]
    assert server.zrange("fastredlock:queue:k", 0, -1) == [b"p"]


def test_turn_takes_the_place_of_the_script_without_a_number() -> None:
    assert scripts.TAKE_TURN in fence_scripts.TAKE_TURN


# ---- the second write


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
