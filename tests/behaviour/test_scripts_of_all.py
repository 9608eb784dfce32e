"""The scripts of several keys, on every server program that is found here.

What they promise must not depend on the server's version: an ACL, an error inside a
script and a key of a wrong type were told differently by Redis 6 and 7.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from hashlib import sha1
from typing import Any, cast

import pytest
import redis

from fastredlock import FastRedlock
from fastredlock._core import Operation, Round, Terms, Verdict, draw_token
from fastredlock._options import scripts
from fastredlock.testing import LocalMasters
from tests.support.fixtures import blocking
from tests.support.keys import values

OURS, THEIRS = b"ours", b"theirs"
KEYS = [b"a", b"b", b"c"]
FORBIDDEN = "permission|can't run"  # Redis 7 | 6
TERMS = Terms(ttl_ms=10_000, drift_ns=102_000_000, timeout_ns=500_000_000)


def programs() -> list[str | None]:
    """Find the server programs on PATH, each once; None is the package's."""
    found: dict[str, str | None] = {}
    for folder in os.get_exec_path():
        for name in ("redis-server", "valkey-server"):
            if path := shutil.which(name, path=folder):
                found.setdefault(os.path.realpath(path), path)
    return list(found.values()) or [None]


@pytest.fixture(scope="module", params=programs())
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


def extend(server: redis.Redis, ttl_ms: int) -> Any:
    sha1 = scripts.EXTEND_ALL_SHA1.decode()
    return server.evalsha(sha1, len(KEYS), *KEYS, OURS, ttl_ms)


def release(server: redis.Redis) -> Any:
    return server.evalsha(scripts.RELEASE_ALL_SHA1.decode(), len(KEYS), *KEYS, OURS)


def held(server: redis.Redis) -> list[bytes | None]:
    return cast("list[bytes | None]", server.mget(KEYS))


def ttls_ms(server: redis.Redis) -> list[int]:
    return [server.pttl(key) for key in KEYS]


def user(server: redis.Redis, *rules: str) -> redis.Redis:
    """Log in as a user with the rights of these rules."""
    rules = ("on", ">pw", "resetkeys", *rules)
    server.execute_command("ACL", "SETUSER", "limited", "reset", *rules)
    port = server.connection_pool.connection_kwargs["port"]
    return redis.Redis(port=port, username="limited", password="pw")


# ---- acquire


def test_acquire_of_all_when_nobody_holds_one_then_sets_each_with_its_ttl(
    server: redis.Redis,
) -> None:
    assert acquire(server) == 1
    assert held(server) == [OURS] * 3
    assert all(8000 < left <= 9000 for left in ttls_ms(server))


@pytest.mark.parametrize("taken", KEYS)
def test_acquire_of_all_when_one_key_is_taken_then_sets_nothing_at_all(
    server: redis.Redis, taken: bytes
) -> None:
    server.set(taken, THEIRS)
    assert acquire(server) == 0
    assert held(server) == [THEIRS if key == taken else None for key in KEYS]


@pytest.mark.parametrize("taken", KEYS)
def test_acquire_of_all_when_one_key_is_of_another_type_then_it_is_taken(
    server: redis.Redis, taken: bytes
) -> None:
    server.rpush(taken, "x")
    assert acquire(server) == 0
    assert server.dbsize() == 1


def test_acquire_of_all_when_asked_again_by_its_holder_then_is_refused(
    server: redis.Redis,
) -> None:
    assert [acquire(server), acquire(server, ttl_ms=60_000)] == [1, 0]
    assert max(ttls_ms(server)) <= 9000


def test_acquire_again_when_its_first_was_executed_then_is_granted(
    server: redis.Redis,
) -> None:
    acquire(server)
    server.delete(KEYS[1])
    source, count = scripts.ACQUIRE_AGAIN.decode(), len(KEYS)
    assert server.eval(source, count, *KEYS, OURS, 60_000) == 1
    assert held(server) == [OURS] * 3
    assert min(ttls_ms(server)) > 50_000
    server.set(KEYS[2], THEIRS)
    assert server.eval(source, count, *KEYS, OURS, 9000) == 0
    server.delete(KEYS[2])
    server.rpush(KEYS[2], OURS)
    assert server.eval(source, count, *KEYS, OURS, 9000) == 0


