"""A user that may SET and may not release: found before a lock is taken."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

import pytest
import redis

from fastredlock import FastRedlock, FastRedlockError, ReleaseStatus
from fastredlock.testing import LocalMasters
from tests.support.calls import granted, reason
from tests.support.fixtures import MakeLocks, Raw
from tests.support.keys import KEY
from tests.support.local_servers import PROGRAMS, allow
from tests.support.waiting import wait_until

LEAST = "+set +get +del +pexpire +eval +evalsha"


@pytest.fixture(scope="module", params=PROGRAMS)
def master(request: pytest.FixtureRequest) -> Iterator[LocalMasters]:
    """Run each program that this machine has."""
    with LocalMasters(1, server=request.param) as masters:
        yield masters


@pytest.fixture
def server(master: LocalMasters, raw: Raw) -> redis.Redis:
    server = raw(master.urls[0])
    server.flushall()
    return server


def without_native_release(rules: str, server: redis.Redis) -> str:
    """Forbid the commands that release, so that scripts do."""
    names = ("delifeq", "delex")
    known = server.execute_command("COMMAND INFO", *names)
    return " ".join([rules, *(f"-{n}" for n, k in zip(names, known, strict=True) if k)])


def refusal(locks: FastRedlock) -> str:
    """Try once; return what the error says of the masters."""
    with pytest.raises(FastRedlockError) as caught:
        locks.acquire(KEY, timeout=0)
    return str(caught.value)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    told = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    return [text for text in told if not text.startswith("quorum: lost")]


@pytest.mark.parametrize(
    ("rules", "right"),
    [
        ("+@all -eval -evalsha", "+evalsha +eval"),
        ("+@all -evalsha", "+evalsha"),
        ("+@all -@scripting", "+evalsha +eval"),
        ("+set +get +del +pexpire", "+evalsha +eval"),
        ("+set +get +del +evalsha", "+eval"),
        ("+@all -del", "+get +del"),
        ("+@all -get", "+get +del"),
    ],
)
def test_user_when_it_may_set_and_not_release_then_gets_no_lock_and_the_right_is_named(
    make_locks: MakeLocks, master: LocalMasters, server: redis.Redis,
    caplog: pytest.LogCaptureFixture, rules: str, right: str,
) -> None:  # fmt: skip
    """Seen: it locked, never released, and said nothing."""
    ann = allow(server, master, without_native_release(f"~* {rules}", server))
    locks = make_locks([ann], ttl=60)
    said = reason(locks)
    assert "may not release locks (" in said
    assert said.endswith(f"so it gets no vote: grant {right}")
    assert server.dbsize() == 0
    assert [text.endswith(f"grant {right}") for text in told(caplog)] == [True]
    allow(server, master, "~* +@all")  # no new client is needed
    assert wait_until(lambda: is_used(locks))


@pytest.mark.parametrize("right", ["zadd", "zscore", "pexpire"])
def test_user_when_it_may_not_write_numbers_then_gets_no_lock_with_fencing_alone(
    make_locks: MakeLocks, master: LocalMasters, server: redis.Redis, right: str
) -> None:
    ann = allow(server, master, f"~* +@all -{right}")
    said = reason(make_locks([ann], ttl=60, fencing=True))
    assert "may not write numbers of grants (" in said
    assert said.endswith("so it gets no vote: grant +zadd +zscore +pexpire")
    assert server.dbsize() == 0
    assert is_used(make_locks([ann]))


def test_user_without_scripts_when_the_release_is_native_then_locks_and_is_warned(
    make_locks: MakeLocks, master: LocalMasters, server: redis.Redis,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    ann = allow(server, master, "~* +@all -@scripting")
    if not any(server.execute_command("COMMAND INFO", "delifeq", "delex")):
        pytest.skip("this server has no native release")
    locks = make_locks([ann], ttl=60)
    lease = granted(locks.acquire(KEY, timeout=0))
    assert lease.extend(50) > 40
    server.client_kill_filter(skipme=True, _type="normal")
    lease.release()  # on a connection that is lost: deferred to the next
    assert wait_until(lambda: is_used(locks))
    assert server.exists(KEY) == 0
    (text,) = told(caplog)
    assert "runs no scripts (EVALSHA: NOPERM" in text
    with pytest.raises(FastRedlockError):
        make_locks([ann], fencing=True).acquire(KEY, timeout=0)


def is_used(locks: FastRedlock) -> bool:
    """Whether a lock can be taken; it is given back."""
    try:
        lease = granted(locks.acquire(KEY, timeout=1))
    except Exception:
        return False
    return lease.release() is ReleaseStatus.RELEASED


@pytest.mark.parametrize("keys", ["~orders:*", "~*", "~orders:42"])
@pytest.mark.parametrize("rules", ["+@all", LEAST, f"{LEAST} +hello +info"])
def test_user_when_it_may_release_then_no_alarm_is_false(
    make_locks: MakeLocks, master: LocalMasters, server: redis.Redis,
    caplog: pytest.LogCaptureFixture, keys: str, rules: str,
) -> None:  # fmt: skip
    ann = allow(server, master, f"{keys} {rules}")
    locks = make_locks([ann])
    lease = granted(locks.acquire(KEY, timeout=0))
    assert lease.extend(5) > 0
    assert lease.release() is ReleaseStatus.RELEASED
    assert told(caplog) == []


@pytest.mark.parametrize("rules", ["+@all -evalsha -eval", "+@all -del"])
def test_right_when_taken_away_then_the_release_waits_for_it_and_no_lock_is_taken(
    make_locks: MakeLocks, master: LocalMasters, server: redis.Redis,
    caplog: pytest.LogCaptureFixture, rules: str,
) -> None:  # fmt: skip
    ann = allow(server, master, "~* +@all")
    locks = make_locks([ann], ttl=60)
    lease = granted(locks.acquire(KEY, timeout=0))
    allow(server, master, without_native_release(f"~* {rules}", server))
    assert lease.release() is ReleaseStatus.UNKNOWN
    assert any("may not release locks" in text for text in told(caplog))
    assert "may not release locks" in reason(locks)
    assert server.get(KEY) == lease.token
    allow(server, master, "~* +@all")
    assert wait_until(lambda: is_used(locks))
    assert server.exists(KEY) == 0


def test_key_when_it_may_be_set_and_not_read_then_the_release_says_which_right(
    make_locks: MakeLocks, master: LocalMasters, server: redis.Redis,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    try:
        ann = allow(server, master, without_native_release("%W~* +@all", server))
    except redis.ResponseError:
        pytest.skip("this server is too old for such a right (Redis < 7)")
    locks = make_locks([ann], ttl=0.5)
    lease = granted(locks.acquire(KEY, timeout=0))
    assert lease.release() is ReleaseStatus.UNKNOWN
    assert any("grant its user the key (~...)" in text for text in told(caplog))


# --- what a client with max_ttl asks for besides --------------------------------------


def test_marker_when_its_keys_are_forbidden_then_is_told_and_the_uptime_counts(
    make_locks: MakeLocks, master: LocalMasters, server: redis.Redis,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    ann = allow(server, master, "~orders:* +@all")
    # The uptime of a server is real time.
    time.sleep(max(0, 1.6 - server.info("server")["uptime_in_seconds"]))
    locks = make_locks([ann], ttl=0.5, max_ttl=0.5, round_timeout=0.4)
    assert wait_until(lambda: is_used(locks))
    (text,) = told(caplog)
    assert "cannot keep the marker fastredlock:voter (" in text
    assert text.endswith("grant ~fastredlock:* +eval +get +set +pttl")


def test_info_when_forbidden_and_there_is_a_max_ttl_then_what_is_lost_is_told(
    make_locks: MakeLocks, master: LocalMasters, server: redis.Redis,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    ann = allow(server, master, "~* +@all -info")
    locks = make_locks([ann], ttl=60, max_ttl=60)
    assert "votes in 6" in reason(locks)
    (text,) = told(caplog)
    assert "does not tell its run id and uptime (INFO)" in text
    assert locks.health()[0].warnings == (text.partition(": ")[2],)


def test_server_when_twice_and_info_is_forbidden_then_its_marker_gives_it_away(
    make_locks: MakeLocks, master: LocalMasters, server: redis.Redis,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """One server under two names; its run id is not told."""
    ann = allow(server, master, "~* +@all -info")
    twice = [ann, ann.replace("127.0.0.1", "localhost")]
    locks = make_locks([*twice, "redis://127.0.0.1:1"], ttl=60, max_ttl=60)
    assert wait_until(lambda: "one server has one vote" in refusal(locks))
    assert any("has a copy of its data: grant +info" in text for text in told(caplog))