def test_acquire_again_when_the_user_has_the_rights_of_the_readme_then_is_granted(
    server: redis.Redis,
) -> None:
    """Of one key it needs no EXISTS: its error left the key of the first standing."""
    rights = ("+set", "+get", "+del", "+pexpire", "+eval", "+evalsha")
    server.execute_command("ACL", "SETUSER", "single", "on", ">x", "~*", *rights)
    port = server.connection_pool.connection_kwargs["port"]
    source = scripts.ACQUIRE_AGAIN.decode()
    with redis.Redis(port=port, username="single", password="x") as user:
        server.set(KEYS[0], OURS)
        assert user.eval(source, 1, KEYS[0], OURS, 60_000) == 1
        assert user.eval(source, 1, KEYS[0], OURS) == 1
        assert server.pttl(KEYS[0]) == -1  # as a SET without PX
    server.execute_command("ACL", "DELUSER", "single")


def test_acquire_of_ten_thousand_keys_when_free_then_takes_them_all(
    server: redis.Redis,
) -> None:
    keys = [b"many:%d" % i for i in range(10_000)]
    assert acquire(server, keys) == 1
    assert server.dbsize() == 10_000


def test_acquire_of_all_when_there_is_no_memory_then_is_an_error_and_sets_nothing(
    server: redis.Redis,
) -> None:
    server.config_set("maxmemory", 1)
    with pytest.raises(redis.RedisError, match="maxmemory"):
        acquire(server)
    server.config_set("maxmemory", 0)
    assert held(server) == [None] * 3


@pytest.mark.parametrize(
    "rules", [("+@all", "~a", "~b"), ("+@all", "allkeys", "-set")], ids=["key", "set"]
)
def test_acquire_of_all_when_an_acl_forbids_a_part_then_is_an_error_and_sets_nothing(
    server: redis.Redis, rules: tuple[str, ...]
) -> None:
    with closing(user(server, *rules)) as limited, pytest.raises(redis.RedisError):
        acquire(limited)
    assert held(server) == [None] * 3


# ---- extend


def test_extend_of_all_when_each_key_is_ours_then_each_gets_the_ttl(
    server: redis.Redis,
) -> None:
    acquire(server)
    assert extend(server, 60_000) == 1
    assert min(ttls_ms(server)) > 50_000


@pytest.mark.parametrize("lost", KEYS)
@pytest.mark.parametrize("became", ["gone", "theirs", "a list"])
def test_extend_of_all_when_one_key_was_lost_then_changes_nothing(
    server: redis.Redis, lost: bytes, became: str
) -> None:
    acquire(server)
    become(server, lost, became)
    before = server.exists(*KEYS)
    assert extend(server, 60_000) == (2 if became == "gone" else 0)
    assert max(ttls_ms(server)) <= 9000
    assert server.exists(*KEYS) == before


def test_extend_of_all_when_one_is_gone_and_one_taken_then_it_is_taken(
    server: redis.Redis,
) -> None:
    acquire(server)
    server.delete(KEYS[0])
    become(server, KEYS[-1], "theirs")
    assert extend(server, 60_000) == 0
    assert server.exists(KEYS[0]) == 0


def become(server: redis.Redis, key: bytes, became: str) -> None:
    """Let something happen to a key that was ours."""
    server.delete(key)
    if became == "theirs":
        server.set(key, THEIRS, px=9000)
    elif became == "a list":
        server.rpush(key, "x")
        server.pexpire(key, 9000)


def test_extend_of_all_when_it_may_not_look_then_is_an_error_and_not_a_no(
    server: redis.Redis,
) -> None:
    acquire(server)
    with (
        closing(user(server, "+@all", "allkeys", "-get")) as limited,
        pytest.raises(redis.RedisError, match=FORBIDDEN),
    ):
        extend(limited, 60_000)
    assert max(ttls_ms(server)) <= 9000


# ---- release


def test_release_of_all_when_each_key_is_ours_then_deletes_each(
    server: redis.Redis,
) -> None:
    acquire(server)
    assert release(server) == 1
    assert held(server) == [None] * 3


@pytest.mark.parametrize("lost", KEYS)
@pytest.mark.parametrize("became", ["gone", "theirs", "a list"])
def test_release_of_all_when_one_key_was_lost_then_deletes_ours_alone(
    server: redis.Redis, lost: bytes, became: str
) -> None:
    acquire(server)
    become(server, lost, became)
    assert release(server) == 0
    assert server.keys() == ([] if became == "gone" else [lost])


def test_release_of_all_when_none_is_ours_then_is_a_no(server: redis.Redis) -> None:
    assert release(server) == 0


def test_release_of_all_when_it_may_not_look_then_is_an_error_and_not_a_no(
    server: redis.Redis,
) -> None:
    acquire(server)
    with (
        closing(user(server, "+@all", "allkeys", "-get")) as limited,
        pytest.raises(redis.RedisError, match=FORBIDDEN),
    ):
        release(limited)
    assert held(server) == [OURS] * 3


# ---- the rounds that send them, on five masters


def run(locks: FastRedlock, round: Round) -> Verdict:
    locks._driver.run(round)
    return round.verdict


@pytest.fixture
def new_lease(locks: FastRedlock) -> Callable[[], Round]:
    """Return what makes the round of an acquire of all keys."""
    ask = locks._driver.engine.new_round
    return lambda: ask(int(Operation.ACQUIRE), tuple(KEYS), draw_token(), TERMS)


def everywhere(servers: Sequence[redis.Redis]) -> list[list[bytes | None]]:
    return [values(servers, key) for key in KEYS]


@blocking
def test_keys_when_taken_extended_and_released_then_by_a_quorum_each_time(
    locks: FastRedlock, servers: list[redis.Redis], new_lease: Callable[[], Round]
) -> None:
    lease = new_lease()
    assert run(locks, lease) is Verdict.WON
    assert run(locks, new_lease()) is Verdict.TAKEN
    longer = Terms(60_000, 602_000_000, 500_000_000)
    assert run(locks, locks._driver.engine.new_extension(lease, longer)) is Verdict.WON
    locks.holders()  # waits for what the slowest do
    assert everywhere(servers) == [[lease.token] * 5] * 3
    assert all(server.pttl(key) > 50_000 for server in servers for key in KEYS)
    assert run(locks, locks._driver.engine.new_release(lease, longer)) is Verdict.WON
    locks.holders()
    assert everywhere(servers) == [[None] * 5] * 3


@blocking
def test_keys_when_a_majority_refuses_then_are_rolled_back_everywhere(
    locks: FastRedlock, servers: list[redis.Redis], new_lease: Callable[[], Round]
) -> None:
    for server in servers[:3]:
        server.set(b"b", THEIRS)
    assert run(locks, new_lease()) is Verdict.TAKEN
    locks.holders()
    theirs = [THEIRS] * 3 + [None] * 2
    assert everywhere(servers) == [[None] * 5, theirs, [None] * 5]


@blocking
def test_keys_when_the_scripts_were_flushed_then_are_taken_and_released_all_the_same(
    locks: FastRedlock, servers: list[redis.Redis], new_lease: Callable[[], Round]
) -> None:
    lease = new_lease()
    for round in (
        lambda: lease,
        lambda: locks._driver.engine.new_release(lease, TERMS),
    ):
        for server in servers:
            server.script_flush()
        assert run(locks, round()) is Verdict.WON
        locks.holders()
    assert everywhere(servers) == [[None] * 5] * 3
    assert locks.stats().repeated_scripts >= 6


@blocking
def test_keys_when_adopted_by_their_token_then_can_be_released(
    locks: FastRedlock, servers: list[redis.Redis], new_lease: Callable[[], Round]
) -> None:
    lease = new_lease()
    assert run(locks, lease) is Verdict.WON
    adopted = locks._driver.engine.new_adopted(tuple(KEYS), lease.token, TERMS)
    assert run(locks, locks._driver.engine.new_release(adopted, TERMS)) is Verdict.WON
    locks.holders()
    assert everywhere(servers) == [[None] * 5] * 3
